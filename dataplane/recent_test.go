package dataplane

import (
	"fmt"
	"testing"
	"time"

	"github.com/rocast/rocast/feedback"
)

// An event counts for less and less in the second minute after it.
func TestRecentForgets(t *testing.T) {
	r := newRecent(2)
	at := func(seconds int, want string) {
		t.Helper()
		if got := fmt.Sprint(r.last(feedback.Tick(seconds) * feedback.Tick(time.Second))); got != want {
			t.Errorf("after %d s: %s, want %s", seconds, got, want)
		}
	}
	at(0, "[0 0]")
	for range 60 {
		r.add(0)
	}
	at(59, "[60 0]")
	at(60, "[60 0]")
	r.add(1)
	at(75, "[45 1]")
	at(119, "[1 1]")
	at(120, "[0 1]")
	at(150, "[0 0]")
	r.add(1)
	at(150, "[0 1]")
	at(239, "[0 0]")
	r.add(0)
	at(300, "[0 0]") // two minutes after the one that had begun
}

// A receiver keeps its count when others come and go.
func TestRecentIsRearranged(t *testing.T) {
	r := newRecent(3)
	r.at(recently)
	r.add(0)
	r.add(2)
	r.at(2 * recently)
	r.add(2)
	r.rearrange([]int{2, -1, 1, 0})
	const half = recently * 5 / 2
	if got := fmt.Sprint(r.last(2*recently), r.last(half)); got != "[2 0 0 1] [1 0 0 0]" {
		t.Error(got)
	}
}

func TestRecentAllocatesNothing(t *testing.T) {
	r, now := newRecent(3), feedback.Tick(0)
	if n := testing.AllocsPerRun(100, func() {
		now += recently / 2
		r.at(now)
		r.add(1)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
