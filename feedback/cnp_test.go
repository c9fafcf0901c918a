package feedback

import "testing"

// The count of a path's notifications stops at a bound. If it wrapped to zero, the most congested
// path would look like the least congested one.
func TestCNPsStayCounted(t *testing.T) {
	for _, c := range []struct {
		first, second int // notifications of two paths within one window
		want          Outcome
	}{
		{1<<16 - 2, 1<<16 - 1, CNPPassed},
		{1 << 16, 1, CNPFiltered},
	} {
		g := New(Config{Paths: 2})
		var outcome Outcome
		for i, n := range []int{c.first, c.second} {
			for range n {
				_, outcome = g.Step(0, Event{Kind: CNP, Path: i}, nil)
			}
		}
		if outcome != c.want {
			t.Errorf("after %d of one path number %d of another is %v", c.first, c.second, outcome)
		}
	}
}
