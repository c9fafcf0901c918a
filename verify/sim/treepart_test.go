package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
)

// rackWithout is a calm rack of which box 2 has two hosts, d and e. Boxes go on without who is
// silent for this time at the root.
func rackWithout(silent time.Duration, faults ...Timed) TreeScenario {
	s := calmRack()
	s.Limit = time.Minute
	s.At = append(s.At, 2)
	s.Hosts = append(s.Hosts, s.Hosts[3])
	s.Hosts[4].RecvPSN = 77
	s.Hosts[0].Outstanding, s.Hosts[0].Think = 1, 5*time.Millisecond // 16 messages of four packets
	s.Timed = faults
	for b, after := range []time.Duration{silent, silent / 2, silent / 2} {
		s.Boxes[b].Policy.Evict, s.Boxes[b].Policy.SilentAfter = true, max(after, feedback.MinSilentAfter)
	}
	return s
}

// A receiver of a box in a rack dies. Its box goes on without it and stays in the rack: the others
// at that box get everything, by shared copies.
func TestAReceiverDiesBelowARack(t *testing.T) {
	s := rackWithout(40*time.Millisecond, Timed{Kind: ReceiverCrash, Host: 3, AfterPacket: 20})
	run := playTree(t, &s, nil)
	got := run.shared(&run.boxes[0])
	if run.w.failure != nil || run.own[3] != evicted || run.boxes[2].standing != member || run.w.hosts[4].next[0] != 64 {
		t.Errorf("%v; %v; box 2 is %v, and e has %d packets", run.w.failure, run.own, run.boxes[2].standing, run.w.hosts[4].next[0])
	}
	if run.legs != 1 || got.Packets < 32 || got.Saved != got.Packets {
		t.Errorf("%d generations, %+v", run.legs, got)
	}
}

// If both boxes gave a silent receiver the same time, the upper one could go on without the whole
// box. So control refuses that.
func TestABoxBelowThatIsNotFasterIsFound(t *testing.T) {
	for _, after := range []time.Duration{feedback.MinSilentAfter, 2 * feedback.MinSilentAfter} {
		found := 0
		for k := range 40 {
			s := rackWithout(after, Timed{Kind: ReceiverCrash, Host: 3, AfterPacket: 20 + k%4, Delay: time.Duration(k) * 100 * time.Microsecond})
			s.Timeout = uint8(9 + k%5)
			if f := playTree(t, &s, nil).w.failure; f != nil && f.Invariant == Membership {
				found++
			} else if f != nil {
				t.Errorf("silent after %v, %d: %v", after, k, f)
			}
		}
		if (found > 0) != (after == feedback.MinSilentAfter) {
			t.Errorf("silent after %v: found in %d runs", after, found)
		}
	}
}

// One receiver of a box dies, and the other one leaves. The box says that nobody is left. Boxes
// above go on without it, whatever they do about a receiver that refuses.
func TestARackGoesOnWithoutABoxThatIsEmpty(t *testing.T) {
	for _, fatal := range []feedback.FatalPolicy{feedback.FatalFail, feedback.FatalEvict} {
		s := rackWithout(40*time.Millisecond, Timed{Kind: ReceiverCrash, Host: 3, AfterPacket: 12}, Timed{Kind: Leave, Host: 4, AfterPacket: 40})
		for b := range s.Boxes {
			s.Boxes[b].Policy.OnFatal = fatal
		}
		run := playTree(t, &s, nil)
		if run.w.failure != nil || run.w.hosts[0].status != rnic.Success || run.own[3] != evicted || run.boxes[2].standing != evicted || run.w.hosts[2].next[0] != 64 {
			t.Errorf("%v: %v; %v; the source heard %v, and box 2 is %v", fatal, run.w.failure, run.own, run.w.hosts[0].status, run.boxes[2].standing)
		}
	}
}

// A receiver of a box in a rack refuses a WRITE. The source's queue pair ends with that, or the box
// goes on, and is left out itself if it has nobody else.
func TestAReceiverRefusesBelowARack(t *testing.T) {
	for _, c := range []struct {
		fatal  feedback.FatalPolicy
		host   int
		status rnic.Status
		box    membership // of box 1, where c is alone
		legs   int
	}{
		{feedback.FatalFail, 3, rnic.RemoteAccess, member, 1},
		{feedback.FatalEvict, 3, rnic.Success, member, 1},
		{feedback.FatalEvict, 2, rnic.Success, evicted, 1},
	} {
		s := rackWithout(40*time.Millisecond, Timed{Kind: KeyLost, Host: c.host, AfterPacket: 21})
		for b := range s.Boxes {
			s.Boxes[b].Policy.OnFatal = c.fatal
		}
		run := playTree(t, &s, nil)
		if run.w.failure != nil || run.w.hosts[0].status != c.status || run.boxes[1].standing != c.box || run.boxes[2].standing != member {
			t.Errorf("%+v: %v; the source heard %v, and boxes 1 and 2 are %v and %v", c, run.w.failure, run.w.hosts[0].status, run.boxes[1].standing, run.boxes[2].standing)
		}
		if run.legs != c.legs {
			t.Errorf("%+v: %d generations", c, run.legs)
		}
	}
}

// Single hosts join and leave at boxes of a rack, beside a box that joins it. The rack's generation
// stays: to the box above nothing has changed.
func TestHostsJoinAndLeaveBelowARack(t *testing.T) {
	s := calmRackOf3()
	s.Limit = time.Minute
	s.At = append(s.At, 1, 2)
	s.Hosts = append(s.Hosts, s.Hosts[3], s.Hosts[3])
	s.Hosts[5].RecvPSN, s.Hosts[6].RecvPSN = 4711, 0xFFFFFE
	s.Hosts[0].Outstanding, s.Hosts[0].Think = 1, 50*time.Millisecond
	s.outside(3)
	s.Hosts[5].Outside = true
	s.Timed = []Timed{
		{Kind: Join, Host: len(s.Hosts) + 3, AfterPacket: 17, Delay: time.Millisecond},
		{Kind: Join, Host: 5, AfterPacket: 30, Delay: time.Millisecond},
		{Kind: Leave, Host: 6, AfterPacket: 42},
		{Kind: SwitchCrash, Host: 1, AfterPacket: 47, Delay: time.Millisecond, For: time.Microsecond},
	}
	run := playTree(t, &s, nil)
	f, g := &run.w.hosts[5], &run.w.hosts[6]
	if run.w.failure != nil || f.from[0] != 32 || f.next[0] != 64 || g.next[0] < 40 || g.next[0] == 64 || run.boxes[3].since != 20 {
		t.Errorf("%v; f has packets %d to %d, g up to %d, and box 3 began with %d", run.w.failure, f.from[0], f.next[0], g.next[0], run.boxes[3].since)
	}
	if run.legs != 1 {
		t.Errorf("%d generations", run.legs)
	}
}

// A region comes to the memory of a rack's group, and leaves it again. With more than four regions
// nobody shares, and when one is removed the shared copies have another QPN.
func TestTheMemoryOfARackChanges(t *testing.T) {
	got := map[int]int{} // how many runs have so many generations
	for seed := range uint64(16) {
		s := calmRack()
		s.Seed, s.Hosts[0].Outstanding, s.Hosts[0].Think = seed, 1, 5*time.Millisecond
		for b := range s.Boxes {
			s.Timed = append(s.Timed, Timed{Kind: MemoryChange, Host: b, AfterPacket: 14 + b}, Timed{Kind: MemoryChange, Host: b, AfterPacket: 38 - b})
		}
		run := playTree(t, &s, nil)
		if run.w.failure != nil {
			t.Errorf("seed %d: %v", seed, run.w.failure)
		}
		got[run.legs]++
	}
	if got[1] == 0 || got[2] == 0 {
		t.Errorf("generations: %v", got)
	}
}

// A crash forgets who was evicted, if control had no time to store that. Else it stays out.
func TestABoxThatCrashesForgetsWhoIsOut(t *testing.T) {
	for _, stored := range []bool{false, true} {
		s := rackWithout(40*time.Millisecond,
			Timed{Kind: ReceiverCrash, Host: 3, AfterPacket: 12}, Timed{Kind: SwitchCrash, Host: 2, AfterPacket: 40, For: time.Microsecond})
		if stored {
			s.StoreAfter = time.Microsecond
		}
		run := playTree(t, &s, nil)
		if out := run.own[3]; run.w.failure != nil || (out == left) != stored || !slices.Contains([]membership{left, evicted}, out) {
			t.Errorf("stored %v: %v; d is %v", stored, run.w.failure, out)
		}
	}
}

// A receiver moves to another box, and its old box goes on without it meanwhile. If control hears
// of that in time, the receiver takes part nowhere. Else its new box goes on without it. In no case
// is a box told of what a receiver lacks that counts, or does the source wait for ever.
func TestAReceiverIsEvictedWhileItMoves(t *testing.T) {
	for to := range 2 {
		got := map[membership]int{}
		for k := range 30 {
			s := rackWithout(40*time.Millisecond, Timed{Kind: Move, Host: 4, To: to, AfterPacket: 20 + k%4, For: time.Duration(1+k) * time.Millisecond})
			run := playTree(t, &s, nil)
			if run.w.failure != nil || run.w.hosts[0].status != rnic.Success || run.w.hosts[3].next[0] != 64 {
				t.Errorf("to box %d, %v a step: %v; %v; the source heard %v", to, s.Timed[0].For, run.w.failure, run.own, run.w.hosts[0].status)
			}
			if all := run.w.hosts[4].next[0] == 64; all != (run.own[4] == member) {
				t.Errorf("to box %d, %v a step: %v, and it has %d packets", to, s.Timed[0].For, run.own, run.w.hosts[4].next[0])
			}
			got[run.own[4]]++
		}
		if got[member] == 0 || got[left] == 0 || got[evicted] == 0 {
			t.Errorf("to box %d: %v", to, got)
		}
	}
}

// The last receiver of a box leaves inside a message, while another one joins there. If it did not
// stay until then, nobody there could acknowledge the rest of the message: the box above
// would go on without the box, and without the one that joins.
func TestTheLastReceiverOfABoxStaysForOneThatJoins(t *testing.T) {
	for _, stays := range []bool{true, false} {
		for k := range 3 {
			after := 30 * time.Microsecond // the packet has come to the box, and not the next one
			s := rackWithout(40*time.Millisecond, Timed{Kind: Join, Host: 4, AfterPacket: 20 + k, Delay: after}, Timed{Kind: Leave, Host: 3, AfterPacket: 20 + k, Delay: after + 1})
			s.Hosts[0].ToSwitch.PicosPerByte = 80_000 // 20 us a packet
			s.Hosts[4].Outside = true
			run := &treeRun{s: &s, empties: !stays}
			if err := run.open(); err != nil {
				t.Fatal(err)
			}
			run.w.play(run.handle, run.finish)
			d, e := &run.w.hosts[3], &run.w.hosts[4]
			if run.w.failure != nil || run.w.hosts[2].next[0] != 64 || run.own[3] != left || d.next[0] == 64 {
				t.Errorf("stays %v, %d: %v; %v, and d has %d packets", stays, k, run.w.failure, run.own, d.next[0])
			}
			joined := run.boxes[2].standing == member && e.from[0] == 24 && e.next[0] == 64
			if joined != stays {
				t.Errorf("stays %v, %d: box 2 is %v, and e has packets %d to %d", stays, k, run.boxes[2].standing, e.from[0], e.next[0])
			}
		}
	}
}

// Between messages the last receiver leaves at once: the other one joins with the next message. So
// it does with on-fatal: evict alone, inside a message too: then its box is left out. And so it
// does where another one stays. If the box crashes before the other one has joined, it has nobody.
func TestTheLastReceiverOfABoxLeavesAtOnce(t *testing.T) {
	inside, pause := Timed{AfterPacket: 21, Delay: 30 * time.Microsecond}, Timed{AfterPacket: 23, Delay: time.Millisecond}
	for name, c := range map[string]struct {
		at                   Timed
		evicts, other, fails bool
		joins                bool
	}{
		"between messages":     {at: pause, evicts: true, joins: true},
		"only for a fatal NAK": {at: inside},
		"another one stays":    {at: inside, evicts: true, other: true, joins: true},
		"its box crashes":      {at: pause, evicts: true, fails: true},
	} {
		joins, leaves := c.at, c.at
		joins.Kind, joins.Host, leaves.Kind, leaves.Host, leaves.Delay = Join, 4, Leave, 3, c.at.Delay+1
		s := rackWithout(40*time.Millisecond, joins, leaves)
		s.Hosts[0].ToSwitch.PicosPerByte = 80_000 // 20 us a packet
		s.Hosts[4].Outside = true
		if c.other {
			s.At, s.Hosts = append(s.At, 2), append(s.Hosts, s.Hosts[3])
		}
		if c.fails {
			s.Timed = append(s.Timed, Timed{Kind: SwitchCrash, Host: 2, AfterPacket: 23, Delay: c.at.Delay + 2, For: time.Microsecond})
		}
		for b := range s.Boxes {
			s.Boxes[b].Policy.Evict, s.Boxes[b].Policy.OnFatal = c.evicts, feedback.FatalEvict
		}
		run := playTree(t, &s, nil)
		d, e := &run.w.hosts[3], &run.w.hosts[4]
		if run.w.failure != nil || run.w.hosts[2].next[0] != 64 || d.next[0] > 24 || (run.boxes[2].standing == member) != c.joins {
			t.Errorf("%s: %v; %v, d has %d packets, and box 2 is %v", name, run.w.failure, run.own, d.next[0], run.boxes[2].standing)
		}
		if d.next[0] == 24 && c.other {
			t.Errorf("%s: d has the whole message", name)
		}
		if joined := e.from[0] == 24 && e.next[0] == 64; joined != c.joins {
			t.Errorf("%s: e has packets %d to %d", name, e.from[0], e.next[0])
		}
	}
}

// A host joins, or a box with everybody below it, and the programs are not ready. Until they have
// confirmed, no box sends them anything, and the others do not wait for them. They join with the
// next message after that and get everything from there on. If the box that has them as receivers
// crashes before, they take no part.
func TestWhoIsNotReadyWaitsInATree(t *testing.T) {
	const ready = 22 * time.Millisecond // four messages later
	for name, c := range map[string]struct {
		box    bool
		faults []Timed
		joins  int // about with this packet; 0: not at all
	}{
		"a host":                     {joins: 40},
		"a box":                      {box: true, joins: 40},
		"a host whose box crashes":   {faults: []Timed{{Kind: SwitchCrash, Host: 2, AfterPacket: 30, For: time.Microsecond}}},
		"a box whose parent crashes": {box: true, faults: []Timed{{Kind: SwitchCrash, Host: 0, AfterPacket: 30, For: time.Microsecond}}},
		"a box that is down when its programs confirm": {
			box: true, faults: []Timed{{Kind: SwitchCrash, Host: 2, AfterPacket: 36, For: 6 * time.Millisecond}}, joins: 44},
	} {
		join := Timed{Kind: Join, Host: 4, AfterPacket: 20, For: ready}
		s := rackWithout(40*time.Millisecond, c.faults...)
		s.Hosts[4].Outside = true
		if c.box {
			s.outside(2)
			join.Host = len(s.Hosts) + 2
		}
		s.Timed = append(s.Timed, join)
		run := playTree(t, &s, nil)
		e, d := &run.w.hosts[4], &run.w.hosts[3]
		if run.w.failure != nil || run.w.hosts[0].status != rnic.Success || run.w.hosts[2].next[0] != 64 {
			t.Errorf("%s: %v; the source heard %v", name, run.w.failure, run.w.hosts[0].status)
		}
		switch {
		case c.joins == 0 && (e.membership != left || e.next[0] > 0):
			t.Errorf("%s: e is %v and has packets %d to %d", name, e.membership, e.from[0], e.next[0])
		case c.joins > 0 && (e.from[0] < c.joins || e.from[0] > c.joins+8 || e.from[0]%4 != 0 || e.next[0] != 64):
			t.Errorf("%s: e has packets %d to %d, want about %d to 64", name, e.from[0], e.next[0], c.joins)
		case c.joins > 0 && c.box != (d.from[0] == e.from[0]):
			t.Errorf("%s: d has packets from %d on", name, d.from[0])
		}
	}
}
