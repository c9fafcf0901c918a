package ctl

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/chronicle"
)

// rethink plans a group's tree again after routes have changed. Members stay where they are as long
// as their neighbour is among their next hops.
func (c *Controller) rethink(ctx context.Context, g *group) {
	c.mu.Lock()
	was := g.treeProblem
	c.mu.Unlock()
	err := c.move(ctx, g)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		if was != "" {
			c.restored(g, "its members are where their routes lead again")
		}
		return
	}
	err = tellable(err)
	if g.treeProblem != err.Error() {
		c.events.Add(api.Event{Kind: api.GroupDegraded, Group: g.name, Cause: "it cannot follow its routes: " + err.Error()})
		c.Log.Warn("routes have changed, and the group could not follow them; rocastd tries again",
			zap.String("group", g.name), zap.Error(err))
	}
	g.treeProblem, c.moved[g] = err.Error(), struct{}{}
}

// move gives members to other boxes, if their routes say so. A path that moves is treated as after
// a restart: nobody knows what the new box's receivers have.
func (c *Controller) move(ctx context.Context, g *group) error {
	p, err := c.prepare(g, g.wanted, g.branch)
	if err != nil {
		return err
	}
	if !p.moved {
		c.mu.Lock()
		g.treeProblem = ""
		c.mu.Unlock()
		return nil
	}
	joined, err := c.askAll(ctx, c.errandOf(&p.next, g.wanted), p.joining)
	if err != nil {
		c.takeBack(g, p)
		return err
	}
	p.join(joined)
	c.mu.Lock()
	p.next.setLinks(p.links)
	p.next.treeProblem = ""
	err = c.republish(g, &p.next)
	c.mu.Unlock()
	if err != nil {
		c.takeBack(g, p)
		return err
	}
	c.events.Add(api.Event{Kind: api.RouteChanged, Group: g.name, Cause: "some of its members are behind another neighbour now"})
	c.Log.Info("members are behind another neighbour now", zap.String("group", g.name), zap.Int("neighbours", len(g.links)))
	c.leave(ctx, g, p)
	return nil
}

// join takes over what the boxes have answered.
func (p *preparation) join(joined []*link) {
	for _, l := range joined {
		into := linkTo(p.links, l.Box)
		into.Remote, into.absent, into.problem, into.asked, into.Version, into.Begun = l.Remote, l.absent, l.problem, l.asked, l.Version, true
	}
}

// republish publishes the next version of a group as after a restart of the daemon: the data path
// forgets what the members have acknowledged, and learns it from their answers.
func (c *Controller) republish(g, next *group) error {
	text, err := g.past.Text()
	if err != nil {
		return err
	}
	past, err := chronicle.Read(text, next.file, false)
	if err != nil {
		return err
	}
	if past.Switched {
		return errSwitched
	}
	was := *g
	next.past, next.restored, next.published, next.held = past, !c.isIdle(g), nil, nil
	if err := c.end(g); err != nil {
		c.Log.Error("could not remove all addresses of a group that is published again", zap.String("group", g.name), zap.Error(err))
	}
	*g = *next
	if err := c.begin(g); err != nil {
		*g = was
		g.published, g.held, g.restored = nil, nil, next.restored
		if again := c.begin(g); again != nil {
			g.problem = willBeRetried(again).Error()
			c.trackFailed(g)
		}
		return err
	}
	if err := errors.Join(c.saveTree(g), c.saveChronicle(g)); err != nil {
		c.Log.Error("could not store the links of a group; a crash would lose them", zap.String("group", g.name), zap.Error(err))
	}
	return nil
}
