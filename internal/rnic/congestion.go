package rnic

import (
	"time"

	"github.com/rocast/rocast/roce"
)

const (
	congestionExperienced = 3 // ECN field of the IP header (RFC 3168, 5)

	// cnpTrafficClass is what a ConnectX-4 Lx was seen to send its CNPs with: DSCP 48, ECN-capable.
	cnpTrafficClass = 48<<2 | 2
)

// notifier is the notification point of DCQCN (Zhu et al., SIGCOMM 2015): a request that arrives with a congestion mark
// makes the queue pair send a CNP, unless it sent one less than Config.CNPInterval ago.
type notifier struct {
	due    bool
	sent   bool // any CNP
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

// Notify builds in buf the congestion notification (CNP) that the frame just received has made due, and returns it;
// nil: none is due. Only a queue pair with a CNPInterval ever has one.
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
