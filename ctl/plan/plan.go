package plan

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/ports"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Plan is how each member of a group is reached. The members are those of the file it was made from.
type Plan struct {
	Source    Leg
	Receivers []Leg // one for each receiver of the file; a source that is both is among them
}

// Leg is how one member is reached.
type Leg struct {
	mft.Leg
	Member *groupfile.Member
	Hop    nexthop.Hop
	Reason string // why Leg is not resolved; or what casts doubt on it
	// Unfit: the port is known and cannot carry the group's frames. A new group is refused then; a running one waits.
	Unfit bool
}

// Waits says whether nothing gets through to the member. A port without a carrier stays in the published leg: frames go on as
// soon as the carrier is back, before control hears of it.
func (l *Leg) Waits() bool { return !l.Resolved() || l.Hop.Down }

// Members yields the leg of every member once.
func (p *Plan) Members() iter.Seq[*Leg] {
	return func(yield func(*Leg) bool) {
		if p.Source.Member != nil && p.Source.Member.Role == groupfile.Source && !yield(&p.Source) {
			return
		}
		for i := range p.Receivers {
			if !yield(&p.Receivers[i]) {
				return
			}
		}
	}
}

// Make plans a group. It asks hop for every address once, so that the legs of a member that is both agree.
func Make(f *groupfile.File, open ports.Set, hop func(netip.Addr) nexthop.Hop) Plan {
	m := maker{file: f, ports: open, hop: hop, known: map[netip.Addr]nexthop.Hop{}}
	copiesFrom := f.IP
	if f.Addressing == mft.ByVirtualQPN {
		copiesFrom = f.Source.IP
	}
	p := Plan{Source: m.leg(&f.Source, f.IP), Receivers: make([]Leg, 0, len(f.Receivers))}
	for i := range f.Receivers {
		p.Receivers = append(p.Receivers, m.leg(&f.Receivers[i], copiesFrom))
	}
	return p
}

// Failed is the plan of a group that is not set up.
func Failed(f *groupfile.File) Plan {
	return Make(f, nil, func(netip.Addr) nexthop.Hop { return nexthop.Hop{Reason: "the group failed"} })
}

// maker makes one plan.
type maker struct {
	file  *groupfile.File
	ports ports.Set
	hop   func(netip.Addr) nexthop.Hop
	known map[netip.Addr]nexthop.Hop
}

// leg plans frames from an IP address to a member.
func (k *maker) leg(m *groupfile.Member, from netip.Addr) Leg {
	hop, asked := k.known[m.IP]
	if !asked {
		hop = k.hop(m.IP)
		k.known[m.IP] = hop
	}
	l := Leg{Leg: mft.Leg{Port: mft.NoPort, Src: from, Dst: m.IP, DestQPN: m.QPN}, Member: m, Hop: hop, Reason: hop.Reason}
	if !hop.Known() {
		return l
	}
	port, open := k.ports.ByIfIndex(hop.Port)
	need := k.file.PathMTU + headerBytes(k.file.IP)
	switch {
	case !open:
		l.Reason = fmt.Sprintf("%v is reached through %s, which is not open; see rocast port ls", m.IP, hop.PortName)
	case hop.PortMTU < need:
		l.Unfit = true
		l.Reason = fmt.Sprintf("%v is reached through %s, whose MTU %d cannot carry path MTU %d; set it with ip link set %s mtu %d",
			m.IP, hop.PortName, hop.PortMTU, k.file.PathMTU, hop.PortName, need)
	case k.file.PathMTU > oneBufferMTU && !port.MultiBuffer:
		l.Unfit = true
		l.Reason = fmt.Sprintf("%v is reached through %s, which was opened without multi-buffer, and path MTU %d needs it; "+
			"set its MTU to %d or more before rocastd starts (rocast features says whether the kernel has it)",
			m.IP, hop.PortName, k.file.PathMTU, need)
	default:
		l.Port, l.L2, l.L2Bytes = port.ID, hop.L2, hop.L2Bytes
	}
	return l
}

// oneBufferMTU is the largest path MTU whose frames fit into one AF_XDP chunk whatever the driver's headroom.
const oneBufferMTU = 2048

// headerBytes is what a frame has beyond its payload, from IP to ICRC, at most: UDP, BTH, RETH, ImmDt and ICRC.
func headerBytes(ip netip.Addr) int {
	const ipv4, ipv6, udp, icrc = 20, 40, 8, 4
	const rest = udp + roce.BTHBytes + roce.RETHBytes + roce.ImmDtBytes + icrc
	if ip.Is4() {
		return ipv4 + rest
	}
	return ipv6 + rest
}

// SameLegs says whether frames would go the same ways by another plan of the same file.
func (p *Plan) SameLegs(q *Plan) bool {
	same := func(a, b Leg) bool { return a.Leg == b.Leg }
	return same(p.Source, q.Source) && slices.EqualFunc(p.Receivers, q.Receivers, same)
}

// Places are where the group's IP has to be: on every interface by which a member is reached.
func (p *Plan) Places(f *groupfile.File) map[address.Place]bool {
	places := map[address.Place]bool{}
	if f.Addressing != mft.ByGroupIP {
		return places
	}
	for l := range p.Members() {
		if l.Hop.Interface != 0 {
			places[address.Place{IfIndex: l.Hop.Interface, IP: f.IP}] = true
		}
	}
	return places
}

// Group is what is published of a file by the plan. The receivers that the chronicle records as apart are left out.
func (p *Plan) Group(f *groupfile.File, past *chronicle.Chronicle, restored bool) *mft.Group {
	g := &mft.Group{
		Name: f.Name, Addressing: f.Addressing, IP: f.IP, QPN: f.QPN, PathMTU: f.PathMTU,
		Memory: f.Memory, Policy: f.Policy, Engine: f.Engine, Restored: restored,
		Source: mft.Source{Leg: p.Source.Leg, FirstPSN: f.Source.FirstPSN},
	}
	for _, l := range p.Receivers {
		m := l.Member
		if past.IsApart(m.ID()) {
			continue
		}
		g.Paths = append(g.Paths, mft.Path{
			Leg: l.Leg, RemoteQPN: m.RemoteQPN, FirstPSN: past.FirstPSN(f.Source, *m),
			Sends: m.Role == groupfile.Both, SendPSN: m.SendPSN, Regions: m.Regions,
		})
	}
	return g
}

// Targets are the addresses whose hops a plan needs, each once.
func Targets(f *groupfile.File) []netip.Addr {
	var addrs []netip.Addr
	for _, m := range f.Members() {
		addrs = append(addrs, m.IP)
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}
