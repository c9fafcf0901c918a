package xsk

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Stats is what the kernel counts per socket (struct xdp_statistics), since the socket was made.
type Stats struct {
	RxDropped      uint64 // frames dropped for other reasons: no chunk, or too long for a socket without multi-buffer
	RxInvalidDescs uint64 // fill ring addresses outside the UMEM
	TxInvalidDescs uint64 // TX descriptors skipped: withdrawn ones
	RxRingFull     uint64 // frames dropped because the worker did not receive
	RxFillEmpty    uint64 // times the kernel found the fill ring empty
	TxEmpty        uint64 // times the kernel found the TX ring empty
}

// Add adds the counts of another socket.
func (s *Stats) Add(t Stats) {
	s.RxDropped += t.RxDropped
	s.RxInvalidDescs += t.RxInvalidDescs
	s.TxInvalidDescs += t.TxInvalidDescs
	s.RxRingFull += t.RxRingFull
	s.RxFillEmpty += t.RxFillEmpty
	s.TxEmpty += t.TxEmpty
}

// Stats reads the kernel's counters. Any goroutine may, as long as the socket is open.
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
