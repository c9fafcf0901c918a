package cm

import (
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

// fail ends the queue pair of one host, so that its program fails at the next look at its
// completions. The source is never told that anything has arrived: it is sent a request that no
// queue pair serves. To a receiver that does not fit, because the source's packets have moved on
// what it expects. But nothing that it has sent itself was ever acknowledged, so it is refused with
// its first packet.
func (m *Machine) fail(s *side) {
	if s.qpn == 0 { // it has not answered yet
		return
	}
	c := s.conn
	s.failed = m.now
	p := Packet{QPN: s.qpn, PSN: c.req.StartingPSN}
	if s.isSource {
		p.Opcode, p.Payload = roce.OpWriteOnly, make([]byte, 4)
	} else {
		p.Opcode, p.AETH.Syndrome = roce.OpAck, roce.NAKRemoteOperational
	}
	m.transmit(s, []Packet{p})
}
