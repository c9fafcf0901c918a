package afxdp

import (
	"math/bits"
	"sync/atomic"

	"github.com/rocast/rocast/bpf"
)

// segmentEntries is the number of entries for retained packets in a segment of kernelMemory.
const segmentEntries = 64

// kernelMemory shares out the kernel's memory for retained packets. A slot of the kernel's fan-out
// has some neighbouring segments, or none. Workers take and give segments at the same time; each
// does so for slots whose groups it owns.
type kernelMemory struct {
	taken  []atomic.Bool // by segment
	parts  [bpf.Slots]kernelPart
	misses atomic.Uint32     // number of times that take found none
	heard  [bpf.Slots]uint32 // value of misses when the slot got its memory, or was asked about it last
}

// kernelPart is the memory of one slot.
type kernelPart struct {
	first   int // entry of the map
	entries int // a power of two; 0: none
}

func newKernelMemory(entries int) *kernelMemory {
	return &kernelMemory{taken: make([]atomic.Bool, entries/segmentEntries)}
}

func (k *kernelMemory) of(slot int) kernelPart { return k.parts[slot] }

// take gives a slot that many entries or more. The slot keeps its memory if that is
// large enough, and else gets other memory. If none is free, the slot has none afterwards, and
// wanted tells all other slots.
func (k *kernelMemory) take(slot, entries int) kernelPart {
	entries = max(segmentEntries, 1<<bits.Len(uint(entries-1)))
	if k.parts[slot].entries >= entries {
		return k.parts[slot]
	}
	k.give(slot)
	n := entries / segmentEntries
	for first := 0; first+n <= len(k.taken); first++ {
		if got := k.claim(first, n); got < n {
			k.free(first, got)
			first += got
			continue
		}
		k.parts[slot], k.heard[slot] = kernelPart{first * segmentEntries, entries}, k.misses.Load()
		return k.parts[slot]
	}
	k.misses.Add(1)
	return kernelPart{}
}

// wanted reports whether the slot has memory that another slot has looked for since the last
// call.
func (k *kernelMemory) wanted(slot int) bool {
	misses := k.misses.Load()
	if k.parts[slot].entries == 0 || misses == k.heard[slot] {
		return false
	}
	k.heard[slot] = misses
	return true
}

// claim takes n segments from first on, up to one that is taken, and returns how many.
func (k *kernelMemory) claim(first, n int) (got int) {
	for got < n && k.taken[first+got].CompareAndSwap(false, true) {
		got++
	}
	return got
}

// give takes the memory of a slot back. The group there must not be armed.
func (k *kernelMemory) give(slot int) {
	part := &k.parts[slot]
	k.free(part.first/segmentEntries, part.entries/segmentEntries)
	*part = kernelPart{}
}

func (k *kernelMemory) free(first, n int) {
	for i := range n {
		k.taken[first+i].Store(false)
	}
}
