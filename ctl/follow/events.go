package follow

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ports"
	"github.com/rocast/rocast/dataplane"
)

// AddressTaken tells that a host uses a group's IP. Other boxes of the group may have it too.
func (n *Network) AddressTaken(ip netip.Addr, claim address.Claim) {
	n.Groups.Lock()
	defer n.Groups.Unlock()
	found := false
	for _, g := range n.Groups.AllSeen() {
		if g.File == nil || g.File.IP != ip || slices.Contains(g.Plan.Boxes(), claim.MAC) {
			continue
		}
		found = true
		n.Groups.AddEvent(api.Event{Kind: api.AddressTaken, Group: g.Name, Cause: fmt.Sprintf("another host uses its IP: %v; "+
			"give that host another address", claim)})
	}
	if found {
		n.Log.Warn("another host uses the IP of a group; give that host another address", zap.Stringer("ip", ip), zap.Stringer("mac", net.HardwareAddr(claim.MAC[:])),
			zap.String("interface", claim.Interface))
	}
}

// portEvents records which ports have come and gone.
func (n *Network) portEvents(was ports.Set) {
	for _, name := range slices.Sorted(maps.Keys(n.Groups.Ports())) {
		is, before := n.Groups.Ports()[name], was[name]
		if is.Fallback != "" && is.Fallback != before.Fallback {
			n.Groups.AddEvent(api.Event{Kind: api.PortFellBack, Port: name, Cause: is.Fallback})
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
		n.Groups.AddEvent(e)
	}
}
