package sim

import (
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

// forwarder is the forwarding core. Tests wrap it in a broken one, to see that the invariants find
// that.
type forwarder interface {
	Handle(now feedback.Tick, t *mft.Table, f *dataplane.Frame, out *dataplane.Outputs) dataplane.Reason
	Tick(now feedback.Tick, out *dataplane.Outputs) (done bool)
	Timed() bool
	Arm(now feedback.Tick, out *dataplane.Outputs)
}

// box is the switch, which has no shorter name that Go allows: the core and the table that run on
// the wire, without ports.
type box struct {
	core   forwarder
	fanOut *porttest.FanOut // nil: the core gets every frame
	table  *mft.Table
	down   int  // faults that keep it from running
	ticks  bool // a tick event is scheduled

	frame   dataplane.Frame // as received
	edited  dataplane.Frame // the copy that is being written
	outputs dataplane.Outputs

	received uint64 // frames
	ecn      uint8  // of the frame being handled, as it arrived
}

func (b *box) reset() { b.down, b.ticks, b.received = 0, false, 0 }

// forward lets the switch handle frame i of a host.
func (w *world) forward(h *host, i int32) {
	f, b := w.pool.frames[i], &w.box
	if b.down > 0 {
		w.hit(f, SwitchCrash)
		w.record(&h.toSwitch, f, lostTo[SwitchCrash])
		w.pool.giveBack(i)
		return
	}
	b.received++
	d := &b.frame
	if !w.classify(d, h, f) {
		w.pool.giveBack(i)
		return
	}
	b.outputs.Reset()
	w.notifying = nil
	if d.Kind == dataplane.KindCNP {
		w.notifying = h
	}
	b.ecn = ecnOf(f.data())
	reason, membersChanged := dataplane.Reason(feedback.Forwarded), w.membersChanged
	carried := b.fanOut != nil && b.fanOut.Carry(d, &b.outputs)
	if !carried {
		reason = b.core.Handle(feedback.Tick(w.now), b.table, d, &b.outputs)
	}
	w.record(&h.toSwitch, f, reason.String())
	w.checkVerdict(h, f, reason)
	w.membersChanged = carried && membersChanged // the core does not know yet
	w.checkOutputs(f)
	w.deliver(d, f)
	b.core.Arm(feedback.Tick(w.now), &b.outputs)
	w.pool.giveBack(i)
	w.keepTime()
}

// keepTime schedules the next tick of the core, while the core wants one and the programs of the
// sources have not heard of everything.
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
	w.notifying = nil
	b.outputs.Reset()
	for !b.core.Tick(feedback.Tick(w.now), &b.outputs) {
	}
	w.checkOutputs(nil)
	w.deliver(nil, nil)
	w.keepTime()
}

// chunkBytes is what fits into the first buffer of a real port. A longer frame comes in two
// fragments.
const chunkBytes = 3840

// classify makes d the frame as a port would deliver it. A frame that belongs to no group is left
// to the kernel.
func (w *world) classify(d *dataplane.Frame, h *host, f *frame) bool {
	id, kind, class := dataplane.Classify(w.box.table, f.data())
	if class != dataplane.ToGroup {
		// With virtual-qpn the feedback of a receiver that has left has the address of a host, like
		// any other frame.
		if !f.touched && !(w.s.Addressing == mft.ByVirtualQPN && h.membership == left) {
			w.fail(Damaged, "an undamaged frame of %s was left to the kernel", hostName(h.number))
		}
		w.record(&h.toSwitch, f, "left to the kernel")
		return false
	}
	d.Group, d.Kind, d.Port = id, kind, mft.PortID(h.number)
	d.Buf, d.Start = f.buf[:], headroom
	fragment(d, f.data())
	return true
}

// fragment splits b into as many fragments of d as a real port needs.
func fragment(d *dataplane.Frame, b []byte) {
	d.FragmentCount = 0
	for len(b) > 0 {
		n := min(len(b), chunkBytes)
		d.Fragments[d.FragmentCount] = b[:n]
		d.FragmentCount++
		b = b[n:]
	}
}

// deliver sends what the core wants sent: replies first, as the worker does.
func (w *world) deliver(received *dataplane.Frame, original *frame) {
	out := &w.box.outputs
	for k := range out.Replies {
		r := &out.Replies[k]
		i := w.pool.lend()
		f := w.pool.frames[i]
		b, err := r.Append(f.room())
		if err != nil {
			panic("sim: reply: " + err.Error()) // a scenario has one address family
		}
		f.bytes = len(b)
		w.send(&w.hosts[r.Leg.Port].toHost, i)
	}
	for k := range out.Copies {
		w.sendCopy(received, original, &out.Copies[k])
	}
}

// sendCopy applies an edit to a copy of the received frame. What is wrong in the frame where no
// ICRC covers it, in an IP checksum for instance, stays wrong.
func (w *world) sendCopy(received *dataplane.Frame, original *frame, c *dataplane.Copy) {
	i := w.pool.lend()
	f := w.pool.frames[i]
	f.bytes = copy(f.buf[headroom:], original.data())
	f.inherit(original)
	e := &w.box.edited
	*e = *received
	e.Buf = f.buf[:]
	fragment(e, f.data())
	if start := c.Apply(e); start != headroom {
		panic("sim: a copy on an untagged leg starts elsewhere than its original")
	}
	w.checkMark(e)
	w.send(&w.hosts[c.Path.Port].toHost, i)
}
