package xsk

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Receive takes the descriptors that have arrived, up to len(descs), and never blocks. The caller
// holds the chunks until it recycles, frees or gives them. No frame is split over two calls;
// therefore descs of a multi-buffer socket must have room for at least MaxFrameDescs.
func (s *Socket) Receive(descs []Desc) int {
	if s.obtained.MultiBuffer && len(descs) < MaxFrameDescs {
		panicShortBatch(len(descs))
	}
	n := s.rx.peek(descs)
	if s.rx.seen-s.rx.tail > s.level/2 {
		s.level = min(2*s.level, uint32(len(s.fill.entries)))
	}
	if n == 0 {
		if s.fill.needsWakeup() {
			s.wakeReceive()
		}
		return 0
	}
	if s.obtained.MultiBuffer {
		n = wholeFrames(descs[:n])
	}
	s.rx.release(uint32(n))
	s.received += uint64(n)
	ledger, from := s.umem.ledger, s.receiveSide
	for i := range descs[:n] {
		ledger.move(descs[i].Addr, from, withWorker)
	}
	return n
}

// Fill gives chunks that the caller holds to the socket to receive into, and returns how many the
// socket took. There are at most FillDescs chunks on its receive side. An address may point
// anywhere into its chunk.
func (s *Socket) Fill(addrs []uint64) int {
	n := min(len(addrs), s.fillRoom())
	for i, addr := range addrs[:n] {
		s.umem.ledger.move(addr, withWorker, s.receiveSide)
		s.fill.put(uint32(i), ChunkOf(addr))
	}
	s.filledUp(n)
	return n
}

// Recycle gives the chunks of received descriptors back: to this socket's fill ring as far as it
// has room, and the others to the free list. Chunks that were lent may be recycled only when Flush
// has returned on every socket that sent them.
func (s *Socket) Recycle(descs []Desc) {
	n := min(len(descs), s.fillRoom())
	for i := range descs[:n] {
		s.umem.ledger.move(descs[i].Addr, withWorker, s.receiveSide)
		s.fill.put(uint32(i), ChunkOf(descs[i].Addr))
	}
	s.filledUp(n)
	for i := range descs[n:] {
		s.umem.push(descs[n+i].Addr, withWorker)
	}
}

// TopUp fills the fill ring from the free list, up to the socket's level, and returns how many
// chunks that took. It belongs into every round in which chunks went elsewhere: while the fill ring
// is empty the kernel drops frames, and only Stats.RxFillEmpty shows it.
//
// TopUp takes the chunks that were freed most recently, and puts them on the ring in the order in
// which they were freed. So the order is the same in each round, and the CPU can prefetch what the
// kernel has for each chunk (struct xdp_buff_xsk).
//
// In copy mode the level begins at startLevel and not at FillDescs. The kernel uses the chunks in
// turn, so with fewer chunks the caches of the CPUs hold a larger part of them. The level doubles
// for good when more than half of it has arrived before Receive takes it. In zero-copy mode the
// level is FillDescs, because the driver fills its own ring from the fill ring.
func (s *Socket) TopUp() int {
	n := min(int(s.level)-int(s.filled-s.received), len(s.umem.free))
	if n <= 0 {
		return 0
	}
	for i, chunk := range s.umem.pop(n) {
		addr := uint64(chunk) * ChunkBytes
		s.umem.ledger.move(addr, inFreeList, s.receiveSide)
		s.fill.put(uint32(i), addr)
	}
	s.filledUp(n)
	return n
}

// fillRoom does not read the kernel's index, because the chunks on the receive side include those
// on the fill ring.
func (s *Socket) fillRoom() int { return len(s.fill.entries) - int(s.filled-s.received) }

func (s *Socket) filledUp(n int) {
	if n == 0 {
		return
	}
	s.filled += uint64(n)
	s.fill.publish(uint32(n))
}

// wakeReceive wakes a zero-copy driver that went to sleep because the fill ring was empty. Its
// errors are ignored: they show on transmit too, and netlink reports a device that is gone.
func (s *Socket) wakeReceive() {
	_, _, _ = unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
}

//go:noinline
func panicShortBatch(have int) {
	panic(fmt.Sprintf("xsk: Receive on a multi-buffer socket with room for %d descriptors, needs %d",
		have, MaxFrameDescs))
}
