package sim

import (
	"slices"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// claim is the content of an ACK to a source: the packets that the receivers have.
type claim struct {
	acked    int // all packets up to this one
	messages int // so many messages
}

// nowhere stands for a packet of a source that the switch has not seen.
const nowhere = -1 << 30

// checkVerdict checks what the core decided about frame f of h, and notes the place of h that f
// shows.
func (w *world) checkVerdict(h *host, f *frame, reason dataplane.Reason) {
	out := &w.box.outputs
	dropped := reason.Verdict() == dataplane.Drop
	switch {
	case f.damaged && !dropped && reason != dataplane.Reason(feedback.Forwarded):
		// The core may forward a new packet without a look at its ICRC: its copies stay damaged.
		w.fail(Damaged, "the switch took a damaged frame of %v: %v", h, reason)
	case dropped && !f.touched && !w.mayDrop(h, f, reason):
		w.fail(Damaged, "the switch dropped an undamaged frame of %v: %v", h, reason)
	case dropped && !w.membersChanged && !w.learns() && !waitsForTurn(reason) && w.claimedAt() == 0 && (len(out.Copies)+len(out.Replies) > 0 || slices.ContainsFunc(out.Notes, isNews)):
		w.fail(Conserved, "a dropped frame of %v (%v) had consequences", h, reason)
	}
	w.membersChanged = false
	switch {
	case waitsForTurn(reason):
		h.blocked++
		w.checkBlocked(h, f, reason)
	case dropped:
	case f.stream != noStream:
		h.place.arrive(int(f.packet))
		h.cameAt = w.now
		h.lives = h.lives || len(h.fatals) > 0 && int(f.packet) <= h.endsAt && h.qp.State() == rnic.StateReady
		if reason != dataplane.Reason(feedback.Gap) { // which is not forwarded
			h.seen = max(h.seen, int(f.packet)+1)
			h.misread += h.plan.hidesEnd(f)
		}
	case w.notifying != nil:
		w.checkNotification(h, reason)
	default:
		w.noteProgress(h, &w.box.frame)
	}
	w.noteCarried()
}

// waitsForTurn reports whether a packet was dropped because its member is not the source yet, or
// because the source must not go on while the next turn is stored.
func waitsForTurn(r dataplane.Reason) bool {
	return r == dataplane.SourceBlocked || r == dataplane.SourceOutOfStep || r == dataplane.SourceWaits
}

// isNews reports whether a note says more than that time has passed, and a member may have its
// turn.
func isNews(n dataplane.Note) bool { return n.What != feedback.NoteWaits }

// mayDrop reports whether the core may drop an undamaged frame: data, when another source is
// active; feedback, when the switch cannot attribute it because it has lost its state, or when the
// receiver does not take part.
func (w *world) mayDrop(h *host, f *frame, reason dataplane.Reason) bool {
	switch reason {
	case dataplane.SourceBlocked, dataplane.SourceOutOfStep, dataplane.SourceWaits:
		return f.stream != noStream && w.tally[SourceChange].Times > 0
	case dataplane.NotReceiver, dataplane.NotMember:
		return h.membership == left
	case dataplane.WrongQPN:
		return h.Far && h.membership == left // others of the far box are members
	case dataplane.Reason(feedback.NotTakingPart):
		return f.stream == noStream
	case dataplane.Reason(feedback.BeyondSent), dataplane.Reason(feedback.OutsideWindow):
		return f.stream == noStream && w.tally[SwitchCrash].Times > 0
	}
	return false
}

// noteProgress notes how far the answers of a receiver have come, by the answer d.
func (w *world) noteProgress(h *host, d *dataplane.Frame) {
	acked := acknowledged(d, h.RecvPSN)
	if v := &d.View; v.Opcode == roce.OpAck && !v.AETH(d.Head()).Syndrome.IsACK() {
		h.asked = acked + 1
	}
	if acked > h.acked {
		h.acked, h.progressAt = acked, w.now
	}
	w.noteGrant(h, d, acked)
}

// acknowledged returns up to which packet answer d acknowledges, as counted from PSN first. A NAK
// acknowledges everything below it.
func acknowledged(d *dataplane.Frame, first roce.PSN) int {
	v, head := &d.View, d.Head()
	acked := int(v.PSN(head).Sub(first))
	if v.Opcode == roce.OpAck && !v.AETH(head).Syndrome.IsACK() {
		acked--
	}
	return acked
}

// checkOutputs checks what the core sends and reports because of f; f is nil if the reason is that
// time has passed.
func (w *world) checkOutputs(f *frame) {
	out, active, claimedAt := &w.box.outputs, w.active, time.Duration(0)
	taking := w.turns.next != nil
	if f != nil && f.stream != noStream || taking {
		claimedAt = w.claimedAt()
	}
	for k := range out.Notes {
		w.checkNote(&out.Notes[k], f)
	}
	for k := range out.Replies {
		r := &out.Replies[k]
		if r.Question {
			w.checkQuestion(r)
			continue
		}
		if !r.CNP {
			w.checkHearer(r, f)
		}
		w.checkReply(r)
	}
	w.checkAsked()
	for k := range out.Notes {
		switch n := &out.Notes[k]; {
		case n.What != feedback.NoteBehind:
		case w.active != active:
			w.checkLeftBehind(n, &w.hosts[w.active], claimedAt)
		case taking && f == nil: // control stores with the turn who is left behind
			w.checkLeftBehind(n, &w.hosts[w.turns.taker], claimedAt)
		default:
			w.checkBehind(n) // after the replies: an ACK may be what leaves the receiver behind
		}
	}
	w.checkCopies(f, out.Copies)
	if _, chunks := w.box.core.Retained(); chunks > w.s.RepairChunks {
		w.fail(Repair, "%d buffers are retained, of %d", chunks, w.s.RepairChunks)
	}
	if n, most := w.box.core.RetainedBytes(w.group.ID), w.s.Policy.RepairBytes; most > 0 && n > most {
		w.fail(Repair, "%d bytes are retained for the group, of %d", n, most)
	}
}

// checkAsked fails if a source is sent the ACK in front of a question, and not the question.
func (w *world) checkAsked() {
	for i := range w.hosts {
		if h := &w.hosts[i]; h.asksFor != nowhere {
			w.fail(Place, "an ACK in front of packet %d, for which %v is not asked", h.asksFor, h)
		}
	}
}

// claimedAt is when the first member wanted to be the next source; from then on receivers have a
// bounded time. 0: none wants to.
func (w *world) claimedAt() (first time.Duration) {
	for i := range w.hosts {
		if at := w.hosts[i].claimedAt; at > 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}

// claimedFor is how long a member has wanted to be the next source.
func (w *world) claimedFor() time.Duration {
	if at := w.claimedAt(); at > 0 {
		return w.now - at
	}
	return 0
}

// checkQuestion fails if a receiver is asked what it has though no source has sent before a crash,
// and no source has let go of anything that the receiver may lack, or has left with it. A receiver
// that has just left may be asked: the core sees that it has left with the next frame.
func (w *world) checkQuestion(r *dataplane.Reply) {
	source := &w.hosts[w.active]
	letGo := w.s.Policy.Ack != feedback.AckAll && w.s.Policy.Repair == feedback.RepairLocal && (source.merged.acked >= 0 || source.membership == left)
	if h := w.hostOfLeg(r.Leg); w.tally[SwitchCrash].Times == 0 && !letGo || !h.counts() && h.membership != left {
		w.fail(Membership, "%v is asked what it has without a cause", h)
	}
}

// checkHearer fails if an answer goes to a host whose packet it does not answer. PSNs of two
// sources may be equal, so that such an answer would look true. The sender of frame f may be
// another one than the active source: it may ask again for the last ACK of its turn.
func (w *world) checkHearer(r *dataplane.Reply, f *frame) {
	h := w.hostOfLeg(r.Leg)
	active := h.number == w.active && h.membership != left
	if !active && !w.membersChanged && (f == nil || int(f.stream) != h.number) {
		w.fail(Truth, "%v hears %v, and the source is %v", h, r.AETH.Syndrome, &w.hosts[w.active])
	}
}

// checkReply compares what a source is about to hear with what the queue pairs of the receivers
// have.
func (w *world) checkReply(r *dataplane.Reply) {
	if r.CNP {
		w.heardNotification(r)
		return
	}
	h := w.hostOfLeg(r.Leg)
	n := h.plan.number(r.PSN)
	now := claim{acked: n, messages: int(r.AETH.MSN)}
	if !r.AETH.Syndrome.IsACK() {
		now.acked--
	}
	at := h.place.at()
	if r.AETH.Syndrome.IsFatal() {
		// A source that is on its way back ignores it, and hears it again when it comes to that
		// packet.
		at = h.place.last
	}
	if first := h.asksFor; first != nowhere {
		h.asksFor = nowhere
		if r.AETH.Syndrome.IsACK() || n != first {
			w.fail(Place, "%v of packet %d, where %v was to be asked for packet %d", r.AETH.Syndrome, n, h, first)
			return
		}
	}
	// What the source was told to resend it may be told again: the first NAK may be lost.
	if s := r.AETH.Syndrome; n > at && !(h.place.sentBack(n) && (s == roce.NAKSequence || s.IsRNR())) && !w.mayCall(h, n, s) {
		w.fail(Place, "%v of packet %d while %v is at %d", r.AETH.Syndrome, n, h, at)
		return
	}
	if s := r.AETH.Syndrome; s.IsFatal() {
		w.checkEnd(h, n, s)
	}
	if now.acked > h.merged.acked || now.messages > h.merged.messages { // else it was true before
		if now.acked > h.ended.acked || now.messages > h.ended.messages {
			w.checkHeld(h, now, r.AETH.Syndrome)
		}
		h.merged.acked, h.merged.messages = max(h.merged.acked, now.acked), max(h.merged.messages, now.messages)
	}
	w.checkMSN(h, n, now, r.AETH)
	if s := r.AETH.Syndrome; s.IsRNR() || s == roce.NAKSequence {
		h.calls.sent = true
		if !h.place.sentBack(n) { // else the switch had a reason the first time
			w.checkSentBack(h, n, s, r.PSN)
		}
		h.place.sendBack(n)
	}
}

// calledAfter is how long a source has been silent at least, since it was heard or since a crash,
// when it is asked what it has sent.
const calledAfter = 50 * time.Millisecond

// mayCall reports whether silent source h may be asked for packet n, which is the first one that it
// has not sent, or an earlier one: after a crash another member waits, and nobody knows where h is.
// The ACK of what lies below goes before the question.
func (w *world) mayCall(h *host, n int, s roce.Syndrome) bool {
	if s.IsACK() {
		n++
		h.asksFor = n
	}
	return isCall(s, &w.group.Policy) && w.tally[SwitchCrash].Times > 0 && n <= h.highest && w.now-h.cameAt >= calledAfter && w.claimedAt() > 0
}

// isCall reports whether s may ask a source what it has sent, or be the ACK in front of that.
func isCall(s roce.Syndrome, p *feedback.Policy) bool {
	return s.IsACK() || s == roce.NAKSequence || s.IsRNR() && p.Repair != feedback.RepairOff
}

// checkSentBack fails if source h is sent back to packet n, which the box can repair. Repair gives
// up where a receiver makes no progress, where memory is short, and where the packet was damaged. A
// source that is silent may be sent back to the newest packet that came.
func (w *world) checkSentBack(h *host, n int, s roce.Syndrome, psn roce.PSN) {
	if s.IsRNR() && w.tally[SwitchCrash].Times > 0 {
		return // for a receiver that has not answered since: nobody knows what it lacks
	}
	if s == roce.NAKSequence && n == h.place.last {
		return
	}
	for i := range w.hosts {
		if r := &w.hosts[i]; s.IsRNR() && r != h && r.counts() && w.lacksForGood(r, h) {
			return
		}
	}
	if c := w.box.core; c.Retains(w.group.ID, psn) && c.GivenUp(w.group.ID) == 0 {
		w.fail(Repair, "%v of packet %d to %v, which is retained, and nothing was given up", s, n, h)
	}
}

// checkMSN checks the MSN that source h hears with packet n, and the credits, which count from that
// MSN. A receiver that has joined counts from a message on that the switch has counted: there a
// damaged packet that was forwarded unchecked makes a difference.
func (w *world) checkMSN(h *host, n int, c claim, a roce.AETH) {
	if whole := h.plan.messagesBefore(max(c.acked+1, 0)); c.messages < whole-h.misread {
		w.fail(Credits, "%v of packet %d has MSN %d, and %d messages of %v end before it", a.Syndrome, n, c.messages, whole, h)
	}
	if a.Syndrome.IsACK() {
		w.checkCredits(h, a)
	}
}

// checkHeld fails unless as many counted receivers as the policy asks for have executed everything
// that is claimed. A receiver that has left may still count until the core has seen that it left.
func (w *world) checkHeld(h *host, c claim, s roce.Syndrome) {
	lacking := w.lacking(h, c, false)
	if lacking == nil || w.membersChanged && w.lacking(h, c, true) == nil {
		return
	}
	w.fail(Truth, "%v: %v is told that packets up to %d and %d messages are delivered; %v, for one, has not got that",
		s, h, c.acked, c.messages, lacking)
}

// endTurn notes what the receivers have at the end of a source's turn. The source may hear of it
// later, when a receiver that had it has left.
func (w *world) endTurn(h *host) {
	if c := (claim{acked: h.seen - 1, messages: h.plan.messagesBefore(h.seen)}); w.lacking(h, c, false) == nil {
		h.ended = c
	}
}

// lacking returns a receiver that has not everything that is claimed, if too few have it, and nil
// otherwise.
func (w *world) lacking(h *host, c claim, withLeavers bool) (lacking *host) {
	have, counted, late := 0, 0, 0
	for i := range w.hosts {
		r := &w.hosts[i]
		if r == h || !r.counts() && !(withLeavers && r.membership == left) {
			continue
		}
		counted += r.weight()
		if next := max(r.next[h.number], r.spared); next > c.acked && h.plan.messagesBefore(next) >= c.messages {
			have += r.weight()
			late = max(late, r.from[h.number])
		} else {
			lacking = r
		}
	}
	need := counted
	if w.s.Policy.Ack != feedback.AckAll {
		need = int(w.s.Policy.Ack)
		for p := h.merged.acked + 1; p < late && p <= c.acked; p++ {
			// A receiver lacks what was sent before it joined.
			have = min(have, w.holders(h, p, withLeavers))
		}
	}
	switch {
	case have >= need:
		return nil
	case lacking == nil:
		return h // there are not as many receivers
	}
	return lacking
}

// holders counts the receivers that have executed packet p of h.
func (w *world) holders(h *host, p int, withLeavers bool) (n int) {
	for i := range w.hosts {
		r := &w.hosts[i]
		if r != h && (r.counts() || withLeavers && r.membership == left) && r.from[h.number] <= p && p < r.next[h.number] {
			n += r.weight()
		}
	}
	return n
}

// checkCompleted checks a message that the program of a source takes for delivered: it must have
// been acknowledged to the source.
func (w *world) checkCompleted(h *host, message int) {
	switch last := h.plan.last[message]; {
	case h.Messages[message].Op == rnic.Read:
		w.fail(Truth, "message %d of %v, a READ, succeeded", message, h)
	case last > h.merged.acked:
		w.fail(Truth, "message %d of %v completed, but it was told of packet %d only", message, h, h.merged.acked)
	}
}

// checkCopies fails if a path gets two copies of a frame, or a copy of anything but data, or a copy
// before its program has said that its queue pair is ready.
func (w *world) checkCopies(f *frame, copies []dataplane.Copy) {
	if len(copies) > 0 && (f == nil || f.stream == noStream) {
		w.fail(Conserved, "a packet that is not data was copied")
	}
	for k := range copies {
		h := w.hostAtIP(copies[k].Path.Dst) // nil: a shared copy, or one for another box
		if p := copies[k].Path; w.s.hasFar() && !w.isShared(p) {
			h = w.hostOfLeg(&p.Leg)
		}
		if h != nil && h.membership == unconfirmed {
			w.fail(Membership, "a copy for %v, which is not ready", h)
		}
		for _, other := range copies[:k] {
			if copies[k].Path.Dst == other.Path.Dst && copies[k].Path.DestQPN == other.Path.DestQPN {
				w.fail(Conserved, "two copies of one frame for %v", other.Path.Dst)
			}
		}
	}
}

// checkNote checks a report about a receiver, and notes what it changes. A fatal NAK and silence
// end the part of a receiver in the group, each if the policy says so.
func (w *world) checkNote(n *dataplane.Note, f *frame) {
	h := w.hostAt(n)
	p := &w.s.Policy
	if w.recorder != nil {
		w.recorder.note(w.now, "news: %v is %v", h, n.What)
	}
	dead := h.qp.State() == rnic.StateError
	ok := true
	switch n.What {
	case feedback.NoteFatal:
		ok, h.fatalHeard = dead, true
	case feedback.NoteEvicted:
		silent := p.Evict && p.SilentAfter > 0 && w.now-h.progressAt >= p.SilentAfter
		ok = p.OnFatal == feedback.FatalEvict && dead || silent
		h.endPart()
		h.outAt = w.now
	case feedback.NoteBehind:
		h.behind, h.outAt = true, w.now // checkBehind looks at it when the source has been told what is due
		if p.Ack == feedback.AckAll {
			h.endPart()
		}
	case feedback.NoteSource:
		before := &w.hosts[w.active]
		w.endTurn(before)
		if w.tally[SwitchCrash].Times > 0 && w.insideMessage(before) {
			w.cut = true
			w.checkCut(before)
		}
		if p.OnFatal == feedback.FatalEvict && len(before.fatals) > 0 && !before.lives {
			before.endPart() // it has ended as a receiver, too
			before.outAt = w.now
		}
		before.forced = p.Switch == feedback.SwitchForce && before.merged.acked < before.seen-1
		w.active = h.number
		for i := range w.hosts {
			w.hosts[i].claimedAt, w.hosts[i].owedAt = 0, 0
		}
	case feedback.NoteWaits:
		for i := range w.hosts {
			w.hosts[i].owedAt = 0 // from now on control is to blame
		}
		if ok = w.s.Turns.Stored && h.number != w.active; !w.chanceOf8(w.s.Turns.LostNotes) {
			w.step(takesTurn)
		}
	case feedback.NoteEdgeLost, feedback.NoteEdgeWorks:
		ok = w.s.Edges.Shares && h.edge.maps != nil
	case feedback.NoteJoined:
		ok = (h.membership == joining || h.membership == unconfirmed && w.needsWaiting(f)) && f != nil && w.joined(h, f)
	}
	if !ok {
		w.fail(Membership, "%v: %v without a cause", h, n.What)
	}
	w.hearsOf(n.What)
}

// insideMessage reports whether some receiver expects a packet of source h that does not begin a
// message. If another member becomes the source, the queue pairs of the receivers refuse its first
// packet.
func (w *world) insideMessage(h *host) bool {
	for i := range w.hosts {
		r := &w.hosts[i]
		if next := r.next[h.number]; r != h && r.counts() && !r.behind && next < len(h.plan.packets) && h.plan.packets[next].offset > 0 {
			return true
		}
	}
	return false
}

// checkCut fails if source h loses its turn inside a message, unless it could not answer when it
// was asked: it has ended, or paused with everything acknowledged that it had sent, or waits for
// the time of an RNR NAK and was deaf to all questions (calledDeaf), or frames of its links were
// lost or late.
func (w *world) checkCut(h *host) {
	t := &w.tally
	faulty := h.ToSwitch.faulty() || h.ToHost.faulty() || t[Burst].Times+t[Cut].Times+t[SlowHost].Times+t[QueueFull].Data+t[QueueFull].Feedback > 0
	switch {
	case h.calledDeaf():
		w.cutDeaf = true
	case !faulty && h.status == rnic.Success && len(h.fatals) == 0 && h.merged.acked < h.highest-1:
		w.fail(Ends, "%v loses its turn inside a message, and has sent packets up to %d, of which %d are acknowledged", h, h.highest-1, h.merged.acked+1)
	}
}

// checkBehind fails unless the receiver of report n, which the core calls behind, lacks a packet
// that it cannot get any more.
func (w *world) checkBehind(n *dataplane.Note) {
	h, p := w.hostAt(n), &w.s.Policy
	switch {
	case p.Ack == feedback.AckAll && (p.Evict || p.Switch == feedback.SwitchForce) && w.tally[SwitchCrash].Times > 0 && w.claimedFor() >= w.showsWithin():
		// It has told nothing since the crash, and the next source can do without it.
	case p.Ack == feedback.AckAll:
		w.fail(Membership, "%v is called behind without a quorum", h)
	case h.takesNothing() || h.qp.State() != rnic.StateReady || h.ToHost.Reorder > 0 || h.ToHost.Late > 0:
		// No switch can tell: a receiver whose packets overtake each other asks for packets that
		// arrive a moment later.
	default:
		w.checkLacksForGood(h, &w.hosts[w.active])
	}
}

// showWithin is how long a receiver has to show the next source what it has, if the policy names
// no time.
const showWithin = 200 * time.Millisecond

func (w *world) showsWithin() time.Duration {
	if p := &w.s.Policy; p.SilentAfter > 0 {
		return p.SilentAfter
	}
	return showWithin
}

// askWithin is how much longer it may take after a crash. After 50 ms the receivers are asked what
// they have, and then the source twice, which has 50 ms to answer. A question or an answer that is
// lost costs 10 ms more, or a timeout if it is late.
func (w *world) askWithin() time.Duration {
	if w.tally[SwitchCrash].Times == 0 {
		return 0
	}
	return 160*time.Millisecond + 8*w.s.ackTimeout()
}

// checkBlocked fails if host h has to wait for its turn for too long, though the source before it
// has heard that everything is acknowledged. That source receives from then on, so as many
// receivers are left as there were for it, unless one has left the group.
func (w *world) checkBlocked(h *host, f *frame, reason dataplane.Reason) {
	before := &w.hosts[w.active]
	if int(f.packet) != h.seen {
		return
	}
	if h.claimedAt == 0 {
		h.claimedAt = w.now
	}
	if reason == dataplane.SourceWaits || slices.ContainsFunc(w.box.outputs.Notes, func(n dataplane.Note) bool { return n.What == feedback.NoteWaits }) {
		return // its turn comes as soon as control has stored it
	}
	receives := before.membership == member && !before.behind && before.weight() >= h.weight()
	spares := w.s.Policy.Ack == feedback.AckAll || receives && w.tally[Leave].Times == 0
	if !spares || w.waitsInVain(h) || w.turns.next != nil || !before.started || !before.over() || before.status != rnic.Success {
		h.owedAt = 0
		return
	}
	if h.owedAt == 0 {
		h.owedAt = w.now
	}
	if w.now-h.owedAt >= w.showsWithin()+w.askWithin() {
		w.fail(Ends, "%v waits for its turn since %v, and %v has ended its own", h, h.owedAt, before)
	}
}

// checkLeftBehind fails unless a source may begin without the receiver of report n: the policy can
// do without it, and the receiver had its time to show that it has everything of the source before.
// With force, it can do without all whom the next source does not need. A source that would have
// too few receivers in any case has nobody to wait for: it hears that it has ended.
func (w *world) checkLeftBehind(n *dataplane.Note, source *host, claimedAt time.Duration) {
	h, p, left, more, told := w.hostAt(n), &w.s.Policy, 0, 0, 0
	for i := range w.hosts {
		r := &w.hosts[i]
		ended := r.fatalHeard || len(r.fatals) > 0 && !r.lives
		if r != source && !ended && (r.counts() && !r.behind || r.membership == joining || r.membership == unconfirmed) {
			left += r.weight()
		}
		if w.tally[SwitchCrash].Times > 0 && !r.fatalHeard && len(r.fatals) > 0 && r.qp.State() == rnic.StateReady {
			told += r.weight() // it has not heard the NAK that ends it, and may have told since the crash what it has
		}
	}
	for k := range w.box.outputs.Notes {
		if n := &w.box.outputs.Notes[k]; n.What == feedback.NoteBehind && w.hostAt(n) != source {
			more += w.hostAt(n).weight()
		}
	}
	forced, least := p.Switch == feedback.SwitchForce, max(1, int(p.Ack))
	ended := left+more < least
	switch {
	case p.Ack == feedback.AckAll && !p.Evict && !forced && !ended:
		w.fail(Membership, "%v is left behind, and nobody can be spared", h)
	case left+told < least && !ended:
		w.fail(Membership, "%v is left behind, and %d receivers are left for %v", h, left, source)
	case !forced && (claimedAt == 0 || w.now-claimedAt < w.showsWithin()):
		w.fail(Membership, "%v is left behind %v after a member wanted to be the source", h, w.now-claimedAt)
	}
}

// checkLacksForGood fails if receiver h can still get the next packet of source that it has to
// execute: the packet was not acknowledged to the source, so the source resends it; or a copy is on
// its way to h. The core may name an earlier packet, because answers of h may be lost.
func (w *world) checkLacksForGood(h, source *host) {
	switch next := h.next[source.number]; {
	case source.membership == left: // it hears no answer, and resends nothing
	case next > source.merged.acked:
		w.fail(Membership, "%v is called behind, lacks packet %d of %v, and that was told of packet %d only",
			h, next, source, source.merged.acked)
	case w.onItsWay(h, source, next):
		w.fail(Membership, "%v is called behind, lacks packet %d of %v, and a copy is on its way to it", h, next, source)
	}
}

// onItsWay reports whether an undamaged copy of packet n of source will arrive at h. The copy may
// be older than a restart of the switch: a switch comes back faster here than its copies arrive.
func (w *world) onItsWay(h, source *host, n int) bool {
	for i := range w.schedule.heap {
		e := &w.schedule.heap[i]
		if e.kind != atHost || int(e.host) != h.number {
			continue
		}
		if f := w.pool.frames[e.index]; int(f.stream) == source.number && int(f.packet) == n && !f.damaged && !f.touched {
			return true
		}
	}
	return false
}

// needsWaiting reports whether too few receivers are left without those that wait, for packet f: a
// quorum does not count who has joined while packets before are open.
func (w *world) needsWaiting(f *frame) bool {
	left := 0
	for i := range w.hosts {
		r := &w.hosts[i]
		ended := r.fatalHeard || len(r.fatals) > 0 && !r.lives
		fresh := w.s.Policy.Ack != feedback.AckAll && f != nil && r.from[f.stream] > w.hosts[f.stream].merged.acked+1
		if i != w.active && !ended && (r.membership == joining || r.counts() && !r.behind && !fresh) {
			left += r.weight()
		}
	}
	return left < max(1, int(w.s.Policy.Ack))
}

// joined lets a receiver join with data packet f, and reports whether f is the first packet of a
// message.
func (w *world) joined(h *host, f *frame) bool {
	for stream := range h.next {
		// The next turn of a source begins where its last one ended.
		h.next[stream] = w.hosts[stream].seen
	}
	h.membership, h.progressAt = member, w.now
	h.next[f.stream] = int(f.packet)
	copy(h.from, h.next)
	return w.hosts[f.stream].plan.packets[f.packet].offset == 0
}

func (w *world) hostAt(n *dataplane.Note) *host {
	for i := range w.hosts {
		if w.qp(i) == (mft.QP{IP: n.Receiver, RemoteQPN: n.RemoteQPN}) {
			return &w.hosts[i]
		}
	}
	panic("sim: news of a stranger: " + n.Receiver.String())
}
