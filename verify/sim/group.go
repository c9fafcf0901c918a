package sim

import (
	"math/rand/v2"

	"encoding/binary"
	"net/netip"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Addresses. Every host has a port of its own, with the number of the host, and perhaps a second
// one: see portOf.
var (
	switchMAC = roce.MAC{2, 0, 0, 1, 0, 0} // the last two bytes tell hosts apart
	groupIPs  = [2]netip.Addr{netip.MustParseAddr("10.77.0.200"), netip.MustParseAddr("fd77::c8")}
)

const (
	groupQPN = roce.QPN(1)
	firstQPN = roce.QPN(0x11)
)

func (w *world) groupIP() netip.Addr {
	if w.s.IPv6 {
		return groupIPs[1]
	}
	return groupIPs[0]
}

func (w *world) address(host int) netip.Addr {
	b := w.groupIP().AsSlice()
	n := host + 1
	if n >= int(b[len(b)-1]) {
		n++ // that address belongs to the group
	}
	binary.BigEndian.PutUint16(b[len(b)-2:], uint16(n))
	a, _ := netip.AddrFromSlice(b)
	return a
}

// openSwitch makes the switch know the group, as control does when it creates a group, and again
// after a crash.
func (w *world) openSwitch(restored bool) error {
	b := &w.box
	w.opening = true
	w.group = w.makeGroup(new(mft.Group))
	w.opening = false
	w.group.Restored = restored
	table, err := new(mft.Table).With(w.group)
	if err != nil {
		return err
	}
	b.table, b.known = table, false
	w.pool.crash()
	var core *dataplane.Core
	if w.s.FanOut {
		b.engine = w.openEngine(b.engine)
		core = dataplane.NewCore(b.engine)
	} else {
		b.engine, b.late = nil, 0
		core = dataplane.NewCore(nil)
	}
	core.RetainUpTo(w.s.RepairChunks, &w.pool)
	b.core = core
	if w.wrap != nil {
		b.core = w.wrap(w, b.core)
	}
	if w.s.Edges.Shares { // in its first version the group shares nothing
		return w.publishMembers()
	}
	return nil
}

// publishMembers publishes the group with its present members.
func (w *world) publishMembers() error {
	g := w.makeGroup(w.group)
	g.Restored = w.group.Restored // as control keeps it
	table, err := w.box.table.Replace(w.group.ID, g)
	if err != nil {
		return err
	}
	w.group, w.box.table = g, table
	return nil
}

// makeGroup returns the group that control would build of the hosts that are members. was is the
// version before.
func (w *world) makeGroup(was *mft.Group) *mft.Group {
	s := w.s
	g := &mft.Group{
		Name: "g", Addressing: s.Addressing, IP: w.legOf(0).Src, QPN: groupQPN, PathMTU: s.MTUBytes, Policy: s.Policy,
		Source: mft.Source{Leg: w.legOf(0), FirstPSN: s.Hosts[0].SendPSN},
	}
	g.KeepsTurns, g.Turn = s.Turns.Stored, w.turns.stored
	g.Memory = w.makeMemory(was.Memory)
	for i := range w.hosts {
		if w.s.Hosts[i].Multipath {
			g.Uplinks = g.Uplinks.With(mft.PortID(i)).With(w.otherPort(i))
		}
	}
	for i := range w.hosts {
		if m := w.hosts[i].membership; m != outsider && m != left {
			g.Paths = append(g.Paths, w.makePath(i, g.Memory, was))
			h, qp := &w.hosts[i], g.Paths[len(g.Paths)-1].QP()
			if h.open {
				g.Joins = append(g.Joins, mft.Join{QP: qp, PSN: h.joinedWith})
			}
			switch {
			case h.membership == unconfirmed:
				g.Parts = append(g.Parts, mft.Part{QP: qp, Part: feedback.PartWaiting})
			case !h.storedOut:
			case h.behind:
				g.Parts = append(g.Parts, mft.Part{QP: qp, Part: feedback.PartBehind})
			default:
				g.Parts = append(g.Parts, mft.Part{QP: qp, Part: feedback.PartGone})
			}
		}
	}
	w.share(g)
	w.openFar(g)
	return g
}

func (w *world) makePath(host int, memory *mft.Memory, was *mft.Group) mft.Path {
	h := &w.s.Hosts[host]
	p := mft.Path{
		Leg: w.legOf(host), RemoteQPN: w.qp(host).RemoteQPN, FirstPSN: h.RecvPSN, Sends: len(h.Messages) > 0, SendPSN: h.SendPSN,
	}
	p.FirstPSN = p.FirstPSN.Add(-int32(w.hosts[host].joinedAt))
	p.Receivers = uint16(h.Weight)
	at := func(v mft.VirtualRegion) mft.Region {
		if v.RKey < virtualRKey || v.RKey >= virtualRKey+uint32(w.s.Regions) {
			return mft.Region{VA: ^v.VA, RKey: ^v.RKey} // nobody uses it
		}
		at := w.keyOf(host, int(v.RKey-virtualRKey))
		return mft.Region{VA: at.VA, RKey: at.RKey}
	}
	if i := was.FindPath(p.Dst, p.RemoteQPN); i >= 0 {
		p.Regions = was.Paths[i].Regions.Follow(was.Memory, memory, at)
	} else {
		p.Regions = memory.At(at)
	}
	return p
}

// makeMemory returns the group's virtual memory; nil: the hosts know each other's addresses. Each
// change of it lets other ranges come, before, between and behind those that are used, so that
// these have other places in the table and the kernel's twin can carry the group or cannot.
func (w *world) makeMemory(was *mft.Memory) *mft.Memory {
	if w.s.Regions == 0 {
		return nil
	}
	var ranges []mft.VirtualRegion
	for k := range w.s.Regions {
		from, to := w.span(k)
		ranges = append(ranges, mft.VirtualRegion{VA: virtualVA + uint64(from), Length: uint64(to - from), RKey: virtualRKey + uint32(k)})
	}
	random := rand.New(rand.NewPCG(w.s.Seed, uint64(w.memories)))
	for k := range w.s.Unused + [...]int{0, 1, 5, 700}[random.IntN(4)]*min(w.memories, 1) {
		key := [...]uint32{0, virtualRKey, virtualRKey + uint32(w.s.Regions)}[random.IntN(3)]
		ranges = append(ranges, mft.VirtualRegion{VA: virtualVA - uint64(k+1)<<12, Length: 1 + random.Uint64N(1<<12), RKey: key})
	}
	memory, err := was.Become(ranges)
	if err != nil {
		panic("sim: change the memory: " + err.Error())
	}
	return memory
}

// portOf returns the port by which the frames of a host come now.
func (w *world) portOf(h *host) mft.PortID {
	if h.away > 0 {
		return w.otherPort(h.number)
	}
	if h.Far {
		return w.farPort()
	}
	return w.homePort(h.number)
}

// otherPort is the second port of a host with two.
func (w *world) otherPort(host int) mft.PortID { return mft.PortID(len(w.hosts) + host) }

// legOf returns how a host is reached from the switch.
func (w *world) legOf(host int) mft.Leg {
	if w.s.Hosts[host].Far {
		return w.farLeg(host)
	}
	return w.hostLeg(host)
}

// hostLeg returns how a host is reached from its box, and the address that its queue pair has for
// its peer.
func (w *world) hostLeg(host int) mft.Leg {
	l := mft.Leg{Port: w.homePort(host), Multipath: w.s.Hosts[host].Multipath, Src: w.groupIP(), Dst: w.address(host), DestQPN: hostQPN(host)}
	if w.s.Addressing == mft.ByVirtualQPN {
		l.Src = w.address(0)
		if host == 0 {
			l.Src = w.address(1)
		}
	}
	from := switchMAC
	from[3] = w.hops
	w.addressL2(&l, hostMAC(host), from)
	return l
}

// frameVLAN is the VLAN of all frames, if they are tagged.
const frameVLAN = 7

// addressL2 gives a leg its Ethernet header.
func (w *world) addressL2(l *mft.Leg, to, from roce.MAC) {
	etherType := uint16(0x0800)
	if w.s.IPv6 {
		etherType = 0x86DD
	}
	header := roce.AppendEthernet(nil, to, from, etherType)
	if w.s.Tagged {
		header = roce.AppendVLAN(nil, to, from, frameVLAN, etherType)
	}
	l.L2Bytes = uint8(copy(l.L2[:], header))
}
