package dataplane

import (
	"time"

	"github.com/rocast/rocast/feedback"
)

// recently is the length of the period of which recent counts the events.
const recently = feedback.Tick(time.Minute)

// recent estimates the number of events of each path in the last 60 seconds. It counts whole
// minutes. Of the previous minute it takes the part that is less than 60 seconds ago, as if the
// events had been spread evenly.
type recent struct {
	began       feedback.Tick // when the present minute did
	now, before []uint32      // events of each path, in the present minute and in the one before
}

func newRecent(paths int) recent {
	return recent{now: make([]uint32, paths), before: make([]uint32, paths)}
}

func (r *recent) add(path int) { r.now[path]++ }

// at makes the present minute the one of now.
func (r *recent) at(now feedback.Tick) {
	passed := now - r.began
	if passed < recently {
		return
	}
	r.now, r.before = r.before, r.now
	clear(r.now)
	if passed >= 2*recently {
		clear(r.before)
	}
	r.began = now - passed%recently
}

// last returns how many events of each path there were in the last minute.
func (r *recent) last(now feedback.Tick) []uint64 {
	r.at(now)
	left := uint64(recently - (now - r.began))
	counts := make([]uint64, len(r.now))
	for i := range counts {
		counts[i] = uint64(r.now[i]) + uint64(r.before[i])*left/uint64(recently)
	}
	return counts
}

// rearrange takes over the counts of the paths that remain: from[i] is the old index of path i, or
// negative.
func (r *recent) rearrange(from []int) {
	old := *r
	*r = newRecent(len(from))
	r.began = old.began
	for i, k := range from {
		if k >= 0 {
			r.now[i], r.before[i] = old.now[k], old.before[k]
		}
	}
}
