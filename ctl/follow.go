package ctl

import (
	"net/netip"

	"go.uber.org/zap"
)

// hopsChanged plans the groups anew whose members are reached differently now.
func (c *Controller) hopsChanged(addrs []netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replanFor(addrs)
}

func (c *Controller) replanFor(addrs []netip.Addr) {
	concerned := map[*group]struct{}{}
	for _, addr := range addrs {
		for g := range c.users[addr] {
			concerned[g] = struct{}{}
		}
	}
	for g := range concerned {
		c.replan(g)
	}
}

func (c *Controller) replan(g *group) {
	if g.published == nil {
		c.retry(g)
		return
	}
	was := g.plan
	if err := c.replace(g, c.planner().plan(g.file)); err != nil {
		c.Log.Error("group goes on with its old next hops", zap.String("group", g.name), zap.Error(err))
		return
	}
	c.logLegs(g, was, g.plan)
	if err := c.own(g); err != nil {
		c.Log.Error("group's IP is not owned everywhere", zap.String("group", g.name), zap.Error(err))
	}
}

// retry sets a group up that failed before.
func (c *Controller) retry(g *group) {
	c.untrack(g)
	if err := c.resume(g); err != nil {
		g.problem = willBeRetried(err).Error()
		c.track(g)
		return
	}
	g.problem = ""
	c.keepChronicle(g)
	c.Log.Info("group restored at last", zap.String("group", g.name))
}
