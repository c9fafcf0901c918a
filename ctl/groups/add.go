package groups

import (
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
)

// Add stores a group and begins it. Only its name is locked while it is stored, so another
// group does not wait for the disk.
func (s *Set) Add(g *Group, text []byte) error {
	s.Lock()
	err := s.RefuseNameTaken(g.Wanted)
	if err == nil {
		err = s.reserve(g)
	}
	s.Unlock()
	if err != nil {
		return err
	}
	stored := s.keepNew(g, text)
	if stored != nil && g.Kept {
		stored = errors.Join(stored, s.Store.Delete(g.Name)) // its text may be in place
	}
	s.Lock()
	defer s.Unlock()
	s.release(g)
	if stored != nil {
		return stored
	}
	if err := s.begin(g); err != nil {
		if g.Kept {
			err = errors.Join(err, s.Store.Delete(g.Name))
		}
		return err
	}
	s.enlist(g)
	s.Events.Begin(g.Name)
	e := api.Event{Kind: api.GroupCreated, Group: g.Name}
	if b := g.Branch; b != nil {
		e.Neighbour, e.Cause = b.Upper, fmt.Sprintf("box %s asks for it; it was created on box %s", b.Upper, b.Root)
	}
	s.AddEvent(e)
	if g.Kept && s.Members != nil && g.Branch == nil {
		s.Members(g.Name)
	}
	return nil
}

// Forget ends a group and removes it from the state directory.
func (s *Set) Forget(g *Group) error {
	if g.Kept {
		if err := s.Store.Delete(g.Name); err != nil {
			return err
		}
	}
	s.delist(g)
	s.AddEvent(api.Event{Kind: api.GroupRemoved, Group: g.Name})
	s.show()
	s.Events.End(g.Name)
	if err := s.end(g); err != nil {
		// The group has left the table and will not come back. An address that could not be removed
		// is visible only in the kernel.
		s.Log.Error("could not remove all addresses of the removed group from the box",
			zap.String("group", g.Name), zap.Error(err))
		return nil
	}
	s.Log.Info("group removed", zap.String("group", g.Name))
	return nil
}

// IsIdle reports whether the group certainly never carried data.
func (s *Set) IsIdle(g *Group) bool {
	switch {
	case g.Restored || g.Past.Switched:
		return false
	case g.Published == nil:
		return true
	}
	state, ok := s.Switch.GroupState(g.ID)
	return ok && state.Sent == g.Published.Source.FirstPSN.Prev() && state.Traffic.Packets == 0
}
