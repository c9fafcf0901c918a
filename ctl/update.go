package ctl

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/plan"
	"github.com/rocast/rocast/ctl/yamldoc"
)

// Update changes the receivers of a running group to those of the file. A new receiver takes part
// from the next message on. The group no longer waits for a removed receiver. If Update returns an
// error, which is an *api.Error, nothing has changed.
func (c *Controller) Update(ctx context.Context, name string, text []byte) (api.Group, error) {
	file, err := c.parse(ctx, text)
	if err != nil {
		return api.Group{}, apiError(err)
	}
	if file.Name != name {
		return api.Group{}, apiError(yamldoc.Errorf(file.Lines["name"],
			"name is %s, and group %s was to be updated; write that name, or update group %s",
			file.Name, name, file.Name))
	}
	defer c.settle(ctx, file)()
	if ctx.Err() != nil {
		return api.Group{}, givenUp(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.groups[name]
	if err := c.mayBecome(g, name, file); err != nil {
		return api.Group{}, apiError(err)
	}
	if err := c.regroup(g, file, text); err != nil {
		return api.Group{}, apiError(err)
	}
	return c.view(g), nil
}

// mayBecome refuses changes that an update cannot make.
func (c *Controller) mayBecome(g *group, name string, file *groupfile.File) error {
	switch {
	case g == nil:
		return noGroup(name)
	case !g.kept:
		return api.Errorf(api.BadRequest,
			"group %s belongs to a perftest run, which ends it; only groups that were created can be updated", name)
	case g.published == nil:
		return api.Errorf(api.BadRequest, "group %s does not run (%s); remove it and create it again", name, g.problem)
	}
	if err := file.CheckUpdate(g.file); err != nil {
		return err
	}
	if at := g.file.Receiver(g.source); at >= 0 && file.Receiver(g.source) < 0 {
		return yamldoc.Errorf(file.Lines["members"],
			"members lacks %v, which is the source now; let another member send first, or leave it in", g.source.IP)
	}
	if err := c.index.refuseSharedQP(file, g); err != nil {
		return err
	}
	p := c.plan(file)
	return c.refuseMembers(file, func(yield func(*plan.Leg) bool) {
		for l := range p.Members() {
			isNew := l.Member.Role != groupfile.Source && g.file.Receiver(l.Member.ID()) < 0
			if isNew && !yield(l) {
				return
			}
		}
	})
}

// regroup stores the new version and then publishes it.
func (c *Controller) regroup(g *group, file *groupfile.File, text []byte) error {
	oldText, err := c.Store.Get(g.name)
	if err != nil {
		return err
	}
	next := *g
	next.file, next.past, next.plan = file, g.past.Next(g.file, file), c.plan(file)
	if err := c.keepNext(g, next.past, text); err != nil {
		return errors.Join(err, c.Store.Put(g.name, oldText), c.saveChronicle(g))
	}
	next.published = next.build(&next.plan)
	if err := c.Switch.Replace(g.id, next.published); err != nil {
		return errors.Join(aboutFile(file, err), c.Store.Put(g.name, oldText), c.saveChronicle(g))
	}
	before := len(g.file.Members())
	c.untrack(g)
	*g = next
	c.track(g)
	if err := c.saveChronicle(g); err != nil {
		c.Log.Error("could not remove receivers that have left from the stored state; this is harmless",
			zap.String("group", g.name), zap.Error(err))
	}
	c.Log.Info("group updated", zap.String("group", g.name), zap.Int("members", len(file.Members())), zap.Int("before", before),
		zap.Int("waiting", g.waiting()))
	c.ownLogged(g)
	return nil
}

// keepNext stores the text of a group's next version. It writes the state first, with the members
// of both versions: a crash may leave either text, and state about a member that is not in the text
// is ignored.
func (c *Controller) keepNext(g *group, next chronicle.Chronicle, text []byte) error {
	both := *g
	both.past = g.past.With(next)
	if err := c.saveChronicle(&both); err != nil {
		return err
	}
	return c.Store.Put(g.name, text)
}
