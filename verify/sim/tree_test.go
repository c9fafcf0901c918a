package sim

import (
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/roce"
)

// The invariants hold in some hundred runs through trees, with every fault of a single frame and of
// a box.
func TestTreesHold(t *testing.T) {
	seeds := uint64(600)
	if testing.Short() {
		seeds = 100
	}
	var r Runner
	var tally Tally
	levels := map[int]int{}
	for seed := range seeds {
		s := DrawTree(seed)
		result, err := r.RunTree(s)
		if err != nil {
			t.Fatal(seed, err)
		}
		if result.Failure != nil {
			t.Errorf("seed %d: %v\nreplay: go run ./verify/sim/rocsim -tree -replay %d", seed, result.Failure, seed)
		}
		tally.Add(&result.Tally)
		deepest := 0
		for b := range s.Boxes {
			depth := 1
			for ; b > 0; b = s.Boxes[b].Parent {
				depth++
			}
			deepest = max(deepest, depth)
		}
		levels[deepest]++
	}
	if testing.Short() {
		return
	}
	if levels[2] == 0 || levels[3] == 0 {
		t.Errorf("levels %v", levels)
	}
	for _, kind := range []Fault{Loss, Duplicate, Reorder, Late, Damage} {
		if tally[kind].Data == 0 || tally[kind].Feedback == 0 {
			t.Errorf("%v never happened: %+v", kind, tally[kind])
		}
	}
	for _, kind := range []Fault{Burst, Cut, SlowHost, SwitchCrash, RNRStorm, Move, SourceChange, ReceiverCrash, KeyLost, MemoryChange, Join, Leave} {
		if tally[kind].Times == 0 {
			t.Errorf("%v never happened", kind)
		}
	}
}

// The same seed gives the same run, also when it is replayed.
func TestSameTreeSameRun(t *testing.T) {
	testlab.Long(t)
	var r Runner
	for seed := range uint64(40) { // eight of them have racks
		first, err := r.RunTree(DrawTree(seed))
		if err != nil {
			t.Fatal(err)
		}
		if again, _, err := r.ReplayTree(DrawTree(seed), 5); err != nil || again != first {
			t.Errorf("seed %d: %+v, then %+v, %v", seed, first, again, err)
		}
	}
}

// calmTree is three boxes in a row with a host at each, where nothing goes wrong.
func calmTree() TreeScenario {
	link := Link{PicosPerByte: 800, Delay: time.Microsecond, QueueBytes: 1 << 20}
	s := TreeScenario{
		Scenario: Scenario{
			Seed: 1, MTUBytes: 256, Regions: 1, MemoryBytes: 1 << 16, Timeout: 14, RetryCount: retryForEver, RNRRetry: retryForEver,
			Limit: time.Second, Hosts: make([]Host, 4),
		},
		At: []int{0, 0, 1, 2},
		Boxes: []TreeBox{
			{}, {Up: link, Down: link, DownPSN: 0xFFFFF0}, {Parent: 1, Up: link, Down: link, DownPSN: 7},
		},
	}
	for i := range s.Hosts {
		s.Hosts[i] = Host{ToSwitch: link, ToHost: link, SendPSN: 100, RecvPSN: roce.PSN(1000 * i), Receiver: i > 0, Receives: 1}
	}
	h := &s.Hosts[0]
	h.Outstanding = 4
	for i := range 16 {
		h.Messages = append(h.Messages, Message{Op: rnic.Write, Bytes: 1024, Target: i * 1024})
	}
	return s
}

// Every link carries every packet once, and no more than that; with repair too, where nobody has
// reason to be silent.
func TestACalmTree(t *testing.T) {
	for _, engine := range []bool{false, true} {
		s := calmTree()
		for i := range s.Boxes {
			s.Boxes[i].FanOut = engine
		}
		run := &treeRun{s: &s}
		if err := run.open(); err != nil {
			t.Fatal(err)
		}
		run.w.play(run.handle, run.finish)
		if run.w.failure != nil {
			t.Fatal(run.w.failure)
		}
		const packets = 64
		for i := range run.boxes[1:] {
			b := &run.boxes[1+i]
			if b.toBox.offered != packets || b.toParent.offered == 0 || b.toParent.offered > packets {
				t.Errorf("engine %v: the link of box %d carried %d packets and %d answers", engine, b.number, b.toBox.offered, b.toParent.offered)
			}
		}
		if c := run.w.carried; engine == (c.Carried == 0) || engine == (c.Told == 0) {
			t.Errorf("engine %v: %+v", engine, c)
		}
	}
}

// A box that does something wrong is found out.
func TestABrokenBoxInATreeIsFound(t *testing.T) {
	answer := func(b *treeBox, psn roce.PSN, msn roce.MSN) {
		leg := &b.group.Source.Leg
		b.outputs.Replies = append(b.outputs.Replies, dataplane.Reply{
			Leg: leg, PSN: psn, AETH: roce.AETH{Syndrome: roce.SyndromeUnlimited, MSN: msn}, HopLimit: 64, PKey: roce.DefaultPKey,
		})
	}
	// once does it at box number with packet n.
	once := func(number, n int, do func(*treeBox, *frame)) func(*treeRun) func(*treeBox, *frame, dataplane.Reason) {
		return func(*treeRun) func(*treeBox, *frame, dataplane.Reason) {
			return func(b *treeBox, f *frame, _ dataplane.Reason) {
				if b.number == number && f.stream != noStream && int(f.packet) == n {
					do(b, f)
					n = -1
				}
			}
		}
	}
	for name, c := range map[string]struct {
		want   Invariant
		meddle func(*treeRun) func(*treeBox, *frame, dataplane.Reason)
	}{
		"acknowledges at once":               {Truth, once(1, 20, func(b *treeBox, _ *frame) { answer(b, b.group.Source.FirstPSN.Add(20), 5) })},
		"acknowledges what it has not heard": {Place, once(2, 20, func(b *treeBox, _ *frame) { answer(b, b.group.Source.FirstPSN.Add(40), 0) })},
		"counts too few messages":            {Credits, once(1, 20, func(b *treeBox, _ *frame) { answer(b, b.group.Source.FirstPSN.Add(5), 0) })},
		"sends a packet twice to one path": {Conserved, once(1, 20, func(b *treeBox, _ *frame) {
			b.outputs.Copies = append(b.outputs.Copies, b.outputs.Copies[0])
		})},
		"reports a receiver that does well": {Membership, once(1, 20, func(b *treeBox, _ *frame) {
			b.outputs.Notes = append(b.outputs.Notes, dataplane.Note{What: feedback.NoteEvicted, Receiver: b.group.Paths[0].Dst})
		})},
		"takes a packet for a new one twice": {Links, once(1, 20, func(b *treeBox, _ *frame) { b.copied[0][20] = 1 })},
		"sends a packet down once more": {Links, func(run *treeRun) func(*treeBox, *frame, dataplane.Reason) {
			return once(0, 20, func(b *treeBox, f *frame) {
				last := len(b.outputs.Copies) - 1 // to the box below
				run.copy(b, &b.frame, f, b.ecn, &b.outputs.Copies[last])
			})(run)
		}},
	} {
		s := calmTree()
		run := &treeRun{s: &s}
		if err := run.open(); err != nil {
			t.Fatal(err)
		}
		run.meddle = c.meddle(run)
		run.w.play(run.handle, run.finish)
		if f := run.w.failure; f == nil || f.Invariant != c.want {
			t.Errorf("a box that %s: %v, want %v", name, f, c.want)
		}
	}
}

// A receiver of the root moves to the box below, which answers late. Without another queue pair for
// the link the root would take an old answer of that box for one that speaks for the receiver.
func TestALinkThatKeepsItsQueuePairIsFound(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		s := calmTree()
		s.Hosts[0].Outstanding = len(s.Hosts[0].Messages)
		s.Hosts[0].ToSwitch.PicosPerByte = 8000 // it sends for 160 us
		s.Boxes[1].Up.Delay = 100 * time.Microsecond
		s.Timed = []Timed{{Kind: Move, Host: 1, To: 1, AfterPacket: 10, For: 30 * time.Microsecond}}
		run := &treeRun{s: &s, keepsLinks: keeps}
		if err := run.open(); err != nil {
			t.Fatal(err)
		}
		run.w.play(run.handle, run.finish)
		if f := run.w.failure; (f != nil) != keeps || keeps && f.Invariant != Truth {
			t.Errorf("it keeps its queue pair: %v; %v", keeps, f)
		}
	}
}
