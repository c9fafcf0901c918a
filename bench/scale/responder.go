package scale

import "github.com/rocast/rocast/roce"

// responder is the receiving half of a queue pair, reduced to what its answers depend on where all
// requests are WRITEs to its memory and none is damaged. The rules are those of
// internal/rnic/responder.go and internal/rnic/congestion.go; a test compares the two.
type responder struct {
	psn      roce.PSN // that is expected next
	msn      roce.MSN // messages that are whole
	nakSent  bool     // for this gap
	noticed  bool     // a notification was sent once
	noticeAt Time
}

// receive takes a request. If it has to be answered, PSN and syndrome of the answer are returned.
func (r *responder) receive(p *packet) (psn roce.PSN, s roce.Syndrome, answers bool) {
	switch ahead := p.psn.Sub(r.psn); {
	case ahead > 0:
		answers, r.nakSent = !r.nakSent, true
		return r.psn, roce.NAKSequence, answers
	case ahead < 0:
		return r.psn.Prev(), roce.SyndromeUnlimited, true
	}
	r.nakSent = false
	r.psn = r.psn.Next()
	if p.last {
		r.msn = r.msn.Add(1)
	}
	return p.psn, roce.SyndromeUnlimited, p.ackReq
}

// notify reports whether a notification goes out because of a request that has just come.
func (r *responder) notify(now, interval Time, p *packet) bool {
	if !p.marked || interval == 0 || r.noticed && now-r.noticeAt < interval {
		return false
	}
	r.noticed, r.noticeAt = true, now
	return true
}
