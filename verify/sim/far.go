package sim

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Some receivers may be behind another box, the far box, which passes on what is for them and what
// they say (mft.Relay). To the switch each of them is a receiver at the far box, with a QPN of its
// own there. All frames between the two boxes take one link. With Edges the far receivers share the
// leg to the far box: a new packet takes that link once.
//
// The far box is the same code as the switch. Each change of the group restarts it.

// FarLink is the link between the switch and the far box, in both directions.
type FarLink struct{ Down, Up Link }

// farBox is the far box during a run.
type farBox struct {
	core    *dataplane.Core
	table   *mft.Table
	toFar   link
	down    int // faults that keep it from running
	frame   dataplane.Frame
	edited  dataplane.Frame
	outputs dataplane.Outputs
}

// farQPN is the first QPN on the link to the far box.
const farQPN = roce.QPN(0x600)

// The two ends of that link.
var (
	nearIPs = [2]netip.Addr{netip.MustParseAddr("10.78.0.1"), netip.MustParseAddr("fd78::1")}
	farIPs  = [2]netip.Addr{netip.MustParseAddr("10.78.0.2"), netip.MustParseAddr("fd78::2")}
	farMAC  = roce.MAC{2, 0, 0, 2, 0, 0}
)

func (w *world) linkIP(ips *[2]netip.Addr) netip.Addr {
	if w.s.IPv6 {
		return ips[1]
	}
	return ips[0]
}

// hasFar reports whether some receivers are behind the far box.
func (s *Scenario) hasFar() bool {
	return slices.ContainsFunc(s.Hosts, func(h Host) bool { return h.Far })
}

// farPort is the port of the switch that leads to the far box, and the one of the far box that
// leads to the switch. Ports of hosts have lower numbers.
func (w *world) farPort() mft.PortID { return mft.PortID(2 * len(w.hosts)) }

// farLeg is how a receiver behind the far box is reached from the switch.
func (w *world) farLeg(host int) mft.Leg {
	l := mft.Leg{Port: w.farPort(), Src: w.linkIP(&nearIPs), Dst: w.linkIP(&farIPs), DestQPN: farQPN + roce.QPN(host)}
	from := switchMAC
	from[3] = w.hops
	w.addressL2(&l, farMAC, from)
	return l
}

// openFar starts the far box with what control has told it last. In an earlier life it may have
// known of other memory and another generation.
func (w *world) openFar(g *mft.Group) {
	if !w.s.hasFar() {
		return
	}
	b := &w.far
	source := w.farLeg(0)
	source.Src, source.Dst, source.DestQPN = source.Dst, source.Src, farQPN
	w.addressL2(&source, switchMAC, farMAC)
	low := &mft.Group{
		Name: "far", IP: w.groupIP(), QPN: groupQPN, PathMTU: w.s.MTUBytes, Memory: g.Memory,
		Source: mft.Source{Leg: source, RemoteQPN: farQPN, FirstPSN: w.s.Hosts[0].SendPSN}, Relay: new(mft.Relay),
	}
	if w.generation > 0 {
		low.Relay.Shared = firstGeneration + roce.QPN(w.generation)
	}
	for i := range w.hosts {
		if !w.s.Hosts[i].Far {
			continue
		}
		p := w.makePath(i, g.Memory, new(mft.Group))
		p.Leg, p.RemoteQPN = w.hostLeg(i), groupQPN
		low.Paths = append(low.Paths, p)
		end := mft.RelayEnd{QP: p.QP(), QPN: farQPN + roce.QPN(i)}
		if m := w.hosts[i].edge.knows(w.generation); m != nil {
			end.Mapped, end.AddPSN = true, uint32(m.delta)&0xFFFFFF
		}
		low.Relay.Ends = append(low.Relay.Ends, end)
	}
	table, err := new(mft.Table).With(low)
	if err != nil {
		panic("sim: the far box: " + err.Error())
	}
	b.table, b.core = table, dataplane.NewCore(nil)
}

// toFar sends frame i of the switch to the far box.
func (w *world) toFar(i int32) { w.send(&w.far.toFar, i) }

// leave sends frame i to a host, perhaps by way of the far box.
func (w *world) leave(h *host, i int32) {
	if h.Far {
		w.toFar(i)
		return
	}
	w.send(&h.toHost, i)
}

// atFar lets the far box pass on frame i of a host; nil: of the switch.
func (w *world) atFar(h *host, i int32) {
	f, b := w.pool.frames[i], &w.far
	defer w.pool.giveBack(i)
	if b.down > 0 {
		w.hit(f, FarCrash)
		return
	}
	id, kind, class := dataplane.Classify(b.table, f.data())
	if class != dataplane.ToGroup {
		return // damaged, or for a generation that is over
	}
	d := &b.frame
	d.Group, d.Kind, d.Port = id, kind, w.farPort()
	if h != nil {
		d.Port = w.homePort(h.number)
	}
	d.Buf, d.Start, d.Chunks[0], d.Kept = f.buf[:], headroom, uint64(f.index), false
	fragment(d, f.data())
	b.outputs.Reset()
	reason := b.core.Handle(feedback.Tick(w.now), b.table, d, &b.outputs)
	if r := w.recorder; r != nil {
		r.note(w.now, "the far box, port %d: packet %d: %v", d.Port, f.packet, reason)
	}
	if reason != dataplane.Relayed && !f.touched {
		w.fail(Damaged, "the far box dropped an undamaged frame: %v", reason)
	}
	if len(b.outputs.Replies)+len(b.outputs.Repairs)+len(b.outputs.Notes) > 0 {
		w.fail(Truth, "the far box says something by itself")
	}
	for k := range b.outputs.Copies {
		w.passOn(h, f, &b.outputs.Copies[k])
	}
}

// passOn sends a copy that the far box has made of frame f of host h; nil: of the switch.
func (w *world) passOn(h *host, f *frame, c *dataplane.Copy) {
	i := w.pool.lend()
	t := w.pool.frames[i]
	t.bytes = copy(t.buf[headroom:], f.data())
	t.inherit(f)
	e := &w.far.edited
	*e = w.far.frame
	e.Buf = t.buf[:]
	fragment(e, t.data())
	if start := c.Apply(e); start != headroom {
		panic("sim: a frame that is passed on starts elsewhere")
	}
	if h != nil {
		w.send(&h.fromFar, i)
		return
	}
	w.send(&w.hostAtIP(c.Path.Dst).toHost, i)
}

// DrawFar makes a scenario of a seed in which some receivers are behind the far box. Else it is the
// scenario of Draw with that seed.
func DrawFar(seed uint64) Scenario {
	s := Draw(seed)
	d := drawer{rand.New(rand.NewPCG(seed, farStream))}
	s.Removed, s.Edges = nil, Edges{}
	if s.Addressing == mft.ByVirtualQPN {
		s.Addressing = mft.ByGroupIP
	}
	s.Timed = slices.DeleteFunc(s.Timed, func(f Timed) bool { return f.Kind == EdgeDies || f.Kind == OtherUplink })
	far := 0
	for i := range s.Hosts {
		h := &s.Hosts[i]
		h.Multipath = false
		if i > 0 && h.Receiver && len(h.Messages) == 0 && (far == 0 || !d.oneIn(3)) {
			h.Far = true
			far++
		}
	}
	of := &s.Hosts[d.IntN(len(s.Hosts))]
	s.FarLink = FarLink{Down: of.ToHost, Up: of.ToSwitch}
	if d.oneIn(3) {
		s.FarLink.Down.Delay += d.between(time.Microsecond, s.ackTimeout()/8)
	}
	if far > 1 && s.Policy.Repair == feedback.RepairLocal && !s.has(MemoryChange) && !d.oneIn(3) {
		s.Edges.Shares = true
	}
	for range pick(d, 0, 0, 1, 1, 2) {
		f := d.moment(FarCrash, StandardPackets)
		f.Host, f.For = 0, d.between(s.ackTimeout()/50, s.ackTimeout())
		if far > 0 {
			s.Timed = append(s.Timed, f)
		}
	}
	s.Limit *= 2
	return s
}
