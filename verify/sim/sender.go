package sim

import (
	"time"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/roce"
)

// sender is the sending half of a host: the program that posts the messages, and what the oracle knows of its stream.
type sender struct {
	plan    plan
	started bool
	posted  int // messages
	ended   int // messages that completed
	status  rnic.Status
	highest int // packets sent for the first time

	sending  bool          // a transmit event is scheduled
	thinking bool          // a post event is
	expireAt time.Duration // the earliest expire event scheduled, or rnic.Never

	place   place
	reached int   // packets that the switch ever took, up to the highest
	told    claim // what was acknowledged to it so far
	endings []ending
	blocked int // its packets that the switch did not take because another source was active
}

func (s *sender) reset(sc *Scenario, h *Host) {
	*s = sender{plan: s.plan, expireAt: rnic.Never, place: unplaced, told: claim{acked: -1}, endings: s.endings[:0]}
	s.plan.lay(sc, h)
}

// place is where a source is in its round, as the switch can know it: the source may not hear of a packet beyond that.
type place struct {
	last   int // the packet that the switch took last
	goBack int // the packet that the source was told to go back to, and is not seen to have; nowhere: none
}

// unplaced is the place of a source for a switch that has not seen it.
var unplaced = place{last: nowhere, goBack: nowhere}

// at is the place: a source that was told to go back is there, because it hears that before it hears what is told later.
func (p *place) at() int {
	if p.goBack != nowhere {
		return min(p.last, p.goBack-1)
	}
	return p.last
}

// sendBack notes that the source is told to go back to packet n.
func (p *place) sendBack(n int) { p.goBack = n }

// arrive notes that packet n came. The source has gone back when the packet that it was told to resend comes, or one behind
// that after a step back. Other packets were sent before it heard.
func (p *place) arrive(n int) {
	if n == p.goBack || n <= p.last && n > p.goBack {
		p.goBack = nowhere
	}
	p.last = n
}

// over says whether the program has heard of all it posted, and posts no more.
func (s *sender) over() bool {
	return !s.started || s.ended == len(s.plan.messages) || s.status != rnic.Success && s.ended == s.posted
}

// start makes a host a source.
func (w *world) start(h *host) {
	h.started = true
	w.postMore(h)
}

// postMore posts messages as far as the program wants.
func (w *world) postMore(h *host) {
	for h.status == rnic.Success && h.posted < len(h.Messages) && h.posted-h.ended < h.Outstanding {
		w.postMessage(h, h.posted)
		h.posted++
	}
	w.pump(h)
}

func (w *world) postMessage(h *host, i int) {
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
		panic("sim: post: " + err.Error()) // the program keeps to the queue's depth
	}
}

// goOn posts again after messages have completed, when the program has thought.
func (w *world) goOn(h *host) {
	switch {
	case h.Think == 0:
		w.postMore(h)
	case !h.thinking && h.posted < len(h.Messages):
		h.thinking = true
		w.schedule.add(event{at: w.now + h.Think, kind: post, host: int32(h.number)})
	}
}

// pump sends the next packet if the link is idle, and comes back when it is again.
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
		w.reached(h, int(f.packet))
		w.send(&h.toSwitch, i)
		w.pumpAt(h, max(h.toSwitch.freeAt, w.now+1))
	}
	w.watchDeadline(h)
}

func (w *world) pumpAt(h *host, at time.Duration) {
	h.sending = true
	w.schedule.add(event{at: at, kind: transmit, host: int32(h.number)})
}

// sentPSN reads the PSN of a frame that our own requester built.
func sentPSN(b []byte) roce.PSN {
	var v roce.View
	if err := v.Decode(b, len(b)); err != nil {
		panic("sim: a source built a bad frame: " + err.Error())
	}
	return v.PSN(b)
}

// reached begins the timed faults that wait for the first source to send packet n.
func (w *world) reached(h *host, n int) {
	for ; h.highest <= n; h.highest++ {
		for k := range w.s.Timed {
			if f := &w.s.Timed[k]; h.number == 0 && f.AfterPacket == h.highest {
				w.schedule.add(event{at: w.now + f.Delay, kind: begin, index: int32(k)})
			}
		}
	}
}

// watchDeadline has the source woken when its next timer runs out. A deadline that moved out since is looked at again then.
func (w *world) watchDeadline(h *host) {
	if d := h.qp.NextDeadline(); d < h.expireAt {
		h.expireAt = d
		w.schedule.add(event{at: d, kind: expire, host: int32(h.number)})
	}
}

func (w *world) expired(h *host) {
	if w.now < h.expireAt {
		return // an earlier one took its place
	}
	h.expireAt = rnic.Never
	h.qp.Tick(w.now)
	w.afterQP(h)
}

// completed takes the end of one message as the program hears of it.
func (w *world) completed(h *host, c rnic.Completion) {
	i := h.ended
	h.ended++
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
