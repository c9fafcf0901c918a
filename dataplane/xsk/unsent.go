package xsk

import "math/bits"

// unsent counts the bytes that were put on the TX ring and that the device has not completed. A
// completion has no length. Therefore unsent notes where each descriptor ends in the stream of all
// bytes, in the order in which they were put: a queue of a device sends in that order.
type unsent struct {
	ends        []uint32 // of the descriptors from first to next; free-running, as all below
	mask        uint32
	first, next uint32
	done, put   uint32 // bytes
}

// newUnsent has room for whatever may be on its way: the kernel consumes no descriptor without a
// free entry on the completion ring (xsk_cq_reserve_addr_locked).
func newUnsent(txDescs, completionDescs uint32) unsent {
	size := uint32(1) << bits.Len32(txDescs+completionDescs-1)
	return unsent{ends: make([]uint32, size), mask: size - 1}
}

func (u *unsent) bytes() int { return int(u.put - u.done) }

func (u *unsent) add(bytes uint32) {
	u.put += bytes
	u.ends[u.next&u.mask] = u.put
	u.next++
}

// complete takes the n oldest descriptors away.
func (u *unsent) complete(n uint32) {
	if n = min(n, u.next-u.first); n > 0 {
		u.first += n
		u.done = u.ends[(u.first-1)&u.mask]
	}
}

// withdraw takes the n newest descriptors away, which no completion will name.
func (u *unsent) withdraw(n uint32) {
	u.next -= min(n, u.next-u.first)
	if u.put = u.done; u.next != u.first {
		u.put = u.ends[(u.next-1)&u.mask]
	}
}

// Unsent returns how many bytes of frames were taken by Transmit and neither sent by the device nor
// withdrawn. In discipline Give, Complete brings it up to date.
//
// A kernel before 6.17 that stops inside a batch does not show which descriptors it has consumed of
// it (__xsk_generic_xmit moves the consumer index only at the end of the ring). They then count as
// withdrawn, so the result may be too low by one batch until the device has sent what it keeps.
func (s *Socket) Unsent() int {
	if s.obtained.Discipline == Lend {
		s.discardCompletions()
	}
	return s.unsent.bytes()
}

// neverCompleted returns how many of the newest descriptors the kernel will not complete when the
// last pending ones, at least one, are withdrawn: those that are not withdrawn already, and, if the
// first of them continues a frame, the beginning of that frame, which the kernel drops with it
// (xsk_drop_skb).
func (s *Socket) neverCompleted(pending uint32, withdrawn Desc) (n uint32) {
	first := s.tx.head - pending
	for i := first; i != s.tx.head; i++ {
		if s.tx.entries[i&s.tx.mask] != withdrawn {
			n++
		}
	}
	if s.tx.entries[first&s.tx.mask] == withdrawn {
		return n
	}
	for i := first - 1; s.tx.entries[i&s.tx.mask].Continues(); i-- {
		n++
	}
	return n
}
