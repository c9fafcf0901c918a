package feedback

import (
	"testing"

	"github.com/rocast/rocast/roce"
)

// A former source that was called back is acknowledged what lies below the packet to which it was
// called. It is acknowledged more when it has come back: when that packet comes, or one behind it
// that is a step back.
func TestTheRoundOfAFormerSource(t *testing.T) {
	type came struct {
		psn roce.PSN
		may bool
	}
	called := Round{Pos: 102, Back: 104, Awaited: true}
	for name, c := range map[string]struct {
		round Round
		came  []came
	}{
		"not called back":      {Round{Pos: 102}, []came{{104, true}, {103, true}, {110, true}}},
		"the packet is lost":   {called, []came{{103, true}, {105, false}, {106, false}}},
		"the packet comes":     {called, []came{{105, false}, {104, true}, {105, true}}},
		"a step back below it": {called, []came{{105, false}, {103, true}, {105, false}}},
		"a step back above it": {called, []came{{108, false}, {106, true}, {107, true}}},
		"the same packet":      {called, []came{{108, false}, {108, true}}},
	} {
		r := c.round
		for _, p := range c.came {
			if got := r.Arrive(p.psn); got != p.may {
				t.Errorf("%s: packet %d may be acknowledged: %v", name, p.psn, got)
			}
		}
	}
}

// A source that is called back to a packet that it had sent sends what comes behind that packet
// again. If it had not sent the packet, it may ignore the call and go on.
func TestWhatStraysFromARound(t *testing.T) {
	called := Round{Pos: 106, Back: 104, Awaited: true, Sent: true}
	came, asked := called, called
	came.Awaited, asked.Sent = false, false
	for name, c := range map[string]struct {
		round Round
		psn   roce.PSN
		want  bool
	}{
		"behind it": {called, 105, true}, "the packet": {called, 104, false}, "before it": {called, 103, false},
		"it has come": {came, 105, false}, "it may not have sent that": {asked, 105, false},
	} {
		if got := c.round.Strays(c.psn); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
