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
	"github.com/rocast/rocast/ctl/regions"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Plan says how each member of a group is reached. Its legs point to the members of the file from
// which it was made.
type Plan struct {
	Source    Leg
	Receivers []Leg // one for each receiver of the file; a source with role both is among them
}

// Leg says how one member is reached.
type Leg struct {
	mft.Leg
	Member *groupfile.Member
	Hop    nexthop.Hop
	// Uplinks are the ports of all next hops of the member, if its route has several.
	Uplinks mft.Ports
	// Priority is that of the VLAN tags of frames to the member.
	Priority roce.TagPriority
	Reason   string // why the member cannot be reached, or may not be; empty if neither
	// Unfit says that the port is known and cannot carry the group's frames. A new group is then
	// refused; a running group waits.
	Unfit bool
}

// Waits reports whether frames cannot reach the member at present. A leg whose port has no carrier
// stays published all the same: frames flow again as soon as the carrier is back, even before
// control hears of it.
func (l *Leg) Waits() bool { return !l.Resolved() || l.Hop.Down }

// Lost reports whether frames cannot reach the member at present, or its host does not answer the
// kernel. To the latter frames are sent all the same.
func (l *Leg) Lost() bool { return l.Waits() || l.Hop.Silent }

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

// Make plans a group. It calls hop once for each address, so that the two legs of a source with
// role both agree.
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

// Failed returns the plan of a group that could not be set up: no member is reached.
func Failed(f *groupfile.File) Plan {
	return Make(f, nil, func(netip.Addr) nexthop.Hop { return nexthop.Hop{Reason: "the group failed"} })
}

// maker holds what the legs of one plan share.
type maker struct {
	file  *groupfile.File
	ports ports.Set
	hop   func(netip.Addr) nexthop.Hop
	known map[netip.Addr]nexthop.Hop
}

// leg plans how frames reach member m. Their source address is from, unless the member says that
// its QP has another peer.
func (k *maker) leg(m *groupfile.Member, from netip.Addr) Leg {
	hop, asked := k.known[m.IP]
	if !asked {
		hop = k.hop(m.IP)
		k.known[m.IP] = hop
	}
	if m.RemoteIP.IsValid() {
		from = m.RemoteIP
	}
	l := Leg{
		Leg:    mft.Leg{Port: mft.NoPort, Src: from, Dst: m.IP, DestQPN: m.QPN, Receivers: m.Behind},
		Member: m, Hop: hop, Reason: hop.Reason,
	}
	if !hop.Known() {
		return l
	}
	port, open := k.ports.ByIfIndex(hop.Port)
	need := roce.LinkMTU(k.file.PathMTU, k.file.IP.Is4())
	switch {
	case !open:
		l.Reason = fmt.Sprintf("%v is reached through %s, which is not an open port; rocast port ls says why",
			m.IP, hop.PortName)
	case hop.PortMTU < need:
		l.Unfit = true
		l.Reason = fmt.Sprintf("%v is reached through %s, whose MTU %d cannot carry path MTU %d; set it with ip "+
			"link set %s mtu %d",
			m.IP, hop.PortName, hop.PortMTU, k.file.PathMTU, hop.PortName, need)
	case k.file.PathMTU >= twoBuffersMTU && !port.MultiBuffer:
		l.Unfit = true
		l.Reason = fmt.Sprintf("%v is reached through %s, which was opened without multi-buffer, and path MTU %d "+
			"needs it; "+
			"set its MTU to %d or more before rocastd starts (rocast features says whether the kernel has it)",
			m.IP, hop.PortName, k.file.PathMTU, need)
	default:
		l.Port, l.L2, l.L2Bytes = port.ID, hop.L2, hop.L2Bytes
		l.Uplinks, l.Priority = k.uplinks(hop), hop.Priority
		l.Multipath = l.Uplinks != 0
	}
	return l
}

// uplinks returns those ports of a hop that are open.
func (k *maker) uplinks(hop nexthop.Hop) (s mft.Ports) {
	for _, p := range k.ports {
		if p.State.Open() && hop.Uplinks.Has(p.IfIndex) {
			s = s.With(p.ID)
		}
	}
	return s
}

// twoBuffersMTU is the smallest path MTU whose frames need two AF_XDP chunks, whatever the driver's
// headroom.
const twoBuffersMTU = 4096

// SameLegs reports whether frames take the same ways with plan q of the same file.
func (p *Plan) SameLegs(q *Plan) bool {
	same := func(a, b Leg) bool { return a.Leg == b.Leg && a.Uplinks == b.Uplinks && a.Priority == b.Priority }
	return same(p.Source, q.Source) && slices.EqualFunc(p.Receivers, q.Receivers, same)
}

// IfAddrs returns where the group's IP has to be assigned: on each interface through which a member
// is reached whose QP has that IP as its peer.
func (p *Plan) IfAddrs(f *groupfile.File) map[address.IfAddr]bool {
	all := map[address.IfAddr]bool{}
	if f.Addressing != mft.ByGroupIP {
		return all
	}
	for l := range p.Members() {
		if l.Hop.Interface != 0 && !l.Member.RemoteIP.IsValid() {
			all[address.IfAddr{IfIndex: l.Hop.Interface, IP: f.IP}] = true
		}
	}
	return all
}

// Boxes returns the MACs by which the members are reached that are other boxes: those whose QP has
// a peer address of its own. In one network with this box they may have the group's IP too.
func (p *Plan) Boxes() (macs [][6]byte) {
	for l := range p.Members() {
		if l.Member.RemoteIP.IsValid() && l.Hop.L2Bytes > 0 {
			macs = append(macs, [6]byte(l.Hop.L2[:6]))
		}
	}
	return macs
}

// Group returns the group to publish: file f by this plan. A receiver that the chronicle records as
// out has no path, unless it has one now or may still be the source, or nobody has one. table is
// the group's memory, if that is not in the file, and else nil. was is what is published now, or
// nil: what it knows of the memory is used again. The error is about the file's memory.
func (p *Plan) Group(f *groupfile.File, table *regions.Table, past *chronicle.Chronicle, restored bool, was *mft.Group) (*mft.Group, error) {
	if was == nil {
		was = new(mft.Group)
	}
	g := &mft.Group{
		Name: f.Name, Addressing: f.Addressing, IP: f.IP, QPN: f.QPN, PathMTU: f.PathMTU,
		Policy: f.Policy, Engine: f.Engine, Restored: restored,
		Source: mft.Source{Leg: p.Source.Leg, RemoteQPN: f.Source.RemoteQPN, FirstPSN: f.Source.FirstPSN},
	}
	g.Turn, g.Joins = past.Begins(f), past.Joins(f)
	for l := range p.Members() {
		g.Uplinks |= l.Uplinks
		if l.Priority != 0 && g.Priority(&l.Leg) == 0 {
			g.Tagged = append(g.Tagged, mft.Tagged{Port: l.Port, VLANs: l.VLANs(), Priority: l.Priority})
		}
	}
	switch {
	case table != nil:
		g.Memory = table.Memory()
	case f.Memory != nil:
		var err error
		if g.Memory, err = was.Memory.Become(f.Memory); err != nil {
			return nil, err
		}
	}
	if g.Relay = relayOf(f); g.Relay != nil {
		g.Policy = feedback.Policy{} // the box above has it
	}
	nobody := p.HasNobody(past, was)
	for _, l := range p.Receivers {
		m := l.Member
		if omits(m, past, was) && !nobody {
			continue
		}
		if part := past.Part(m.ID()); part != feedback.PartActive {
			g.Parts = append(g.Parts, mft.Part{QP: mft.QP(m.ID()), Part: part})
		}
		path := mft.Path{
			Leg: l.Leg, RemoteQPN: m.RemoteQPN, FirstPSN: past.FirstPSN(f.Source, *m),
			Sends: m.Role == groupfile.Both, SendPSN: m.SendPSN, Box: boxOf(f, m),
		}
		if table != nil {
			path.Regions = table.At(m.ID())
		} else if i := was.FindPath(m.IP, m.RemoteQPN); i >= 0 {
			path.Regions = was.Paths[i].Regions.Follow(was.Memory, g.Memory, whereKept(f, m))
		} else {
			path.Regions = g.Memory.At(whereKept(f, m))
		}
		g.Paths = append(g.Paths, path)
	}
	return g, nil
}

// omits reports whether a receiver has no path because it is out.
func omits(m *groupfile.Member, past *chronicle.Chronicle, was *mft.Group) bool {
	return past.Ended(m.ID()) != nil && m.Role != groupfile.Both && was.FindPath(m.IP, m.RemoteQPN) < 0
}

// HasNobody reports whether all receivers are out, and none of them has a path in what is
// published.
func (p *Plan) HasNobody(past *chronicle.Chronicle, was *mft.Group) bool {
	return !slices.ContainsFunc(p.Receivers, func(l Leg) bool { return !omits(l.Member, past, was) })
}

// boxOf returns which box a member of file f is, if any: the first source of a branch is the box
// above.
func boxOf(f *groupfile.File, m *groupfile.Member) mft.Box {
	switch {
	case !m.RemoteIP.IsValid(), m.Relayed:
		return mft.NoBox
	case m.ID() == f.Source.ID():
		return mft.BoxAbove
	}
	return mft.BoxBelow
}

// relayOf returns how this box passes on the frames of a group with file f, or nil if it merges.
func relayOf(f *groupfile.File) *mft.Relay {
	if !f.IsRelayed() {
		return nil
	}
	r := &mft.Relay{Shared: f.Source.RemoteQPN}
	for i := range f.Receivers {
		m := &f.Receivers[i]
		r.Ends = append(r.Ends, mft.RelayEnd{
			QP: mft.QP(m.ID()), QPN: m.RelayQPN, Mapped: m.RelayShares, AddPSN: uint32(m.FirstPSN-f.Source.FirstPSN) & 0xFFFFFF,
		})
	}
	return r
}

// whereKept returns where a receiver keeps each range of the group's memory. Where a range is does
// not change while the group has the range (groupfile.File.CheckUpdate).
func whereKept(f *groupfile.File, m *groupfile.Member) func(mft.VirtualRegion) mft.Region {
	const many = 16 // from which on a map finds a range sooner than a loop
	if len(f.Memory) < many {
		return func(v mft.VirtualRegion) mft.Region { return m.Regions[slices.Index(f.Memory, v)] }
	}
	var where map[mft.VirtualRegion]mft.Region
	return func(v mft.VirtualRegion) mft.Region {
		if where == nil {
			where = make(map[mft.VirtualRegion]mft.Region, len(f.Memory))
			for i, v := range f.Memory {
				where[v] = m.Regions[i]
			}
		}
		return where[v]
	}
}

// Keys returns the keys by which the data path finds the frames of a group with file f, each once,
// and that no other group may have. How the members are reached is not among them.
func Keys(f *groupfile.File) []mft.Key {
	p := Failed(f)
	g := mft.Group{
		Addressing: f.Addressing, IP: f.IP, QPN: f.QPN,
		Source: mft.Source{Leg: p.Source.Leg, RemoteQPN: f.Source.RemoteQPN},
		Relay:  relayOf(f),
		Paths:  make([]mft.Path, len(p.Receivers)),
	}
	for i := range p.Receivers {
		g.Paths[i] = mft.Path{Leg: p.Receivers[i].Leg, RemoteQPN: p.Receivers[i].Member.RemoteQPN}
	}
	return slices.DeleteFunc(g.Keys(), mft.Key.Shared)
}

// Targets returns the addresses of members, each once.
func Targets(members []groupfile.Member) []netip.Addr {
	var addrs []netip.Addr
	for _, m := range members {
		addrs = append(addrs, m.IP)
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}
