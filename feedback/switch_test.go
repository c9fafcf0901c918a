package feedback

import (
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// A source that has sent nothing ends its turn with everything acknowledged, whoever is left.
func TestATurnWithoutPacketsIsConcluded(t *testing.T) {
	for name, part := range map[string]Part{"is gone": PartGone, "has ended": PartDead} {
		g := New(Config{Policy: Policy{Switch: SwitchForce}, Paths: 1, Parts: []Part{part}})
		g.begin(50, 7)
		if messages, concluded := g.Concluded(); !concluded || messages != 7 {
			t.Errorf("where the receiver %s: concluded %v, with %d messages", name, concluded, messages)
		}
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

// After a restart a receiver, or another box, tells of the first packet that the source sends again
// with the number of all messages that it has. The turn ends with that number, and no more.
func TestTheMessagesOfATurnAfterARestart(t *testing.T) {
	g := New(Config{Paths: 2, FirstPSN: 10, Restored: true})
	for psn := roce.PSN(20); psn < 23; psn++ {
		g.Step(0, Event{Kind: Data, PSN: psn, First: true, Last: true}, nil)
		for path := range 2 {
			g.Step(0, Event{Kind: Response, Path: path, PSN: psn, MSN: 13, Syndrome: roce.SyndromeUnlimited}, nil)
		}
	}
	if messages, concluded := g.Concluded(); !concluded || messages != 13 {
		t.Errorf("concluded %v, with %d messages", concluded, messages)
	}
}

// Who has had nothing of the turn says nothing of its messages: one that joins, or is out since
// before a restart. Else the next turn of the source would begin with fewer than it has sent.
func TestTheMessagesOfATurnAreThoseOfItsReceivers(t *testing.T) {
	for _, part := range []Part{PartWaiting, PartBehind, PartGone} {
		for _, restored := range []bool{false, true} {
			g := New(Config{Paths: 2, FirstPSN: 0, Restored: restored, Parts: []Part{PartActive, part}})
			g.Step(0, Event{Kind: Data, PSN: 0, First: true, Last: true}, nil)
			g.Step(0, Event{Kind: Response, Path: 0, PSN: 0, MSN: 1, Syndrome: roce.SyndromeUnlimited}, nil)
			g.Rearrange([]int{0, 1, -1}, nil, []Part{PartActive, part, PartWaiting})
			if messages, concluded := g.Concluded(); !concluded || messages != 1 {
				t.Errorf("beside one that is %v, restored %v: concluded %v, with %d messages", part, restored, concluded, messages)
			}
		}
	}
}

// A box that is the source and does not yield may be inside a message. It is not spared before it
// has been silent for as long as a receiver may be.
func TestASourceThatDoesNotYieldHasItsTime(t *testing.T) {
	for silent, spared := range map[Tick]bool{0: false, settleWithin - 1: false, settleWithin: true} {
		g := New(Config{Policy: Policy{Evict: true}, Paths: 3})
		g.Away(0, 0)
		if got := (SourceSwitch{PSN: 50, OldPath: 0, NewPath: 1}).SparesOld(g, silent); got != spared {
			t.Errorf("silent for %v, and spared: %v", silent, got)
		}
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

// The source that does not yield is no receiver of the next one, or that one would have too few.
func TestASourceThatIsSparedIsNoReceiver(t *testing.T) {
	for ack, spared := range map[AckPolicy]bool{1: true, 2: false} {
		g := New(Config{Policy: Policy{Ack: ack}, Paths: 4})
		g.Away(0, 0)
		g.Step(0, Event{Kind: Data, PSN: 0, First: true, Last: true}, nil)
		for i := 2; i < 4; i++ { // path 1 lacks it
			g.Step(0, Event{Kind: Response, Path: i, PSN: 0, MSN: 1, Syndrome: roce.SyndromeUnlimited}, nil)
		}
		if got := (SourceSwitch{PSN: 50, OldPath: 0, NewPath: 3}).SparesOld(g, settleWithin); got != spared {
			t.Errorf("%d receivers are needed, and the source is spared: %v", ack, got)
		}
	}
}

// Receivers beside the next source have what it hears an ACK of, if their box lacks nothing.
func TestWhoIsBesideTheNextSourceCountsIfItsBoxIsWhole(t *testing.T) {
	for lacks, spares := range map[bool]bool{false: true, true: false} {
		g := New(Config{Policy: Policy{Ack: 2}, Paths: 2, Weights: []uint16{2, 1}})
		if got := g.spares(SourceSwitch{OldPath: -1, NewPath: 0, Beside: 1, Lacks: lacks}); got != spares {
			t.Errorf("the box lacks something: %v, and one receiver more is enough: %v", lacks, got)
		}
	}
}

// A source that will have no receiver hears that its QP has ended. A box that lacks something may
// have them all, so a policy that leaves nobody behind waits for it.
func TestWhoHasTooFewReceiversDoesNotWait(t *testing.T) {
	for name, c := range map[string]struct {
		policy Policy
		lacks  bool
		few    bool
	}{
		"all":                            {Policy{}, false, true},
		"all and the box lacks":          {Policy{}, true, false},
		"evict":                          {Policy{Evict: true}, false, true},
		"evict and the box lacks":        {Policy{Evict: true}, true, true},
		"a quorum":                       {Policy{Ack: 1}, false, true},
		"a quorum and the box lacks":     {Policy{Ack: 1}, true, true},
		"more than a quorum":             {Policy{Ack: 2}, false, true},
		"more, evict, and the box lacks": {Policy{Ack: 2, Evict: true}, true, true},
	} {
		g := New(Config{Policy: c.policy, Paths: 1})
		if got := g.tooFew(SourceSwitch{OldPath: -1, NewPath: 0, Lacks: c.lacks}); got != c.few {
			t.Errorf("%s: too few: %v", name, got)
		}
	}
}

// Who waits to be the source is overdue when questions do not help in time, or a receiver that
// lacks something has not shown in time what it has.
func TestWhenTheNextSourceIsOverdue(t *testing.T) {
	const now, within = 3600 * second, onItsWay + settleWithin
	for name, c := range map[string]struct {
		change  func(g *Group)
		overdue bool
	}{
		"nobody waits":            {func(*Group) {}, false},
		"nobody has asked":        {func(g *Group) { g.restart(asking{}) }, false},
		"was asked just now":      {func(g *Group) { g.restart(asking{begun: true, from: now - within + 1}) }, false},
		"was asked":               {func(g *Group) { g.restart(asking{begun: true, from: now - within}) }, true},
		"was asked and has told":  {func(g *Group) { g.asking = asking{begun: true} }, false},
		"has claimed it just now": {func(g *Group) { g.claim = claim{true, g.source.sent, now - settleWithin + 1} }, false},
		"has claimed it":          {func(g *Group) { g.claim = claim{true, g.source.sent, now - settleWithin} }, true},
	} {
		g := New(Config{Paths: 1})
		c.change(g)
		if got := g.Overdue(now); got != c.overdue {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A turn that could not be stored does not end. The source goes on without who was left behind, and
// hears at once what all others have.
func TestWhoWasLeftBehindHoldsNobodyUpWhenTheSourceGoesOn(t *testing.T) {
	g := New(Config{Policy: Policy{Switch: SwitchForce}, Paths: 2})
	g.Step(0, Event{Kind: Data, PSN: 0, First: true, Last: true}, nil)
	g.Step(0, Event{Kind: Response, Path: 1, PSN: 0, MSN: 1, Syndrome: roce.SyndromeUnlimited}, nil)
	left := g.LeaveBehind(SourceSwitch{PSN: 50, OldPath: -1, NewPath: -1}, nil)
	if len(left) != 1 || left[0].Path != 0 || g.Part(0) != PartBehind {
		t.Fatalf("%+v is left behind", left)
	}
	acts := g.GoOn(nil)
	if len(acts) != 1 || acts[0].Kind != Reply || acts[0].PSN != 0 || !acts[0].Syndrome.IsACK() {
		t.Errorf("the source is sent %+v", acts)
	}
	if part := g.Part(1); part != PartActive {
		t.Errorf("who has everything is %v", part)
	}
}

// While the source answers a question, nobody's time to answer begins.
func TestNoQuestionBeginsWhileTheSourceAnswers(t *testing.T) {
	g := New(Config{Paths: 1})
	g.back = goBack{psn: g.source.pos, awaited: true, asked: true, came: true, askedAt: second}
	for now, begun := range map[Tick]bool{second: false, second + AskPeriod - 1: false} {
		if acts := g.Ask(now, SourceSwitch{OldPath: -1, NewPath: -1}, nil); len(acts) > 0 || g.asking.begun != begun {
			t.Errorf("%v later: %+v, begun %v", now-second, acts, g.asking.begun)
		}
	}
	if g.Ask(second+AskPeriod, SourceSwitch{OldPath: -1, NewPath: -1}, nil); g.back.awaited {
		t.Error("the answer is not taken")
	}
}

// Nothing that is in the PSNs of a source, or that it was asked or told, outlives its turn. What
// does is what begin lists.
func TestWhatASourceSwitchLeaves(t *testing.T) {
	fill := func(g *Group) {
		g.claim = claim{true, 120, 1}
		g.asking = asking{turn: 100, begun: true, calls: 2, from: 1, at: 2}
		g.gap = gapCalls{calls: 3, rests: true, seen: true, since: 4}
		g.lull = lull{acked: true, asked: true, seen: true, since: 4, times: 2, spoke: true}
		g.pace = pace{seenAt: 5, pause: 6}
		g.again = again{true, 108, 2}
		g.guess = guess{true, 7}
		g.doubts = doubts{recopied: span{true, 101, 103}, missed: span{true, 121, 122}, countedAt: 5, lowest: 90, began: 91, rounds: 3}
		g.back = goBack{psn: 111, awaited: true, asked: true, came: true, askedAt: 4, newest: true, oneACK: true, by: roce.NAKSequence}
		g.retained = retained{oldest: 106, lowest: 105, at: 1, repairing: 1, running: 1, due: 9}
		g.pending = pendingNAKs{1, 1}
		g.source.unsure, g.source.told, g.source.inside, g.source.asks, g.source.unanswered = true, true, true, true, 3
		g.legs[0] = leg{due: 1, sampleAt: 2, since: 3, cursor: 112, asked: 111, high: 115, resent: 110, sample: 113,
			state: legRepairing, window: 4, attempts: 2, running: true, sampling: true, sentAgain: true, barred: true, reported: true}
		g.paths[0] = path{since: 1, acked: 108, msn: 3, pending: roce.NAKSequence, credit: creditNone, lack: lackDoubt, unheard: 2, told: true, silent: silenceTotal, follows: true}
	}
	for name, policy := range map[string]Policy{"a quorum": {Ack: 2, Repair: RepairLocal}, "all": {Repair: RepairLocal}} {
		g, fresh := New(Config{Policy: policy, Paths: 3, FirstPSN: 90}), New(Config{Policy: policy, Paths: 3, FirstPSN: 90})
		fill(g)
		for _, g := range []*Group{g, fresh} {
			g.begin(500, 7)
			g.recount()
		}
		if diff := cmp.Diff(fresh, g, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
			t.Errorf("%s: of the source before there stays\n%s", name, diff)
		}
	}
}

// A restart knows how each path takes part: who is out gets nothing and is not waited for.
func TestAGroupBeginsWithThePartsOfItsPaths(t *testing.T) {
	g := New(Config{Paths: 3, Parts: []Part{PartActive, PartGone, PartJoining}})
	for i, want := range []Part{PartActive, PartGone, PartJoining} {
		if got := g.Part(i); got != want {
			t.Errorf("path %d is %v, not %v", i, got, want)
		}
	}
}

// With evict the next source does without who has told nothing, if somebody else receives from it.
func TestWhoToldNothingIsSparedIfSomebodyReceives(t *testing.T) {
	for name, c := range map[string]struct {
		told   []int
		spares bool
	}{
		"the next source":                     {[]int{0}, false},
		"the next source and another":         {[]int{0, 2}, true},
		"two others, and not the next source": {[]int{1, 2}, false},
		"nobody":                              {nil, false},
	} {
		g := New(Config{Policy: Policy{Evict: true}, Paths: 3, Restored: true})
		for _, i := range c.told {
			g.paths[i].told, g.paths[i].acked = true, 19
		}
		if got := g.sparesSilent(SourceSwitch{OldPath: -1, NewPath: 0}); got != c.spares {
			t.Errorf("told by %s: %v", name, got)
		}
	}
}

// The source that has sent so far receives from the next one, unless it took no part before.
func TestWhoToldNothingIsNotSparedForASourceThatIsOut(t *testing.T) {
	for part, spares := range map[Part]bool{PartActive: true, PartBehind: false, PartGone: false, PartWaiting: false} {
		g := New(Config{Policy: Policy{Evict: true}, Paths: 3, Restored: true, Parts: []Part{PartActive, PartActive, part}})
		g.Away(2, 0)
		g.paths[0].told, g.paths[0].acked = true, 19
		if got := g.sparesSilent(SourceSwitch{OldPath: 2, NewPath: 0}); got != spares {
			t.Errorf("the source was %v before its turn: %v", part, got)
		}
	}
}

// A source that only sent may receive now. That the source before it takes no part says nothing
// about it.
func TestASourceThatMayReceiveTakesPartAfterItsTurn(t *testing.T) {
	for _, from := range [][]int{{0, OfSource}, {OfSource, 0}} {
		g := New(Config{Paths: 1})
		g.away = PartBehind
		g.Rearrange(from, nil, nil)
		source := slices.Index(from, OfSource)
		if g.absent != source {
			t.Errorf("%v: path %d is away", from, g.absent)
		}
		g.SwitchSource(SourceSwitch{PSN: 50, OldPath: source, NewPath: 1 - source}, nil)
		if part := g.Part(source); part != PartActive {
			t.Errorf("%v: it is %v", from, part)
		}
	}
}

// An engine may carry packets past a receiver that waits to join, if it does not join with the next
// one because too few are left.
func TestPlainBesideAReceiverThatWaits(t *testing.T) {
	for ack, want := range map[AckPolicy]int{1: 1, 2: 0} {
		g := New(Config{Policy: Policy{Ack: ack}, Paths: 2, Parts: []Part{PartActive, PartWaiting}})
		if active := g.Plain(); active != want {
			t.Errorf("%d receivers are needed, and the group is plain for %d paths", ack, active)
		}
	}
}

// When the box above leaves, or the source, no member takes its place.
func TestWhoLeavesIsNoOtherMember(t *testing.T) {
	g := New(Config{Policy: Policy{Ack: 1}, Paths: 3, Weights: []uint16{1, 2, 2}})
	g.Need(0)
	g.Away(1, 1)
	g.Rearrange([]int{2}, []uint16{2}, nil)
	g.Rearrange([]int{0, -1}, []uint16{2, 1}, nil)
	if g.needed != none || g.absent != none || g.beside != 0 {
		t.Errorf("path %d is needed, path %d is away with %d receivers beside it", g.needed, g.absent, g.beside)
	}
	if g.lacksNeeded() {
		t.Error("the box above lacks something")
	}
}

// Who joins is neither the box above nor the source, where there is none.
func TestWhoJoinsIsNoOtherMember(t *testing.T) {
	g := New(Config{Policy: Policy{Ack: 1}, Paths: 1})
	g.Rearrange([]int{0, -1}, []uint16{1, 1}, nil)
	if g.needed != none || g.absent != none {
		t.Errorf("path %d is needed, path %d is away", g.needed, g.absent)
	}
}

// A source without a path takes its turn after one whose path was behind: nothing of that is left.
func TestASourceWithoutAPathIsNotLeftOut(t *testing.T) {
	g := New(Config{Paths: 2, Parts: []Part{PartBehind, PartActive}})
	g.SwitchSource(SourceSwitch{PSN: 100, OldPath: -1, NewPath: 0}, nil)
	if !g.LeftOut() {
		t.Error("the path of the source was behind")
	}
	g.SwitchSource(SourceSwitch{PSN: 0, OldPath: 0, NewPath: -1}, nil)
	if g.LeftOut() {
		t.Error("the source has no path")
	}
	if got := g.Part(0); got != PartBehind {
		t.Errorf("the path of the source before is %v", got)
	}
}
