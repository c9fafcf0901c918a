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

// fatal is an error that a source was told: the fatal NAK of a message.
type fatal struct {
	message  int
	syndrome roce.Syndrome
}

// checkEnd fails unless source h may be told that packet n ends its queue pair.
func (w *world) checkEnd(h *host, n int, s roce.Syndrome) {
	i, ok := h.plan.messagesBefore(max(n, 0)), false
	switch s {
	case roce.NAKInvalidRequest:
		ok = n >= 0 && (h.plan.reads(n) || w.cut || w.endedAsSource(h))
	case roce.NAKRemoteAccess:
		ok = w.refusedBySome(h, i)
	case roce.NAKRemoteOperational:
		ok = w.living(h) < max(1, int(w.s.Policy.Ack)) || w.endedAsSource(h)
	}
	// The source may be told again what it was told once, even if receivers have left since: it may
	// not have heard.
	if !ok && !slices.Contains(h.fatals, fatal{i, s}) {
		w.fail(Ends, "%v is told %v of packet %d without a reason", h, s, n)
	}
	h.fatals, h.endsAt, h.lives = append(h.fatals, fatal{i, s}), n, false
}

// endedAsSource reports whether a counted receiver was told, in its own turn as the source, what
// ends its queue pair.
func (w *world) endedAsSource(h *host) bool {
	for i := range w.hosts {
		if r := &w.hosts[i]; r != h && r.counts() && len(r.fatals) > 0 {
			return true
		}
	}
	return false
}

// refusedBySome reports whether the queue pair of a counted receiver ended with a packet of message
// i. With a quorum the source may be past that message, so an earlier one counts too.
func (w *world) refusedBySome(h *host, i int) bool {
	for k := range w.hosts {
		r := &w.hosts[k]
		if r == h || !r.counts() || r.qp.State() != rnic.StateError {
			continue
		}
		if first := h.plan.messagesBefore(r.next[h.number]); first == i || first < i && w.s.Policy.Ack != feedback.AckAll {
			return true
		}
	}
	return false
}

// checkError fails unless the program of a source may hear that message i failed.
func (w *world) checkError(h *host, i int, status rnic.Status) {
	ok := false
	switch status {
	case rnic.RemoteInvalidRequest:
		ok = slices.Contains(h.fatals, fatal{i, roce.NAKInvalidRequest})
	case rnic.RemoteAccess:
		ok = slices.Contains(h.fatals, fatal{i, roce.NAKRemoteAccess})
	case rnic.RemoteOperational:
		ok = slices.Contains(h.fatals, fatal{i, roce.NAKRemoteOperational})
	case rnic.RetryExceeded:
		ok = w.s.RetryCount < retryForEver && w.excused(h)
	case rnic.RNRRetryExceeded:
		ok = w.s.RNRRetry < retryForEver && (w.notReadySeen() > 0 || w.s.Policy.Repair != feedback.RepairOff && w.excused(h))
	}
	if !ok {
		w.fail(Ends, "message %d of %v failed without a reason: %v", i, h, status)
	}
}

// excused reports whether a source may give up after RetryCount retries without an ACK. A frame
// with a fault costs two retries at most: the NAK or timeout that it causes, and a NAK that rxe
// ignores because no ACK has come since the last one.
func (w *world) excused(h *host) bool {
	t := &w.tally
	if h.blocked > 0 || t[Burst].Times+t[Cut].Times+t[SlowHost].Times+t[SwitchCrash].Times+t[FarCrash].Times+t[Join].Data > 0 {
		return true
	}
	troubles := w.notReadySeen()
	for kind := range Marked {
		troubles += t[kind].Data + t[kind].Feedback
	}
	return 2*troubles >= uint64(w.s.RetryCount) || w.someoneGone(h) || w.living(h) < max(1, int(w.s.Policy.Ack))
}

// someoneGone reports whether a counted receiver can answer no more: it crashed, or its queue pair
// failed, as that of a source or with a fatal NAK that was lost. A receiver whose fatal NAK the
// switch took is no excuse, because the source has to hear that NAK; nor is one that should have
// been evicted, unless that came late.
func (w *world) someoneGone(h *host) bool {
	for i := range w.hosts {
		r := &w.hosts[i]
		silent := r.takesNothing() || r.qp.State() == rnic.StateError && !r.fatalHeard
		if r.membership == evicted && silent && !w.evictsInTime(h) {
			return true
		}
		if r != h && r.counts() && (silent && !w.evictsInTime(h) || r.status != rnic.Success) {
			return true
		}
	}
	return false
}

// evictsInTime reports whether a silent receiver leaves the group before source h gives up: the
// source needs one timeout before it resends, and the switch finds the receiver silent at the tick
// after its time. With repair that time begins when repair has given up. Enough other receivers
// must be left.
func (w *world) evictsInTime(h *host) bool {
	p := &w.s.Policy
	atMost := time.Duration(w.s.RetryCount-1)*w.s.ackTimeout() - 2*time.Duration(feedback.TimerPeriod)
	if p.Repair != feedback.RepairOff {
		d := p.WithDefaults()
		atMost -= time.Duration(d.RepairAttempts+1) * d.RepairTimerCap
	}
	return p.Evict && p.SilentAfter > 0 && p.SilentAfter < atMost && w.living(h) >= max(1, int(p.Ack))
}

// living returns how many receivers can still acknowledge something to source h.
func (w *world) living(h *host) (n int) {
	for i := range w.hosts {
		r := &w.hosts[i]
		// With a quorum a receiver may have joined too late for what the source waits for.
		late := w.s.Policy.Ack != feedback.AckAll && r.from[h.number] > h.merged.acked+1
		if r != h && r.counts() && !late && !w.lacksForGood(r, h) && !r.takesNothing() && !r.behind && r.qp.State() == rnic.StateReady {
			n += r.weight()
		}
	}
	return n
}

// waitsInVain reports whether source h may never get its turn, or not again. It lost its turn by
// force before everything of it was acknowledged. Or a crash keeps it from its turn: it was left
// out of the group, or too few receivers live that have everything of the source before: for its
// turn, or of a quorum to show that the one before has ended.
func (w *world) waitsInVain(h *host) bool {
	if h.forced {
		return true
	}
	before, able, shows, all := &w.hosts[w.active], 0, 0, 0
	if h == before || w.tally[SwitchCrash].Times == 0 {
		return false
	}
	for i := range w.hosts {
		r := &w.hosts[i]
		if !r.counts() {
			continue
		}
		answers := !r.takesNothing() && r.qp.State() == rnic.StateReady
		has := answers && r.next[before.number] > before.merged.acked
		if has && r != before {
			shows += r.weight()
		}
		if r == h {
			continue
		}
		all += r.weight()
		if has || answers && r == before {
			able += r.weight()
		}
	}
	need := all
	if w.s.Policy.Ack != feedback.AckAll {
		need = int(w.s.Policy.Ack)
	}
	return h.membership == left || able < need || w.s.Policy.Ack != feedback.AckAll && shows < need
}

// lacksForGood reports whether a source is past what receiver r of a quorum lacks, whether the
// switch knows that or not yet, and the switch has not retained it.
func (w *world) lacksForGood(r, h *host) bool {
	next := r.next[h.number]
	return w.s.Policy.Ack != feedback.AckAll && next <= h.merged.acked && !w.box.core.Retains(w.group.ID, h.plan.first.Add(int32(next)))
}

// hangs reports whether a source may retry for ever, because too few receivers are left. After a
// crash the switch may tell it so by a NAK for a packet that was acknowledged before the crash. A
// receiver that has crashed may come back, for all that the switch knows.
func (w *world) hangs(h *host) bool {
	unknown := w.tally[SwitchCrash].Times+w.tally[ReceiverCrash].Times > 0
	return w.box.core != nil && w.s.RetryCount == retryForEver && unknown && w.living(h) < max(1, int(w.s.Policy.Ack))
}

// allHang reports whether all sources that have not ended may retry for ever. One that waits for
// its turn does if the source does, or if its turn can never come.
func (w *world) allHang() bool {
	active := &w.hosts[w.active]
	stands := !active.over() && w.hangs(active)
	for i := range w.hosts {
		h := &w.hosts[i]
		waits := h != active && stands || w.waitsInVain(h)
		if !h.over() && !waits && !w.hangs(h) {
			return false
		}
	}
	return true
}

// checkHanging fails unless the switch has reported each receiver that has asked for what source h,
// which retries for ever, does not send any more.
func (w *world) checkHanging(h *host) {
	for i := range w.hosts {
		r := &w.hosts[i]
		if r != h && r.counts() && !r.takesNothing() && r.qp.State() == rnic.StateReady && r.asked == r.next[h.number] && w.lacksForGood(r, h) && !r.behind {
			w.fail(Ends, "%v has asked for packet %d, never gets it, and is not reported", r, r.asked)
		}
	}
}

func (w *world) notReadySeen() (n uint64) {
	for i := range w.hosts {
		n += w.hosts[i].qp.Counters().Get(rnic.RNRNAKsSent)
	}
	return n
}

// finish checks a run in which nothing can happen any more.
func (w *world) finish() {
	if !w.over() {
		w.fail(Ends, "nothing happens any more: %s", w.progress())
	}
	for i := range w.hosts {
		h := &w.hosts[i]
		w.checkMemory(h)
		if h.qp.State() == rnic.StateError && !h.keyLost && !w.cut && h.status == rnic.Success {
			w.fail(Ends, "%v: its queue pair is in error without a reason", h)
		}
	}
	w.checkCounts()
}

// progress describes how far the sources have come.
func (w *world) progress() string {
	var parts []string
	for i := range w.hosts {
		if h := &w.hosts[i]; h.started {
			parts = append(parts, fmt.Sprintf("%v completed %d of %d messages, acknowledged up to packet %d", h, h.completed, len(h.Messages), h.merged.acked))
		}
	}
	return strings.Join(parts, "; ")
}
