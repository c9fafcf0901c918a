package sim

import (
	"bytes"
	"fmt"
	"time"

	"github.com/rocast/rocast/bench/rnic"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
)

// Invariant is what a run must never break.
type Invariant uint8

const (
	// Truth: nothing is acknowledged to the source, by ACK, NAK or MSN, that a counted receiver lacks; and no message completes
	// that one lacks.
	Truth Invariant = iota
	// Place: no ACK or NAK beyond the source's place.
	Place
	// Memory: what a receiver executed is where it belongs, as it was written at that PSN, and nothing else is.
	Memory
	// Damaged: a damaged frame moves nothing, an undamaged one is refused by nobody.
	Damaged
	// Conserved: a frame is delivered, lost for a reason, or on its way; a path gets one copy of it at most.
	Conserved
	// Membership: nobody leaves the group but for a reason the policy knows.
	Membership
	// Ends: the run ends in time, with everything delivered or with the error that was promised.
	Ends

	numInvariants
)

var invariantNames = [numInvariants]string{"truth", "place", "memory", "damaged", "conserved", "membership", "ends"}

func (i Invariant) String() string { return invariantNames[i] }

// Failure is a broken invariant.
type Failure struct {
	Invariant Invariant
	At        time.Duration
	What      string
}

func (f *Failure) Error() string { return fmt.Sprintf("%v: %s (at %v)", f.Invariant, f.What, f.At) }

// fail notes the first broken invariant, which ends the run.
func (w *world) fail(i Invariant, format string, args ...any) {
	if w.failure == nil {
		w.failure = &Failure{Invariant: i, At: w.now, What: fmt.Sprintf(format, args...)}
	}
}

// nowhere is the source's place for a switch that has not seen it.
const nowhere = -1 << 30

// nobody stands for a host where time alone made the core act.
const nobody = -1

// checkVerdict looks at what the core made of a frame of host as such, and notes where that puts the source or the receiver.
func (w *world) checkVerdict(host int, f *frame, reason dataplane.Reason) {
	out := &w.box.outputs
	dropped := reason.Verdict() == dataplane.Drop
	switch {
	case f.damaged && !dropped:
		w.fail(Damaged, "the switch took a damaged frame of %s: %v", hostName(host), reason)
	case dropped && !f.touched && !w.mayDrop(host, reason):
		w.fail(Damaged, "the switch dropped an undamaged frame of %s: %v", hostName(host), reason)
	case dropped && len(out.Copies)+len(out.Replies)+len(out.Notes) > 0:
		w.fail(Conserved, "a dropped frame of %s (%v) had consequences", hostName(host), reason)
	}
	if dropped {
		return
	}
	psn := w.box.frame.View.PSN(f.data())
	if host == 0 {
		w.place = w.plan.number(psn)
		return
	}
	r := &w.receivers[host-1]
	if n := psn.Sub(r.FirstPSN); n > r.heard {
		r.heard, r.heardAt = n, w.now
	}
}

// checkOutputs looks at what the core wants sent, and said, because of a frame of host.
func (w *world) checkOutputs(host int) {
	out := &w.box.outputs
	for k := range out.Notes {
		w.checkNote(&out.Notes[k])
	}
	for k := range out.Replies {
		w.checkReply(&out.Replies[k])
	}
	w.checkCopies(host)
}

// mayDrop says whether an undamaged frame may be refused: only feedback that the switch cannot place, because it forgot where
// it was, or because its receiver no longer takes part.
func (w *world) mayDrop(host int, reason dataplane.Reason) bool {
	if host == 0 {
		return false
	}
	switch reason {
	case dataplane.Reason(feedback.NotTakingPart):
		return true
	case dataplane.Reason(feedback.BeyondSent), dataplane.Reason(feedback.OutsideWindow):
		return w.tally[SwitchCrash].Times > 0
	}
	return false
}

// checkReply holds what the source is about to hear against what the receivers' queue pairs have.
func (w *world) checkReply(r *dataplane.Reply) {
	if r.CNP {
		return
	}
	n := w.plan.number(r.PSN)
	acked := n
	if !r.AETH.Syndrome.IsACK() {
		acked-- // a NAK acknowledges everything below it
	}
	if n > w.place {
		w.fail(Place, "%v of packet %d while the source is at %d", r.AETH.Syndrome, n, w.place)
	}
	messages := int(r.AETH.MSN)
	if acked <= w.told.acked && messages <= w.told.messages {
		return // said before, when it was true
	}
	w.checkHeld(acked, messages, r.AETH.Syndrome.String())
	w.told.acked, w.told.messages = max(w.told.acked, acked), max(w.told.messages, messages)
}

// claim is what a source was told that the receivers have.
type claim struct {
	acked    int // packets up to this one
	messages int // so many
}

// checkHeld fails unless as many counted receivers as the policy asks for have executed packet acked, and as many messages.
func (w *world) checkHeld(acked, messages int, who string) {
	have, counted, lacking := 0, 0, 0
	for i := range w.receivers {
		r := &w.receivers[i]
		if r.evicted {
			continue
		}
		counted++
		if r.executed > acked && int(r.qp.Counters().Get(rnic.MessagesReceived)) >= messages {
			have++
		} else {
			lacking = r.number
		}
	}
	need := counted
	if w.s.Policy.Ack != feedback.AckAll {
		need = int(w.s.Policy.Ack)
	}
	if have >= need {
		return
	}
	w.fail(Truth, "%s: up to packet %d and %d messages, but %d of %d counted receivers have that; %s has %d packets", who, acked, messages,
		have, need, hostName(lacking), w.receivers[max(lacking,1)-1].executed)
}

// checkCompleted looks at a message that the source's program takes for delivered: the source must have been told so.
func (w *world) checkCompleted(message int) {
	switch last := w.plan.messages[message].last; {
	case w.s.Messages[message].Op == rnic.Read:
		w.fail(Truth, "message %d, a READ, succeeded", message)
	case last > w.told.acked:
		w.fail(Truth, "message %d completed, but the source was told of packet %d only", message, w.told.acked)
	}
}

// checkCopies fails if a path would get a frame twice, or feedback.
func (w *world) checkCopies(host int) {
	copies := w.box.outputs.Copies
	if host != 0 && len(copies) > 0 {
		w.fail(Conserved, "what is no data was copied")
	}
	for k := range copies {
		for _, other := range copies[:k] {
			if copies[k].Path == other.Path {
				w.fail(Conserved, "two copies of one frame for %v", other.Path.Dst)
			}
		}
	}
}

// checkNote takes news of who takes part. Two things end that, each if the policy says so: a fatal NAK, and silence.
func (w *world) checkNote(n *dataplane.Note) {
	r := w.receiverAt(n)
	switch n.What {
	case feedback.NoteFatal:
		if r.qp.State() != rnic.StateError {
			w.fail(Membership, "%s was called dead, and is well", hostName(r.number))
		}
	case feedback.NoteEvicted:
		r.evicted = true
		p := &w.s.Policy
		dead := p.OnFatal == feedback.FatalEvict && r.qp.State() == rnic.StateError
		silent := p.Evict && p.SilentAfter > 0 && w.now-r.heardAt >= p.SilentAfter
		if !dead && !silent {
			w.fail(Membership, "%s was evicted without a cause", hostName(r.number))
		}
	case feedback.NoteBehind:
		if w.s.Policy.Ack == feedback.AckAll {
			w.fail(Membership, "%s was left behind, and everyone counts", hostName(r.number))
		}
	}
}

func (w *world) receiverAt(n *dataplane.Note) *receiver {
	for i := range w.receivers {
		if w.address(i+1) == n.Receiver {
			return &w.receivers[i]
		}
	}
	panic("sim: news of a stranger: " + n.Receiver.String())
}

// rejected are the frames that a queue pair refused as such, by reason.
type rejected [rnic.RejectResponse + 1]uint64

func rejections(qp *rnic.QP) rejected { return rejected(qp.Counters().Count[:rnic.RejectResponse+1]) }

// checkAccepted looks at what a queue pair thought of a frame as such.
func (w *world) checkAccepted(host int, f *frame, qp *rnic.QP, before rejected) {
	after := rejections(qp)
	switch {
	case f.damaged && after == before:
		w.fail(Damaged, "%s accepted a damaged frame", hostName(host))
	case after != before && !f.touched && qp.State() == rnic.StateReady:
		w.fail(Damaged, "%s refused an undamaged frame: %v", hostName(host), rnic.Counter(differs(before[:], after[:])))
	}
	if v, any := qp.Violation(); any {
		w.fail(Place, "%s: %v", hostName(host), v)
	}
}

// checkExecuted looks at the memory of a receiver that has just executed a packet.
func (w *world) checkExecuted(r *receiver) {
	n := r.executed
	r.executed++
	switch {
	case n >= len(w.plan.packets):
		w.fail(Memory, "%s executed a packet that was never sent", hostName(r.number))
	case w.plan.reads(n):
		w.fail(Memory, "%s executed packet %d, a READ", hostName(r.number), n)
	case !bytes.Equal(w.plan.arrived(n, r.memory, r.inbox), w.plan.payload(n)):
		w.fail(Memory, "%s: packet %d is not in its memory as it was sent", hostName(r.number), n)
	}
}

// checkReceived looks at what a receiver's program hears.
func (w *world) checkReceived(r *receiver, c rnic.Completion) {
	i := w.plan.taker(r.received)
	if i < 0 || c.WRID != uint64(r.received) {
		w.fail(Memory, "%s: receive %d completed: %v", hostName(r.number), r.received, c)
		return
	}
	m := &w.s.Messages[i]
	want := rnic.Completion{WRID: c.WRID, Op: rnic.Recv, Bytes: uint32(m.Bytes)}
	if m.Op != rnic.Send {
		want.HasImm, want.Imm = true, m.Imm
	}
	if m.Op == rnic.WriteImm {
		want.Op = rnic.RecvWriteImm
	}
	if c != want {
		w.fail(Memory, "%s: message %d completed as %v, not as %v", hostName(r.number), i, c, want)
	}
}

// checkConserved adds up every link, and all frames in flight.
func (w *world) checkConserved() {
	flying := w.checkLink(&w.source.toSwitch) + w.checkLink(&w.source.toHost)
	for i := range w.receivers {
		flying += w.checkLink(&w.receivers[i].toSwitch) + w.checkLink(&w.receivers[i].toHost)
	}
	if int(flying) != w.pool.lent() {
		w.fail(Conserved, "%d frames are lent and %d are on links", w.pool.lent(), flying)
	}
}

func (w *world) checkLink(l *link) (flying uint64) {
	if l.offered+l.doubled != l.delivered+l.lost+l.flying {
		w.fail(Conserved, "%v: %d frames and %d twins in, %d out, %d lost, %d in flight",
			l, l.offered, l.doubled, l.delivered, l.lost, l.flying)
	}
	return l.flying
}

// checkBooks compares, when all is over, what one party counts as sent with what the next one counts as received.
func (w *world) checkBooks() {
	arrived := w.source.toSwitch.delivered
	w.checkHostBooks(0, w.source.qp, &w.source.toSwitch, &w.source.toHost, 0)
	for i := range w.receivers {
		r := &w.receivers[i]
		arrived += r.toSwitch.delivered
		w.checkHostBooks(r.number, r.qp, &r.toSwitch, &r.toHost, r.unheard)
	}
	lost := w.tally[SwitchCrash].Data + w.tally[SwitchCrash].Feedback
	if w.box.received+lost != arrived {
		w.fail(Conserved, "%d frames arrived at the switch: it took %d, and %d while it was down", arrived, w.box.received, lost)
	}
}

func (w *world) checkHostBooks(host int, qp *rnic.QP, out, in *link, unheard uint64) {
	c := qp.Counters()
	sent, taken := uint64(0), c.Rejected()+c.Get(rnic.CNPsReceived)
	for op := range c.FramesOut {
		sent += c.FramesOut[op]
		taken += c.FramesIn[op]
	}
	if sent != out.offered || taken+unheard != in.delivered {
		w.fail(Conserved, "%s sent %d frames, %d came out; it took %d of %d", hostName(host), sent, out.offered, taken, in.delivered)
	}
}
