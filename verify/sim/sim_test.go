package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab"
)

// The invariants hold in some hundred seeds, in which every kind of fault and every kind of end of
// a run occurs. make sim plays many more.
func TestSeedsHold(t *testing.T) {
	seeds := uint64(1200)
	if testing.Short() {
		seeds = 100
	}
	var r Runner
	var tally Tally
	var engine EngineCount
	ended, forced := map[rnic.Status]int{}, 0
	crossed := map[Fault]int{} // runs with a crash, in which that happened too
	for seed := range seeds {
		result := play(t, &r, Draw(seed))
		if result.Failure != nil {
			t.Errorf("seed %d: %v\nreplay: make sim REPLAY=%d", seed, result.Failure, seed)
		}
		tally.Add(&result.Tally)
		engine.Add(&result.Engine)
		ended[result.Status]++
		if slices.ContainsFunc(r.w.hosts, func(h host) bool { return h.forced }) {
			forced++
		}
		for _, kind := range []Fault{Join, Leave, SourceChange, SourceLeave} {
			if result.Tally[SwitchCrash].Times > 0 && result.Tally[kind].Times > 0 {
				crossed[kind]++
			}
		}
	}
	if testing.Short() {
		return
	}
	for kind := range Move { // that needs a tree
		n := tally[kind]
		if kind >= firstTimed && n.Times == 0 || kind < firstTimed && n.Data == 0 || kind < QueueFull && n.Feedback == 0 {
			t.Errorf("%v never happened: %+v", kind, n)
		}
	}
	if engine.Armed == 0 || engine.Carried < 10*engine.Armed || engine.Merged == 0 || engine.Told == 0 || engine.CarriedApart == 0 || engine.CarriedAlone == 0 {
		t.Errorf("the engine did not do all that it may: %+v", engine)
	}
	if engine.Shared == 0 {
		t.Error("no copy was shared")
	}
	if forced == 0 || len(crossed) != 4 {
		t.Errorf("%d sources lost their turn by force; in runs with a crash happened %v", forced, crossed)
	}
	for _, status := range []rnic.Status{rnic.Success, rnic.RemoteInvalidRequest, rnic.RemoteAccess, rnic.RetryExceeded} {
		if ended[status] == 0 {
			t.Errorf("no run ended with %v: %v", status, ended)
		}
	}
}

// The same seed gives the same run, after any other run of the same runner, and with and without a
// recorder.
func TestSameSeedSameRun(t *testing.T) {
	testlab.Long(t)
	var used Runner
	hashes := map[uint64]bool{}
	for seed := range uint64(60) {
		first := play(t, &used, Draw(seed))
		var fresh Runner
		if again := play(t, &fresh, Draw(seed)); again != first {
			t.Errorf("seed %d: %+v, then %+v", seed, first, again)
		}
		watched, _, err := used.Replay(Draw(seed), 40, nil)
		if err != nil || watched != first {
			t.Errorf("seed %d: %+v, watched %+v (%v)", seed, first, watched, err)
		}
		hashes[first.Hash] = true
	}
	if len(hashes) != 60 {
		t.Errorf("60 seeds gave %d different runs", len(hashes))
	}
}

func TestScheduleIsInOrder(t *testing.T) {
	var s schedule
	random := rand.New(rand.NewPCG(1, 0))
	for i := range 1000 {
		s.add(event{at: time.Duration(random.IntN(50)), index: int32(i)})
	}
	var taken []event
	for e, ok := s.next(); ok; e, ok = s.next() {
		taken = append(taken, e)
	}
	if len(taken) != 1000 || !slices.IsSortedFunc(taken, func(a, b event) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return int(a.index - b.index) // in the order of scheduling
	}) {
		t.Errorf("%d events, not in order", len(taken))
	}
}

// Without faults nothing is resent and no receiver sends a NAK.
func TestCalmRunIsQuiet(t *testing.T) {
	result := mustHold(t, calm())
	c := result.Source
	if c.Get(rnic.MessagesSent) != 64 || c.Get(rnic.FramesRetransmitted)+c.Get(rnic.NAKSequenceReceived)+c.Get(rnic.Timeouts) != 0 {
		t.Errorf("%v", c.ByName())
	}
}

// BenchmarkStandard is one run of the standard size with few faults.
func BenchmarkStandard(b *testing.B) {
	var r Runner
	s := losing(1e-3)
	for b.Loop() {
		s.Seed++
		if result := play(b, &r, s); result.Failure != nil {
			b.Fatal(result.Failure)
		}
	}
}
