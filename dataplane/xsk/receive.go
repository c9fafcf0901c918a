package xsk

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Receive takes what has arrived, up to len(descs), and never blocks. The caller holds the chunks until it recycles,
// frees or gives them. A frame is never split over two calls, for which descs of a multi-buffer socket must hold at
// least MaxFrameDescs.
func (s *Socket) Receive(descs []Desc) int {
	if s.obtained.MultiBuffer && len(descs) < MaxFrameDescs {
		panicShortBatch(len(descs))
	}
	n := s.rx.peek(descs)
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

// Fill gives chunks the caller holds to the socket to receive into, and returns how many it took: it keeps at most
// FillDescs on its receive side, wherever they are there. An address may point anywhere into its chunk.
func (s *Socket) Fill(addrs []uint64) int {
	n := min(len(addrs), s.fillRoom())
	for i, addr := range addrs[:n] {
		s.umem.ledger.move(addr, withWorker, s.receiveSide)
		s.fill.put(uint32(i), ChunkOf(addr))
	}
	s.filledUp(n)
	return n
}

// Recycle gives the chunks of received descriptors back: to this socket's fill ring, what it does not take to the free
// list. In discipline Lend this is right only after Flush has returned on every socket they were sent through.
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

// TopUp fills from the free list and returns how many chunks it took. An empty fill ring drops frames with no trace but
// Stats.RxFillRingEmpty, so this belongs at the end of every round in which chunks went elsewhere.
func (s *Socket) TopUp() int {
	n := min(s.fillRoom(), len(s.umem.free))
	for i := range n {
		s.fill.put(uint32(i), s.umem.pop(s.receiveSide))
	}
	s.filledUp(n)
	return n
}

// fillRoom needs no look at the kernel's index: what is on the receive side includes what is on the fill ring.
func (s *Socket) fillRoom() int { return len(s.fill.entries) - int(s.filled-s.received) }

func (s *Socket) filledUp(n int) {
	if n == 0 {
		return
	}
	s.filled += uint64(n)
	s.fill.publish(uint32(n))
}

// wakeReceive tells a zero-copy driver that slept over an empty fill ring to look again. Errors show on transmit, and
// the control plane hears of a vanished device from netlink.
func (s *Socket) wakeReceive() {
	_, _, _ = unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
}

//go:noinline
func panicShortBatch(have int) {
	panic(fmt.Sprintf("xsk: Receive on a multi-buffer socket with room for %d descriptors, needs %d", have, MaxFrameDescs))
}
