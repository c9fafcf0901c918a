package seats

import "testing"

// One name has so many seats, and all names together. A seat that is free again is anybody's.
func TestSeats(t *testing.T) {
	b := &Book{Most: 2, All: 3}
	for i, step := range []struct {
		who  string
		want bool
	}{{"a", true}, {"a", true}, {"a", false}, {"b", true}, {"b", false}, {"c", false}} {
		if got := b.Take(step.who); got != step.want {
			t.Errorf("%d: %s: %v", i, step.who, got)
		}
	}
	b.Free("a")
	if !b.Take("c") || b.Take("a") {
		t.Error("a seat that is free is not the next one's")
	}
	b.Free("b")
	if len(b.taken) != 2 {
		t.Errorf("%v: a name without a seat is kept", b.taken)
	}
	any := &Book{Most: 1}
	if !any.Take("a") || !any.Take("b") || any.Take("a") {
		t.Error("without a bound for all, each name has its own")
	}
}
