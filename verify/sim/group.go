package sim

import (
	"encoding/binary"
	"net/netip"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Addresses. Every host has a port of its own, with the number of the host.
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
	w.group = w.makeGroup()
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
		b.engine = nil
		core = dataplane.NewCore(nil)
	}
	core.RetainUpTo(w.s.RepairChunks, &w.pool)
	b.core = core
	if w.wrap != nil {
		b.core = w.wrap(w, b.core)
	}
	return nil
}

// publishMembers publishes the group with its present members.
func (w *world) publishMembers() error {
	g := w.makeGroup()
	g.Restored = w.group.Restored // as control keeps it
	table, err := w.box.table.Replace(w.group.ID, g)
	if err != nil {
		return err
	}
	w.group, w.box.table = g, table
	return nil
}

// makeGroup returns the group that control would build of the hosts that are members.
func (w *world) makeGroup() *mft.Group {
	s := w.s
	g := &mft.Group{
		Name: "g", Addressing: s.Addressing, IP: w.legOf(0).Src, QPN: groupQPN, PathMTU: s.MTUBytes, Policy: s.Policy,
		Source: mft.Source{Leg: w.legOf(0), FirstPSN: s.Hosts[0].SendPSN},
	}
	for k := range s.Regions {
		from, to := w.span(k)
		g.Memory = append(g.Memory, mft.VirtualRegion{
			VA: virtualVA + uint64(from), Length: uint64(to - from), RKey: virtualRKey + uint32(k),
		})
	}
	for i := range w.hosts {
		if m := w.hosts[i].membership; m != outsider && m != left {
			g.Paths = append(g.Paths, w.makePath(i, g.Memory))
		}
	}
	return g
}

func (w *world) makePath(host int, memory []mft.VirtualRegion) mft.Path {
	h := &w.s.Hosts[host]
	p := mft.Path{
		Leg: w.legOf(host), RemoteQPN: groupQPN, FirstPSN: h.RecvPSN, Sends: len(h.Messages) > 0, SendPSN: h.SendPSN,
	}
	p.Receivers = uint16(h.Weight)
	for k := range memory {
		at := w.keyOf(host, k)
		p.Regions = append(p.Regions, mft.Region{VA: at.VA, Length: memory[k].Length, RKey: at.RKey})
	}
	return p
}

// legOf returns how a host is reached, and the address that its queue pair has for its peer.
func (w *world) legOf(host int) mft.Leg {
	l := mft.Leg{Port: mft.PortID(host), Src: w.groupIP(), Dst: w.address(host), DestQPN: hostQPN(host)}
	if w.s.Addressing == mft.ByVirtualQPN {
		l.Src = w.address(0)
		if host == 0 {
			l.Src = w.address(1)
		}
	}
	etherType := uint16(0x0800)
	if w.s.IPv6 {
		etherType = 0x86DD
	}
	from := switchMAC
	from[3] = w.hops
	l.L2Bytes = uint8(copy(l.L2[:], roce.AppendEthernet(nil, hostMAC(host), from, etherType)))
	return l
}
