package afxdp

import (
	"errors"
	"sync"
	"testing"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/mft"
)

// A slot gets memory for a power of two of packets, at least one segment. It keeps this memory
// while that is enough, and what it gives up is there for other slots.
func TestKernelMemoryIsSharedOut(t *testing.T) {
	k := newKernelMemory(9*segmentEntries - 1)
	take := func(slot, packets, first, size int) {
		t.Helper()
		part := k.take(slot, packets)
		if want := (kernelPart{first * segmentEntries, size * segmentEntries}); part != want || k.of(slot) != want {
			t.Fatalf("slot %d gets %v for %d packets, want %v", slot, part, packets, want)
		}
	}
	take(0, 1, 0, 1)
	take(1, segmentEntries, 1, 1)
	take(2, segmentEntries+1, 2, 2)
	take(3, 4*segmentEntries-24, 4, 4)
	take(4, 1, 0, 0) // nothing is left, not even of the rest of a segment
	take(1, 17, 1, 1)
	take(2, segmentEntries+44, 2, 2)
	k.give(0)
	take(4, 2*segmentEntries, 0, 0) // one free segment is not enough
	k.give(1)
	take(4, 2*segmentEntries, 0, 2)
	k.give(3)
	take(2, 4*segmentEntries, 2, 4) // after it has given up what it had
	take(5, 2, 6, 1)
	k.give(5)
	k.give(5)
	take(6, 2*segmentEntries, 6, 2)
	take(4, 8*segmentEntries, 0, 0) // more than there ever is: the slot loses what it had
	take(7, 2*segmentEntries-12, 0, 2)
}

// Two workers never get the same segment.
func TestKernelMemoryOfSeveralWorkers(t *testing.T) {
	k := newKernelMemory(16 * segmentEntries)
	var users [16 * segmentEntries]int32
	var mu sync.Mutex
	use := func(p kernelPart, by int32) {
		mu.Lock()
		defer mu.Unlock()
		for i := range p.entries {
			if users[p.first+i] += by; users[p.first+i] > 1 {
				t.Errorf("entry %d has two users", p.first+i)
			}
		}
	}
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := range 300 {
				slot := worker + 4*(i%5)
				use(k.of(slot), -1)
				k.give(slot)
				part := k.take(slot, segmentEntries<<(i%3))
				use(part, 1)
			}
		})
	}
	all.Wait()
	for slot := range bpf.Slots {
		k.give(slot)
	}
	if part := k.take(0, 16*segmentEntries); part.entries != 16*segmentEntries {
		t.Errorf("all memory is free, and a slot gets %d packets", part.entries)
	}
}

// hears checks what another group wants of a group's, as the group hears it.
func hears(t *testing.T, f *fanOut, id mft.GroupID, want dataplane.Want) {
	t.Helper()
	if got := f.Wanted(id); got != want {
		t.Errorf("group %d hears that others want %d, want %d", id, got, want)
	}
}

// The holder of a slot hears once that another group wants it, and the next holder does not hear
// of it.
func TestAPlaceIsWanted(t *testing.T) {
	f := &fanOut{memory: newKernelMemory(segmentEntries)}
	const holder, other = mft.GroupID(1), mft.GroupID(1 + bpf.Slots)
	claim := func(id mft.GroupID, want bool) {
		t.Helper()
		if got, ok := f.Claim(id); ok != want || ok && got != id || !ok && got != holder {
			t.Fatalf("group %d claims the slot: %d, %v", id, got, ok)
		}
	}
	claim(holder, true)
	claim(holder, true)
	hears(t, f, holder, dataplane.WantsNothing)
	claim(other, false)
	hears(t, f, holder, dataplane.WantsSlot)
	hears(t, f, holder, dataplane.WantsNothing)
	claim(other, false)
	f.Release(holder)
	claim(other, true)
	hears(t, f, other, dataplane.WantsNothing)
}

// Each group that has memory hears once that another one looked for some and found none. A group
// that has none does not hear of it, nor one that got its memory later.
func TestMemoryIsWanted(t *testing.T) {
	f := &fanOut{memory: newKernelMemory(3 * segmentEntries)}
	const a, b, c, d, none = mft.GroupID(1), mft.GroupID(2), mft.GroupID(3), mft.GroupID(4), mft.GroupID(5)
	for _, id := range []mft.GroupID{a, b, c, d, none} {
		f.Claim(id)
	}
	take := func(id mft.GroupID, packets int, want bool) {
		t.Helper()
		if part := f.memory.take(slotOf(id), packets); part.entries > 0 != want {
			t.Fatalf("group %d gets %d packets, and looked for %d", id, part.entries, packets)
		}
	}
	take(a, 1, true)
	take(b, segmentEntries+1, true)
	take(a, segmentEntries, true) // it has that already
	for _, id := range []mft.GroupID{a, b, c} {
		hears(t, f, id, dataplane.WantsNothing)
	}
	take(c, 1, false)
	take(c, 1, false)
	take(none, 1, false)
	hears(t, f, a, dataplane.WantsMemory)
	hears(t, f, a, dataplane.WantsNothing)
	hears(t, f, c, dataplane.WantsNothing)
	f.Release(a)
	take(d, 1, true)
	hears(t, f, d, dataplane.WantsNothing)
	hears(t, f, b, dataplane.WantsMemory)
	take(d, 2*segmentEntries, false) // so that the segment is free
	take(c, 1, true)
	hears(t, f, c, dataplane.WantsNothing)
	hears(t, f, d, dataplane.WantsNothing)
	f.Claim(b + bpf.Slots)
	hears(t, f, b, dataplane.WantsSlot) // which comes with the memory
	hears(t, f, b, dataplane.WantsNothing)
}

// A group for which no memory is left is not armed, and the groups that have some hear of it. What
// one of them leaves lets the group be armed.
func TestAGroupIsArmedWithMemoryThatAnotherOneLeaves(t *testing.T) {
	f, b := retainingBench(t, 4*segmentEntries)
	b.Retain = 2 * segmentEntries
	arm := func(id mft.GroupID, want error) {
		t.Helper()
		f.Claim(id)
		if err := f.Arm(id, b, dataplane.FanWord{PSN: 9, Armed: true}, 100); !errors.Is(err, want) {
			t.Fatalf("group %d is armed: %v, want %v", id, err, want)
		}
		if f.Load(id).Armed != (want == nil) {
			t.Errorf("group %d is at %+v", id, f.Load(id))
		}
	}
	arm(1, nil)
	arm(2, nil)
	arm(3, errNoMemory)
	hears(t, f, 1, dataplane.WantsMemory)
	hears(t, f, 2, dataplane.WantsMemory)
	f.Disarm(2)
	f.Release(2)
	arm(3, nil)
	hears(t, f, 1, dataplane.WantsNothing)
	hears(t, f, 3, dataplane.WantsNothing)
}

// A look for memory of which there is none costs an attempt to arm a group.
func BenchmarkNoKernelMemory(b *testing.B) {
	k := newKernelMemory(kernelRetains(64 << 20))
	for slot := range bpf.Slots {
		k.take(slot, segmentEntries)
	}
	for b.Loop() {
		k.take(bpf.Slots-1, segmentEntries)
	}
}
