package xsk

import "math/bits"

// unsent counts the bytes that were put on the TX ring and that the device has not completed. A
// completion has no length, so the lengths wait in the order in which they were put: a queue of a
// device sends in that order.
type unsent struct {
	lengths     []uint16 // of the descriptors from first to next
	mask        uint32
	first, next uint32 // free-running
	bytes       int
}

// newUnsent has room for whatever may be on its way: the kernel consumes no descriptor without a
// free entry on the completion ring (xsk_cq_reserve_addr_locked).
func newUnsent(txDescs, completionDescs uint32) unsent {
	size := uint32(1) << bits.Len32(txDescs+completionDescs-1)
	return unsent{lengths: make([]uint16, size), mask: size - 1}
}

func (u *unsent) add(descs []Desc) {
	for i := range descs {
		u.lengths[u.next&u.mask] = uint16(descs[i].Len)
		u.bytes += int(descs[i].Len)
		u.next++
	}
}

// complete takes the n oldest descriptors away.
func (u *unsent) complete(n uint32) {
	for range min(n, u.next-u.first) {
		u.bytes -= int(u.lengths[u.first&u.mask])
		u.first++
	}
}

// withdraw takes the n newest descriptors away, which no completion will name.
func (u *unsent) withdraw(n uint32) {
	for range min(n, u.next-u.first) {
		u.next--
		u.bytes -= int(u.lengths[u.next&u.mask])
	}
}

// Unsent returns how many bytes of frames were taken by Transmit and neither sent by the device nor
// withdrawn. In discipline Give, Complete brings it up to date.
func (s *Socket) Unsent() int {
	if s.obtained.Discipline == Lend {
		s.discardCompletions()
	}
	return s.unsent.bytes
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
