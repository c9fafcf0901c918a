package sim

import (
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
)

// calmRack is a box with a rack of two boxes and a host at each, where nothing goes wrong.
func calmRack() TreeScenario {
	s := calmTree()
	s.At = []int{0, 0, 1, 2}
	s.Boxes[2].Parent = 0
	s.Boxes[0].Policy.Repair, s.Boxes[0].Chunks = feedback.RepairLocal, 256
	s.Racks = []Rack{{Boxes: []int{1, 2}, Lag: time.Microsecond}}
	return s
}

// shared returns what has left by the shared leg of a box since it has started, as the product
// counts it.
func (t *treeRun) shared(b *treeBox) (n dataplane.ShareCounts) {
	t.atCore(b, func(now feedback.Tick) {
		for _, s := range b.core.GroupState(now, b.group, &b.outputs).Shares {
			n.Packets, n.Saved = n.Packets+s.Packets, n.Saved+s.Saved
		}
	})
	return n
}

// One copy of each packet leaves for both boxes of a rack, and each maps it, as soon as both have
// confirmed. Before that and afterwards their links carry each packet once.
func TestACalmRack(t *testing.T) {
	const packets = 64
	for _, engine := range []bool{false, true} {
		s := calmRack()
		for i := range s.Boxes {
			s.Boxes[i].FanOut = engine
		}
		run := playTree(t, &s, nil)
		if run.w.failure != nil {
			t.Fatal(run.w.failure)
		}
		got := run.shared(&run.boxes[0])
		if got.Packets < packets/2 || got.Saved != got.Packets || run.w.carried.Shared != got.Packets {
			t.Errorf("engine %v: %+v of %d packets, and %d left", engine, got, packets, run.w.carried.Shared)
		}
		for i := range run.boxes[1:] {
			if b := &run.boxes[1+i]; b.maps.heard != int(got.Packets) || b.toBox.offered != packets {
				t.Errorf("engine %v: box %d was sent %d packets, and mapped %d of %d", engine, b.number, b.toBox.offered, b.maps.heard, got.Packets)
			}
		}
	}
}

// A box to which shared copies do not come any more gets copies of its own. When they come again it
// is tried after a pause, and shares.
func TestABoxOfARackThatIsDeaf(t *testing.T) {
	for _, until := range []time.Duration{0, 300 * time.Millisecond} {
		s := calmRack()
		s.Limit = time.Minute
		h := &s.Hosts[0]
		h.Outstanding, h.Think = 1, 100*time.Millisecond // 16 messages of four packets
		s.Timed = []Timed{{Kind: EdgeDies, Host: len(s.Hosts) + 2, AfterPacket: 12, For: until}}
		run := playTree(t, &s, nil)
		root := &run.boxes[0]
		again := until > 0
		if run.w.failure != nil || root.shares.lost != 1 || (root.shares.found > 0) != again {
			t.Errorf("deaf for %v: %v; lost %d times, found %d times", until, run.w.failure, root.shares.lost, root.shares.found)
		}
		if heard := run.boxes[2].maps.heard; again && heard <= 12 || !again && heard > 12 {
			t.Errorf("deaf for %v: the box maps %d packets", until, heard)
		}
	}
}

// A box of a rack that restarts between two messages gets copies of its own from its question until
// it has confirmed. Then it shares in the same generation.
func TestABoxOfARackRestarts(t *testing.T) {
	s := calmRack()
	s.Racks[0].Lag = 10 * time.Millisecond
	h := &s.Hosts[0]
	h.Outstanding, h.Think = 1, 15*time.Millisecond // 16 messages of four packets
	s.Timed = []Timed{{Kind: SwitchCrash, Host: 2, AfterPacket: 31, Delay: time.Millisecond, For: time.Microsecond}}
	run := playTree(t, &s, nil)
	if run.w.failure != nil {
		t.Fatal(run.w.failure)
	}
	shared, heard := int(run.w.carried.Shared), run.boxes[2].maps.heard
	if run.legs != 1 || run.boxes[0].shares.lost > 0 || shared < 40 || shared > 56 || heard != shared {
		t.Errorf("%d generations; %d packets are shared, of which the box maps %d; lost %d times", run.legs, shared, heard, run.boxes[0].shares.lost)
	}
}

// A box of a rack that leaves takes the generation with it: no copy leaves any more that it maps,
// and the others have another one.
func TestABoxLeavesARack(t *testing.T) {
	s := calmRack()
	s.At = append(s.At, 3)
	s.Hosts = append(s.Hosts, s.Hosts[3])
	s.Hosts[4].RecvPSN = 9
	s.Boxes = append(s.Boxes, s.Boxes[2])
	s.Racks[0].Boxes = []int{2, 3, 1}
	s.Timed = []Timed{{Kind: Leave, Host: len(s.Hosts) + 2, AfterPacket: 20}}
	run := playTree(t, &s, nil)
	if run.w.failure != nil {
		t.Fatal(run.w.failure)
	}
	if got := run.shared(&run.boxes[0]); run.legs != 2 || got.Packets == 0 || got.Saved != got.Packets {
		t.Errorf("%d generations; of the last one %+v", run.legs, got)
	}
	if run.w.hosts[4].next[0] != 64 || run.w.hosts[3].next[0] >= 64 {
		t.Errorf("the box that stays has %d packets, and the one that left %d", run.w.hosts[4].next[0], run.w.hosts[3].next[0])
	}
}

// All that may happen to racks happens in some hundred trees, and copies are saved.
func TestRacksMeetEverything(t *testing.T) {
	seeds := uint64(1200)
	if testing.Short() {
		seeds = 200
	}
	var racks, shared, again, lost, mapped, partly int
	var saved uint64
	var happened Tally
	for seed := range seeds {
		s := DrawTree(seed)
		if len(s.Racks) == 0 {
			continue
		}
		racks++
		run := playTree(t, &s, nil)
		if run.w.failure != nil {
			t.Errorf("seed %d: %v\nreplay: go run ./verify/sim/rocsim -tree -replay %d", seed, run.w.failure, seed)
		}
		for i := range run.boxes {
			b := &run.boxes[i]
			lost, mapped = lost+b.shares.lost, mapped+b.maps.heard
			if b.crashed == 0 && b.shares.Rack != nil {
				saved += run.shared(b).Saved
			}
			if b.maps.failed > 0 {
				partly++
			}
		}
		if run.w.carried.Shared > 0 {
			if shared++; run.legs > 1 {
				again++
			}
		}
		happened.Add(&run.w.tally)
	}
	if shared < racks/2 || again < racks/10 || mapped == 0 || saved == 0 || partly == 0 {
		t.Errorf("of %d trees with racks %d share, %d in several generations; %d packets are mapped, %d copies saved, %d boxes could not load a mapping",
			racks, shared, again, mapped, saved, partly)
	}
	if testing.Short() {
		return
	}
	if lost == 0 {
		t.Error("no shared copies were reported as lost")
	}
	for _, kind := range []Fault{Leave, Move, EdgeDies, CopiesOwn, SwitchCrash} {
		if happened[kind].Times == 0 {
			t.Errorf("%v never happened to a tree with a rack", kind)
		}
	}
}
