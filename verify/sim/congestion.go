package sim

import (
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// Values of the IP header's ECN field (RFC 3168, 5).
const (
	ecnCapable            = 2
	congestionExperienced = 3
)

// mark is the congestion point of a link: it may mark frame f, which finds waitingBytes in the
// queue, as having met congestion, by the rule of the box for its ports. The ICRC does not cover
// the mark.
func (w *world) mark(l *link, f *frame, waitingBytes int) {
	if l.KmaxBytes == 0 || waitingBytes <= l.KminBytes {
		return
	}
	var v roce.View
	if v.Decode(f.data(), f.bytes) != nil || v.ECN(f.data()) != ecnCapable || !l.Marks(waitingBytes, w.frameRNG.Uint32()) {
		return
	}
	v.SetECN(f.data(), congestionExperienced)
	w.hit(f, Marked)
}

// notifications are what the oracle knows of the congestion notifications of one host.
type notifications struct {
	arrived   uint64 // as a receiver: that the switch took from it
	arrivedAt time.Duration
	heard     uint64 // as the source: that the switch sent to it
	heardAt   time.Duration
}

// checkNotification checks what the core made of a notification of receiver h. Each notification
// passes or is filtered, and none is made up.
func (w *world) checkNotification(h *host, reason dataplane.Reason) {
	passed := 0
	for k := range w.box.outputs.Replies {
		if w.box.outputs.Replies[k].CNP {
			passed++
		}
	}
	filtered := reason == dataplane.Reason(feedback.CNPFiltered)
	nobody := w.hosts[w.active].membership == left // is there to hear it
	switch {
	case passed > 1, passed == 1 && reason != dataplane.Reason(feedback.CNPPassed),
		passed == 0 && !filtered && !nobody && reason.Verdict() != dataplane.Drop:
		w.fail(Congestion, "a notification of %v (%v) became %d", h, reason, passed)
	case filtered && w.s.Policy.CNP == feedback.CNPAll:
		w.fail(Congestion, "a notification of %v was filtered, although all are to pass", h)
	case filtered && !nobody && w.aloneCongested(h) && w.now-w.hosts[w.active].heardAt >= w.s.Policy.CNPInterval:
		w.fail(Congestion, "a notification of %v was filtered, although no other receiver is congested", h)
	}
	if reason.Verdict() != dataplane.Drop {
		h.arrived, h.arrivedAt = h.arrived+1, w.now
	}
}

// congestionMemory is how long one notification may count at the switch, at most.
const congestionMemory = 40 * time.Millisecond

// aloneCongested reports whether h is the only receiver with a notification that may still count.
func (w *world) aloneCongested(h *host) bool {
	for i := range w.hosts {
		if r := &w.hosts[i]; r != h && r.arrived > 0 && w.now-r.arrivedAt < congestionMemory {
			return false
		}
	}
	return true
}

// heardNotification notes that the switch sends a notification, reply r. It may do so only to the
// source, and only because of a notification of a receiver.
func (w *world) heardNotification(r *dataplane.Reply) {
	h := w.hostOfLeg(r.Leg)
	if w.notifying == nil || h.number != w.active {
		w.fail(Congestion, "%v hears a notification that no receiver sent", h)
	}
	h.heard++
	h.heardAt = w.now
}

// ecnOf returns the ECN field of frame b, or 0 if b is damaged so much that it has none.
func ecnOf(b []byte) uint8 {
	var v roce.View
	if v.Decode(b, len(b)) != nil {
		return 0
	}
	return v.ECN(b)
}

// checkMark fails unless a copy carries the ECN field with which its original arrived.
func (w *world) checkMark(copied *dataplane.Frame, ecn uint8) {
	if got := copied.View.ECN(copied.Head()); got != ecn {
		w.fail(Congestion, "a frame came with ECN %d, and a copy of it has %d", ecn, got)
	}
}
