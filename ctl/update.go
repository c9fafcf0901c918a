package ctl

import (
	"context"
	"errors"
	"slices"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/plan"
	"github.com/rocast/rocast/ctl/yamldoc"
)

// Update changes the receivers or the memory of a running group to those of the file. A new
// receiver takes part from the next message on. The group no longer waits for a removed receiver.
// If Update returns an error, which is an *api.Error, nothing has changed.
func (c *Controller) Update(ctx context.Context, name string, text []byte) (api.Group, error) {
	return c.update(ctx, name, text, nil)
}

// update makes text the file of a running group. from is the version that was changed; nil: any.
func (c *Controller) update(ctx context.Context, name string, text []byte, from *basis) (api.Group, error) {
	file, err := c.parse(ctx, text)
	if err != nil {
		return api.Group{}, apiError(err)
	}
	if file.Name != name {
		return api.Group{}, apiError(yamldoc.Errorf(file.Lines["name"],
			"name is %s, and group %s was to be updated; write that name, or update group %s",
			file.Name, name, file.Name))
	}
	if c.Desired != nil && !c.isHelpers(name) {
		return c.updateShared(ctx, file, text, from)
	}
	defer c.settle(ctx, file.Members())()
	unlock, _, err := c.names.lock(ctx, name, "")
	if err != nil {
		return api.Group{}, err
	}
	defer unlock()
	if ctx.Err() != nil {
		return api.Group{}, givenUp(ctx)
	}
	c.book.Lock()
	g := c.named(name)
	if g != nil && !g.Kept && from == nil {
		err = api.Errorf(api.BadRequest, "group %s belongs to a perftest run or an RDMA-CM connection, which ends it; only groups that were "+
			"created can be updated, and only regions of memory can come to this one (rocast region)", name)
	} else if err = c.mayBecome(g, name, file); err == nil {
		err = from.isStill(name, g.Wanted)
	}
	c.book.Unlock()
	if err != nil {
		return api.Group{}, apiError(err)
	}
	if err := c.change(ctx, g, file, text, nil, nil); err != nil {
		return api.Group{}, apiError(err)
	}
	return c.view(g.seenNow()), nil
}

// mayBecome refuses changes that an update cannot make.
func (c *Controller) mayBecome(g *group, name string, file *groupfile.File) error {
	switch {
	case g == nil:
		return noGroup(name)
	case g.Branch != nil:
		return belongsTo(&g.Version)
	case g.Published == nil:
		return api.Errorf(api.BadRequest, "group %s does not run (%s); remove it and create it again", name, g.Problem)
	}
	if err := errors.Join(file.CheckUpdate(g.Wanted), file.CheckOneChange(g.Wanted), g.refuseUnplaced(file)); err != nil {
		return err
	}
	if err := g.refuseToLose(file); err != nil {
		return err
	}
	if err := c.refuseTaken(file, nil, g); err != nil {
		return err
	}
	p := c.plan(file)
	fresh := func(yield func(*plan.Leg) bool) {
		for l := range p.Members() {
			isNew := l.Member.Role != groupfile.Source && g.Wanted.Receiver(l.Member.ID()) < 0
			if isNew && !yield(l) {
				return
			}
		}
	}
	return c.refuseMembers(file, fresh)
}

// refuseToLose refuses a file without the present source.
func (g *group) refuseToLose(file *groupfile.File) error {
	if g.Branch == nil && g.Wanted.Receiver(g.Source) >= 0 && file.Receiver(g.Source) < 0 {
		return yamldoc.Errorf(file.Lines["members"],
			"members lacks %v, which is the source now; let another member send first, or leave it in", g.Source.IP)
	}
	return nil
}

// regroup stores the next version of a group and then publishes it. came are receivers that do not
// join, although they are new here.
func (s *book) regroup(g, next *group, text []byte, came map[groupfile.ID]groups.Place) error {
	if err := g.refuseToLose(next.Wanted); err != nil { // it may have become the source meanwhile
		return err
	}
	if err := s.refuseTaken(next.Wanted, next.File, g); err != nil { // another group may have come meanwhile
		return err
	}
	putBack, err := s.putBack(g)
	if err != nil {
		return err
	}
	next.Past, next.Plan = g.Past.Next(g.File, next.File), s.plan(next.File)
	if next.Table != nil {
		next.Table = next.Table.Only(next.File.ReceiverIDs())
	}
	for id, at := range came {
		if next.File.Receiver(id) >= 0 {
			at.Enter(&next.Past, id)
		}
	}
	if err := s.keepNext(g, next, text); err != nil {
		return errors.Join(err, putBack())
	}
	built, err := s.build(next, &next.Plan)
	if err == nil {
		err = s.Switch.Replace(g.ID, built)
	}
	if err != nil {
		return errors.Join(aboutFile(next.Wanted, err), putBack())
	}
	next.Published = built
	before := len(g.Wanted.Members())
	s.updateEvents(g, next.Wanted)
	s.untrack(g)
	*g = *next
	s.track(g)
	s.changed(g)
	s.show()
	if err := errors.Join(s.saveChronicle(g), s.saveTree(g)); err != nil {
		s.Log.Error("could not remove receivers that have left from the stored state; a restart ignores them, and rocastd tries again",
			zap.String("group", g.Name), zap.Error(err))
	}
	s.Log.Info("group updated", zap.String("group", g.Name), zap.Int("members", len(g.Wanted.Members())), zap.Int("before", before),
		zap.Int("waiting", g.Waiting()))
	s.ownLogged(g)
	return nil
}

// putBack returns what stores the present version of a group again.
func (s *book) putBack(g *group) (func() error, error) {
	if !g.Kept {
		return func() error { return nil }, nil
	}
	text, err := s.Store.Get(g.Name)
	return func() error { return errors.Join(s.putText(g.Name, text), s.saveChronicle(g), s.saveTree(g)) }, err
}

// keepNext stores a group's next version. It writes the state first, with the members of both
// versions: a crash may leave either text, and state about a member that is not in the text is
// ignored. A nil text is that of g.
func (s *book) keepNext(g, next *group, text []byte) error {
	if !g.Kept {
		return nil
	}
	both := *next
	both.Past = g.Past.With(next.Past)
	both.Links = linksOfBoth(g.Links, next.Links, next.Wanted)
	if err := errors.Join(s.saveChronicle(&both), s.saveTree(&both)); err != nil || text == nil {
		return err
	}
	return s.putText(g.Name, text)
}

// linksOfBoth returns the links of next, and with them the members that was has and the next file
// lacks. A member of that file that has no link there has come to this box.
func linksOfBoth(was, next []*groups.Link, file *groupfile.File) (both []*groups.Link) {
	for _, l := range next {
		copied := *l
		both = append(both, &copied)
	}
	for _, l := range was {
		to := groups.LinkTo(both, l.Box)
		if to == nil {
			copied := *l
			copied.Members = nil
			to = &copied
			both = append(both, to)
		}
		for _, id := range l.Members {
			if file.Receiver(id) < 0 && groups.LinkOf(both, id) == nil {
				to.Members = append(slices.Clone(to.Members), id)
			}
		}
	}
	return both
}
