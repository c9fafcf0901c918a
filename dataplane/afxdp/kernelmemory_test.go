package afxdp

import (
	"sync"
	"testing"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/mft"
)

// A place gets memory for a power of two of packets, at least one segment. It keeps this memory
// while that is enough, and what it gives up is there for other places.
func TestKernelMemoryIsSharedOut(t *testing.T) {
	k := newKernelMemory(9*segmentPackets - 1)
	take := func(place, packets, first, size int, fresh bool) {
		t.Helper()
		part, isFresh := k.take(place, packets)
		if want := (kernelPart{first * segmentPackets, size * segmentPackets}); part != want || isFresh != fresh || k.of(place) != want {
			t.Fatalf("place %d gets %v (fresh %v) for %d packets, want %v (fresh %v)", place, part, isFresh, packets, want, fresh)
		}
	}
	take(0, 1, 0, 1, true)
	take(1, segmentPackets, 1, 1, true)
	take(2, segmentPackets+1, 2, 2, true)
	take(3, 4*segmentPackets-24, 4, 4, true)
	take(4, 1, 0, 0, false) // nothing is left, not even of the rest of a segment
	take(1, 17, 1, 1, false)
	take(2, segmentPackets+44, 2, 2, false)
	k.give(0)
	take(4, 2*segmentPackets, 0, 0, false) // one free segment is not enough
	k.give(1)
	take(4, 2*segmentPackets, 0, 2, true)
	k.give(3)
	take(2, 4*segmentPackets, 2, 4, true) // after it has given up what it had
	take(5, 2, 6, 1, true)
	k.give(5)
	k.give(5)
	take(6, 2*segmentPackets, 6, 2, true)
	take(4, 8*segmentPackets, 0, 0, false) // more than there ever is: the place loses what it had
	take(7, 2*segmentPackets-12, 0, 2, true)
}

// Two workers never get the same segment.
func TestKernelMemoryOfSeveralWorkers(t *testing.T) {
	k := newKernelMemory(16 * segmentPackets)
	var users [16 * segmentPackets]int32
	var mu sync.Mutex
	use := func(p kernelPart, by int32) {
		mu.Lock()
		defer mu.Unlock()
		for i := range p.packets {
			if users[p.first+i] += by; users[p.first+i] > 1 {
				t.Errorf("entry %d has two users", p.first+i)
			}
		}
	}
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := range 300 {
				place := worker + 4*(i%5)
				use(k.of(place), -1)
				k.give(place)
				part, _ := k.take(place, segmentPackets<<(i%3))
				use(part, 1)
			}
		})
	}
	all.Wait()
	for place := range bpf.Slots {
		k.give(place)
	}
	if part, _ := k.take(0, 16*segmentPackets); part.packets != 16*segmentPackets {
		t.Errorf("all memory is free, and a place gets %d packets", part.packets)
	}
}

// The holder of a place hears once that another group wants it, and the next holder does not hear
// of it.
func TestAPlaceIsWanted(t *testing.T) {
	f := &fanOut{memory: newKernelMemory(segmentPackets)}
	const holder, other = mft.GroupID(1), mft.GroupID(1 + bpf.Slots)
	claim := func(id mft.GroupID, want bool) {
		t.Helper()
		if got, ok := f.Claim(id); ok != want || ok && got != id || !ok && got != holder {
			t.Fatalf("group %d claims the place: %d, %v", id, got, ok)
		}
	}
	wanted := func(id mft.GroupID, want bool) {
		t.Helper()
		if f.Wanted(id) != want {
			t.Errorf("group %d hears that its place is wanted: %v", id, !want)
		}
	}
	claim(holder, true)
	claim(holder, true)
	wanted(holder, false)
	claim(other, false)
	wanted(holder, true)
	wanted(holder, false)
	claim(other, false)
	f.Release(holder)
	claim(other, true)
	wanted(other, false)
}
