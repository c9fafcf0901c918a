package ctl

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/plan"
	"github.com/rocast/rocast/ctl/ports"
	"github.com/rocast/rocast/dataplane"
)

// lookAgainEvery is the period for checking the ports when no link changes. The kernel sends no
// notification when the number of queues changes, or when a counter that the data path warns about
// changes.
const lookAgainEvery = time.Second

// followPorts opens and closes ports when their interfaces appear and disappear, until ctx is done.
func (c *Controller) followPorts(ctx context.Context) error {
	ticker := time.NewTicker(lookAgainEvery)
	defer ticker.Stop()
	for {
		if c.FollowBonds != nil {
			c.FollowBonds()
		}
		c.refreshPorts()
		select {
		case <-ctx.Done():
			return nil
		case <-c.NextHops.Links():
		case <-ticker.C:
		}
	}
}

// refreshPorts updates the ports, and plans a group again if the next hop of a member has changed.
func (c *Controller) refreshPorts() {
	c.refreshing.Lock()
	defer c.refreshing.Unlock()
	c.refresh()
}

// refresh is refreshPorts for a caller that holds c.refreshing.
func (c *Controller) refresh() {
	list, warnings := c.Switch.Refresh() // may take long, so the groups are not locked
	for _, w := range warnings {
		c.logWarning(w)
	}
	c.groups.Lock()
	defer c.groups.Unlock()
	was := c.groups.Ports()
	c.groups.SetPorts(ports.New(list))
	if c.groups.Ports().Equal(was) {
		return
	}
	c.groups.Ports().LogChanges(c.Log, was)
	c.portEvents(was)
	// Update the next hops under the same lock as c.ports(): a hop must never name a port that is
	// not open.
	changed := c.NextHops.SetPorts(c.groups.Ports().Open())
	c.replanFor(append(changed, c.reachedThrough(c.groups.Ports().Renumbered(was))...))
}

// reachedThrough returns the members that are reached through these interfaces. The caller has
// locked the groups.
func (c *Controller) reachedThrough(ifIndexes []int) (addrs []netip.Addr) {
	if len(ifIndexes) == 0 {
		return nil
	}
	for _, g := range c.groups.All() {
		for l := range g.Plan.Members() {
			if slices.ContainsFunc(ifIndexes, func(i int) bool { return l.Hop.Port == i || l.Hop.Uplinks.Has(i) }) {
				addrs = append(addrs, l.Member.IP)
			}
		}
	}
	return addrs
}

func (c *Controller) logWarning(w dataplane.Warning) {
	var fields []zap.Field
	if w.Port != "" {
		fields = append(fields, zap.String("port", w.Port))
	}
	if w.Detail != "" {
		fields = append(fields, zap.String("detail", w.Detail))
	}
	c.Log.Warn(w.Text, fields...)
}

// hopsChanged plans a group again if it has a member at one of the addresses.
func (c *Controller) hopsChanged(addrs []netip.Addr) {
	c.groups.Lock()
	defer c.groups.Unlock()
	c.replanFor(addrs)
}

func (c *Controller) replanFor(addrs []netip.Addr) {
	for g := range c.groups.ReachedBy(addrs) {
		if g.Published != nil {
			c.replan(g)
		} else {
			c.groups.Retry(g)
		}
	}
}

func (c *Controller) replan(g *groups.Group) {
	if c.hasMoved(g) {
		c.moved[g] = struct{}{}
	}
	was := g.Plan
	if err := c.groups.Replan(g, c.groups.Plan(g.File)); err != nil {
		c.Log.Error("could not publish new next hops; the group keeps its old ones",
			zap.String("group", g.Name), zap.Error(err))
		return
	}
	c.logLegs(g, &was)
	c.groups.HoldAddresses(g)
}

// logLegs logs the changes of the paths to a group's members.
func (c *Controller) logLegs(g *groups.Group, was *plan.Plan) {
	before := map[*groupfile.Member]*plan.Leg{}
	for l := range was.Members() {
		before[l.Member] = l
	}
	for l := range g.Plan.Members() {
		member := []zap.Field{zap.String("group", g.Name), zap.Stringer("member", l.Dst)}
		switch b := before[l.Member]; {
		case !l.Lost() && (b.Leg != l.Leg || b.Lost()):
			c.Log.Info("member reachable", append(member, zap.String("port", l.Hop.PortName))...)
			kind := api.RouteChanged
			if b.Lost() {
				kind = api.MemberReachable
			}
			c.groups.MemberEvent(kind, g, l.Member.ID(), "it is reached through %s", l.Hop.PortName)
		case l.Waits() && b.Reason != l.Reason, l.Hop.Silent && !b.Lost():
			c.Log.Warn("member unreachable; its frames flow again when the reason is gone",
				append(member, zap.String("reason", l.Reason))...)
			c.groups.MemberEvent(api.MemberUnreachable, g, l.Member.ID(), "%s", l.Reason)
		}
	}
}
