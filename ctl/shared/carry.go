package shared

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/desired"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/mft"
)

// Reconcile makes this box's part of a group equal to the desired group. If the same revision was
// set up or refused before, Reconcile does nothing, unless again is set.
func (s *Shared) Reconcile(ctx context.Context, name string, again bool) {
	// A box that has nothing to do does not lock the group: the group's root may be asking this box
	// for a part of it.
	t := s.claim(ctx, name, again)
	if !t.concerned {
		return
	}
	unlock, _, err := s.Groups.Names.Lock(ctx, name, "")
	if err != nil {
		return
	}
	defer unlock()
	e, _ := s.Desired.Entry(name)
	if t.byAddress && e.Created != t.created {
		return // another group of this name now; the box hears of it, and looks anew
	}
	s.Groups.Lock()
	g := s.Groups.Named(name)
	inVain := t.byAddress && isTakenInVain(g, e, s.Box)
	s.Groups.Unlock()
	switch {
	case inVain:
		s.Log.Warn("this box has the address of a group, and hears only now that the group's source has switched before; it does not carry the group",
			zap.String("group", name))
		s.letGo(g)
		return
	case t.away && e.Wanted() && hasTurns(e, s.Box):
		if g != nil && !e.Held { // the claim is what lets it tell the other boxes why the group stands still
			_, _ = s.Desired.Claim(ctx, name, e) // the next tick tries again
		}
		s.standStill(g, true)
		s.report(ctx, name, e.Revision, nil)
		return
	case t.away && e.Wanted():
		s.yield(ctx, name, g, "the box does not have the address of a group any more, and stands by for the box that has it")
		return
	case !e.Held && !t.byAddress || !e.Wanted():
		if g != nil && g.Kept && g.Branch == nil {
			s.letGo(g)
			s.work.look(name, false) // it may be this box's to begin anew
		}
		return
	case !again && !t.byAddress && handled(e, g != nil): // meanwhile
		return
	}
	file, err := s.parseDesired(ctx, name, e)
	switch {
	case err != nil:
		s.Log.Error("a group in etcd has a file that cannot be read", zap.String("group", name), zap.Error(err))
		return
	case g != nil && g.Branch != nil: // a part of the group, for the box that was the root before
		s.letGo(g)
		g = nil
	case g != nil && file.Addressing != mft.BySwitchIP && !hasTurns(e, s.Box) && s.Carrier.IsBehind(&file.Source):
		s.yield(ctx, name, g, "the source of a group is behind another box now, which may become its root")
		return
	}
	if _, gone := s.addressState(name); gone && hasTurns(e, s.Box) {
		s.standStill(g, false)
	} else if gone {
		if state := s.letGo(g); state != nil {
			e.Members = state // which etcd may not have yet
		}
		g = nil
	}
	err = s.become(ctx, g, file, e, t.begun)
	if t.byAddress && !e.Held && (s.reportsLater(name) || !s.reportTakenOver(ctx, name, e)) {
		return
	}
	s.report(ctx, name, e.Revision, err)
}

// parseDesired parses the file of a group that etcd has under a name. Another program may have put
// it there.
func (s *Shared) parseDesired(ctx context.Context, name string, e desired.Entry) (*groupfile.File, error) {
	file, err := s.Parse(ctx, e.Text)
	if err == nil && file.Name != name {
		return nil, fmt.Errorf("the key names group %s, and its file group %s; delete the key, and create the group with rocast group create", name, file.Name)
	}
	return file, err
}

// yield ends a group and its claim, so that another box can carry it.
func (s *Shared) yield(ctx context.Context, name string, g *groups.Group, why string) {
	s.Log.Info(why, zap.String("group", name))
	if state := s.letGo(g); state != nil {
		s.putLast(ctx, g, state)
	}
	if err := s.Desired.Yield(ctx, name); err != nil {
		s.Log.Warn("could not give up the claim of a group; rocastd tries again", zap.String("group", name), zap.Error(err))
	}
}

// task says which work a box has with a desired group.
type task struct {
	concerned bool  // there is work
	begun     bool  // the group may have carried data before
	byAddress bool  // this box has the group's address, so it carries the group, even if etcd names another root
	created   int64 // of the group's entry
	away      bool  // the group's address is not on this box
}

// claim returns this box's task for a group. It claims the group if no box has claimed it and the
// group's source is attached to this box.
func (s *Shared) claim(ctx context.Context, name string, again bool) task {
	e, _ := s.Desired.Entry(name)
	v := s.Groups.Seen(name)
	part := v != nil && v.Branch != nil // of a group of another root, which sees to it
	ends := task{concerned: v != nil && !part}
	elsewhere := e.Root != "" && e.Root != s.Box
	if untold, _ := s.addressState(name); untold {
		again = true
	}
	switch {
	case v != nil && !v.Kept: // a perftest run's
		return task{}
	case !e.Wanted() || elsewhere && !again:
		return ends
	case e.Held && !again:
		return task{concerned: !handled(e, v != nil), begun: e.Begun}
	}
	file, err := s.parseDesired(ctx, name, e)
	if err != nil {
		return task{concerned: e.Held}
	}
	away, err := s.away(file)
	switch {
	case err != nil:
		s.Log.Warn("could not see whether the box has the address of a group; rocastd tries again", zap.String("group", name), zap.Error(err))
		return task{}
	case away:
		return task{concerned: ends.concerned || e.Held, away: true}
	case (v == nil || part) && !e.Held && e.Begun && chronicle.SaysSwitched(e.Members):
		return task{} // only the box that carried it last has the turns
	case file.Addressing == mft.BySwitchIP && (e.Begun || e.Root != "" || part):
		return task{concerned: true, begun: true, byAddress: true, created: e.Created}
	case elsewhere:
		return ends
	case e.Held:
		return task{concerned: true, begun: e.Begun}
	case v != nil && !part && !e.IsCarriedLastBy(s.Box):
		return ends // before it is claimed: from then on it counts as carried by this box
	case file.Addressing != mft.BySwitchIP && (v == nil || part) && !s.attached(ctx, &file.Source):
		return task{}
	}
	claimed, err := s.Desired.Claim(ctx, name, e)
	if err != nil || !claimed {
		return task{} // the next tick or event tries again
	}
	s.Log.Info("this box is the root of a group now", zap.String("group", name), zap.Bool("begun", e.Begun))
	if v != nil {
		s.MembersChanged(name) // what happened while it was not the root
	}
	return task{concerned: true, begun: e.Begun}
}

// hasTurns reports whether this box alone can carry a group, because the source has switched and
// only this box has the turns.
func hasTurns(e desired.Entry, box string) bool {
	return e.Wanted() && chronicle.SaysSwitched(e.Members) && e.IsCarriedLastBy(box)
}

// isTakenInVain reports whether this box has begun a group with its address, or is about to, and
// did not know that the group's source had switched: only the box that carried it last has the
// turns. The caller has locked the groups.
func isTakenInVain(g *groups.Group, e desired.Entry, box string) bool {
	return (g == nil || !g.Past.Switched) && chronicle.SaysSwitched(e.Members) && !e.IsCarriedLastBy(box)
}

// letGo ends a group that is not wanted any more, or that another box has claimed. It returns what
// had become of its members; nil: it has not ended, or that is not known.
func (s *Shared) letGo(g *groups.Group) (state []byte) {
	if g == nil {
		return nil
	}
	s.Groups.Lock()
	if g.Published != nil {
		s.Groups.Observe(g) // the last time
		state, _ = s.stateOf(g)
	}
	err := s.Groups.Forget(g)
	s.Groups.Unlock()
	if err != nil {
		s.Log.Error("could not remove a group that is not desired any more; rocastd tries again", zap.String("group", g.Name), zap.Error(err))
		return nil
	}
	s.Carrier.Withdraw(g.Name, g.Links)
	return state
}

// attached reports whether a group's source reaches the fabric by this box: the way to it does not
// lead through a neighbour.
func (s *Shared) attached(ctx context.Context, source *groupfile.Member) bool {
	defer s.Resolve(ctx, []groupfile.Member{*source})()
	return s.Groups.NextHops.Hop(source.IP).Known() && !s.Carrier.IsBehind(source)
}

// become sets up a group that this box has claimed, or changes it. begun reports whether it may
// have carried data before, so that its QPs have advanced.
func (s *Shared) become(ctx context.Context, g *groups.Group, file *groupfile.File, e desired.Entry, begun bool) error {
	settling := ctx
	if file.Addressing == mft.BySwitchIP && begun { // data may be on its way: a host that is down must not delay the others
		var cancel func()
		settling, cancel = context.WithTimeout(ctx, takeOverWaits)
		defer cancel()
	}
	defer s.Resolve(settling, file.Members())()
	if g != nil {
		s.Groups.Lock()
		if g.Created != e.Created {
			s.MembersChanged(g.Name) // PutMembers may have refused what was stored for the other one
		}
		g.Claim, g.Created = e.Claim, e.Created
		s.Groups.Unlock()
	}
	if g == nil {
		g = groups.New(file, true)
		g.Claim, g.Created = e.Claim, e.Created
		if g.Restored = begun; begun {
			past, err := chronicle.Read(e.Members, file, false)
			if err == nil && past.Switched {
				err = errors.New(switchedElsewhere(e))
			}
			if err != nil {
				return err
			}
			g.Past = past
		}
		return s.Carrier.Stand(ctx, g, e.Text)
	}
	text, err := s.Groups.Store.Get(g.Name)
	if err != nil || bytes.Equal(text, e.Text) {
		return err
	}
	return s.catchUp(ctx, g, file, e.Text)
}

// catchUp makes a running group that of a desired file. This box may have missed versions in
// between, of which each was one change.
func (s *Shared) catchUp(ctx context.Context, g *groups.Group, file *groupfile.File, text []byte) error {
	steps := []*groupfile.File{file}
	if g.Wanted != nil {
		steps = file.Steps(g.Wanted)
	}
	for _, step := range steps {
		s.Groups.Lock()
		err := s.MayBecome(g, g.Name, step)
		s.Groups.Unlock()
		if err != nil {
			return err
		}
		kept := text
		if step != file {
			kept = step.Text()
		}
		if err := s.Carrier.Change(ctx, g, step, kept, nil, nil); err != nil {
			return err
		}
	}
	return nil
}
