package sim

import (
	"github.com/rocast/rocast/bench/rnic"
	"github.com/rocast/rocast/feedback"
)

// checkError decides whether the source's program may hear that message i failed.
func (w *world) checkError(i int, status rnic.Status) {
	ok := false
	switch status {
	case rnic.RemoteInvalidRequest:
		ok = w.s.Messages[i].Op == rnic.Read
	case rnic.RemoteAccess:
		ok = w.refusedBySome(i)
	case rnic.RetryExceeded:
		ok = w.s.RetryCount < retryForEver && w.excused()
	case rnic.RNRRetryExceeded:
		ok = w.s.RNRRetry < retryForEver && (w.notReadySeen() > 0 || w.s.Policy.Speak != feedback.SpeakOff && w.excused())
	}
	if !ok {
		w.fail(Ends, "message %d failed: %v, which nothing promised", i, status)
	}
}

const retryForEver = 7

// refusedBySome says whether a counted receiver's queue pair ended with a packet of message i.
func (w *world) refusedBySome(i int) bool {
	for k := range w.receivers {
		r := &w.receivers[k]
		if !r.evicted && r.qp.State() == rnic.StateError && r.executed < len(w.plan.packets) &&
			int(w.plan.packets[r.executed].message) == i {
			return true
		}
	}
	return false
}

// excused says whether a source that gives up after RetryCount retries without an ACK may have met with that. A frame in trouble
// costs two at most: the NAK or timeout it causes, and a NAK that rxe ignores because it waits for an ACK since the last one.
func (w *world) excused() bool {
	t := &w.tally
	if t[Burst].Times+t[Cut].Times+t[SlowHost].Times+t[SwitchCrash].Times+t[ReceiverCrash].Times > 0 {
		return true
	}
	troubles := w.notReadySeen()
	for kind := range firstTimed {
		troubles += t[kind].Data + t[kind].Feedback
	}
	return 2*troubles >= uint64(w.s.RetryCount)
}

func (w *world) notReadySeen() (n uint64) {
	for i := range w.receivers {
		n += w.receivers[i].qp.Counters().Get(rnic.RNRNAKsSent)
	}
	return n
}

// finish looks at a run in which nothing will happen any more.
func (w *world) finish() {
	if !w.over() {
		w.fail(Ends, "nothing happens any more: %d of %d messages posted, %d ended", w.source.posted, len(w.s.Messages), w.source.ended)
	}
	for i := range w.receivers {
		r := &w.receivers[i]
		w.checkMemory(r)
		if r.qp.State() == rnic.StateError && !r.keyLost {
			w.fail(Ends, "%s: its queue pair is in error, and nothing was wrong with it", hostName(r.number))
		}
	}
	w.checkBooks()
}
