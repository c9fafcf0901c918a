package xsk

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// entry is the type of a ring's entries: descriptors on RX and TX rings, addresses on fill and
// completion rings.
type entry interface{ Desc | uint64 }

// ring is memory shared with the kernel: two free-running 32-bit indexes and a power-of-two array
// between them.
//
//	consumer                 producer
//	   |                        |
//	...[ e ][ e ][ e ][ e ][ e ]...    pending = producer - consumer, also across the wrap at 2^32
//
// Each index has one writer. The atomic store of the own index comes after the writes of the
// entries that it publishes; the atomic load of the other side's index comes before the reads of
// the entries that it announces (net/xdp/xsk_queue.h, barriers A to D).
type ring[E entry] struct {
	producer *atomic.Uint32
	consumer *atomic.Uint32
	flags    *atomic.Uint32
	entries  []E
	mask     uint32
	mapping  []byte
}

// needsWakeup reports whether the kernel looks at this ring only after a system call.
func (r *ring[E]) needsWakeup() bool { return r.flags.Load()&unix.XDP_RING_NEED_WAKEUP != 0 }

func (r *ring[E]) unmap() error {
	if r.mapping == nil {
		return nil
	}
	mapping := r.mapping
	*r = ring[E]{}
	return unix.Munmap(mapping)
}

// producerRing is a ring that this side writes: fill and TX.
type producerRing[E entry] struct {
	ring[E]
	head uint32 // the value of producer, which only this side writes
	seen uint32 // the value of consumer when it was last read; the ring has this much room or more
}

func produce[E entry](r ring[E]) producerRing[E] {
	return producerRing[E]{ring: r, head: r.producer.Load(), seen: r.consumer.Load()}
}

// room returns how many entries may be put. It reads the kernel's index only if there seems to be
// room for fewer than want, so the result may be too small, but not below want.
func (r *producerRing[E]) room(want uint32) uint32 {
	size := uint32(len(r.entries))
	if free := size - (r.head - r.seen); free >= want {
		return free
	}
	r.seen = r.consumer.Load()
	return size - (r.head - r.seen)
}

// put writes the i-th entry behind head. The kernel does not see it before publish.
func (r *producerRing[E]) put(i uint32, e E) { r.entries[(r.head+i)&r.mask] = e }

func (r *producerRing[E]) publish(n uint32) {
	r.head += n
	r.producer.Store(r.head)
}

// pending returns how many entries the kernel has not consumed yet.
func (r *producerRing[E]) pending() uint32 {
	r.seen = r.consumer.Load()
	return r.head - r.seen
}

// consumerRing is a ring that this side reads: RX and completion.
type consumerRing[E entry] struct {
	ring[E]
	tail uint32 // the value of consumer, which only this side writes
	seen uint32 // the value of producer when it was last read
}

func consume[E entry](r ring[E]) consumerRing[E] {
	return consumerRing[E]{ring: r, tail: r.consumer.Load(), seen: r.producer.Load()}
}

// available returns how many entries may be read. It reads the kernel's index only if there seem to
// be fewer than want, so the result may be too small, but not below want.
func (r *consumerRing[E]) available(want uint32) uint32 {
	if ready := r.seen - r.tail; ready >= want {
		return ready
	}
	r.seen = r.producer.Load()
	return r.seen - r.tail
}

// peek copies available entries into out and leaves them on the ring.
func (r *consumerRing[E]) peek(out []E) int {
	n := min(int(r.available(uint32(len(out)))), len(out))
	out = out[:n]
	copied := copy(out, r.entries[r.tail&r.mask:])
	copy(out[copied:], r.entries)
	return n
}

// release lets the kernel write n entries that were read.
func (r *consumerRing[E]) release(n uint32) {
	if n == 0 {
		return
	}
	r.tail += n
	r.consumer.Store(r.tail)
}
