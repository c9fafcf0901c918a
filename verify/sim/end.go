package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/roce"
)

const retryForEver = 7

// ending is an error that a source was told its message ends with.
type ending struct {
	message  int
	syndrome roce.Syndrome
}

// checkEnd decides whether source h may be told that packet n ends its queue pair.
func (w *world) checkEnd(h *host, n int, s roce.Syndrome) {
	i, ok := h.plan.whole(max(n, 0)), false
	switch s {
	case roce.NAKInvalidRequest:
		ok = n >= 0 && h.plan.reads(n)
	case roce.NAKRemoteAccess:
		ok = w.refusedBySome(h, i)
	case roce.NAKRemoteOperational:
		ok = w.living(h) < max(1, int(w.s.Policy.Ack)) || w.endedAsSource(h) // too few are left
	}
	// What it was told once it is told again, whoever has left since: it may not have heard.
	if !ok && !slices.Contains(h.endings, ending{i, s}) {
		w.fail(Ends, "%v is told %v of packet %d, for which there is no reason", h, s, n)
	}
	h.endings = append(h.endings, ending{i, s})
}

// endedAsSource says whether a counted receiver was told, in its own turn, what ends its queue pair.
func (w *world) endedAsSource(h *host) bool {
	for i := range w.hosts {
		if r := &w.hosts[i]; r != h && r.counts() && len(r.endings) > 0 {
			return true
		}
	}
	return false
}

// refusedBySome says whether a counted receiver's queue pair ended with a packet of message i; with a quorum, which may be past that
// message already, or of an earlier one.
func (w *world) refusedBySome(h *host, i int) bool {
	for k := range w.hosts {
		r := &w.hosts[k]
		if r == h || !r.counts() || r.qp.State() != rnic.StateError {
			continue
		}
		if first := h.plan.whole(r.next[h.number]); first == i || first < i && w.s.Policy.Ack != feedback.AckAll {
			return true
		}
	}
	return false
}

// checkError decides whether a source's program may hear that message i failed.
func (w *world) checkError(h *host, i int, status rnic.Status) {
	ok := false
	switch status {
	case rnic.RemoteInvalidRequest:
		ok = slices.Contains(h.endings, ending{i, roce.NAKInvalidRequest})
	case rnic.RemoteAccess:
		ok = slices.Contains(h.endings, ending{i, roce.NAKRemoteAccess})
	case rnic.RemoteOperational:
		ok = slices.Contains(h.endings, ending{i, roce.NAKRemoteOperational})
	case rnic.RetryExceeded:
		ok = w.s.RetryCount < retryForEver && w.excused(h)
	case rnic.RNRRetryExceeded:
		ok = w.s.RNRRetry < retryForEver && (w.notReadySeen() > 0 || w.s.Policy.Speak != feedback.SpeakOff && w.excused(h))
	}
	if !ok {
		w.fail(Ends, "message %d of %v failed: %v, which nothing promised", i, h, status)
	}
}

// excused says whether a source that gives up after RetryCount retries without an ACK may have met with that. A frame in trouble
// costs two at most: the NAK or timeout it causes, and a NAK that rxe ignores because it waits for an ACK since the last one.
func (w *world) excused(h *host) bool {
	t := &w.tally
	if h.blocked > 0 || t[Burst].Times+t[Cut].Times+t[SlowHost].Times+t[SwitchCrash].Times > 0 {
		return true
	}
	troubles := w.notReadySeen()
	for kind := range Marked {
		troubles += t[kind].Data + t[kind].Feedback
	}
	return 2*troubles >= uint64(w.s.RetryCount) || w.someoneGone(h) || w.living(h) < max(1, int(w.s.Policy.Ack))
}

// someoneGone says whether a receiver that counts can answer no more: it crashed, or its queue pair failed as a source's, or gave a
// fatal NAK that was lost. One whose fatal NAK the switch heard is no excuse: the source is to hear it too. Nor is one that should
// have been evicted.
func (w *world) someoneGone(h *host) bool {
	for i := range w.hosts {
		r := &w.hosts[i]
		silent := r.crashed || r.qp.State() == rnic.StateError && !r.fatalHeard
		if r != h && r.counts() && (silent && !w.evictsInTime(h) || r.status != rnic.Success) {
			return true
		}
	}
	return false
}

// evictsInTime says whether a silent receiver leaves the group before source h gives up: it takes one timeout until the source
// resends, and the receiver is found silent at the next tick after its time. Enough others have to be left.
func (w *world) evictsInTime(h *host) bool {
	p := &w.s.Policy
	atMost := time.Duration(w.s.RetryCount-1)*w.s.ackTimeout() - 2*time.Duration(feedback.TimerPeriod)
	return p.Evict && p.SilentAfter > 0 && p.SilentAfter < atMost && w.living(h) >= max(1, int(p.Ack))
}

// living is how many receivers can still acknowledge something to source h.
func (w *world) living(h *host) (n int) {
	for i := range w.hosts {
		r := &w.hosts[i]
		late := w.s.Policy.Ack != feedback.AckAll && r.from[h.number] > h.told.acked+1 // it has nothing of what is waited for
		if r != h && r.counts() && !late && !r.crashed && !r.behind && r.qp.State() == rnic.StateReady {
			n++
		}
	}
	return n
}

func (w *world) notReadySeen() (n uint64) {
	for i := range w.hosts {
		n += w.hosts[i].qp.Counters().Get(rnic.RNRNAKsSent)
	}
	return n
}

// finish looks at a run in which nothing will happen any more.
func (w *world) finish() {
	if !w.over() {
		w.fail(Ends, "nothing happens any more: %s", w.progress())
	}
	for i := range w.hosts {
		h := &w.hosts[i]
		w.checkMemory(h)
		if h.qp.State() == rnic.StateError && !h.keyLost && h.status == rnic.Success {
			w.fail(Ends, "%v: its queue pair is in error, and nothing was wrong with it", h)
		}
	}
	w.checkBooks()
}

// progress tells how far the sources have come.
func (w *world) progress() string {
	var parts []string
	for i := range w.hosts {
		if h := &w.hosts[i]; h.started {
			parts = append(parts, fmt.Sprintf("%v ended %d of %d messages, told of packet %d", h, h.ended, len(h.Messages), h.told.acked))
		}
	}
	return strings.Join(parts, "; ")
}
