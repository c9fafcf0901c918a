package feedback

import "testing"

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
