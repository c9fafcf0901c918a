package sim

import "github.com/rocast/rocast/internal/rnic"

// checkConserved adds up every link, and all frames in flight.
func (w *world) checkConserved() {
	flying := uint64(0)
	for i := range w.hosts {
		flying += w.checkLink(&w.hosts[i].toSwitch) + w.checkLink(&w.hosts[i].toHost) + w.checkLink(&w.hosts[i].fromFar)
	}
	if w.s.hasFar() {
		flying += w.checkLink(&w.far.toFar)
	}
	if waiting := w.box.engine.waiting(); int(flying)+waiting+w.pool.retained != w.pool.lent() {
		w.fail(Conserved, "%d frames are lent, %d are on links, %d wait at the switch and %d are retained there",
			w.pool.lent(), flying, waiting, w.pool.retained)
	}
	if retained, _ := w.box.core.Retained(); retained != w.pool.retained {
		w.fail(Conserved, "%d frames were given to the core to retain, and it retains %d", w.pool.retained, retained)
	}
}

func (w *world) checkLink(l *link) (flying uint64) {
	if l.offered+l.doubled != l.delivered+l.lost+l.flying {
		w.fail(Conserved, "%v: %d frames and %d twins in, %d out, %d lost, %d in flight",
			l, l.offered, l.doubled, l.delivered, l.lost, l.flying)
	}
	return l.flying
}

// checkCounts compares, at the end of a run, what one party counts as sent with what the next one
// counts as received.
func (w *world) checkCounts() {
	arrived := uint64(0)
	for i := range w.hosts {
		w.checkHostCounts(&w.hosts[i])
		if arrived += w.hosts[i].fromFar.delivered; !w.hosts[i].Far {
			arrived += w.hosts[i].toSwitch.delivered
		}
	}
	lost := w.tally[SwitchCrash].Data + w.tally[SwitchCrash].Feedback
	if w.box.received+lost != arrived {
		w.fail(Conserved, "%d frames arrived at the switch: it took %d, and %d while it was down", arrived, w.box.received, lost)
	}
}

func (w *world) checkHostCounts(h *host) {
	c := h.qp.Counters()
	sent, taken := c.Get(rnic.CNPsSent), c.Rejected()+c.Get(rnic.CNPsReceived)
	for op := range c.FramesOut {
		sent += c.FramesOut[op]
		taken += c.FramesIn[op]
	}
	if sent != h.toSwitch.offered || taken+h.unheard != h.toHost.delivered {
		w.fail(Conserved, "%v sent %d frames, %d came out; it took %d of %d", h, sent, h.toSwitch.offered, taken, h.toHost.delivered)
	}
}
