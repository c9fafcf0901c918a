package sim

import (
	"time"

	"github.com/rocast/rocast/bench/rnic"
	"github.com/rocast/rocast/roce"
)

// source is the sending host: its queue pair and the program that posts the messages.
type source struct {
	qp       *rnic.QP
	toSwitch link
	toHost   link

	posted  int // messages
	ended   int // messages that completed
	status  rnic.Status
	highest int // packets sent for the first time

	sending  bool          // a transmit event is scheduled
	thinking bool          // a post event is
	expireAt time.Duration // the earliest expire event scheduled, or rnic.Never
}

func (w *world) openSource() error {
	s := w.s
	cfg := rnic.Config{
		MAC: hostMAC(0), IP: w.address(0), QPN: hostQPN(0), SendPSN: s.FirstPSN, MTUBytes: s.MTUBytes,
		Timeout: s.Timeout, RetryCount: s.RetryCount, RNRRetry: s.RNRRetry, SendDepth: s.Outstanding, RecvDepth: 1,
	}
	src := &w.source
	*src = source{expireAt: rnic.Never}
	src.toSwitch.reset(&s.Source.ToSwitch, 0, true)
	src.toHost.reset(&s.Source.ToHost, 0, false)
	var err error
	if src.qp, err = rnic.NewQP(cfg, new(rnic.Memory)); err != nil {
		return err
	}
	return src.qp.Connect(rnic.Peer{MAC: switchMAC, IP: w.group.Source.Src, QPN: w.group.QPN, PSN: 1})
}

// postMore posts messages as far as the program wants.
func (w *world) postMore() {
	src := &w.source
	for src.status == rnic.Success && src.posted < len(w.s.Messages) && src.posted-src.ended < w.s.Outstanding {
		w.postMessage(src.posted)
		src.posted++
	}
	w.pump()
}

func (w *world) postMessage(i int) {
	m := &w.s.Messages[i]
	id, data, qp := uint64(i), w.plan.data(i), w.source.qp
	to := w.virtual(m)
	var err error
	switch m.Op {
	case rnic.Write:
		err = qp.PostWrite(id, data, to)
	case rnic.WriteImm:
		err = qp.PostWriteImm(id, data, to, m.Imm)
	case rnic.Send:
		err = qp.PostSend(id, data)
	case rnic.SendImm:
		err = qp.PostSendImm(id, data, m.Imm)
	case rnic.Read:
		err = qp.PostRead(id, m.Bytes, to)
	}
	if err != nil {
		panic("sim: post: " + err.Error()) // the program keeps to the queue's depth
	}
}

// pump sends the next packet if the link is idle, and comes back when it is again.
func (w *world) pump() {
	src := &w.source
	if src.sending {
		return
	}
	if src.toSwitch.idleAt > w.now {
		src.sending = true
		w.schedule.add(event{at: src.toSwitch.idleAt, kind: transmit})
		return
	}
	i := w.pool.lend()
	f := w.pool.frames[i]
	b := src.qp.Transmit(w.now, f.room())
	if b == nil {
		w.pool.giveBack(i)
		w.watchDeadline()
		return
	}
	f.bytes = len(b)
	w.reached(w.plan.number(sentPSN(b)))
	w.send(&src.toSwitch, i)
	src.sending = true
	w.schedule.add(event{at: max(src.toSwitch.idleAt, w.now+1), kind: transmit})
	w.watchDeadline()
}

// sentPSN reads the PSN of a frame that our own requester built.
func sentPSN(b []byte) roce.PSN {
	var v roce.View
	if err := v.Decode(b, len(b)); err != nil {
		panic("sim: the source built a bad frame: " + err.Error())
	}
	return v.PSN(b)
}

// reached begins the timed faults that wait for packet n to be sent.
func (w *world) reached(n int) {
	for ; w.source.highest <= n; w.source.highest++ {
		for k := range w.s.Timed {
			if f := &w.s.Timed[k]; f.AfterPacket == w.source.highest {
				w.schedule.add(event{at: w.now + f.Delay, kind: begin, index: int32(k)})
			}
		}
	}
}

// watchDeadline has the source woken when its next timer runs out. A deadline that moved out since is looked at again then.
func (w *world) watchDeadline() {
	src := &w.source
	if d := src.qp.NextDeadline(); d < src.expireAt {
		src.expireAt = d
		w.schedule.add(event{at: d, kind: expire})
	}
}

func (w *world) expired() {
	src := &w.source
	if w.now < src.expireAt {
		return // an earlier one took its place
	}
	src.expireAt = rnic.Never
	src.qp.Tick(w.now)
	w.afterSource()
}

// toSource hands frame i to the source.
func (w *world) toSource(i int32) {
	f := w.pool.frames[i]
	before := rejections(w.source.qp)
	w.source.qp.Receive(w.now, f.data(), nil)
	w.checkAccepted(0, f, w.source.qp, before)
	w.record(&w.source.toHost, f, "arrived")
	w.pool.giveBack(i)
	w.afterSource()
}

// afterSource takes completions and lets the source go on.
func (w *world) afterSource() {
	src := &w.source
	ended := src.ended
	for {
		c, ok := src.qp.Poll()
		if !ok {
			break
		}
		w.completed(c)
		src.ended++
		w.took = w.now
	}
	switch {
	case src.ended == ended:
	case w.s.Think == 0:
		w.postMore()
	case !src.thinking && src.posted < len(w.s.Messages):
		src.thinking = true
		w.schedule.add(event{at: w.now + w.s.Think, kind: post})
	}
	w.pump()
}

// completed takes the end of one message as the program hears of it.
func (w *world) completed(c rnic.Completion) {
	src := &w.source
	if c.WRID != uint64(src.ended) {
		w.fail(Ends, "message %d completed after message %d", c.WRID, src.ended-1)
	}
	if w.recorder != nil {
		w.recorder.note(w.now, "a: %v", c)
	}
	switch {
	case c.Status == rnic.Success && src.status != rnic.Success:
		w.fail(Ends, "%v, after %v", c, src.status)
	case c.Status == rnic.Success:
		w.checkCompleted(src.ended)
	case src.status == rnic.Success:
		src.status = c.Status
		w.checkError(src.ended, c.Status)
	case c.Status != rnic.WRFlushed:
		w.fail(Ends, "%v, after %v", c, src.status)
	}
}

// over says whether the source's program has heard of all it posted, and posts no more.
func (w *world) over() bool {
	return w.source.ended == len(w.s.Messages) || w.source.status != rnic.Success && w.source.ended == w.source.posted
}
