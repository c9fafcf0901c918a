package goodput

import (
	"testing"
	"time"
)

func TestHowOldAPacketIs(t *testing.T) {
	var h History
	begin := time.Unix(1000, 0)
	at := func(seconds float64) time.Time { return begin.Add(time.Duration(seconds * float64(time.Second))) }
	check := func(now float64, acknowledged uint64, want float64) {
		t.Helper()
		if got := h.Age(at(now), acknowledged); got != time.Duration(want*float64(time.Second)) {
			t.Errorf("packet %d is %v old, want %v s", acknowledged+1, got, want)
		}
	}
	check(5, 0, 0)
	h = h.With(at(0), 100)
	check(3, 100, 0)
	check(3, 99, 3) // older than the first mark
	h = h.With(at(1), 100)
	h = h.With(at(2), 100) // it was idle until then
	h = h.With(at(4), 500)
	check(4, 500, 0)
	check(4, 499, 0) // the newest one was sent just now
	check(4, 299, 1)
	check(6, 299, 3)
	check(6, 100, 4-0.005)
	check(6, 99, 6)        // sent by the first mark
	h = h.With(at(7), 500) // its window is full
	longer := h.With(at(9), 500)
	check(9, 299, 6) // the one before has not changed
	if h.With(at(9), 600); h.marks[len(h.marks)-1] != (mark{at(7), 500}) {
		t.Errorf("the last mark is %v", h.marks[len(h.marks)-1])
	}
	h = longer
	check(9, 299, 6)
	h = h.With(at(10), 40)
	check(11, 39, 1)
	check(11, 40, 0)
}

// What is old is known roughly, and memory is bounded.
func TestAHistoryIsBounded(t *testing.T) {
	var h History
	now := time.Unix(1000, 0)
	for i := range uint64(10000) {
		now = now.Add(250 * time.Millisecond)
		h = h.With(now, 10*i)
	}
	if len(h.marks) > keptMarks {
		t.Errorf("%d marks are kept", len(h.marks))
	}
	for _, ago := range []uint64{0, 1, 4, 10, 100, 1000, 9000} {
		want := time.Duration(ago) * 250 * time.Millisecond
		if got := h.Age(now, 10*(9999-ago)-1); got < want-want/10 || got > want+want/10 {
			t.Errorf("a packet of %v ago is %v old", want, got)
		}
	}
}
