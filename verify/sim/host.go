package sim

import (
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/roce"
)

// host is one host during a run: a queue pair, and a program for each half of it.
type host struct {
	*Host
	number   int
	qp       *rnic.QP
	toSwitch link
	toHost   link
	fromFar  link // from the far box to the switch, if the host is behind that box
	away     int  // faults that lead its frames to its other port
	edge     edge
	sender
	receiver
	notifications
}

// String returns the name of the host, as in the stories of package feedback.
func (h *host) String() string { return hostName(h.number) }

func hostMAC(number int) roce.MAC { return roce.MAC{2, 0, 0, 0, byte(number >> 8), byte(number)} }

func hostQPN(number int) roce.QPN { return firstQPN + roce.QPN(number) }

// openHost makes everything that a host needs for a run.
func (w *world) openHost(h *host, number int, c *Host) error {
	h.Host, h.number, h.away, h.edge, h.notifications = c, number, 0, edge{}, notifications{}
	h.toSwitch.reset(&c.ToSwitch, number, true)
	h.toHost.reset(&c.ToHost, number, false)
	if h.fromFar.reset(&w.s.FarLink.Up, number, true); c.Far {
		h.toSwitch.ends, h.fromFar.ends = atFarOfHost, fromFar
	}
	h.sender.reset(w.s, c)
	if err := w.resetReceiver(h); err != nil {
		return err
	}
	cfg := rnic.Config{
		MAC: hostMAC(number), IP: w.address(number), QPN: hostQPN(number), SendPSN: c.SendPSN, MTUBytes: w.s.MTUBytes,
		Timeout: w.s.Timeout, RetryCount: w.s.RetryCount, RNRRetry: w.s.RNRRetry, MinRNRTimer: c.RNRTimer,
		SendDepth: max(1, c.Outstanding), RecvDepth: max(1, c.Receives), FlowControl: c.FlowControl, CNPInterval: w.s.CNPInterval,
		RateControl: w.s.RateControl, TakesNext: w.s.TakesNext,
	}
	if w.s.CNPInterval > 0 {
		cfg.TrafficClass = ecnCapable
	}
	var err error
	if h.qp, err = rnic.NewQP(cfg, &h.regions); err != nil {
		return err
	}
	peer := rnic.Peer{MAC: switchMAC, IP: w.hostLeg(number).Src, QPN: groupQPN, PSN: c.RecvPSN}
	if err := h.qp.Connect(peer); err != nil {
		return err
	}
	for range c.Receives {
		w.giveBack(h)
	}
	return nil
}

// arriveAtHost hands frame i to the queue pair of a host, and sends what the queue pair answers.
func (w *world) arriveAtHost(h *host, i int32) {
	f := w.pool.frames[i]
	if h.takesNothing() {
		cause := ReceiverCrash
		if !h.crashed {
			cause = Join
		}
		h.unheard++
		w.hit(f, cause)
		w.record(&h.toHost, f, lostTo[cause])
		w.pool.giveBack(i)
		return
	}
	if w.s.Edges.Shares && !h.Far && !w.atEdge(h, i) {
		return
	}
	answer := w.pool.lend()
	a := w.pool.frames[answer]
	c := h.qp.Counters()
	before, executed := rejections(h.qp), c.Get(rnic.RequestsExecuted)
	deaf, called := h.qp.Deaf(), callsTo(h.qp)
	reply := h.qp.Receive(w.now, f.data(), a.room())
	if h.calls.sent && callsTo(h.qp) != called {
		h.calls.came, h.calls.heard = true, h.calls.heard || !deaf
	}
	w.checkAccepted(h, f, before)
	fate := "taken"
	if c.Get(rnic.RequestsExecuted) != executed {
		fate = "executed"
		w.checkExecuted(h, f)
	}
	w.record(&h.toHost, f, fate)
	w.pool.giveBack(i)
	w.sendBuilt(h, answer, reply)
	if w.s.CNPInterval > 0 {
		notification := w.pool.lend()
		w.sendBuilt(h, notification, h.qp.Notify(w.pool.frames[notification].room()))
	}
	w.afterQP(h)
}

// callsTo counts the answers to a queue pair that call it back to a packet.
func callsTo(q *rnic.QP) uint64 {
	c := q.Counters()
	return c.Get(rnic.RNRNAKsReceived) + c.Get(rnic.NAKSequenceReceived)
}

// sendBuilt sends frame i, which the queue pair of a host has built as b. If b is nil, the frame is
// given back.
func (w *world) sendBuilt(h *host, i int32, b []byte) {
	if b == nil {
		w.pool.giveBack(i)
		return
	}
	w.pool.frames[i].bytes = len(b)
	w.sendOut(h, i)
}

// sendOut sends frame i of a host to the switch.
func (w *world) sendOut(h *host, i int32) {
	if w.s.Tagged {
		w.pool.frames[i].tag()
	}
	w.send(&h.toSwitch, i)
}

// afterQP takes the completions of both halves of the queue pair, and lets the program of the
// source continue.
func (w *world) afterQP(h *host) {
	before := h.completed
	for {
		c, ok := h.qp.Poll()
		if !ok {
			break
		}
		if c.Op == rnic.Recv || c.Op == rnic.RecvWriteImm {
			w.received(h, c)
		} else {
			w.takeCompletion(h, c)
		}
	}
	if h.completed != before {
		w.resume(h)
	}
	w.pump(h)
}
