package afxdp

import (
	"math/bits"
	"sync/atomic"

	"github.com/rocast/rocast/bpf"
)

// segmentPackets is the number of retained packets in a segment of kernelMemory.
const segmentPackets = 64

// kernelMemory shares out the kernel's memory for retained packets. A place of the kernel's fan-out
// has some neighbouring segments, or none. Workers take and give segments at the same time; each
// does so for places whose groups it owns.
type kernelMemory struct {
	taken  []atomic.Bool // by segment
	parts  [bpf.Slots]kernelPart
	misses atomic.Uint32     // number of times that take found none
	heard  [bpf.Slots]uint32 // value of misses when the place got its memory, or was asked about it last
}

// kernelPart is the memory of one place.
type kernelPart struct {
	first   int // entry of the map
	packets int // number of entries, a power of two; 0: none
}

func newKernelMemory(packets int) *kernelMemory {
	return &kernelMemory{taken: make([]atomic.Bool, packets/segmentPackets)}
}

func (k *kernelMemory) of(place int) kernelPart { return k.parts[place] }

// take gives a place memory for that many packets or more. The place keeps its memory if that is
// large enough, and else gets other memory. If none is free, the place has none afterwards, and
// wanted tells all other places.
func (k *kernelMemory) take(place, packets int) kernelPart {
	packets = max(segmentPackets, 1<<bits.Len(uint(packets-1)))
	if k.parts[place].packets >= packets {
		return k.parts[place]
	}
	k.give(place)
	n := packets / segmentPackets
	for first := 0; first+n <= len(k.taken); first++ {
		if got := k.claim(first, n); got < n {
			k.free(first, got)
			first += got
			continue
		}
		k.parts[place], k.heard[place] = kernelPart{first * segmentPackets, packets}, k.misses.Load()
		return k.parts[place]
	}
	k.misses.Add(1)
	return kernelPart{}
}

// wanted reports whether the place has memory that another place has looked for since the last
// call.
func (k *kernelMemory) wanted(place int) bool {
	misses := k.misses.Load()
	if k.parts[place].packets == 0 || misses == k.heard[place] {
		return false
	}
	k.heard[place] = misses
	return true
}

// claim takes n segments from first on, up to one that is taken, and returns how many.
func (k *kernelMemory) claim(first, n int) (got int) {
	for got < n && k.taken[first+got].CompareAndSwap(false, true) {
		got++
	}
	return got
}

// give takes the memory of a place back. The group there must not be armed.
func (k *kernelMemory) give(place int) {
	part := &k.parts[place]
	k.free(part.first/segmentPackets, part.packets/segmentPackets)
	*part = kernelPart{}
}

func (k *kernelMemory) free(first, n int) {
	for i := range n {
		k.taken[first+i].Store(false)
	}
}
