package sim

import (
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// forwarder is the forwarding core. Tests wrap it in a broken one, to see that the invariants find
// that.
type forwarder interface {
	Handle(now feedback.Tick, t *mft.Table, f *dataplane.Frame, out *dataplane.Outputs) dataplane.Reason
	Tick(now feedback.Tick, out *dataplane.Outputs) (some bool)
	Arm(now feedback.Tick, out *dataplane.Outputs)
	Adopt(now feedback.Tick, g *mft.Group, out *dataplane.Outputs)
	Forget(id mft.GroupID)
	Pause(now feedback.Tick) feedback.Tick
	PutBack()
	Retained() (packets, chunks int)
	Retains(id mft.GroupID, psn roce.PSN) bool
	RetainedBytes(id mft.GroupID) int
	GivenUp(id mft.GroupID) uint64
	NextTurn(now feedback.Tick, id mft.GroupID, out *dataplane.Outputs) (t mft.Turn, ok bool)
	BeginTurn(id mft.GroupID, granted bool, out *dataplane.Outputs) (begun bool)
	GroupState(now feedback.Tick, g *mft.Group, out *dataplane.Outputs) *dataplane.GroupState
	Kept(now feedback.Tick, pool dataplane.Pool, frames []dataplane.Frame) int
}

// box is the switch (a keyword of Go): the core and the table that run on the wire, without ports.
type box struct {
	core    forwarder
	engine  *engine // nil: the core gets every frame
	table   *mft.Table
	down    int           // faults that keep it from running
	ticksAt time.Duration // when the next tick event is; 0: none is scheduled
	known   bool          // the core has seen a frame of the group, or a change of its members

	pass                        // the core's
	again    pass               // of a retained frame
	edited   dataplane.Frame    // the copy that is being written
	kept     [1]dataplane.Frame // a packet with which a turn begins
	received uint64             // frames
}

// pass is what becomes of one frame at the switch.
type pass struct {
	frame   dataplane.Frame // as received
	ecn     uint8           // as it arrived
	outputs dataplane.Outputs
	late    time.Duration // copies leave so much later
}

func (b *box) reset() { b.down, b.ticksAt, b.received = 0, 0, 0 }

// forward lets the switch handle frame i of a host. With an engine that is in lag.go.
func (w *world) forward(h *host, i int32) {
	switch {
	case w.box.engine != nil:
		w.atPort(h, i)
	case w.box.down > 0:
		w.loseAtSwitch(h, i)
	case w.classify(&w.box.frame, h, w.pool.frames[i]):
		w.decide(h, i)
		w.replay()
		w.arm()
	default:
		w.box.received++
		w.pool.giveBack(i)
	}
}

// loseAtSwitch ends frame i of a host, because the switch does not run.
func (w *world) loseAtSwitch(h *host, i int32) {
	f := w.pool.frames[i]
	w.hit(f, SwitchCrash)
	w.record(&h.toSwitch, f, lostTo[SwitchCrash])
	w.pool.giveBack(i)
}

// decide lets the core handle frame i, which is classified.
func (w *world) decide(h *host, i int32) {
	f, b := w.pool.frames[i], &w.box
	b.received++
	b.outputs.Reset()
	if id := b.frame.Group; id != w.group.ID && id != mft.NoGroup {
		w.decideGone(h, i)
		return
	}
	b.known = true
	w.notifying = nil
	if b.frame.Kind == dataplane.KindCNP {
		w.notifying = h
	}
	b.ecn = ecnOf(f.data())
	reason := b.core.Handle(feedback.Tick(w.now), b.table, &b.frame, &b.outputs)
	w.record(&h.toSwitch, f, reason.String())
	w.checkVerdict(h, f, reason)
	w.checkOutputs(f)
	w.deliver(&b.pass, f)
	if reason == dataplane.SourceWaits {
		w.pool.copied.note(f)
	}
	if b.frame.Kept {
		w.pool.keep(i)
	} else {
		w.pool.giveBack(i)
	}
	b.core.PutBack()
}

// decideGone lets the core handle frame i, which was classified before its group was removed.
func (w *world) decideGone(h *host, i int32) {
	b, out := &w.box, &w.box.outputs
	reason := b.core.Handle(feedback.Tick(w.now), b.table, &b.frame, out)
	w.record(&h.toSwitch, w.pool.frames[i], reason.String())
	if reason != dataplane.GroupGone || len(out.Copies)+len(out.Replies)+len(out.Repairs)+len(out.Notes) > 0 {
		w.fail(Conserved, "a frame of %v for a group that was removed: %v", h, reason)
	}
	w.pool.giveBack(i)
	b.core.PutBack()
}

// arm ends what the core does with a batch of frames.
func (w *world) arm() {
	b := &w.box
	b.outputs.Reset()
	b.core.Arm(feedback.Tick(w.now), &b.outputs)
	w.checkOutputs(nil)
	w.deliver(&b.pass, nil)
	w.keepTime()
}

// keepTime schedules the next tick of the core, while the core wants one and the programs of the
// sources have not heard of everything, or the run goes on.
func (w *world) keepTime() {
	b, pause := &w.box, time.Duration(w.box.core.Pause(feedback.Tick(w.now)))
	if at := w.now + pause; pause > 0 && (!w.over() || w.s.GoesOn) && (b.ticksAt == 0 || at < b.ticksAt) {
		b.ticksAt = at
		w.schedule.add(event{at: at, kind: tick})
	}
}

// ticked lets time pass for the core, unless the core asked for an earlier tick since.
func (w *world) ticked() {
	b := &w.box
	if w.now != b.ticksAt {
		return
	}
	b.ticksAt = 0
	if b.down > 0 {
		return
	}
	w.notifying = nil
	b.outputs.Reset()
	for b.core.Tick(feedback.Tick(w.now), &b.outputs) {
	}
	w.checkOutputs(nil)
	w.deliver(&b.pass, nil)
	b.core.PutBack()
	w.replay()
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
		// any other frame. What the far box passes on has that box's.
		if !f.touched && !((w.s.Addressing == mft.ByVirtualQPN || h.Far) && h.membership == left) {
			w.fail(Damaged, "an undamaged frame of %s was left to the kernel", hostName(h.number))
		}
		w.record(&h.toSwitch, f, "left to the kernel")
		return false
	}
	w.present(d, h, f, id, kind)
	return true
}

// present makes d frame f of a host as its port delivers it.
func (w *world) present(d *dataplane.Frame, h *host, f *frame, id mft.GroupID, kind dataplane.Kind) {
	d.Group, d.Kind, d.Port = id, kind, w.portOf(h)
	d.Buf, d.Start, d.Chunks[0], d.Kept = f.buf[:], headroom, uint64(f.index), false
	fragment(d, f.data())
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

// deliver sends what is to be sent: replies first, as the worker does. Original is the frame that
// is copied, if any.
func (w *world) deliver(p *pass, original *frame) {
	out := &p.outputs
	for k := range out.Replies {
		r := &out.Replies[k]
		i := w.pool.lend()
		f := w.pool.frames[i]
		b, err := r.Append(f.room())
		if err != nil {
			panic("sim: reply: " + err.Error()) // a scenario has one address family
		}
		f.bytes = len(b)
		w.leave(w.hostOfLeg(r.Leg), i)
	}
	for k := range out.Copies {
		w.sendCopy(p, original, &out.Copies[k])
	}
	for k := range out.Repairs {
		r, again := &out.Repairs[k], &w.box.again
		retained := w.pool.frames[r.Frame.Chunks[0]]
		again.frame, again.ecn, again.late = *r.Frame, ecnOf(retained.data()), p.late
		w.sendCopy(again, retained, &r.Copy)
	}
}

// sendCopy applies an edit to a copy of the received frame. What is wrong in the frame where no
// ICRC covers it, in an IP checksum for instance, stays wrong.
func (w *world) sendCopy(p *pass, original *frame, c *dataplane.Copy) {
	i := w.pool.lend()
	f := w.pool.frames[i]
	f.bytes = copy(f.buf[headroom:], original.data())
	f.inherit(original)
	f.late = p.late
	e := &w.box.edited
	*e = p.frame
	e.Buf = f.buf[:]
	fragment(e, f.data())
	if start := c.Apply(e); start != headroom {
		panic("sim: a copy on an untagged leg starts elsewhere than its original")
	}
	w.checkMark(e, p.ecn)
	switch {
	case w.isShared(c.Path) && w.s.hasFar():
		w.carried.Shared++
		w.checkShared(f)
		w.toFar(i)
	case w.isShared(c.Path):
		w.replicate(i)
	default:
		w.leave(w.hostOfLeg(&c.Path.Leg), i)
	}
}
