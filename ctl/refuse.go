package ctl

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/plan"
	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/mft"
)

// The checks here need more than the file: they need the other groups, the box and the network. A
// condition that may become true later, such as a host that is not up yet, is not refused. A group
// that is restored after a restart skips these checks: its QPs time out if the restart takes long,
// and its IP may still be on the box. A group that another box takes over, and a part of a group
// that its box has lost, skip those of the members that do not join: one member that cannot be
// reached any more must not stop the others. The IP is looked at, because the box before may still
// carry the group.

// refuseNetwork refuses a group that does not fit the box and its network. If it is one that begins
// as after a restart, joins has the members that were not there before. refuseNetwork sends
// questions to hosts, which takes some tenths of a second, so its caller must not have locked the
// groups.
func (c *Controller) refuseNetwork(ctx context.Context, g *groups.Group, joins []groupfile.ID) error {
	f := g.File
	p := c.planOf(f)
	members := p.Members()
	if g.Restored {
		members = whoJoins(members, joins)
	}
	if err := c.refuseMembers(f, members); err != nil {
		return err
	}
	if g.Branch != nil { // the root has checked the IP; here it need not be in a subnet of the hosts
		return nil
	}
	if !g.Kept && f.Addressing == mft.BySwitchIP { // the service of the group (ctl/services) keeps the IP on the box
		return nil
	}
	if err := c.refuseGroupIP(ctx, f, &p); err != nil {
		return yamldoc.Errorf(f.Lines["ip"], "%v", err)
	}
	return nil
}

// refuseJoin refuses members that are to join a running group and that the box can never reach.
func (c *Controller) refuseJoin(next *groups.Version, joins []groupfile.ID) error {
	p := c.planOf(next.File)
	return c.refuseMembers(next.File, whoJoins(p.Members(), joins))
}

// planOf returns how this box would reach the members of a file.
func (c *Controller) planOf(f *groupfile.File) plan.Plan {
	c.groups.Lock() // no change is half done: each hop fits its port
	defer c.groups.Unlock()
	return c.groups.Plan(f)
}

// whoJoins returns those members of a plan that are among the receivers that join.
func whoJoins(all iter.Seq[*plan.Leg], joins []groupfile.ID) iter.Seq[*plan.Leg] {
	return func(yield func(*plan.Leg) bool) {
		for l := range all {
			if l.Member.Role != groupfile.Source && slices.Contains(joins, l.Member.ID()) && !yield(l) {
				return
			}
		}
	}
}

// refuseMembers refuses members that the box can never reach with this file.
func (c *Controller) refuseMembers(f *groupfile.File, members iter.Seq[*plan.Leg]) error {
	subnets := map[int][]netip.Prefix{} // by interface; cached, because many members share few interfaces
	if err := refuseBypass(f, members); err != nil {
		return err
	}
	for l := range members {
		if err := c.refuseRemoteIP(l.Member); err != nil {
			return err
		}
		switch {
		case l.Unfit:
			return yamldoc.Errorf(f.Lines["mtu"], "mtu: %s", l.Reason)
		case l.Hop.Own:
			return yamldoc.Errorf(l.Member.Line, "the member at %v has an address of this box; write the host's",
				l.Member.IP)
		case l.Hop.Interface == 0:
			continue
		}
		known, asked := subnets[l.Hop.Interface]
		if !asked {
			var err error
			if known, err = c.Addresses.Subnets(l.Hop.Interface); err != nil {
				return err
			}
			subnets[l.Hop.Interface] = known
		}
		if err := refuseNoHost(l.Member.IP, known); err != nil {
			return yamldoc.Errorf(l.Member.Line, "the member's ip %v %v; write the host's", l.Member.IP, err)
		}
	}
	return nil
}

// refuseBypass refuses a group with virtual-qpn whose packets would not come by this box. The
// group's IP is that of a receiver. If the source is behind the same port as that receiver, a
// switch or a router there leads from one to the other.
func refuseBypass(f *groupfile.File, members iter.Seq[*plan.Leg]) error {
	if f.Addressing != mft.ByVirtualQPN {
		return nil
	}
	var source, receiver nexthop.Hop
	for l := range members {
		switch {
		case l.Member.Role == groupfile.Source:
			source = l.Hop
		case l.Member.IP == f.IP:
			receiver = l.Hop
		}
	}
	if source.Port == 0 || source.Port != receiver.Port {
		return nil
	}
	return yamldoc.Errorf(f.Lines["ip"], "ip %v and the source %v are both behind port %s, so the source's packets would not come by this "+
		"box; write the ip of a receiver behind another port, or use addressing: group-ip", f.IP, f.Source.IP, source.PortName)
}

// refuseRemoteIP refuses a member whose QP has a peer address that is not this box's.
func (c *Controller) refuseRemoteIP(m *groupfile.Member) error {
	if !m.RemoteIP.IsValid() {
		return nil
	}
	local, err := c.Addresses.Local(m.RemoteIP)
	if err == nil && !local {
		err = yamldoc.Errorf(m.Line, "remoteIP %v of the member at %v is not an address of this box, so the answers of the "+
			"member would not come here; add it with ip addr add, or write another", m.RemoteIP, m.IP)
	}
	return err
}

// refuseGroupIP refuses a group IP that is not valid for the group's addressing.
func (c *Controller) refuseGroupIP(ctx context.Context, f *groupfile.File, p *plan.Plan) error {
	switch f.Addressing {
	case mft.ByGroupIP:
		err := c.refuseIP(ctx, f.IP, slices.Collect(maps.Keys(p.IfAddrs(f))), p.Boxes()...)
		if errors.Is(err, errOwnIP) {
			err = fmt.Errorf("%w, or use addressing: switch-ip", err)
		}
		return err
	case mft.BySwitchIP:
		local, err := c.Addresses.Local(f.IP)
		if err == nil && !local {
			err = fmt.Errorf("ip %v is not an address of this box, and with addressing switch-ip members reach the "+
				"group by an address "+
				"the box has; add it with ip addr add, or use addressing: group-ip", f.IP)
		}
		return err
	}
	return nil
}

var errOwnIP = errors.New("is this box's own; write an address that no host has")

// refuseIP refuses an IP that the box would add to the interfaces at, if hosts there could not use
// it or another host already has it. The group's other boxes, which have the MACs in boxes, may
// have it.
func (c *Controller) refuseIP(ctx context.Context, ip netip.Addr, at []address.IfAddr, boxes ...[6]byte) error {
	local, err := c.Addresses.Local(ip)
	if err != nil {
		return err
	}
	if local {
		return fmt.Errorf("ip %v %w", ip, errOwnIP)
	}
	if err := c.refuseOffSubnet(ip, at); err != nil {
		return err
	}
	if claim, found := c.Addresses.Claimed(ctx, at, boxes...); found {
		return fmt.Errorf("ip %v is taken (%v); write an address that no host has", ip, claim)
	}
	return nil
}

// refuseOffSubnet refuses an IP that is outside all subnets of the interfaces at: hosts would send
// its frames to a router. If the box has no addresses there, there is no subnet to compare with,
// and the IP is accepted.
func (c *Controller) refuseOffSubnet(ip netip.Addr, at []address.IfAddr) error {
	subnets, err := c.subnetsAt(ip, at)
	if err != nil {
		return err
	}
	if err := refuseNoHost(ip, subnets); err != nil {
		return fmt.Errorf("ip %v %w; write an address that no host has", ip, err)
	}
	if len(subnets) > 0 && len(containing(ip, subnets)) == 0 {
		return fmt.Errorf("ip %v is in no subnet of the interfaces that lead to the members (%v); write an unused "+
			"address of one of them", ip, subnets)
	}
	return nil
}

// subnetsAt returns the subnets of ip's address family on the interfaces at.
func (c *Controller) subnetsAt(ip netip.Addr, at []address.IfAddr) (subnets []netip.Prefix, err error) {
	for _, p := range at {
		more, err := c.Addresses.Subnets(p.IfIndex)
		if err != nil {
			return nil, err
		}
		for _, s := range more {
			if s.Addr().Is4() == ip.Is4() && !slices.Contains(subnets, s) {
				subnets = append(subnets, s)
			}
		}
	}
	slices.SortFunc(subnets, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return subnets, nil
}

// containing returns the subnets that contain ip.
func containing(ip netip.Addr, subnets []netip.Prefix) (those []netip.Prefix) {
	for _, s := range subnets {
		if s.Contains(ip) {
			those = append(those, s)
		}
	}
	return those
}

// refuseNoHost refuses an IP that cannot be a host address in one of the subnets.
func refuseNoHost(ip netip.Addr, subnets []netip.Prefix) error {
	for _, s := range subnets {
		switch {
		case !s.Contains(ip) || s.Bits() > ip.BitLen()-2: // a subnet of two addresses has two hosts (RFC 3021, RFC 6164)
		case ip == s.Masked().Addr():
			return fmt.Errorf("is the address of the subnet %v itself", s)
		case ip.Is4() && !s.Contains(ip.Next()):
			return fmt.Errorf("is the broadcast address of %v", s)
		}
	}
	return nil
}
