package ctl

import (
	"context"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/plan"
	"github.com/rocast/rocast/ctl/ports"
)

// lookAgainEvery is how often the ports are looked at when no link changes: a number of queues changes without a word, and
// so do the counts the data path warns about.
const lookAgainEvery = time.Second

// followPorts opens and closes ports as their interfaces come and go, until ctx is done.
func (c *Controller) followPorts(ctx context.Context) error {
	ticker := time.NewTicker(lookAgainEvery)
	defer ticker.Stop()
	for {
		c.refreshPorts()
		select {
		case <-ctx.Done():
			return nil
		case <-c.NextHops.Links():
		case <-ticker.C:
		}
	}
}

// refreshPorts looks at the ports, and plans the groups anew whose members are reached differently by what is found.
func (c *Controller) refreshPorts() {
	list, warnings := c.Switch.Refresh() // may take a while: nothing is locked
	for _, sentence := range warnings {
		c.Log.Warn("data path", zap.String("warning", sentence))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.ports
	c.ports = ports.New(list)
	if c.ports.Equal(was) {
		return
	}
	c.ports.LogChanges(c.Log, was)
	// In one go with c.ports: a hop never names a port that is not there.
	c.replanFor(c.NextHops.SetPorts(c.ports.Open()))
}

// hopsChanged plans the groups anew whose members are reached differently now.
func (c *Controller) hopsChanged(addrs []netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replanFor(addrs)
}

func (c *Controller) replanFor(addrs []netip.Addr) {
	for g := range c.index.reachedBy(addrs) {
		if g.published != nil {
			c.replan(g)
		} else {
			c.retry(g)
		}
	}
}

func (c *Controller) replan(g *group) {
	was := g.plan
	if err := c.replace(g, c.plan(g.file)); err != nil {
		c.Log.Error("group goes on with its old next hops", zap.String("group", g.name), zap.Error(err))
		return
	}
	c.logLegs(g, &was)
	c.ownLogged(g)
}

// logLegs logs how the ways to a group's members changed.
func (c *Controller) logLegs(g *group, was *plan.Plan) {
	before := map[*groupfile.Member]*plan.Leg{}
	for l := range was.Members() {
		before[l.Member] = l
	}
	for l := range g.plan.Members() {
		who := []zap.Field{zap.String("group", g.name), zap.Stringer("member", l.Dst)}
		switch b := before[l.Member]; {
		case !l.Waits() && (b.Leg != l.Leg || b.Waits()):
			c.Log.Info("member reachable", append(who, zap.String("port", l.Hop.PortName))...)
		case l.Waits() && b.Reason != l.Reason:
			c.Log.Warn("member unreachable; its frames flow again when that changes", append(who, zap.String("reason", l.Reason))...)
		}
	}
}
