package rnic

import (
	"time"

	"github.com/rocast/rocast/roce"
)

const (
	congestionExperienced = 3 // ECN field of the IP header (RFC 3168, 5)

	// cnpTrafficClass is the traffic class of a CNP in a capture of a ConnectX-4 Lx: DSCP 48,
	// ECN-capable.
	cnpTrafficClass = 48<<2 | 2
)

// notifier is the notification point of DCQCN (Zhu et al., SIGCOMM 2015): when a request arrives
// with a congestion mark, the queue pair sends a CNP, unless it has sent one less than
// Config.CNPInterval ago.
type notifier struct {
	due    bool
	sent   bool // a CNP was sent once
	sentAt time.Duration
}

// notice looks for a congestion mark on a request of the peer.
func (q *QP) notice(now time.Duration, v *roce.View, frame []byte) {
	n := &q.notifier
	if q.cfg.CNPInterval == 0 || v.ECN(frame) != congestionExperienced {
		return
	}
	q.count(CongestionMarks)
	if n.sent && now-n.sentAt < q.cfg.CNPInterval {
		return
	}
	n.due, n.sent, n.sentAt = true, true, now
}

// Notify builds in buf the congestion notification (CNP) that became due with the frame just
// received, and returns it, or nil if none is due. A queue pair without a CNPInterval never sends
// one.
func (q *QP) Notify(buf []byte) []byte {
	if !q.notifier.due {
		return nil
	}
	q.notifier.due = false
	q.count(CNPsSent)
	ip := q.ip
	ip.TrafficClass = cnpTrafficClass
	q.ip.ID++
	b := roce.AppendEthernet(buf[:0], q.peer.MAC, q.cfg.MAC, ip.EtherType())
	b = ip.Append(b, roce.BTHBytes+roce.CNPBytes)
	h := roce.CNPHeader(q.peer.QPN)
	var body roce.CNP
	return seal(body.Append(h.Append(b)), 0)
}
