package dataplane

import (
	"container/heap"
	"time"

	"github.com/rocast/rocast/feedback"
)

// waiting is a heap of the groups with repair on that may have something unanswered, or that the
// engine carries. The one that is due first comes first (held.due), so that a look at them costs
// what is due.
//
// A group that is in the heap is never put off, also when the answer for which it waits has come:
// Due of package feedback counts from now, and events that come often would put a timer off for
// ever. When the time comes, a group that no longer waits and is not carried is dropped.
type waiting struct{ byDue }

// byDue implements heap.Interface.
type byDue []*state

func (b byDue) Len() int           { return len(b) }
func (b byDue) Less(i, k int) bool { return b[i].held.due < b[k].held.due }

func (b byDue) Swap(i, k int) {
	b[i], b[k] = b[k], b[i]
	b[i].held.waits, b[k].held.waits = i+1, k+1
}

// Push is part of heap.Interface.
func (b *byDue) Push(st any) {
	*b = append(*b, st.(*state))
	(*b)[len(*b)-1].held.waits = len(*b)
}

// Pop is part of heap.Interface.
func (b *byDue) Pop() any {
	last := len(*b) - 1
	st := (*b)[last]
	(*b)[last], *b = nil, (*b)[:last]
	st.held.waits = 0
	return st
}

// until makes a group due at that time, unless it is due earlier.
func (w *waiting) until(st *state, due feedback.Tick) {
	switch h := st.held; {
	case h.waits == 0:
		h.due = due
		heap.Push(&w.byDue, st)
	case due < h.due:
		h.due = due
		heap.Fix(&w.byDue, h.waits-1)
	}
}

// next removes and returns a group that is due, or returns nil.
func (w *waiting) next(now feedback.Tick) *state {
	if len(w.byDue) == 0 || w.byDue[0].held.due > now {
		return nil
	}
	return heap.Pop(&w.byDue).(*state)
}

func (w *waiting) remove(st *state) {
	if at := st.held.waits; at > 0 {
		heap.Remove(&w.byDue, at-1)
	}
}

// carriedPeriod is the shortest time after which a group that the engine carries is due. What the
// engine carries has long timers (carried of feedback's leg), and its answers usually come in time:
// a worker that looks for them earlier is woken in vain.
const carriedPeriod = feedback.Tick(time.Millisecond)

// LookPeriod is how often the core looks at a group that the engine carries without merging. If all
// receivers lose the end of what was carried, nothing else tells the core of it. The period is a
// fraction of any source's timeout, and costs an idle worker little: the looks at all such groups
// come together.
//
// The looks at a group of which nothing has been carried for silence are SilentPeriod apart: 480
// groups that are silent would cost a worker 2 % of a CPU otherwise (BenchmarkSilentGroups). What
// all receivers lose of the first packets after silence is still sent again before the source's
// timeout, if that is perftest's 67 ms (docs/wire.md#timeouts) or longer.
const (
	LookPeriod   = feedback.Tick(10 * time.Millisecond)
	SilentPeriod = 4 * LookPeriod
	silence      = feedback.Tick(time.Second)
)

// await makes a group due when its merging wants that, if it waits for something or the engine
// carries it.
func (w *waiting) await(now feedback.Tick, st *state) {
	var due feedback.Tick
	switch waits := st.merge.Waiting(); {
	case st.fan.merges.on && st.fan.merges.streams:
		due = now + streamedPeriod
	case st.fan.merges.on:
		due = min(now+mergedPeriod, max(st.merge.PathsDue(), now+feedback.RepairPeriod))
	case st.fan.at.Armed:
		period := LookPeriod
		if now-st.fan.merges.busy >= silence {
			period = SilentPeriod
		}
		due = (now/period + 1) * period
		if waits {
			due = min(due, max(st.merge.Due(now), now+carriedPeriod))
		}
	case waits:
		due = st.merge.Due(now)
	default:
		return
	}
	w.until(st, due)
}

// serveWaiting serves some of the groups that are due, and reports whether there were any.
func (c *Core) serveWaiting(now feedback.Tick, out *Outputs) (some bool) {
	for range tickGroups {
		st := c.repair.waiting.next(now)
		if st == nil {
			break
		}
		some = true
		if st.merge.Waiting() || st.fan.at.Armed {
			c.timer(now, st, out)
			st.fan.looked(now)
			c.conclude(now, st, out) // which awaits what comes next
		}
	}
	return some
}
