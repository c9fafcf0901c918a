package feedback

import "github.com/rocast/rocast/roce"

// end is the fatal NAK with the lowest PSN, of a receiver or for a refused request: the source's QP
// will end with it. It bounds all ACKs (limit), so that no packet is acknowledged and then refused.
type end struct {
	psn      roce.PSN
	syndrome roce.Syndrome // 0: none
	sent     bool          // in this round of the source
	told     bool          // it was sent, and the source has not shown since that it has not heard it
	cameAt   Tick          // told and not sent in this round: when the source began the round
}

// comeAgain notes that the source has come to packet psn again, which is the one with which it
// ends, or lies below. Below, it may have sent what comes at first before it heard the NAK. If it
// still comes longer than a round trip after that, it has not heard it.
func (e *end) comeAgain(now Tick, psn roce.PSN) {
	if e.sent {
		e.sent, e.cameAt = false, now
	}
	e.told = e.told && psn != e.psn && now-e.cameAt < AskPeriod
}

// refusal is the lowest request of the source that no group can carry (rule 11).
type refusal struct {
	psn      roce.PSN
	syndrome roce.Syndrome // 0: none
}

// covers reports whether psn is the refused request or lies behind it.
func (r *refusal) covers(psn roce.PSN) bool { return r.syndrome != 0 && !psn.Before(r.psn) }

// endAt notes a fatal NAK. The lowest one counts: the source's QP does not get beyond it.
func (rr *replier) endAt(psn roce.PSN, s roce.Syndrome) {
	if rr.end.syndrome == 0 || psn.Before(rr.end.psn) {
		rr.end = end{syndrome: s, psn: psn}
	}
}

// endPSN is the PSN with which the source can be sent a fatal NAK for psn. A quorum may have
// acknowledged more, and the source would take a NAK below that for stale.
func (m *merged) endPSN(psn roce.PSN) roce.PSN {
	if m.known && !psn.After(m.highest) {
		return m.highest.Next()
	}
	return psn
}

// endIfTooFew ends the source's QP behind what is acknowledged if too few receivers are left to
// acknowledge the rest: the source would wait for ever.
func (rr *replier) endIfTooFew() {
	if rr.hopeful() >= rr.least() {
		return
	}
	rr.endAt(rr.floor.psn.Next(), roce.NAKRemoteOperational)
}

// hopeful returns the number of receivers that can acknowledge what the source waits for or sends
// next. Between messages, receivers that are about to join count too. Inside a message they do not,
// because they have nothing of it.
func (rr *replier) hopeful() (n int) {
	n = rr.living()
	if between := rr.Settled() && !rr.source.inside; between {
		for i := range rr.paths {
			if rr.paths[i].part.IsToCome() {
				n += rr.weight(i)
			}
		}
	}
	return n
}

// findEnd looks for the end again after a change of members or of the source: a receiver that left
// takes its fatal NAK along. An end that the source was sent stays, because its QP has ended. It
// does not if the source shows that it has not heard it (comeAgain).
func (rr *replier) findEnd() {
	if rr.end.told {
		return
	}
	rr.end = end{psn: rr.refusal.psn, syndrome: rr.refusal.syndrome}
	for i := range rr.paths {
		if p := &rr.paths[i]; p.part == PartDead {
			rr.endAt(rr.merged.endPSN(p.acked.Next()), p.pending)
		}
	}
	rr.endIfTooFew()
}

// ended reports whether the source's QP has ended: it was sent the NAK, and has not come again or
// fell silent on its way to the packet for which it would hear the NAK again.
func (rr *replier) ended(now Tick) bool {
	return rr.end.sent || rr.end.told && now-rr.end.cameAt >= rr.policy.settleWithin()
}

// Ended reports whether the source was sent the NAK that ends its QP, for all that is known.
func (rr *replier) Ended() bool { return rr.end.told }
