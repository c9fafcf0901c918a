package feedback

import (
	"testing"

	"github.com/rocast/rocast/roce"
)

// Where the source hears an ACK of each packet at once, no engine may carry its packets.
func TestNothingIsCarriedThatIsAcknowledgedAtOnce(t *testing.T) {
	g := New(Config{Policy: Policy{Ack: 1}, Paths: 2, Weights: []uint16{1, 2}})
	if n := g.Plain(); n != 2 {
		t.Fatalf("%d paths are plain at the start", n)
	}
	g.SwitchSource(SourceSwitch{PSN: 50, OldPath: -1, NewPath: 1, Beside: 1}, nil)
	if n := g.Plain(); n != 0 {
		t.Errorf("the group is plain for %d paths", n)
	}
	g.SwitchSource(SourceSwitch{PSN: 70, OldPath: 1, NewPath: 0}, nil)
	if n := g.Plain(); n != 1 {
		t.Errorf("%d paths are plain when the source stands for one receiver", n)
	}
}

// Who does not count yet, or has told nothing since a restart, has reached nothing.
func TestWhoHasReachedAPacket(t *testing.T) {
	for name, c := range map[string]struct {
		path path
		n    int
	}{
		"has it":                          {path{acked: 10}, 1},
		"has more":                        {path{acked: 11}, 1},
		"lacks it":                        {path{acked: 9}, 0},
		"has ended with it":               {path{acked: 10, part: PartDead}, 1},
		"has told nothing":                {path{acked: 10, part: PartUnknown}, 0},
		"is behind":                       {path{acked: 10, part: PartBehind}, 0},
		"has joined with the next packet": {path{acked: 10, fresh: true}, 0},
	} {
		g := New(Config{Policy: Policy{Ack: 1}, Paths: 1})
		g.paths[0] = c.path
		if n := g.reached(roce.PSN(10)); n != c.n {
			t.Errorf("who %s counts as %d", name, n)
		}
	}
}
