package feedback

import (
	"testing"

	"github.com/rocast/rocast/roce"
)

// Two messages were sent, and b, c and d have so many of them. A turn by force is concluded if
// those who have both are as many as the policy needs, and nobody who is waited for has ended.
func TestWhetherATurnByForceIsConcluded(t *testing.T) {
	for name, c := range map[string]struct {
		ack       AckPolicy
		have      [3]int
		change    func(g *Group)
		concluded bool
	}{
		"all have it":                  {AckAll, [3]int{2, 2, 2}, nil, true},
		"one has it":                   {AckAll, [3]int{2, 1, 0}, nil, true},
		"nobody has it":                {AckAll, [3]int{1, 1, 0}, nil, false},
		"one has ended":                {AckAll, [3]int{2, 2, 1}, func(g *Group) { g.paths[2].part = PartDead }, false},
		"one of a quorum has ended":    {2, [3]int{2, 2, 1}, func(g *Group) { g.paths[2].part = PartDead }, true},
		"a quorum has it":              {2, [3]int{2, 1, 2}, nil, true},
		"too few of a quorum have it":  {2, [3]int{2, 1, 1}, nil, false},
		"one of the quorum has joined": {2, [3]int{2, 2, 0}, func(g *Group) { g.paths[0].fresh, g.paths[0].from = true, 1 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := New(Config{Policy: Policy{Ack: c.ack, Switch: SwitchForce}, Paths: 3})
			for psn := range roce.PSN(2) {
				g.Step(0, Event{Kind: Data, PSN: psn, First: true, Last: true}, nil)
			}
			if c.change != nil {
				c.change(g)
				g.recount()
			}
			for i, n := range c.have {
				if n > 0 {
					g.Step(0, Event{Kind: Response, Path: i, PSN: roce.PSN(n - 1), MSN: roce.MSN(n), Syndrome: roce.SyndromeUnlimited}, nil)
				}
			}
			if messages, concluded := g.Concluded(); concluded != c.concluded || concluded && messages != 2 {
				t.Errorf("concluded %v, with %d messages", concluded, messages)
			}
		})
	}
}

// Behind a restart nobody has seen the messages before. Who has all packets knows how many there
// are.
func TestTheMessagesOfATurnByForce(t *testing.T) {
	g := New(Config{Policy: Policy{Switch: SwitchForce}, Paths: 2, FirstPSN: 10, Restored: true})
	g.Step(0, Event{Kind: Data, PSN: 20, First: true, Last: true}, nil)
	g.Step(0, Event{Kind: Response, Path: 0, PSN: 18, MSN: 7, Syndrome: roce.SyndromeUnlimited}, nil)
	g.Step(0, Event{Kind: Response, Path: 1, PSN: 20, MSN: 9, Syndrome: roce.SyndromeUnlimited}, nil)
	if messages, concluded := g.Concluded(); !concluded || messages != 9 {
		t.Errorf("concluded %v, with %d messages", concluded, messages)
	}
}

// A box that does not yield is not spared while the box above lacks something.
func TestTheBoxAboveKeepsASourceThatDoesNotYield(t *testing.T) {
	for needed, spared := range map[int]bool{1: false, 2: true} {
		g := New(Config{Policy: Policy{Ack: 1}, Paths: 3})
		g.Need(needed)
		g.Step(0, Event{Kind: Data, PSN: 0, First: true, Last: true}, nil)
		g.Step(0, Event{Kind: Response, Path: 2, PSN: 0, MSN: 1, Syndrome: roce.SyndromeUnlimited}, nil)
		if got := (SourceSwitch{PSN: 50, OldPath: -1, NewPath: 0}).SparesOld(g, settleWithin); got != spared {
			t.Errorf("path %d is needed, and the source is spared: %v", needed, got)
		}
	}
}
