package ctl

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// plan is a group's legs, in the file's order: the source, the receivers. A source that is both has a leg as either.
type plan struct {
	legs []leg
}

// leg is how one of them is reached.
type leg struct {
	mft.Leg
	hop    nexthop.Hop
	reason string // why Leg is not resolved; or what casts doubt on it
	// unfit: the port is known and cannot carry the group's frames. A new group is refused then; a running one waits.
	unfit bool
}

// waits says whether nothing gets through to it. A port that lost its carrier stays in the published leg, so that frames go
// on with the carrier and not with the news of it.
func (l leg) waits() bool { return !l.Resolved() || l.hop.Down }

// headerBytes is what a frame has beyond its payload, from IP to ICRC, at most: UDP, BTH, RETH, ImmDt and ICRC.
func headerBytes(ip netip.Addr) int {
	const ipv4, ipv6, udp, icrc = 20, 40, 8, 4
	const rest = udp + roce.BTHBytes + roce.RETHBytes + roce.ImmDtBytes + icrc
	if ip.Is4() {
		return ipv4 + rest
	}
	return ipv6 + rest
}

// planner finds a group's legs.
type planner struct {
	ports map[int]dataplane.PortInfo // by ifindex
	hop   func(netip.Addr) nexthop.Hop
}

// plan asks for every address once: a member that is both has two legs, which must agree.
func (p *planner) plan(f *groupfile.File) plan {
	p.hop = once(p.hop)
	copiesFrom := f.IP
	if f.Addressing == mft.ByVirtualQPN {
		copiesFrom = f.Source.IP
	}
	legs := []leg{p.member(f, f.Source, f.IP)}
	for _, m := range f.Receivers {
		legs = append(legs, p.member(f, m, copiesFrom))
	}
	return plan{legs: legs}
}

func once(ask func(netip.Addr) nexthop.Hop) func(netip.Addr) nexthop.Hop {
	known := map[netip.Addr]nexthop.Hop{}
	return func(addr netip.Addr) nexthop.Hop {
		hop, asked := known[addr]
		if !asked {
			hop = ask(addr)
			known[addr] = hop
		}
		return hop
	}
}

func (p *planner) member(f *groupfile.File, m groupfile.Member, from netip.Addr) leg {
	l := p.leg(f, m.IP)
	l.Src, l.Dst, l.DestQPN = from, m.IP, m.QPN
	return l
}

// leg is the way to an address, without the IP addresses and the QPN of what goes there.
func (p *planner) leg(f *groupfile.File, to netip.Addr) leg {
	l := leg{Leg: mft.Leg{Port: mft.NoPort}, hop: p.hop(to)}
	l.reason = l.hop.Reason
	if !l.hop.Known() {
		return l
	}
	port := p.ports[l.hop.Port]
	need := f.PathMTU + headerBytes(f.IP)
	switch {
	case l.hop.PortMTU < need:
		l.unfit = true
		l.reason = fmt.Sprintf("%v is reached through %s, whose MTU %d cannot carry path MTU %d; set it with ip link set %s mtu %d",
			to, l.hop.PortName, l.hop.PortMTU, f.PathMTU, l.hop.PortName, need)
	case f.PathMTU > oneBufferMTU && !port.MultiBuffer:
		l.unfit = true
		l.reason = fmt.Sprintf("%v is reached through %s, which was opened without multi-buffer, and path MTU %d needs it; "+
			"set its MTU to %d or more before rocastd starts (rocast features says whether the kernel has it)",
			to, l.hop.PortName, f.PathMTU, need)
	default:
		l.Port, l.L2, l.L2Bytes = port.ID, l.hop.L2, l.hop.L2Bytes
	}
	return l
}

// oneBufferMTU is the largest path MTU whose frames fit into one AF_XDP chunk whatever the driver's headroom.
const oneBufferMTU = 2048

// build makes what is published of a group by a plan.
func (g *group) build(p plan) *mft.Group {
	f := g.file
	next := &mft.Group{
		Name: f.Name, Addressing: f.Addressing, IP: f.IP, QPN: f.QPN, PathMTU: f.PathMTU,
		Memory: f.Memory, Policy: f.Policy, Restored: g.restored,
		Source: mft.Source{Leg: p.legs[0].Leg, FirstPSN: f.Source.FirstPSN},
	}
	for i, m := range f.Receivers {
		if g.apart(m.ID()) {
			continue
		}
		next.Paths = append(next.Paths, mft.Path{
			Leg: p.legs[1+i].Leg, RemoteQPN: m.RemoteQPN, FirstPSN: g.firstPSN(m),
			Sends: m.Role == groupfile.Both, SendPSN: m.SendPSN, Regions: m.Regions,
		})
	}
	return next
}

// firstPSN is what the receiver's QP expects first. For one that joined before the daemon's start it is what the QP would
// have expected, had it been there for the source's first packet. It stays as it is while the group is published: by
// another one the data path knows another QP.
func (g *group) firstPSN(m groupfile.Member) roce.PSN {
	r := g.records[m.ID()]
	if r == nil || r.since == nil {
		return m.FirstPSN
	}
	return g.file.Source.FirstPSN.Add(m.FirstPSN.Sub(*r.since))
}

// receivers are the receivers' legs.
func (p plan) receivers(f *groupfile.File) []leg { return p.legs[1 : 1+len(f.Receivers)] }

// sameLegs says whether frames would go the same ways.
func (p plan) sameLegs(q plan) bool {
	return slices.EqualFunc(p.legs, q.legs, func(a, b leg) bool { return a.Leg == b.Leg })
}

// places are where the group's IP has to be: on every interface by which a member of it is reached.
func (p plan) places(f *groupfile.File) map[address.Place]bool {
	places := map[address.Place]bool{}
	if f.Addressing != mft.ByGroupIP {
		return places
	}
	for _, l := range p.legs {
		if l.hop.Interface != 0 {
			places[address.Place{IfIndex: l.hop.Interface, IP: f.IP}] = true
		}
	}
	return places
}

// targets are the addresses whose hops a plan needs, each once.
func targets(f *groupfile.File) []netip.Addr {
	addrs := []netip.Addr{f.Source.IP}
	for _, m := range f.Receivers {
		addrs = append(addrs, m.IP)
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}
