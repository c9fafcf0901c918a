package feedback

import "testing"

// What a path has sent more than another is forgotten but for a bound: another path is heard after
// so many notifications, at the latest, and not before it has sent more than what is remembered.
func TestCNPsAreCountedUpToABound(t *testing.T) {
	for _, first := range []int{cnpMost - 1, cnpMost, cnpMost + 1, 1000, 1 << 17} {
		g := New(Config{Paths: 2})
		for range first {
			if _, outcome := g.Step(0, Event{Kind: CNP, Path: 0}, nil); outcome != CNPPassed {
				t.Fatalf("%v, where nobody else is congested", outcome)
			}
		}
		for n := 1; ; n++ {
			_, outcome := g.Step(0, Event{Kind: CNP, Path: 1}, nil)
			if passes := outcome == CNPPassed; passes && n <= cnpMost/2 || !passes && n >= cnpMost {
				t.Errorf("after %d of one path number %d of another is %v", first, n, outcome)
			}
			if outcome == CNPPassed || n >= cnpMost {
				break
			}
		}
	}
}
