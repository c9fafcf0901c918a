package feedback

import (
	"bytes"
	"testing"

	"github.com/rocast/rocast/roce"
)

// restingPath is a group of two paths that share. It has sent up to 119, and path 1, which has
// acknowledged 109, rests.
func restingPath() *Group {
	g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 2, FirstPSN: 100})
	g.Share(0, true)
	g.Share(1, true)
	for psn := roce.PSN(100); psn < 120; psn++ {
		g.Step(second, Event{Kind: Data, PSN: psn, First: true, Last: true}, nil)
		if psn == 110 {
			g.Step(second, Event{Kind: Response, Path: 1, PSN: 110, Syndrome: roce.SyndromeRNR(14)}, nil)
		}
	}
	return g
}

// A path can have what shared copies may have brought it, until another source begins.
func TestWhatSharedCopiesMayHaveBrought(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Group)
		want   roce.PSN
	}{
		"it shares":               {func(*Group) {}, 119},
		"it has shared":           {func(g *Group) { g.Share(1, false) }, 119},
		"it shared no more then":  {func(g *Group) { g.Share(1, false); g.Step(0, Event{Kind: Data, PSN: 120}, nil) }, 119},
		"the packet behind":       {func(g *Group) { g.Step(0, Event{Kind: Data, PSN: 120}, nil) }, 120},
		"it is another index now": {func(g *Group) { g.Rearrange([]int{-1, 0, 1}, nil, nil) }, 119},
		"another source": {func(g *Group) {
			g.SwitchSource(SourceSwitch{PSN: 50, OldPath: -1, NewPath: -1}, nil)
		}, 49},
	} {
		g := restingPath()
		c.change(g)
		if got := g.sentTo(len(g.paths) - 1); got != c.want {
			t.Errorf("%s: the path can have %d, want %d", name, got, c.want)
		}
	}
	g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 1, FirstPSN: 100})
	g.Step(second, Event{Kind: Data, PSN: 100, First: true, Last: true}, nil)
	g.Step(second, Event{Kind: Response, PSN: 100, Syndrome: roce.SyndromeRNR(14)}, nil)
	g.Step(second, Event{Kind: Data, PSN: 101, First: true, Last: true}, nil)
	if got := g.sentTo(0); got != 100 {
		t.Errorf("a path that does not share can have %d", got)
	}
}

// PSNs compare within half of their space. So what shared copies brought long ago must not stay
// behind.
func TestWhatWasSharedLongAgo(t *testing.T) {
	const half = 1 << 23
	g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 1, FirstPSN: 100})
	g.Share(0, true)
	g.shared[0].upTo = roce.PSN(100).Add(-half + 1)
	for psn := roce.PSN(100); psn < 120; psn++ {
		g.Step(second, Event{Kind: Data, PSN: psn, First: true, Last: true}, nil)
		g.Step(second, Event{Kind: Response, PSN: psn, Syndrome: roce.SyndromeUnlimited}, nil)
	}
	if got := g.sentTo(0); got != 119 {
		t.Errorf("the path can have %d, and 119 was sent", got)
	}
}

// Whether a path shares, and what that may have brought it, is part of its state; a copy of the
// state has it too.
func TestSharingIsPartOfTheState(t *testing.T) {
	states := map[string]string{}
	for name, change := range map[string]func(*Group){
		"shares": func(*Group) {}, "shares no more": func(g *Group) { g.Share(1, false) },
		"had less": func(g *Group) { g.shared[1].upTo = 118 }, "nothing is shared": func(g *Group) { g.shared = nil },
	} {
		g := restingPath()
		change(g)
		state := string(g.AppendPath(nil, 1, 100, second))
		if other, taken := states[state]; taken {
			t.Errorf("%s and %s have the same state", name, other)
		}
		states[state] = name
		c := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 2})
		c.CopyFrom(g)
		if got := c.AppendPath(nil, 1, 100, second); !bytes.Equal(got, []byte(state)) {
			t.Errorf("%s: a copy has another state", name)
		}
		if len(g.shared) > 0 {
			g.shared[1].upTo = 112
			if c.shared[1].upTo == 112 {
				t.Errorf("%s: the copy shares memory", name)
			}
		}
	}
}

// A path that shares goes back once in a round trip, and others four times.
func TestAPathThatSharesGoesBackOnce(t *testing.T) {
	for _, c := range []struct {
		shares bool
		want   int
	}{{true, 1}, {false, backsAtMost}} {
		g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 2})
		g.Share(1, true)
		g.Share(0, c.shares)
		may := 0
		for range 2 * backsAtMost {
			if g.mayGoBack(second, 0) {
				may++
			}
		}
		if may != c.want {
			t.Errorf("it may go back %d times, want %d", may, c.want)
		}
	}
}

// Without repair every path is taken to have been sent all that the group forwarded.
func TestSharingWithoutRepair(t *testing.T) {
	g := New(Config{Policy: Policy{Repair: RepairOff}, Paths: 1, FirstPSN: 100})
	g.Share(0, true)
	g.Step(second, Event{Kind: Data, PSN: 100, First: true, Last: true}, nil)
	if got := g.sentTo(0); got != 100 {
		t.Errorf("the path can have %d", got)
	}
}
