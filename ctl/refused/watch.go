package refused

import (
	"time"

	"github.com/rocast/rocast/dataplane"
)

const (
	// heldFor is how long a trouble is told after the last frame. A NIC may wait for seconds
	// between two tries, and it gives up after some of them. A trouble that stands is told longer.
	heldFor = time.Minute
	// lastsFor is how long a sender must not have got on, or a counter have risen: for a moment
	// some frames are refused also while all is well.
	lastsFor = time.Second
)

// Watch follows the refused frames of one sender. The zero Watch has seen none.
type Watch struct {
	frame       dataplane.Refused
	row         Row
	since, last time.Time
	lives       bool // see Lives
}

// Lives notes that the sender's QP shows that it has not ended. Soon after a refused frame that
// proves nothing: the QP may be about to repeat the frame, and ends if nobody answers.
func (w *Watch) Lives(now time.Time) { w.lives = w.lives || now.Sub(w.last) >= heldFor }

// isPast reports whether the last frame says nothing any more.
func (w *Watch) isPast(now time.Time) bool {
	return !w.row.Ends && now.Sub(w.last) >= heldFor && (w.lives || !w.row.Stands)
}

// Step takes a look: frame is the last one that was refused, if one was refused since the look
// before, and else nil. getsOn says that the sender has got on since then.
func (w *Watch) Step(now time.Time, frame *dataplane.Refused, getsOn bool) {
	if frame != nil && Of(frame.Reason).Says == nil {
		frame = nil
	}
	if getsOn && (frame == nil || !Of(frame.Reason).Ends) {
		*w = Watch{}
		return
	}
	w.see(now, frame)
}

func (w *Watch) see(now time.Time, frame *dataplane.Refused) {
	switch {
	case frame == nil:
		return
	case w.last.IsZero() || w.isPast(now):
		w.since = now
	}
	w.frame, w.row, w.last, w.lives = *frame, Of(frame.Reason), now, false
}

// Trouble returns what the sender's trouble is at a moment, with the last refused frame. ok says
// that there is one.
func (w *Watch) Trouble(now time.Time) (row Row, frame dataplane.Refused, ok bool) {
	switch {
	case w.last.IsZero(),
		w.isPast(now),
		!w.row.Ends && now.Sub(w.since) < lastsFor:
		return Row{}, dataplane.Refused{}, false
	}
	return w.row, w.frame, true
}

// Rising follows a counter that no sender is known of.
type Rising struct {
	count       uint64
	since, last time.Time
}

// Count returns the value of the counter at the last Step.
func (r *Rising) Count() uint64 { return r.count }

// Step takes the value of the counter.
func (r *Rising) Step(now time.Time, count uint64) {
	rose := count > r.count
	r.count = count
	if !rose {
		return
	}
	if r.last.IsZero() || now.Sub(r.last) >= heldFor {
		r.since = now
	}
	r.last = now
}

// Trouble reports whether the counter has risen lately; lasts: that it has for some time.
func (r *Rising) Trouble(now time.Time, lasts bool) bool {
	return !r.last.IsZero() && now.Sub(r.last) < heldFor && (!lasts || r.last.Sub(r.since) >= lastsFor)
}
