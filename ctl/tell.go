package ctl

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groups"
)

// A box that fails a group tells its neighbours in the group's tree at once: with the next renewal
// they would hear of it only later, and a box below would never be asked again.

// tellFailure tells the boxes below and above that this box does not carry a group at present.
func (c *Controller) tellFailure(ctx context.Context, g *groups.Group) {
	c.groups.Lock()
	delete(c.failing, g)
	if g.Problem == "" || g.Wanted == nil {
		c.groups.Unlock()
		return
	}
	e, upper := c.errandOf(g, g.Wanted), ""
	var links []*groups.Link
	for _, l := range g.Links {
		copied := *l
		links = append(links, &copied)
	}
	if g.Branch != nil {
		upper = g.Branch.Upper
	}
	c.groups.Unlock()
	_, err := c.askAll(ctx, e, links)
	if upper != "" {
		err = errors.Join(err, c.Boxes.TellUpper(ctx, upper, g.Name))
	}
	if err != nil {
		c.Log.Debug("could not tell a neighbour that a group has failed; rocastd tries again", zap.String("group", g.Name), zap.Error(tellable(err)))
		c.groups.Lock()
		defer c.groups.Unlock()
		c.failing[g] = struct{}{}
	}
}

// BranchChanged hears from a box below that its part of a group has changed.
func (c *Controller) BranchChanged(lower, name string) error {
	c.groups.Lock()
	defer c.groups.Unlock()
	if g := c.groups.Named(name); g != nil {
		if l := groups.LinkTo(g.Links, lower); l != nil {
			l.Asked = l.Asked.Add(-c.lease()) // it is due
			c.groups.Changed(g)
			return nil
		}
	}
	return api.Errorf(api.NotFound, "box %s does not ask box %s for a part of group %s", c.Box, lower, name)
}

// hearAbove takes what the box above says of itself, and lets the boxes below hear it. The caller
// has locked the groups.
func (c *Controller) hearAbove(g *groups.Group, problem string) {
	b := g.Branch
	if b.Above == problem {
		return
	}
	if problem != "" {
		c.groups.Tell(api.Event{Kind: api.NeighbourDown, Group: g.Name, Neighbour: b.Upper, Cause: problem})
	} else {
		c.groups.Tell(api.Event{Kind: api.NeighbourUp, Group: g.Name, Neighbour: b.Upper, Cause: "it carries the group again"})
	}
	b.Above = problem
	c.groups.Changed(g)
	for _, l := range g.Links {
		l.Asked = l.Asked.Add(-c.lease())
	}
}
