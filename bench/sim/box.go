package sim

import (
	"net/netip"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// forwarder is the forwarding core. Tests put a broken one in front of it, to see that the invariants catch it.
type forwarder interface {
	Handle(now feedback.Tick, t *mft.Table, f *dataplane.Frame, out *dataplane.Outputs) dataplane.Reason
	Tick(now feedback.Tick, out *dataplane.Outputs)
	Timed() bool
}

// box is the switch: the core and the table that run on the wire, without ports.
type box struct {
	core  forwarder
	table *mft.Table
	down  int  // faults that keep it from running
	ticks bool // a tick event is scheduled

	frame   dataplane.Frame // as received
	edited  dataplane.Frame // the copy that is being written
	outputs dataplane.Outputs

	received uint64
	reasons  [dataplane.NumReasons]uint64
}

func (b *box) reset() {
	b.down, b.ticks, b.received = 0, false, 0
	clear(b.reasons[:])
}

// Addresses: every host has a port of its own, numbered as the host.
var (
	switchMAC = roce.MAC{2, 0, 0, 0, 0, 0xFE}
	groupIPs  = [2]netip.Addr{netip.MustParseAddr("10.77.0.200"), netip.MustParseAddr("fd77::200")}
)

const (
	groupQPN   = roce.QPN(1)
	firstQPN   = roce.QPN(0x11)
	lastOctet4 = 3
)

func hostMAC(host int) roce.MAC { return roce.MAC{2, 0, 0, 0, 0, byte(host)} }
func hostQPN(host int) roce.QPN { return firstQPN + roce.QPN(host) }
func (w *world) address(host int) netip.Addr {
	if w.s.IPv6 {
		a := groupIPs[1].As16()
		a[15], a[14] = byte(host+1), 0
		return netip.AddrFrom16(a)
	}
	a := groupIPs[0].As4()
	a[lastOctet4] = byte(host + 1)
	return netip.AddrFrom4(a)
}

func (w *world) groupIP() netip.Addr {
	if w.s.IPv6 {
		return groupIPs[1]
	}
	return groupIPs[0]
}

// open makes the switch know the group, as control does when it is created and again after a crash.
func (w *world) openSwitch(restored bool) error {
	b := &w.box
	w.group = w.makeGroup()
	w.group.Restored = restored
	table, err := new(mft.Table).With(w.group)
	if err != nil {
		return err
	}
	b.table, b.core = table, dataplane.NewCore()
	if w.wrap != nil {
		b.core = w.wrap(w, b.core)
	}
	return nil
}

func (w *world) makeGroup() *mft.Group {
	s := w.s
	g := &mft.Group{
		Name: "g", Addressing: s.Addressing, IP: w.groupIP(), QPN: groupQPN, PathMTU: s.MTUBytes, Policy: s.Policy,
	}
	peer := g.IP // what receivers have for a peer
	g.Source = mft.Source{Leg: w.leg(0, g.IP), FirstPSN: s.FirstPSN}
	if s.Addressing == mft.ByVirtualQPN {
		peer, g.Source.Src = w.address(0), w.address(1)
	}
	for k := range s.Regions {
		from, to := w.span(k)
		g.Memory = append(g.Memory, mft.VirtualRegion{
			VA: virtualVA + uint64(from), Length: uint64(to - from), RKey: virtualRKey + uint32(k),
		})
	}
	for i := range s.Receivers {
		p := mft.Path{Leg: w.leg(i+1, peer), RemoteQPN: groupQPN, FirstPSN: s.Receivers[i].FirstPSN}
		for k := range s.Regions {
			at := w.keyOf(i+1, k)
			p.Regions = append(p.Regions, mft.Region{VA: at.VA, Length: g.Memory[k].Length, RKey: at.RKey})
		}
		g.Paths = append(g.Paths, p)
	}
	return g
}

func (w *world) leg(host int, src netip.Addr) mft.Leg {
	l := mft.Leg{Port: mft.PortID(host), Src: src, Dst: w.address(host), DestQPN: hostQPN(host)}
	etherType := uint16(0x0800)
	if w.s.IPv6 {
		etherType = 0x86DD
	}
	l.L2Bytes = uint8(copy(l.L2[:], roce.AppendEthernet(nil, hostMAC(host), switchMAC, etherType)))
	return l
}

// pathOf is host's path. Hosts are in the order of their addresses, as paths are.
func (w *world) pathOf(host int) *mft.Path { return &w.group.Paths[host-1] }

// toSwitchFrom hands frame i of a host to the switch.
func (w *world) toSwitchFrom(host int, i int32) {
	f, b := w.pool.frames[i], &w.box
	if b.down > 0 {
		w.hit(w.linkTo(host), SwitchCrash)
		w.record(w.linkTo(host), f, lostTo[SwitchCrash])
		w.pool.giveBack(i)
		return
	}
	b.received++
	d := &b.frame
	if !w.classify(d, host, f) {
		w.pool.giveBack(i)
		return
	}
	b.outputs.Reset()
	reason := b.core.Handle(feedback.Tick(w.now), b.table, d, &b.outputs)
	b.reasons[reason]++
	w.record(w.linkTo(host), f, reason.String())
	w.checkVerdict(host, f, reason)
	w.checkOutputs(host)
	w.deliver(d, f.touched)
	w.pool.giveBack(i)
	w.keepTime()
}

// keepTime has the core ticked while it wants that, until the source's program has heard of everything.
func (w *world) keepTime() {
	if b := &w.box; !b.ticks && b.core.Timed() && !w.over() {
		b.ticks = true
		w.schedule.add(event{at: w.now + time.Duration(feedback.TimerPeriod), kind: tick})
	}
}

func (w *world) ticked() {
	b := &w.box
	b.ticks = false
	if b.down > 0 {
		return
	}
	b.outputs.Reset()
	b.core.Tick(feedback.Tick(w.now), &b.outputs)
	w.checkOutputs(nobody)
	w.deliver(nil, false)
	w.keepTime()
}

// linkTo is host's link to the switch.
func (w *world) linkTo(host int) *link {
	if host == 0 {
		return &w.source.toSwitch
	}
	return &w.receivers[host-1].toSwitch
}

func (w *world) linkFrom(host int) *link {
	if host == 0 {
		return &w.source.toHost
	}
	return &w.receivers[host-1].toHost
}

// chunkBytes is what fits into the first buffer of a real port: longer frames come in two fragments.
const chunkBytes = 3840

// classify makes d the frame as a port would deliver it. A frame that is no group's belongs to the kernel.
func (w *world) classify(d *dataplane.Frame, host int, f *frame) bool {
	id, kind, ok := dataplane.Classify(w.box.table, f.data())
	if !ok {
		if !f.touched {
			w.fail(Damaged, "an undamaged frame of %s was left to the kernel", hostName(host))
		}
		w.record(w.linkTo(host), f, "left to the kernel")
		return false
	}
	d.Group, d.Kind, d.Port = id, kind, mft.PortID(host)
	d.Buf, d.Start = f.buf[:], headroom
	fragment(d, f.data())
	return true
}

// fragment gives d the bytes b, in as many fragments as a real port needs.
func fragment(d *dataplane.Frame, b []byte) {
	d.FragmentCount = 0
	for len(b) > 0 {
		n := min(len(b), chunkBytes)
		d.Fragments[d.FragmentCount] = b[:n]
		d.FragmentCount++
		b = b[n:]
	}
}

// deliver sends what the core wants sent, replies first, as the worker does.
func (w *world) deliver(received *dataplane.Frame, touched bool) {
	out := &w.box.outputs
	for k := range out.Replies {
		r := &out.Replies[k]
		i := w.pool.lend()
		f := w.pool.frames[i]
		b, err := r.Append(f.room())
		if err != nil {
			panic("sim: reply: " + err.Error()) // one address family in all of a scenario
		}
		f.bytes = len(b)
		w.send(w.linkFrom(int(r.Leg.Port)), i)
	}
	for k := range out.Copies {
		w.sendCopy(received, touched, &out.Copies[k])
	}
}

// sendCopy applies an edit to a copy of the received frame. What was wrong with it where no ICRC looks, an IP checksum for instance,
// stays wrong.
func (w *world) sendCopy(received *dataplane.Frame, touched bool, c *dataplane.Copy) {
	i := w.pool.lend()
	f := w.pool.frames[i]
	f.touched = touched
	e := &w.box.edited
	*e = *received
	f.bytes = copy(f.buf[headroom:], received.Buf[received.Start:received.Start+received.Len()])
	e.Buf = f.buf[:]
	fragment(e, f.data())
	if start := c.Apply(e); start != headroom {
		panic("sim: a copy on an untagged leg starts elsewhere than its original")
	}
	w.send(w.linkFrom(int(c.Path.Port)), i)
}
