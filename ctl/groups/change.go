package groups

import (
	"errors"
	"slices"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/feedback"
)

// Regroup stores the next version of a group and then publishes it. came has the receivers that are
// new here and do not join.
func (s *Set) Regroup(g, next *Group, text []byte, came map[groupfile.ID]Membership) error {
	if g.Published == nil { // it has failed meanwhile, and its ID may be another group's
		return g.NotRunning()
	}
	if err := g.RefuseToLose(next.Wanted); err != nil { // it may have become the source meanwhile
		return err
	}
	if err := s.RefuseTaken(next.Wanted, next.File, g); err != nil { // another group may have come meanwhile
		return err
	}
	if err := refuseEmpty(s, g, next.File); err != nil {
		return err
	}
	putBack, err := s.putBack(g)
	if err != nil {
		return err
	}
	next.Past, next.Plan = g.Past.Next(g.File, next.File), s.Plan(next.File)
	if next.Table != nil {
		next.Table = next.Table.Only(next.File.ReceiverIDs())
	}
	for id, at := range came {
		if next.File.Receiver(id) >= 0 {
			at.Enter(&next.Past, id)
		}
	}
	if next.Plan.HasNobody(&next.Past, g.Published) {
		return s.goOnWithNobody(g, next, text, came)
	}
	if err := s.keepNext(g, next, text); err != nil {
		return errors.Join(err, putBack())
	}
	built, err := s.build(next, &next.Plan)
	if err = replace(s, g, built, err, g.Sharing); err != nil {
		return errors.Join(aboutFile(next.Wanted, err), putBack())
	}
	next.Published = built
	before := len(g.Wanted.Members())
	s.updateEvents(g, next.Wanted)
	s.untrack(g)
	*g = *next
	s.track(g)
	s.Changed(g)
	s.show()
	if err := errors.Join(s.SaveChronicle(g), s.SaveTree(g)); err != nil {
		s.Log.Error("could not remove receivers that have left from the stored state; a restart ignores them, and rocastd tries again",
			zap.String("group", g.Name), zap.Error(err))
	}
	s.Log.Info("group updated", zap.String("group", g.Name), zap.Int("members", len(g.Wanted.Members())), zap.Int("before", before),
		zap.Int("waiting", g.Waiting()))
	s.HoldAddresses(g)
	return nil
}

// refuseEmpty refuses that the last receivers of a branch leave inside a message while others
// are about to join. Nobody here could acknowledge the rest of the message. So the box above
// would go on without this box, and those that join would be out for ever. They join with the
// next message, and the box above asks again until then. Between messages those that join are
// enough.
//
// It does so only with evict. A receiver that has left may not answer any more, because its program
// has ended or its routes lead to another box. With evict this box then goes on without it. With
// on-fatal: evict alone the whole group would wait for it.
//
// At the box of the source, and where no box goes on without another one, the source hears that its
// queue pair ends.
func refuseEmpty(s *Set, g *Group, next *groupfile.File) error {
	state, ok := s.Switch.GroupState(g.ID)
	if g.Branch == nil || !g.File.Policy.Evict || !ok || state.Between {
		return nil
	}
	var last, joins *groupfile.Member
	for _, m := range slices.Concat(g.File.Receivers, next.Receivers) {
		at, part := g.Published.FindPath(m.IP, m.RemoteQPN), feedback.PartJoining
		if at >= 0 && at < len(state.Paths) {
			part = state.Paths[at].Part
		}
		stays, has := next.Receiver(m.ID()) >= 0, part == feedback.PartActive || part == feedback.PartUnknown
		switch {
		case stays && has:
			return nil
		case has:
			last = &m
		case stays && part.IsToCome() && g.Past.Ended(m.ID()) == nil:
			joins = &m
		}
	}
	if last == nil || joins == nil {
		return nil
	}
	return api.Errorf(api.BadRequest, "%s stays until %s has joined, which is with the source's next message, or, if its program has to confirm, with the "+
		"next one after that: nobody else here could acknowledge the message before, and this box would be left out; "+
		"if %s does not answer, update the group without both", g.NameOf(last), g.NameOf(joins), g.NameOf(last))
}

// goOnWithNobody is Regroup for a change after which all receivers of the group are out. To the
// data path their paths would be new ones, and a new path of a running group joins. So the group
// begins again.
func (s *Set) goOnWithNobody(g, next *Group, text []byte, came map[groupfile.ID]Membership) error {
	was := *g
	err := s.Republish(g, next, text, func(past *chronicle.Chronicle) {
		for id, at := range came {
			at.Enter(past, id)
		}
	})
	if err == nil {
		s.updateEvents(&was, g.Wanted)
	}
	return err
}

// Republish publishes the next version of a group as after a restart of the daemon: the data path
// forgets what the members have acknowledged, and learns it from their answers. The next version is
// stored before it is published. text is its file; nil: the stored file stays. amend, unless it is
// nil, changes what the chronicle says of members.
func (s *Set) Republish(g, next *Group, text []byte, amend func(*chronicle.Chronicle)) error {
	if err := s.RefuseTaken(next.Wanted, next.File, g); err != nil {
		return err
	}
	putBack, err := s.putBack(g)
	if err != nil {
		return err
	}
	s.Observe(g)                                       // before the data path forgets the members
	for stored := false; !stored; stored = !g.unkept { // receivers may join or leave while it is stored
		if err := g.anew(next, amend); err != nil {
			return err
		}
		next.Restored = text != nil || !s.IsIdle(g)
		if err := s.keepNext(g, next, text); err != nil {
			return errors.Join(err, putBack())
		}
		g.unkept = false
		s.Observe(g)
	}
	was := *g
	next.Published = nil
	// The group keeps its addresses until the next version says which it needs. So there is no
	// wait, in which readers would see neither version.
	if was.Published == nil {
		// the data path does not have it
	} else if err := s.Switch.Remove(g.ID); err != nil {
		s.Log.Error("could not remove all of a group that is published again from the data path", zap.String("group", g.Name), zap.Error(err))
	}
	s.untrack(g)
	*g = *next
	s.Changed(g)
	if err := s.begin(g); err != nil {
		was.held = g.held
		err = errors.Join(err, was.anew(&was, nil)) // the version before begins anew, too
		*g = was
		g.Published, g.Restored = nil, next.Restored
		err = errors.Join(err, putBack())
		s.Changed(g)
		if again := s.begin(g); again != nil {
			s.Changed(g)
			g.Problem = willBeRetried(g, again).Error()
			s.trackFailed(g)
		}
		return err
	}
	if err := errors.Join(s.SaveTree(g), s.SaveChronicle(g)); err != nil {
		s.Log.Error("could not remove links that have gone from the stored state; a restart ignores them", zap.String("group", g.Name), zap.Error(err))
	}
	return nil
}

// anew gives next the chronicle of the group as a restart would read it. amend, unless it is nil,
// changes the chronicle first.
func (g *Group) anew(next *Group, amend func(*chronicle.Chronicle)) error {
	past := g.Past.Next(g.File, g.File) // a copy
	if amend != nil {
		amend(&past)
	}
	text, err := past.Text()
	if err != nil {
		return err
	}
	if next.Past, err = chronicle.Read(text, next.File, false); err != nil {
		return err
	}
	if next.Past.Switched {
		return errStays
	}
	return nil
}

// NotRunning refuses to change a group that is not published.
func (g *Group) NotRunning() error {
	return api.Errorf(api.BadRequest, "group %s does not run (%s); remove it and create it again", g.Name, g.Problem)
}

// RefuseToLose refuses a file without the present source.
func (g *Group) RefuseToLose(file *groupfile.File) error {
	if g.Branch == nil && g.Wanted.Receiver(g.Source) >= 0 && file.Receiver(g.Source) < 0 {
		return yamldoc.Errorf(file.Lines["members"],
			"members lacks %v, which is the source now; let another member send first, or leave it in", g.Source.IP)
	}
	return nil
}

// errStays refuses to move members of a group whose source has switched: since when each takes part
// is in PSNs of the first source (membership.go).
var errStays = errors.New("its source has switched, so its members stay where they are; restore the routes, or remove the group " +
	"and create it again with fresh QPs and PSNs")
