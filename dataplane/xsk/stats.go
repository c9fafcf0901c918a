package xsk

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Stats are the kernel's counters of one socket (struct xdp_statistics) since the socket was made.
type Stats struct {
	RxDropped      uint64 // frames without a chunk, or too long without multi-buffer
	RxInvalidDescs uint64 // addresses on the fill ring that are outside the UMEM
	TxInvalidDescs uint64 // descriptors on the TX ring that were skipped: withdrawn ones
	RxRingFull     uint64 // frames dropped because the RX ring was full
	RxFillEmpty    uint64 // how often the kernel found the fill ring empty
	TxEmpty        uint64 // how often the kernel found the TX ring empty
}

// Add adds the counters of another socket.
func (s *Stats) Add(t Stats) {
	s.RxDropped += t.RxDropped
	s.RxInvalidDescs += t.RxInvalidDescs
	s.TxInvalidDescs += t.TxInvalidDescs
	s.RxRingFull += t.RxRingFull
	s.RxFillEmpty += t.RxFillEmpty
	s.TxEmpty += t.TxEmpty
}

// Stats reads the kernel's counters. Any goroutine may call it while the socket is open.
func (s *Socket) Stats() (Stats, error) {
	var k unix.XDPStatistics
	if _, err := getsockopt(s.fd, unix.XDP_STATISTICS, &k); err != nil {
		return Stats{}, fmt.Errorf("read statistics of %v: %w", s, err)
	}
	return Stats{
		RxDropped: k.Rx_dropped, RxInvalidDescs: k.Rx_invalid_descs, TxInvalidDescs: k.Tx_invalid_descs,
		RxRingFull: k.Rx_ring_full, RxFillEmpty: k.Rx_fill_ring_empty_descs, TxEmpty: k.Tx_ring_empty_descs,
	}, nil
}

// Heard is a number that changes with each frame that the kernel gives to the socket, and with each
// one that it drops there. Any goroutine may call it while the socket is open.
func (s *Socket) Heard() (uint64, error) {
	st, err := s.Stats()
	return uint64(s.rx.producer.Load()) + st.RxDropped + st.RxInvalidDescs + st.RxRingFull, err
}
