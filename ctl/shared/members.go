package shared

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/desired"
	"github.com/rocast/rocast/ctl/groups"
)

// MarkSwitches says in etcd that the source of a group switches.
func (s *Shared) MarkSwitches(g *groups.Group) error {
	s.Groups.Lock()
	name := g.Name
	s.of(g).switches = true
	s.Groups.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), reportWithin)
	defer cancel()
	return s.putMembers(ctx, name)
}

// MembersChanged lets the state of a group's members be stored in etcd. Another box that takes the
// group over reads the state there.
func (s *Shared) MembersChanged(name string) { s.work.membersChanged(name) }

func (s *Shared) followMembers(ctx context.Context, name string) {
	if err := s.putMembers(ctx, name); err != nil {
		if errors.Is(err, desired.ErrNotRoot) {
			return // this box stores it when it has claimed the group again
		}
		s.Log.Warn("could not store the state of members for other boxes; rocastd tries again", zap.String("group", name), zap.Error(err))
		s.work.membersAgain(name)
	}
}

// putMembers stores the present state of a group's members in etcd. One state is stored at a time,
// so that none takes the place of a later one.
func (s *Shared) putMembers(ctx context.Context, name string) error {
	s.putting.Lock()
	defer s.putting.Unlock()
	s.Groups.Lock()
	g := s.Groups.Named(name)
	if g == nil || g.Branch != nil {
		s.Groups.Unlock()
		return nil // it was removed meanwhile
	}
	text, err := s.stateOf(g)
	created := g.Created
	s.Groups.Unlock()
	if err == nil {
		err = s.Desired.PutMembers(ctx, name, created, text)
	}
	return err
}

// stateOf returns the state of a group's members as etcd has it. The caller has locked the groups.
func (s *Shared) stateOf(g *groups.Group) ([]byte, error) {
	all := g.Everywhere()
	all.Switched = all.Switched || s.of(g).switches
	return all.TextFor(g.Wanted)
}

// putLast stores the last state of the members of a group that this box has let go, for the box
// that takes the group over.
func (s *Shared) putLast(ctx context.Context, g *groups.Group, state []byte) {
	s.putting.Lock()
	defer s.putting.Unlock()
	s.Groups.Lock()
	name, created := g.Name, g.Created
	s.Groups.Unlock()
	if err := s.Desired.PutMembers(ctx, name, created, state); err != nil && !errors.Is(err, desired.ErrNotRoot) {
		s.Log.Warn("could not store the last state of members for the box that takes the group over", zap.String("group", name), zap.Error(err))
	}
}
