package sim

import (
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
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

// calmRackOf3 is calmRack with a box more, and a host at it.
func calmRackOf3() TreeScenario {
	s := calmRack()
	s.addBox()
	s.Racks[0].Boxes = []int{2, 3, 1}
	return s
}

// addBox adds a box like the last one, and a host at it.
func (s *TreeScenario) addBox() {
	n := len(s.Boxes)
	s.At = append(s.At, n)
	s.Hosts = append(s.Hosts, s.Hosts[len(s.Hosts)-1])
	s.Hosts[n+1].RecvPSN = roce.PSN(9 * n)
	s.Boxes = append(s.Boxes, s.Boxes[n-1])
}

// Two racks below one box, each behind a port of its own, have a generation each. So two copies of
// each packet leave, and each box maps one of them.
func TestTwoRacksBelowOneBox(t *testing.T) {
	const packets = 64
	for _, engine := range []bool{false, true} {
		s := calmRackOf3()
		s.addBox()
		for i := range s.Boxes {
			s.Boxes[i].FanOut = engine
		}
		s.Racks = []Rack{{Boxes: []int{3, 1}, Lag: time.Microsecond}, {Boxes: []int{2, 4}, Lag: time.Microsecond}}
		run := playTree(t, &s, nil)
		if run.w.failure != nil {
			t.Fatal(run.w.failure)
		}
		got := run.shared(&run.boxes[0])
		if run.legs != 2 || got.Packets < packets || got.Saved != got.Packets || run.w.carried.Shared != got.Packets {
			t.Errorf("engine %v: %d generations; %+v of %d packets, and %d left", engine, run.legs, got, packets, run.w.carried.Shared)
		}
		for i := range run.boxes[1:] {
			if b := &run.boxes[1+i]; b.toBox.offered != packets || b.maps.heard < packets/2 {
				t.Errorf("engine %v: box %d was sent %d packets, and mapped %d", engine, b.number, b.toBox.offered, b.maps.heard)
			}
		}
	}
}

// A box that joins a running group in a rack has copies of its own from the next message on, and
// shares in the generation of the others as soon as it has confirmed. When the box above restarts,
// it still knows with which packet that began.
func TestABoxJoinsARack(t *testing.T) {
	const packets = 64
	for _, restarts := range []bool{false, true} {
		s := calmRackOf3()
		s.Limit = time.Minute
		h := &s.Hosts[0]
		h.Outstanding, h.Think = 1, 50*time.Millisecond // 16 messages of four packets
		s.outside(3)
		s.Timed = []Timed{{Kind: Join, Host: len(s.Hosts) + 3, AfterPacket: 17, Delay: time.Millisecond}}
		if restarts {
			s.Timed = append(s.Timed, Timed{Kind: SwitchCrash, AfterPacket: 39, Delay: time.Millisecond, For: time.Microsecond})
		}
		run := playTree(t, &s, nil)
		if run.w.failure != nil {
			t.Fatal(run.w.failure)
		}
		late, legs := &run.w.hosts[4], 1
		if restarts {
			legs = 2
		}
		if late.from[0] != 20 || late.next[0] != packets || run.boxes[3].since != 20 || run.legs != legs {
			t.Errorf("restarts %v: the host has packets %d to %d, and there are %d generations", restarts, late.from[0], late.next[0], run.legs)
		}
		if early, is := run.boxes[1].maps.heard, run.boxes[3].maps.heard; is < 20 || early-is < 16 {
			t.Errorf("restarts %v: the box maps %d packets, and another one %d", restarts, is, early)
		}
		if got := run.shared(&run.boxes[0]); got.Saved <= got.Packets {
			t.Errorf("restarts %v: %+v", restarts, got)
		}
	}
}

// The box above crashes before a box has joined. Nobody knows then whether it has, so it is out.
func TestABoxIsLostThatJoinsARack(t *testing.T) {
	s := calmRackOf3()
	s.Limit = time.Minute
	h := &s.Hosts[0]
	h.Outstanding, h.Think = 1, 50*time.Millisecond
	s.outside(3)
	s.Timed = []Timed{
		{Kind: Join, Host: len(s.Hosts) + 3, AfterPacket: 19, Delay: time.Millisecond},
		{Kind: SwitchCrash, AfterPacket: 19, Delay: 2 * time.Millisecond, For: time.Microsecond},
	}
	run := playTree(t, &s, nil)
	if got := run.shared(&run.boxes[0]); run.w.failure != nil || run.boxes[3].standing != left || run.boxes[3].maps.heard > 0 || got.Packets == 0 {
		t.Errorf("%v; the box is %d, and maps %d packets; %+v", run.w.failure, run.boxes[3].standing, run.boxes[3].maps.heard, got)
	}
}

// A box of a rack that leaves takes the generation with it: no copy leaves any more that it maps,
// and the others have another one.
func TestABoxLeavesARack(t *testing.T) {
	s := calmRackOf3()
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
		seeds = 300
	}
	var racks, shared, again, lost, mapped, partly, twice, joined int
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
			if len(b.shares.racks) == 2 {
				twice++
			}
			if b.since > 0 && b.maps.heard > 0 {
				joined++
			}
			if b.crashed == 0 && b.shares.racks != nil {
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
	if shared < racks/2 || again < racks/10 || mapped == 0 || saved == 0 || partly == 0 || twice == 0 || joined == 0 {
		t.Errorf("of %d trees with racks %d share, %d in several generations; %d packets are mapped, %d copies saved; "+
			"%d boxes could not load a mapping, %d have two racks, %d have joined", racks, shared, again, mapped, saved, partly, twice, joined)
	}
	if testing.Short() {
		return
	}
	if lost == 0 {
		t.Error("no shared copies were reported as lost")
	}
	for _, kind := range []Fault{Join, Leave, Move, EdgeDies, CopiesOwn, SwitchCrash, ReceiverCrash, KeyLost, MemoryChange} {
		if happened[kind].Times == 0 {
			t.Errorf("%v never happened to a tree with a rack", kind)
		}
	}
}
