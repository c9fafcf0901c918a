package ctl

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/ports"
	"github.com/rocast/rocast/dataplane"
)

// updateEvents records that a group is about to get the members of the file next. Those that are
// new join later.
func (s *book) updateEvents(g *group, next *groupfile.File) {
	s.tell(api.Event{Kind: api.GroupUpdated, Group: g.Name, Cause: fmt.Sprintf("it has %d members, and had %d",
		len(next.Members()), len(g.Wanted.Members()))})
	for i := range g.Wanted.Receivers {
		if id := g.Wanted.Receivers[i].ID(); next.Receiver(id) < 0 {
			s.tellOf(api.MemberLeft, g, id, "the group was updated without it")
		}
	}
}

// addressTaken tells that a host uses a group's IP. Other boxes of the group may have it too.
func (c *Controller) addressTaken(ip netip.Addr, claim address.Claim) {
	c.book.Lock()
	defer c.book.Unlock()
	found := false
	for _, g := range c.allSeen() {
		if g.File == nil || g.File.IP != ip || slices.Contains(g.Plan.Boxes(), claim.MAC) {
			continue
		}
		found = true
		c.tell(api.Event{Kind: api.AddressTaken, Group: g.Name, Cause: fmt.Sprintf("another host uses its IP: %v; "+
			"give that host another address", claim)})
	}
	if found {
		c.Log.Warn("another host uses the IP of a group; give that host another address", zap.Stringer("ip", ip), zap.Stringer("mac", net.HardwareAddr(claim.MAC[:])),
			zap.String("interface", claim.Interface))
	}
}

// portEvents records which ports have come and gone.
func (c *Controller) portEvents(was ports.Set) {
	for _, name := range slices.Sorted(maps.Keys(c.ports())) {
		is, before := c.ports()[name], was[name]
		if is.Fallback != "" && is.Fallback != before.Fallback {
			c.tell(api.Event{Kind: api.PortFellBack, Port: name, Cause: is.Fallback})
		}
		e := api.Event{Kind: api.PortWentDown, Port: name, Cause: is.Reason}
		switch {
		case is.State == before.State:
			continue
		case is.State == dataplane.PortUp:
			e.Kind = api.PortCameUp
		case is.State == dataplane.PortDown:
			e.Cause = "its link is down"
		}
		c.tell(e)
	}
}
