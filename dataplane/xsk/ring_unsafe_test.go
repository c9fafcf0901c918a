package xsk

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// heapRing makes a ring without a kernel and returns both its ends. start is the first value of the
// indexes. The ring lies on the Go heap, where the race detector sees it.
func heapRing[E entry](entries, start uint32) (producerRing[E], consumerRing[E]) {
	offsets := unix.XDPRingOffset{Producer: 0, Consumer: 64, Flags: 68, Desc: 128}
	words := make([]uint64, (128+16*entries)/8)
	memory := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)
	r := overlay[E](memory, offsets, entries)
	r.producer.Store(start)
	r.consumer.Store(start)
	return produce(r), consume(r)
}
