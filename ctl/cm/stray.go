package cm

import (
	"net/netip"
	"time"

	"github.com/rocast/rocast/roce"
)

// strayPause is the least time between two answers to what a host sends on a queue pair of a run
// that has ended.
const strayPause = 50 * time.Millisecond

// stray answers what a host sends on the queue pair of a transfer that has ended. The group is
// gone, so nothing else answers, and with a retry count of 7, which perftest has, Soft-RoCE repeats
// for ever (rxe_comp.c); its program would never end. s is nil if there was no such queue pair.
func (m *Machine) stray(s *side) {
	switch {
	case s == nil:
		m.counts[NoConnection]++
	case s.conn.state < Ending:
		m.counts[Unexpected]++
	case m.now >= s.failed+strayPause:
		m.fail(s)
	}
}

// fail ends the queue pair of one host. Either side names the same first PSN: the source what it
// expects, a receiver what it sends.
func (m *Machine) fail(s *side) {
	if s.qpn == 0 { // it has not answered yet
		return
	}
	c := s.conn
	s.failed = m.now
	m.transmit(s, []Packet{ending(s.isSource, s.qpn, c.req.StartingPSN)})
}

// ending returns the packet that ends the queue pair of one host, so that its program fails at the
// next look at its completions. The source is never told that anything has arrived: it is sent a
// request that no queue pair serves, with the PSN that it expects first. To a receiver that does
// not fit, because the source's packets have moved on what it expects. But nothing that it has sent
// itself was ever acknowledged, so it is refused with the PSN that it sends first.
func ending(isSource bool, qpn roce.QPN, first roce.PSN) Packet {
	if isSource {
		return Packet{Opcode: roce.OpWriteOnly, QPN: qpn, PSN: first, Payload: make([]byte, 4)}
	}
	return Packet{Opcode: roce.OpAck, QPN: qpn, PSN: first, AETH: roce.AETH{Syndrome: roce.NAKRemoteOperational}}
}

// EndQueuePair ends the queue pair of a host as a Proxy does, at an IP at which none answers.
func EndQueuePair(ip, host netip.Addr, isSource bool, qpn roce.QPN, first roce.PSN) error {
	s, err := openRaw(ip)
	if err != nil {
		return err
	}
	defer s.raw.Close()
	p := ending(isSource, qpn, first)
	return s.transmit(host, &p)
}
