package xsk

import "fmt"

// holder is a place where a chunk can be: the free list, the worker, or one of two places of each
// socket. Those are its receive side (fill ring, driver, RX ring) and, in discipline Give, its
// transmit side (TX ring, driver, completion ring).
type holder uint16

const (
	inFreeList holder = iota
	withWorker
	firstSocket
)

// maxSockets bounds the sockets of one UMEM, because each has two holders. Open refuses one more.
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

// ledger is the holder of every chunk. A chunk in two places damages frames long after the mistake
// and far from it. The ledger, two bytes for each chunk that stay in the cache, turns the mistake
// into a panic at once.
type ledger []holder

func (l ledger) move(addr uint64, from, to holder) {
	is := &l[addr/ChunkBytes] // out of range: the address is outside the UMEM
	if *is != from {
		l.refuse(addr, to)
	}
	*is = to
}

//go:noinline
func (l ledger) refuse(addr uint64, to holder) {
	chunk := addr / ChunkBytes
	panic(fmt.Sprintf("xsk: chunk %d (address %#x) cannot be used by or go to %v: it is with %v",
		chunk, addr, to, l[chunk]))
}

func (l ledger) count(h holder) (n int) {
	for _, is := range l {
		if is == h {
			n++
		}
	}
	return n
}
