package scale

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rocast/rocast/internal/testlab"
)

// Events come in the order of their times, and those of equal times in the order of scheduling,
// whether they are near, far, or in the slot that is being emptied.
func TestCalendarKeepsOrder(t *testing.T) {
	testlab.Long(t)
	random := rand.New(rand.NewPCG(1, 1))
	c := newCalendar()
	var waiting []event
	now, taken := Time(0), 0
	add := func(after Time) {
		e := event{at: now + after, index: int32(c.sequence)}
		c.add(e)
		waiting = append(waiting, event{at: e.at, sequence: uint64(e.index)})
	}
	spans := []Time{0, 1, 1 << slotShift, 300 * Nanosecond, 200 * Microsecond, slots << slotShift, 300 * Microsecond, 70 * Millisecond}
	for step := range 30_000 {
		if step < 20_000 {
			for range random.IntN(3) {
				span := spans[random.IntN(len(spans))]
				add(Time(random.Int64N(int64(span) + 1)))
			}
		}
		e, ok := c.next()
		if !ok {
			if len(waiting) > 0 {
				t.Fatalf("%d events are missing", len(waiting))
			}
			continue
		}
		if random.IntN(4) == 0 { // the run pauses before it, and earlier events may come
			c.putBack(&e)
			if ahead := e.at - now; ahead > 0 {
				add(Time(random.Int64N(int64(ahead))))
			}
			e, _ = c.next()
		}
		first := slices.MinFunc(waiting, func(a, b event) int {
			if a.before(&b) {
				return -1
			}
			return 1
		})
		if e.at != first.at || uint64(e.index) != first.sequence {
			t.Fatalf("event %d at %d came, and event %d at %d was due", e.index, e.at, first.sequence, first.at)
		}
		waiting = slices.DeleteFunc(waiting, func(w event) bool { return w.sequence == first.sequence })
		now = e.at
		taken++
	}
	if taken < 15_000 || len(waiting) != 0 {
		t.Errorf("%d events came, %d did not", taken, len(waiting))
	}
}
