package xsk

import "testing"

// BenchmarkTransmit measures Transmit of a batch of 64 without the kernel: ledger, checks and ring.
func BenchmarkTransmit(b *testing.B) {
	s := &Socket{umem: newUMEM(b, 64), obtained: Obtained{Mode: ModeCopy, Discipline: Lend}, unsent: newUnsent(64, 64)}
	s.tx, _ = heapRing[Desc](2048, 0)
	var addrs [64]uint64
	var batch [64]Desc
	for i := range batch[:s.umem.Alloc(addrs[:])] {
		batch[i] = Desc{Addr: addrs[i] + HeadroomBytes, Len: 1024}
	}
	for b.Loop() {
		s.Transmit(batch[:])
		s.tx.consumer.Store(s.tx.head)
		s.unsent.complete(64)
	}
}

// BenchmarkReceive measures Receive, Recycle and TopUp of a batch of 64 without the kernel.
func BenchmarkReceive(b *testing.B) {
	s := &Socket{umem: newUMEM(b, 64), receiveSide: receiveSide(0), level: 64}
	var rx producerRing[Desc]
	rx, s.rx = heapRing[Desc](2048, 0)
	s.fill, _ = heapRing[uint64](64, 0)
	s.TopUp()
	var batch [64]Desc
	for b.Loop() {
		for i := range uint32(64) {
			rx.put(i, Desc{Addr: uint64(i)*ChunkBytes + HeadroomBytes, Len: 1024})
		}
		rx.publish(64)
		for _, d := range batch[:s.Receive(batch[:])] {
			s.Recycle(d.Addr)
		}
		s.TopUp()
	}
}

// BenchmarkFlush measures sending a batch of 64 frames of 1024 bytes through a veth.
func BenchmarkFlush(b *testing.B) {
	w := newWorld(b, 64)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{TxOnly: true}})
	descs := w.load(framesOf(64, 1024)...)
	for b.Loop() {
		w.send(p.Socket, descs)
	}
	w.free(descs)
}
