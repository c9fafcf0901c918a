package dataplane_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// plain lets the core forward the group's next packets.
func (b *engineBench) plain(g *mft.Group, packets int) {
	b.t.Helper()
	for range packets {
		p := b.data(g)
		if g.Source.L2Bytes > 14 {
			p = tagged(p, 5)
		}
		if r := b.handle(p); r != dataplane.Reason(feedback.Forwarded) {
			b.t.Fatalf("a plain packet: %v", r)
		}
	}
}

// A group that cannot be armed says why and stays with the core. It is tried again after twice as
// many packets, and armed if nothing is in the way then.
func TestAGroupThatCannotBeArmed(t *testing.T) {
	for name, c := range map[string]struct {
		edit       func(*mft.Group)
		before     func(*engineBench, *mft.Group)
		afterwards func(*engineBench, *mft.Group)
		why        string
	}{
		"the engine refuses": {
			before:     func(b *engineBench, _ *mft.Group) { b.refuse = errors.New("the fan is full") },
			afterwards: func(b *engineBench, _ *mft.Group) { b.refuse = nil },
			why:        "the fan is full",
		},
		"a NAK came before the copies were sent": {
			before: func(b *engineBench, g *mft.Group) {
				b.handle(b.ack(g, 0, roce.NAKSequence))
			},
			afterwards: func(b *engineBench, g *mft.Group) {
				for i := range g.Paths {
					b.handle(b.ack(g, i, roce.SyndromeUnlimited))
				}
			},
			why: "need decisions",
		},
		"a receiver has no next hop": {
			edit: func(g *mft.Group) { g.Paths[1].Port = mft.NoPort },
			why:  "no next hop",
		},
		"a receiver lacks as many packets as are retained": {
			edit: func(g *mft.Group) { g.Policy.Repair, g.Policy.RepairWindow = feedback.RepairLocal, 8 },
			why:  "repair-window",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := group()
			if c.edit != nil {
				c.edit(g)
			}
			b := newEngineBench(t, g)
			expect := func(armed bool, why string, refused uint64) {
				t.Helper()
				e, n := dataplane.EngineOf(b.core, g.ID), dataplane.Fans(b.core)
				if e.Kernel != armed || !strings.Contains(e.Reason, why) || (e.Reason == "") != armed || n.Refused != refused {
					t.Errorf("%+v, %+v; want %q, %d times refused", e, n, why, refused)
				}
			}
			b.plain(g, calmPackets)
			if c.before != nil {
				c.before(b, g)
			}
			b.core.Arm(0, &b.out)
			expect(false, c.why, 1)
			if c.afterwards != nil {
				c.afterwards(b, g)
			}
			b.plain(g, 2*calmPackets-1)
			b.core.Arm(0, &b.out)
			expect(false, c.why, 1)
			b.plain(g, 1)
			b.core.Arm(0, &b.out)
			if c.afterwards == nil {
				expect(false, c.why, 2)
			} else {
				expect(true, "", 1)
			}
		})
	}
}

// Frames of one batch decide about a group twice before it is armed: it is armed once, and not at
// all if it is gone.
func TestAGroupIsArmedOnceABatch(t *testing.T) {
	g := group()
	b := newEngineBench(t, g)
	b.plain(g, calmPackets)
	b.handle(b.ack(g, 0, roce.NAKSequence))
	for i := range g.Paths {
		b.handle(b.ack(g, i, roce.SyndromeUnlimited))
	}
	next := *g
	next.Paths = append([]mft.Path(nil), g.Paths...)
	next.Paths[1].L2[0] ^= 2 // moved
	table, err := b.table.Replace(g.ID, &next)
	if err != nil {
		t.Fatal(err)
	}
	b.table = table
	b.plain(&next, calmPackets)
	b.core.Arm(0, &b.out)
	if n := dataplane.Fans(b.core); n != (dataplane.FanOutCounts{Armed: 1}) || !b.armed(&next) {
		t.Errorf("%+v", n)
	}
	if n := dataplane.Noted(b.core); n != 0 {
		t.Errorf("%d groups are still noted", n)
	}
}

// Packets that need a decision are not counted: the number of plain packets in a row begins again
// behind them.
func TestOnlyPlainPacketsAreCounted(t *testing.T) {
	g := group()
	b := newEngineBench(t, g)
	b.plain(g, calmPackets-1)
	b.handle(b.ack(g, 0, roce.NAKSequence))
	b.plain(g, 2*calmPackets) // the NAK waits for the other receivers
	for i := range g.Paths {
		b.handle(b.ack(g, i, roce.SyndromeUnlimited))
	}
	b.plain(g, calmPackets-1)
	b.core.Arm(0, &b.out)
	if n := dataplane.Fans(b.core); n != (dataplane.FanOutCounts{}) {
		t.Errorf("one packet too early: %+v", n)
	}
	b.plain(g, 1)
	b.core.Arm(0, &b.out)
	if n := dataplane.Fans(b.core); n != (dataplane.FanOutCounts{Armed: 1}) {
		t.Errorf("%+v", n)
	}
}

// The slot of a group that is to be armed may belong to another group by then.
func TestAGroupThatIsGoneIsNotArmed(t *testing.T) {
	g := group()
	b := newEngineBench(t, g)
	b.plain(g, calmPackets)
	after := group()
	table, err := b.table.Without(g.ID).With(after)
	if err != nil || after.ID.Slot() != g.ID.Slot() {
		t.Fatal(err)
	}
	b.table, b.next[after.ID] = table, firstPSN
	b.plain(after, 1)
	b.core.Arm(0, &b.out)
	if n := dataplane.Fans(b.core); n != (dataplane.FanOutCounts{}) {
		t.Errorf("%+v", n)
	}
}

// A slot belongs to a group of another core: it is not taken away, whatever this core has in the
// group's slot.
func TestTheSlotOfAnotherCore(t *testing.T) {
	const groups = 3
	var all []*mft.Group
	for range groups {
		all = append(all, group())
	}
	b := newEngineBench(t, all...)
	b.Slots = 1
	for own := range groups {
		b.core = dataplane.NewCore(b)
		holder := all[(own+1)%groups]
		b.arm(holder)
		b.core = dataplane.NewCore(b)
		b.arm(all[own])
		e := dataplane.EngineOf(b.core, all[own].ID)
		if n := dataplane.Fans(b.core); n.Refused != 1 || n.Armed != 0 || e.Kernel || !b.armed(holder) {
			t.Errorf("group %d: %+v, %+v", own, n, e)
		}
		b.EndMerge(holder.ID, make([]feedback.Progress, mft.BlockPaths))
		b.Disarm(holder.ID)
		b.Release(holder.ID)
		b.next[holder.ID], b.next[all[own].ID] = firstPSN, firstPSN
	}
}

// What is in flight decides how an idle worker waits. Of a group that an engine carries no data
// wakes the worker, whether all receivers have acknowledged everything or not.
func TestWhatIsInFlight(t *testing.T) {
	g, other := group(), group()
	for _, g := range []*mft.Group{g, other} {
		g.Policy = feedback.Policy{OnFatal: feedback.FatalEvict, SilentAfter: 1e8, Evict: true}
	}
	b := newEngineBench(t, g, other)
	expect := func(what string, toCore, byEngine, settled int) {
		t.Helper()
		if c, e, s := dataplane.InFlight(b.core); c != toCore || e != byEngine || s != settled {
			t.Errorf("%s: %d in flight to the core, %d by the engine, %d settled; want %d, %d, %d",
				what, c, e, s, toCore, byEngine, settled)
		}
	}
	expect("nothing", 0, 0, 0)
	b.core.Adopt(0, g, &b.out)
	expect("a group without traffic", 0, 0, 1)
	b.plain(g, 1)
	expect("data", 1, 0, 0)
	b.plain(other, 1)
	expect("data of two groups", 2, 0, 0)
	b.plain(g, calmPackets-1)
	b.core.Arm(0, &b.out)
	expect("armed", 1, 1, 0)
	for i := range g.Paths {
		b.handle(b.ack(g, i, roce.SyndromeUnlimited))
	}
	expect("everything acknowledged", 1, 1, 0)
	b.mustCarry(g, 1)
	b.handle(b.ack(g, 0, roce.SyndromeUnlimited))
	expect("carried", 1, 1, 0)
	b.handle(b.ack(g, 1, roce.NAKSequence))
	expect("taken back", 2, 0, 0)
	for i := range other.Paths[1:] {
		b.handle(b.ack(other, 1+i, roce.SyndromeUnlimited))
	}
	without := *other
	without.Paths = other.Paths[1:]
	table, err := b.table.Replace(other.ID, &without)
	if err != nil {
		t.Fatal(err)
	}
	b.table = table
	b.core.Adopt(0, &without, &b.out)
	expect("the receiver left that had not acknowledged", 1, 0, 1)

	frame := b.frame(write(b.next[g.ID].Prev(), []byte("data"))) // the source resends, and path 1 stays silent
	for i := range g.Paths {
		if i != 1 {
			b.handle(b.ack(g, i, roce.SyndromeUnlimited))
		}
	}
	b.core.Handle(1e8/2, b.table, frame, &b.out)
	b.core.Tick(1e8+1, &b.out)
	expect("the silent receiver was evicted", 0, 0, 2)
	b.core.Handle(1e8+2, b.table, b.frame(b.data(g)), &b.out)
	expect("new data", 1, 0, 1)
}

// A group that loses its slot has its data in flight come to the core from then on. What the core
// finds in the engine when it asks for the slot is in flight, too.
func TestWhatIsInFlightWithoutASlot(t *testing.T) {
	old, other := group(), group()
	b := newEngineBench(t, old, other)
	b.Slots = 1
	b.arm(old)
	b.acks(old, 0, 1, 2)
	b.mustCarry(old, 1)
	for _, packets := range []int{calmPackets, 2 * calmPackets} { // refused, and armed in place of old
		b.plain(other, packets)
		b.core.Arm(0, &b.out)
		if c, e, s := dataplane.InFlight(b.core); c != 1 || e != 1 || s != 0 {
			t.Errorf("%d in flight to the core, %d by the engine, %d settled; want one, one and none", c, e, s)
		}
	}
	if !b.armed(other) {
		t.Error("the group that talks has no slot")
	}
}

// A group that talks keeps its slot, even if the core has heard nothing of it since it was armed:
// the core looks at the engine before it decides.
func TestABusyGroupKeepsItsSlot(t *testing.T) {
	busy, other := group(), group()
	b := newEngineBench(t, busy, other)
	b.Slots = 1
	b.arm(busy)
	for asked := range 2 {
		b.mustCarry(busy, 1)
		b.plain(other, calmPackets<<asked)
		b.core.Arm(0, &b.out)
		if n := dataplane.Fans(b.core); n.Refused != uint64(asked+1) || !b.FanOut.Load(busy.ID).Armed {
			t.Fatalf("asked %d times: %+v", asked+1, n)
		}
	}
	b.plain(other, 4*calmPackets)
	b.core.Arm(0, &b.out)
	if id, ok := b.Claim(other.ID); !ok || !b.FanOut.Load(other.ID).Armed {
		t.Errorf("group %d keeps the slot, and carries nothing", id)
	}
}

// An idle group gives its slot to a group of another core, which cannot take it. It does so only
// if it has carried nothing between two times that another group asks.
func TestAnIdleGroupGivesWayToAnotherCoresGroup(t *testing.T) {
	holder, other := group(), group()
	b := newEngineBench(t, holder, other)
	b.Slots = 1
	mine, theirs := b.core, dataplane.NewCore(b)
	b.arm(holder)
	now := feedback.Tick(0)
	look := func(what string, keeps bool) {
		t.Helper()
		now += feedback.Tick(time.Second)
		mine.Tick(now, &b.out)
		if e := dataplane.EngineOf(mine, holder.ID); e.Kernel != keeps {
			t.Fatalf("%s: the group keeps its slot: %v", what, !keeps)
		}
	}
	packets := calmPackets
	ask := func() {
		t.Helper()
		b.core = theirs
		b.plain(other, packets)
		b.core.Arm(now, &b.out)
		b.core, packets = mine, 2*packets
	}
	look("nobody asks", true)
	look("nobody asks again", true)
	b.mustCarry(holder, 1)
	ask()
	look("it has carried a packet", true)
	look("nobody has asked since", true)
	b.mustCarry(holder, 1)
	ask()
	look("it has carried another packet", true)
	ask()
	look("it has carried nothing", false)
	look("it has no slot", false)
	ask()
	if e := dataplane.EngineOf(theirs, other.ID); !e.Kernel {
		t.Errorf("the other group was not armed: %+v", e)
	}
}
