package dataplane_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// memoryBench is an engine with memory for the packets of one group. The engine carries one group,
// and another one finds no memory.
type memoryBench struct {
	*engineBench
	has, wants *mft.Group
	now        feedback.Tick
}

// endless is a pool that makes a buffer for each packet.
type endless struct{}

// Load is part of dataplane.Pool.
func (endless) Load(f *dataplane.Frame, head, rest []byte) bool {
	*f = dataplane.Frame{Buf: slices.Concat(head, rest), FragmentCount: 1}
	f.Fragments[0] = f.Buf
	return true
}

// Get is part of dataplane.Pool.
func (endless) Get(*dataplane.Frame) bool { panic("the core makes no frame of its own") }

// Put is part of dataplane.Pool.
func (endless) Put(*dataplane.Frame) {}

func newMemoryBench(t *testing.T) *memoryBench {
	t.Helper()
	return newMemoryBenchAt(t, firstPSN)
}

// newMemoryBenchAt is newMemoryBench whose group that has memory begins with packet psn.
func newMemoryBenchAt(t *testing.T, psn roce.PSN) *memoryBench {
	t.Helper()
	b := &memoryBench{has: group(), wants: group()}
	b.has.Source.FirstPSN = psn
	for _, g := range []*mft.Group{b.has, b.wants} {
		g.Policy = feedback.Policy{Repair: feedback.RepairLocal, RepairWindow: dataplane.LeastKept}.WithDefaults()
	}
	b.engineBench = newEngineBench(t, b.has, b.wants)
	b.core.RetainUpTo(2*dataplane.LeastKept, endless{})
	b.Memory = 2*dataplane.LeastKept - 1
	b.tryToArm(b.has)
	if !b.armed(b.has) {
		t.Fatal("there is memory for one group, and it is not armed")
	}
	return b
}

// forward lets the core forward a packet of the group, which all receivers acknowledge.
func (b *memoryBench) forward(g *mft.Group) {
	b.t.Helper()
	b.handle(b.data(g))
	b.acks(g, 0, 1, 2)
	b.core.PutBack()
}

// carryOne lets the engine carry a packet of the group, which the receivers at these paths
// acknowledge.
func (b *memoryBench) carryOne(g *mft.Group, paths ...int) {
	b.t.Helper()
	b.mustCarry(g, 1)
	b.acks(g, paths...)
}

// tryToArm makes the group so calm that the core tries to arm it.
func (b *memoryBench) tryToArm(g *mft.Group) {
	b.t.Helper()
	for range 1 << 13 {
		if b.forward(g); dataplane.Noted(b.core) > 0 {
			b.core.Arm(b.now, &b.out)
			return
		}
	}
	b.t.Fatal("nobody tries to arm the group")
}

// ask lets the group that has no memory look for some. There is none. Then a period passes, and the
// groups hear of it.
func (b *memoryBench) ask() {
	b.t.Helper()
	b.tryToArm(b.wants)
	if why := dataplane.EngineOf(b.core, b.wants.ID).Reason; !strings.Contains(why, "memory") {
		b.t.Errorf("%q, and there is no memory", why)
	}
	b.pass()
}

func (b *memoryBench) pass() {
	b.now += feedback.Tick(time.Second)
	b.out.Reset()
	b.core.Tick(b.now, &b.out)
}

// keeps checks whether the group that has memory has it still.
func (b *memoryBench) keeps(want bool) {
	b.t.Helper()
	if got := b.FanOut.Retains(b.has.ID) > 0; got != want {
		b.t.Fatalf("the group has memory: %v", got)
	}
}

// A group that finds no memory in the engine gets that of a group which has been idle from one
// question to the next.
func TestAnIdleGroupGivesItsMemory(t *testing.T) {
	b := newMemoryBench(t)
	for range 3600 { // nobody asks
		b.pass()
	}
	b.carryOne(b.has, 0, 1, 2)
	b.ask()
	b.keeps(true)
	b.pass() // nobody asks
	b.keeps(true)
	b.ask()
	b.keeps(false)
	b.tryToArm(b.wants)
	if !b.armed(b.wants) || b.FanOut.Retains(b.wants.ID) != dataplane.LeastKept {
		t.Errorf("there is memory for %d packets: %+v", b.FanOut.Retains(b.wants.ID), dataplane.EngineOf(b.core, b.wants.ID))
	}
}

// It makes no difference which packets were carried before the first question.
func TestAGroupIsIdleFromOneQuestionToTheNext(t *testing.T) {
	for next := roce.PSN(0); next < 2; next++ {
		b := newMemoryBenchAt(t, next.Add(-calmPackets))
		b.ask()
		b.keeps(true)
		b.ask()
		b.keeps(false)
	}
}

// A group keeps its memory as long as it is carried, or the worker forwards its packets.
func TestABusyGroupKeepsItsMemory(t *testing.T) {
	b := newMemoryBench(t)
	for range 4 {
		b.carryOne(b.has, 0, 1, 2)
		b.ask()
		b.keeps(true)
	}
	if !b.armed(b.has) {
		t.Error("the busy group was taken back")
	}
	for range 4 {
		b.forward(b.has) // it has waited for the worker
		b.ask()
		b.keeps(true)
	}
	if b.armed(b.has) {
		t.Fatal("the group is armed")
	}
	b.ask()
	b.keeps(false)
}

// A group keeps its memory as long as a receiver may lack what is there.
func TestMemoryThatAReceiverNeedsIsKept(t *testing.T) {
	b := newMemoryBench(t)
	first := b.next[b.has.ID]
	for range 3 {
		b.carryOne(b.has, 0, 2)
	}
	for range 4 {
		b.ask()
		b.keeps(true)
	}
	if !b.armed(b.has) {
		t.Error("the group was taken back")
	}
	for i := range roce.PSN(3) {
		if !b.core.Retains(b.has.ID, first+i) {
			t.Errorf("packet %d is lost", i)
		}
	}
}

// What the engine carries while its group gives way is not lost.
func TestAPacketIsCarriedWhileItsGroupGivesWay(t *testing.T) {
	b := newMemoryBench(t)
	b.ask()
	first := b.next[b.has.ID]
	b.onWanted = func() {
		b.onLoad = func() { // the core looks whether the group is idle
			b.onWanted, b.onLoad = nil, nil
			b.mustCarry(b.has, 1)
		}
	}
	b.ask()
	b.keeps(true)
	if toCore, _, _ := dataplane.InFlight(b.core); toCore != 1 {
		t.Errorf("%d groups have packets in flight that come to the core, want this one", toCore)
	}
	nak := b.ack(b.has, 1, roce.NAKSequence)
	nak.bth.PSN = first.Add(b.has.DeltaPSN(1))
	if b.handle(nak); len(b.out.Repairs) != 1 {
		t.Errorf("%d packets are sent again to the receiver that lacks one", len(b.out.Repairs))
	}
	b.acks(b.has, 0, 1, 2)
	b.ask()
	b.ask()
	b.keeps(false)
}
