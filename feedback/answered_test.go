package feedback

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rocast/rocast/internal/merger"
	"github.com/rocast/rocast/roce"
)

// While a group is plain, an engine that merges plain ACKs tells the source exactly what one
// Response event for each of them would tell it, and Answered leaves the same state. The source
// hears nothing more, whenever Answered is called.
func TestAnsweredEqualsResponses(t *testing.T) {
	merged, told := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		const paths = 3
		a, b := drawGroups(t, paths, rapid.SampledFrom([]RepairPolicy{RepairOff, RepairLocal}).Draw(t, "repair"), AckAll)
		now, acts := Tick(0), []Action(nil)
		for range rapid.IntRange(0, 25).Draw(t, "events") {
			now += Tick(rapid.IntRange(0, 12).Draw(t, "ms")) * Tick(time.Millisecond)
			acts, _ = a.Step(now, drawEvent(t, a, paths), acts[:0])
			if _, ok := a.MayMerge(); !ok || a.Plain() == 0 || a.AcksDecide() {
				continue
			}
			if n := rapid.IntRange(0, 5).Draw(t, "packets"); n > 0 {
				last := a.NextPSN().Add(int32(n) - 1)
				asked := last.Add(-int32(rapid.IntRange(0, n-1).Draw(t, "asked")))
				a.Step(now, Event{Kind: Carried, PSN: last, MSN: 1, Last: true, AckReq: rapid.Bool().Draw(t, "asks"), Asked: asked}, nil)
			}
			b.CopyFrom(a)
			m, at := begin(b)
			for range rapid.IntRange(1, 8).Draw(t, "answers") {
				i := rapid.IntRange(0, len(at)-1).Draw(t, "answers")
				ev := Event{
					Kind: Response, Path: at[i].Path, PSN: a.NextPSN().Add(-int32(rapid.IntRange(1, 6).Draw(t, "below"))),
					MSN: at[i].MSN.Add(int32(rapid.IntRange(0, 2).Draw(t, "messages"))), Syndrome: roce.SyndromeUnlimited,
				}
				tells, taken := m.ACK(i, Progress{ev.PSN, ev.MSN})
				if !taken {
					continue // another MSN of the same PSN
				}
				at[i].Progress = m.At[i]
				merged++
				acts, _ = a.Step(now, ev, acts[:0])
				want := []Action{{Kind: Reply, PSN: m.Told.PSN, MSN: m.Told.MSN, Syndrome: roce.SyndromeUnlimited}}
				if !tells {
					want = want[:0]
				} else {
					told++
				}
				if !slices.Equal(acts, want) {
					t.Fatalf("the ACK of %d by path %d causes %+v, and the engine tells %+v", ev.PSN, ev.Path, acts, want)
				}
			}
			if acts = b.Answered(now, at, m.Told, acts[:0]); len(acts) != 0 {
				t.Fatalf("the source is told %+v again", acts)
			}
			b.back.oneACK = a.back.oneACK // it matters only with repair, and the engine does not count its ACKs
			for i := range b.paths {
				b.paths[i].credit = a.paths[i].credit // it matters only where credits are merged
			}
			if !bytes.Equal(a.state(now), b.state(now)) {
				t.Fatalf("merged ACKs leave\n%+v\nand responses\n%+v", b, a)
			}
			if b.floor.msn != a.floor.msn || b.merged != a.merged {
				t.Fatalf("told %+v of %+v, want %+v of %+v", b.merged, b.floor, a.merged, a.floor)
			}
		}
	})
	if merged == 0 || told == 0 {
		t.Errorf("%d ACKs were merged, and the source was told %d", merged, told)
	}
}

// begin lets an engine merge the ACKs of a plain group.
func begin(g *Group) (m merger.Merger[Progress], at []Answered) {
	m.Told, _ = g.Told()
	for i := range g.paths {
		if g.Part(i) == PartActive {
			m.At = append(m.At, g.Progress(i))
			at = append(at, Answered{i, g.Progress(i)})
		}
	}
	return m, at
}

// An engine that was stopped between an ACK and its telling the source leaves that to the core.
func TestAnsweredTellsWhatTheEngineDidNot(t *testing.T) {
	g := New(Config{Paths: 2, FirstPSN: 100})
	for psn := roce.PSN(100); psn < 104; psn++ {
		g.Step(0, Event{Kind: Data, PSN: psn, First: true, Last: true}, nil)
	}
	places := []Answered{{0, Progress{102, 3}}, {1, Progress{103, 4}}}
	acts := g.Answered(0, places, Progress{101, 2}, nil)
	want := []Action{{Kind: Reply, PSN: 102, MSN: 3, Syndrome: roce.SyndromeUnlimited}}
	if !slices.Equal(acts, want) {
		t.Errorf("the source is told %+v, want %+v", acts, want)
	}
	if acts = g.Answered(0, places, Progress{102, 3}, nil); len(acts) != 0 {
		t.Errorf("the source is told %+v again", acts)
	}
}

// What the engine told the source counts as told: nothing less is told later, and a NAK right
// behind it is due at once.
func TestANakBehindWhatTheEngineTold(t *testing.T) {
	g := New(Config{Paths: 2, FirstPSN: 100})
	for psn := roce.PSN(100); psn < 104; psn++ {
		g.Step(0, Event{Kind: Data, PSN: psn, First: true, Last: true}, nil)
	}
	g.Answered(0, []Answered{{0, Progress{101, 2}}, {1, Progress{103, 4}}}, Progress{101, 2}, nil)
	acts, _ := g.Step(0, Event{Kind: Response, Path: 0, PSN: 102, MSN: 2, Syndrome: roce.NAKSequence}, nil)
	want := []Action{{Kind: Reply, PSN: 102, MSN: 2, Syndrome: roce.NAKSequence, Cause: CauseReceiver}}
	if !slices.Equal(acts, want) {
		t.Errorf("the source is told %+v, want %+v", acts, want)
	}
}

// An engine that told the source nothing changes nothing: the source, which went back, would still
// ignore the same NAK.
func TestAnsweredOfNothing(t *testing.T) {
	g := New(Config{Policy: Policy{Nak: NakLower}, Paths: 2, FirstPSN: 100})
	data := func(psns ...roce.PSN) {
		for _, psn := range psns {
			g.Step(0, Event{Kind: Data, PSN: psn, First: true, Last: true}, nil)
		}
	}
	answer := func(path int, psn roce.PSN, s roce.Syndrome) []Action {
		acts, _ := g.Step(0, Event{Kind: Response, Path: path, PSN: psn, MSN: roce.MSN(psn - 99), Syndrome: s}, nil)
		return acts
	}
	data(100, 101, 102)
	if acts := answer(1, 102, roce.NAKSequence); len(acts) != 1 || acts[0].PSN != 100 {
		t.Fatalf("the source is told %+v", acts)
	}
	data(100, 101, 102)
	answer(1, 102, roce.SyndromeUnlimited)
	if g.Plain() == 0 {
		t.Fatal("the group is not plain")
	}
	m, at := begin(g)
	if acts := g.Answered(0, at, m.Told, nil); len(acts) != 0 {
		t.Errorf("the source is told %+v", acts)
	}
	if acts := answer(0, 100, roce.NAKSequence); len(acts) != 0 {
		t.Errorf("the source is told %+v again", acts)
	}
}

// A path that has left since has no part in what was merged, and a path never falls back.
func TestAnsweredOfThePast(t *testing.T) {
	g := New(Config{Paths: 3, FirstPSN: 100})
	g.Step(0, Event{Kind: Data, PSN: 100, First: true, Last: true}, nil)
	g.Step(0, Event{Kind: Data, PSN: 101, First: true, Last: true}, nil)
	g.Step(0, Event{Kind: Response, Path: 1, PSN: 101, MSN: 2, Syndrome: roce.SyndromeUnlimited}, nil)
	g.paths[2].part = PartGone
	g.recount()
	g.Answered(0, []Answered{{0, Progress{100, 1}}, {1, Progress{100, 1}}, {2, Progress{101, 2}}}, Progress{99, 0}, nil)
	if a, b, c := g.Progress(0), g.Progress(1), g.Progress(2); a != (Progress{100, 1}) || b != (Progress{101, 2}) || c != (Progress{99, 0}) {
		t.Errorf("the paths are at %v, %v and %v", a, b, c)
	}
}

// An engine merges only where an ACK needs no decision beyond the lowest path.
func TestMayMerge(t *testing.T) {
	for name, c := range map[string]struct {
		policy Policy
		change func(*Group)
		want   bool
	}{
		"acknowledged by all":           {want: true},
		"by a quorum":                   {policy: Policy{Ack: 2}},
		"credits are merged":            {policy: Policy{Credits: CreditsMerge}},
		"with repair":                   {policy: Policy{Repair: RepairLocal}, want: true},
		"one wants to migrate":          {change: func(g *Group) { g.paths[1].migReq = true }},
		"all want to":                   {change: func(g *Group) { migrate(g, 3) }, want: true},
		"and the one that left did not": {change: func(g *Group) { migrate(g, 2); g.paths[2].part = PartGone }, want: true},
	} {
		g := New(Config{Policy: c.policy, Paths: 3})
		if c.change != nil {
			c.change(g)
		}
		if mig, ok := g.MayMerge(); ok != c.want || ok && mig != g.floor.migReq {
			t.Errorf("%s: %v with MigReq %v", name, ok, mig)
		}
	}
}

// With repair an ACK may decide more than that for a moment. Nothing of a path that has left
// counts.
func TestAcksDecide(t *testing.T) {
	for name, c := range map[string]struct {
		change func(g *Group)
		want   bool
	}{
		"nothing":                              {func(*Group) {}, false},
		"a round trip is being measured":       {func(g *Group) { g.legs[1].sampling = true }, true},
		"a packet was sent again":              {func(g *Group) { g.legs[1].sentAgain = true }, true},
		"a path was probed":                    {func(g *Group) { g.legs[1].attempts = 1 }, true},
		"a path was not sent everything":       {func(g *Group) { g.legs[1].high = g.legs[1].high.Prev() }, true},
		"the source is going to be sent a NAK": {func(g *Group) { g.lull.asked = true }, true},
		"a path that has left was probed":      {func(g *Group) { g.legs[2].attempts = 1 }, false},
	} {
		g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 3})
		g.Step(0, Event{Kind: Data, First: true}, nil)
		g.leave(2, PartGone)
		c.change(g)
		if got := g.AcksDecide(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if New(Config{Paths: 3}).AcksDecide() {
		t.Error("it decides more without repair")
	}
}

// migrate makes the answers of the first n paths say that they want to migrate.
func migrate(g *Group, n int) {
	for i := range n {
		g.paths[i].migReq = true
	}
	g.floor.migReq = true
}
