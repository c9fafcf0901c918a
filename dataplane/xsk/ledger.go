package xsk

import "fmt"

// holder is who has a chunk. Besides the free list and the worker, each socket of the UMEM has two: its receive side
// (fill ring, driver, RX ring) and its transmit side (TX ring, driver, completion ring; only in discipline Give).
type holder uint16

const (
	inFreeList holder = iota
	withWorker
	firstSocket
)

// maxSockets bounds the sockets of one UMEM: two holders each. Open refuses the next one.
const maxSockets = (1<<16 - int(firstSocket)) / 2

func receiveSide(slot int) holder  { return firstSocket + holder(2*slot) }
func transmitSide(slot int) holder { return firstSocket + holder(2*slot) + 1 }

func (h holder) String() string {
	switch {
	case h == inFreeList:
		return "the free list"
	case h == withWorker:
		return "the worker"
	case (h-firstSocket)%2 == 0:
		return fmt.Sprintf("the receive side of socket %d", (h-firstSocket)/2)
	}
	return fmt.Sprintf("the transmit side of socket %d", (h-firstSocket)/2)
}

// ledger has the holder of every chunk. A chunk in two places corrupts frames long after the mistake and far from it;
// two bytes per chunk, which stay in the cache, turn it into a panic at the mistake.
type ledger []holder

func (l ledger) move(addr uint64, from, to holder) {
	is := &l[addr/ChunkBytes] // out of range: the address is outside the UMEM
	if *is != from {
		l.refuse(addr, to)
	}
	*is = to
}

// check is move for a chunk that stays with the worker: a lent one.
func (l ledger) check(addr uint64) {
	if l[addr/ChunkBytes] != withWorker {
		l.refuse(addr, withWorker)
	}
}

//go:noinline
func (l ledger) refuse(addr uint64, to holder) {
	chunk := addr / ChunkBytes
	panic(fmt.Sprintf("xsk: chunk %d (address %#x) cannot be used by or go to %v: it is with %v", chunk, addr, to, l[chunk]))
}

func (l ledger) count(h holder) (n int) {
	for _, is := range l {
		if is == h {
			n++
		}
	}
	return n
}
