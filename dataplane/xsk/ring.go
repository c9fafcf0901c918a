package xsk

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// entry is what a ring carries: descriptors on RX and TX, addresses on fill and completion.
type entry interface{ Desc | uint64 }

// ring is memory shared with the kernel: two free-running 32-bit indexes and a power-of-two array between them.
//
//	consumer                 producer
//	   |                        |
//	...[ e ][ e ][ e ][ e ][ e ]...    pending = producer - consumer, also across the wrap at 2^32
//
// Each index has one writer. An atomic store of the own index orders the entries before it; an atomic load of the other
// side's index orders the entries behind it (net/xdp/xsk_queue.h, barriers A to D).
type ring[E entry] struct {
	producer *atomic.Uint32
	consumer *atomic.Uint32
	flags    *atomic.Uint32
	entries  []E
	mask     uint32
	mapping  []byte
}

// needsWakeup reports whether the kernel sleeps on this ring until a syscall wakes it.
func (r *ring[E]) needsWakeup() bool { return r.flags.Load()&unix.XDP_RING_NEED_WAKEUP != 0 }

func (r *ring[E]) unmap() error {
	if r.mapping == nil {
		return nil
	}
	mapping := r.mapping
	*r = ring[E]{}
	return unix.Munmap(mapping)
}

// producerRing is a ring this side writes: fill and TX.
type producerRing[E entry] struct {
	ring[E]
	head uint32 // what producer holds; nobody else writes it
	seen uint32 // consumer when last looked at: the ring has at least the room this gives
}

func produce[E entry](r ring[E]) producerRing[E] {
	return producerRing[E]{ring: r, head: r.producer.Load(), seen: r.consumer.Load()}
}

// room is how many entries may be put, at least when want is met; the kernel's index is read only when it is not.
func (r *producerRing[E]) room(want uint32) uint32 {
	size := uint32(len(r.entries))
	if free := size - (r.head - r.seen); free >= want {
		return free
	}
	r.seen = r.consumer.Load()
	return size - (r.head - r.seen)
}

// put writes the i-th entry behind head. Nobody sees it before publish.
func (r *producerRing[E]) put(i uint32, e E) { r.entries[(r.head+i)&r.mask] = e }

// putAll is put for a batch, in the at most two pieces in which it lies on the ring.
func (r *producerRing[E]) putAll(batch []E) {
	n := copy(r.entries[r.head&r.mask:], batch)
	copy(r.entries, batch[n:])
}

func (r *producerRing[E]) publish(n uint32) {
	r.head += n
	r.producer.Store(r.head)
}

// pending is how many entries the kernel has not passed yet.
func (r *producerRing[E]) pending() uint32 {
	r.seen = r.consumer.Load()
	return r.head - r.seen
}

// consumerRing is a ring this side reads: RX and completion.
type consumerRing[E entry] struct {
	ring[E]
	tail uint32 // what consumer holds; nobody else writes it
	seen uint32 // producer when last looked at
}

func consume[E entry](r ring[E]) consumerRing[E] {
	return consumerRing[E]{ring: r, tail: r.consumer.Load(), seen: r.producer.Load()}
}

// available is how many entries may be read, at least when want is met; the kernel's index is read only when it is not.
func (r *consumerRing[E]) available(want uint32) uint32 {
	if ready := r.seen - r.tail; ready >= want {
		return ready
	}
	r.seen = r.producer.Load()
	return r.seen - r.tail
}

// peek copies what is available into out and leaves it on the ring.
func (r *consumerRing[E]) peek(out []E) int {
	n := min(int(r.available(uint32(len(out)))), len(out))
	out = out[:n]
	copied := copy(out, r.entries[r.tail&r.mask:])
	copy(out[copied:], r.entries)
	return n
}

// release hands the places of n entries back to the kernel.
func (r *consumerRing[E]) release(n uint32) {
	if n == 0 {
		return
	}
	r.tail += n
	r.consumer.Store(r.tail)
}
