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

// Recycle gives a chunk that the caller holds back to the receive side, or to the free list if the
// receive side has as many as TopUp lets it have. The kernel sees the chunk after the next TopUp. A
// socket that gets back the chunks of the frames that it received uses the same ones in the same
// order again, so the CPU can prefetch what the kernel has for each chunk (struct xdp_buff_xsk).
// addr may point anywhere into the chunk. A chunk that was lent may be recycled only when Flush has
// returned on every socket that sent it.
func (s *Socket) Recycle(addr uint64) {
	if s.filled-s.received >= uint64(s.level) {
		s.umem.push(addr, withWorker)
		return
	}
	s.refill(ChunkOf(addr), withWorker)
}

// TopUp shows the kernel the recycled chunks, fills the fill ring from the free list, up to the
// socket's level, and returns how many chunks that took. It belongs into every round: while the
// fill ring is empty the kernel drops frames, and only Stats.RxFillEmpty shows it.
//
// In copy mode the level begins at startLevel and not at FillDescs. The kernel uses the chunks in
// turn, so with fewer chunks the caches of the CPUs hold a larger part of them. The level doubles
// for good when more than half of it has arrived before Receive takes it. In zero-copy mode the
// level is FillDescs, because the driver fills its own ring from the fill ring.
func (s *Socket) TopUp() int {
	n := max(min(int(s.level)-int(s.filled-s.received), len(s.umem.free)), 0)
	for _, chunk := range s.umem.pop(n) {
		s.refill(uint64(chunk)*ChunkBytes, inFreeList)
	}
	if s.unseen > 0 {
		s.fill.publish(s.unseen)
		s.unseen = 0
	}
	return n
}

// refill puts a chunk on the fill ring, which has room: its level is not above its size.
func (s *Socket) refill(chunk uint64, from holder) {
	s.umem.ledger.move(chunk, from, s.receiveSide)
	s.fill.put(s.unseen, chunk)
	s.unseen++
	s.filled++
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
