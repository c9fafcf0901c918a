package perftest

import (
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/roce"
)

// strayPause is the least time between two answers to what hosts send on a queue pair of a run that
// has ended.
const strayPause = 50 * time.Millisecond

// over keeps the queue pairs of a run that has ended. Its groups are gone, so nothing else answers
// what its hosts still send, and with a retry count of 7, which perftest has, Soft-RoCE repeats for
// ever (rxe_comp.c). The programs would never end. The queue pairs of the run before are forgotten.
func (s *service) over(qps []*queuePair) {
	if len(qps) == 0 { // a client that was refused early, while the hosts of the last run still send
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended, s.failed = map[roce.QPN]*queuePair{}, map[strayKey]time.Time{}
	for _, q := range qps {
		s.ended[q.groupQPN] = q
	}
}

// strayKey names a queue pair of a host by its peer.
type strayKey struct {
	host netip.Addr
	qpn  roce.QPN
}

// endAll ends the queue pairs of a run at all hosts: a program that waits for data does not notice
// that its peer hangs up.
func (s *service) endAll(qps []*queuePair) {
	for _, q := range qps {
		s.endAt(q, q.source.GID)
		for _, k := range q.receivers {
			s.endAt(q, k.GID)
		}
	}
}

// stray takes a packet of a host that belongs to no group.
func (s *service) stray(host netip.Addr, qpn roce.QPN, now time.Time) {
	at := strayKey{host, qpn}
	s.mu.Lock()
	q := s.ended[qpn]
	if q == nil || now.Sub(s.failed[at]) < strayPause {
		s.mu.Unlock()
		return
	}
	s.failed[at] = now
	s.mu.Unlock()
	s.endAt(q, host)
}

// endAt ends the queue pair of one host, if the host has one. The source's key for the receivers is
// the source's own, so a receiver names the PSN that it sends first. The source was given that of
// the first receiver as the one that it is to expect.
func (s *service) endAt(q *queuePair, host netip.Addr) {
	if s.options.EndQueuePair == nil || len(q.receivers) == 0 {
		return
	}
	isSource, k, first := host == q.source.GID, q.source, q.receivers[0].PSN
	if !isSource {
		k = key{}
		for _, r := range q.receivers {
			if r.GID == host {
				k, first = r, r.PSN
			}
		}
	}
	if k.QPN == 0 {
		return
	}
	if err := s.options.EndQueuePair(s.config.GroupIP, host, isSource, k.QPN, first); err != nil {
		s.log.Warn("could not end a queue pair of a perftest run", zap.Stringer("host", host), zap.Error(err))
	}
}

// isStray reports whether a datagram is a request of RC, and to which queue pair.
func isStray(datagram []byte) (roce.QPN, bool) {
	var bth roce.BTH
	_, err := bth.Decode(datagram)
	return bth.DestQPN, err == nil && bth.Opcode.IsRC() && bth.Opcode.IsRequest()
}
