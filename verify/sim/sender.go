package sim

import (
	"time"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/roce"
)

// sender is the sending half of a host: the program that posts the messages, and what the oracle
// knows of the stream.
type sender struct {
	plan      plan
	started   bool
	posted    int // messages
	completed int // messages
	status    rnic.Status
	highest   int // packets that were sent, resent ones not counted

	sending  bool          // a transmit event is scheduled
	thinking bool          // a post event is scheduled
	expireAt time.Duration // time of the earliest expire event, or rnic.Never

	place   place
	calls   calls
	asksFor int // it was sent an ACK that is true only in front of a question for this packet; or nowhere
	// When the switch heard it last, or came back from a crash.
	cameAt time.Duration
	seen   int   // one more than the highest packet that the switch took
	merged claim // the most that it was told
	ended  claim // what the receivers had at the end of its turn
	forced bool  // it lost its turn by force, before everything was acknowledged to it
	fatals []fatal
	endsAt int  // the packet that it was told of last with these
	lives  bool // it has not heard these: it has come to that packet again, or the switch has forgotten them in a crash

	flights []flight // by message
	// When it first wanted its next turn, and when since the source before it has ended its own.
	claimedAt, owedAt time.Duration
	blocked           int // packets that the switch dropped because another source was active
	misread           int // damaged packets in whose place the switch saw one message less end
}

func (s *sender) reset(sc *Scenario, h *Host) {
	flights := append(s.flights[:0], make([]flight, len(h.Messages))...)
	*s = sender{plan: s.plan, expireAt: rnic.Never, place: unplaced, asksFor: nowhere, merged: claim{acked: -1}, ended: claim{acked: -1}, fatals: s.fatals[:0], flights: flights}
	s.plan.lay(sc, h)
}

// flight is the way of one message.
type flight struct {
	postedAt  time.Duration
	arrivedAt time.Duration // at the host that had all of it last
	missing   int           // relay: completions of its slices that senders wait for
}

// place is where a source is in its round, as far as the switch can know: the switch may not
// acknowledge packets beyond it.
type place struct {
	last   int // the packet that the switch took last
	goBack int // it was told to go back to this packet, and has not yet; or nowhere
}

// unplaced is the place of a source that the switch has not heard.
var unplaced = place{last: nowhere, goBack: nowhere}

// at returns the place. A source that was told to go back counts as being there, because it hears
// that before it hears what is sent later.
func (p *place) at() int {
	if p.goBack != nowhere {
		return min(p.last, p.goBack-1)
	}
	return p.last
}

// sendBack notes that the source is told to go back to packet n.
func (p *place) sendBack(n int) { p.goBack = n }

// sentBack reports whether the source may be told again to go back to packet n. It may not while it
// is below that: it went back further, and what is told acknowledges everything below n.
func (p *place) sentBack(n int) bool { return n == p.goBack && n <= p.last }

// arrive notes that packet n came. The source has gone back when the packet comes that it was told
// to resend, or one behind that packet after a step back. All other packets were sent before the
// source heard the NAK.
func (p *place) arrive(n int) {
	if n == p.goBack || n <= p.last && n > p.goBack {
		p.goBack = nowhere
	}
	p.last = n
}

// calls is what a source may know of the NAKs with which the switch has called it back since the
// newest crash, or has asked it what it has sent (mayCall).
type calls struct {
	sent  bool // there was one
	came  bool // one has come
	heard bool // the source could hear one that has come
}

// calledDeaf reports whether source h has heard no question since a crash, because it waits for the
// time of an RNR NAK from before the crash, and its timer has run out in that time, or another NAK
// has come.
func (h *host) calledDeaf() bool {
	return h.qp.State() == rnic.StateReady && h.qp.Deaf() && h.calls.came && !h.calls.heard
}

// over reports whether the program has heard of everything it posted, and posts no more.
func (s *sender) over() bool {
	return !s.started || s.completed == len(s.plan.messages) || s.status != rnic.Success && s.completed == s.posted
}

// start makes the program of a host begin to send.
func (w *world) start(h *host) {
	h.started = true
	w.postMore(h)
}

// postMore posts as many messages as the program wants outstanding.
func (w *world) postMore(h *host) {
	for h.started && h.status == rnic.Success && h.posted < len(h.Messages) && h.posted-h.completed < h.Outstanding {
		w.postMessage(h, h.posted)
		h.posted++
	}
	w.pump(h)
}

func (w *world) postMessage(h *host, i int) {
	h.flights[i].postedAt = w.now
	m, id, data := &h.Messages[i], uint64(i), h.plan.data(i)
	to := w.virtual(m)
	var err error
	switch m.Op {
	case rnic.Write:
		err = h.qp.PostWrite(id, data, to)
	case rnic.WriteImm:
		err = h.qp.PostWriteImm(id, data, to, m.Imm)
	case rnic.Send:
		err = h.qp.PostSend(id, data)
	case rnic.SendImm:
		err = h.qp.PostSendImm(id, data, m.Imm)
	case rnic.Read:
		err = h.qp.PostRead(id, m.Bytes, to)
	}
	if err != nil {
		panic("sim: post: " + err.Error()) // the program keeps to the depth of the queue
	}
}

// resume lets the program post again after messages have completed, when it has thought.
func (w *world) resume(h *host) {
	switch {
	case h.Think == 0:
		w.postMore(h)
	case !h.thinking && h.posted < len(h.Messages):
		h.thinking = true
		w.schedule.add(event{at: w.now + h.Think, kind: post, host: int32(h.number)})
	}
}

// pump sends the next packet if the link is idle, and otherwise schedules itself for when the link
// will be idle.
func (w *world) pump(h *host) {
	if h.sending || !h.started {
		return
	}
	if h.toSwitch.freeAt > w.now {
		w.pumpAt(h, h.toSwitch.freeAt)
		return
	}
	i := w.pool.lend()
	f := w.pool.frames[i]
	b := h.qp.Transmit(w.now, f.room())
	if b == nil {
		w.pool.giveBack(i)
	} else {
		f.bytes, f.stream, f.packet = len(b), int32(h.number), int32(h.plan.number(sentPSN(b)))
		w.triggerFaults(h, int(f.packet))
		w.sendOut(h, i)
		w.pumpAt(h, max(h.toSwitch.freeAt, w.now+1))
	}
	w.watchDeadline(h)
}

func (w *world) pumpAt(h *host, at time.Duration) {
	h.sending = true
	w.schedule.add(event{at: at, kind: transmit, host: int32(h.number)})
}

// sentPSN reads the PSN of a frame that a requester has built.
func sentPSN(b []byte) roce.PSN {
	var v roce.View
	if err := v.Decode(b, len(b)); err != nil {
		panic("sim: a source built a bad frame: " + err.Error())
	}
	return v.PSN(b)
}

// triggerFaults begins the timed faults that wait for a source to send packet n.
func (w *world) triggerFaults(h *host, n int) {
	for ; h.highest <= n; h.highest++ {
		for k := range w.s.Timed {
			f := &w.s.Timed[k]
			if waits := h.number == 0 && f.Kind != SourceLeave || f.Kind == SourceLeave && h.number == f.Host; waits && f.AfterPacket == h.highest {
				w.schedule.add(event{at: w.now + f.Delay, kind: faultBegins, index: int32(k)})
			}
		}
	}
}

// watchDeadline schedules an expire event for the next deadline of the source. If the deadline
// moves later, the event looks at it again.
func (w *world) watchDeadline(h *host) {
	if d := h.qp.NextDeadline(); d < h.expireAt {
		h.expireAt = d
		w.schedule.add(event{at: d, kind: expire, host: int32(h.number)})
	}
}

func (w *world) expired(h *host) {
	if w.now < h.expireAt {
		return // an earlier event replaced this one
	}
	h.expireAt = rnic.Never
	h.qp.Tick(w.now)
	w.afterQP(h)
}

// takeCompletion handles the completion of one message, as the program hears of it.
func (w *world) takeCompletion(h *host, c rnic.Completion) {
	i := h.completed
	h.completed++
	w.took = w.now
	if w.recorder != nil {
		w.recorder.note(w.now, "%s: %v", hostName(h.number), c)
	}
	switch {
	case c.WRID != uint64(i):
		w.fail(Ends, "%s: %v, where message %d was next", hostName(h.number), c, i)
	case c.Status == rnic.Success && h.status != rnic.Success:
		w.fail(Ends, "%s: %v, after %v", hostName(h.number), c, h.status)
	case c.Status == rnic.Success:
		w.checkCompleted(h, i)
	case h.status == rnic.Success:
		h.status = c.Status
		w.checkError(h, i, c.Status)
	case c.Status != rnic.WRFlushed:
		w.fail(Ends, "%s: %v, after %v", hostName(h.number), c, h.status)
	}
}
