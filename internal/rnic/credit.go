package rnic

import "github.com/rocast/rocast/roce"

// credits is the requester's side of end-to-end flow control (IBTA vol 1, 9.7.7.2). The peer grants, with each ACK, the
// messages up to the AETH's MSN plus its credits. A message that takes a receive waits until the grant reaches it; one
// such message may be sent beyond the grant, so that a requester that has heard of no receive asks for one.
// The rule is the kernel's rdmavt's (rvt_get_credit, rvt_rc_credit_avail).
type credits struct {
	unlimited bool     // the peer once sent credit code 0x1F, or this queue pair keeps no credits
	granted   roce.MSN // the last message the peer has granted, counted from 1 as MSNs are
}

// takeCredits notes what an ACK grants. A grant never shrinks: an older ACK, or one with fewer receives, changes nothing.
func (q *QP) takeCredits(psn roce.PSN, aeth roce.AETH) {
	if !aeth.Syndrome.IsACK() || psn.Sub(q.comp.psn) < -1 {
		return // a NAK grants nothing; -1 is the newest acknowledged PSN, whose ACK may be repeated with more credits
	}
	n, limited := aeth.Syndrome.CreditCode().Credits()
	if !limited {
		q.comp.unlimited = true
		return
	}
	if granted := aeth.MSN.Add(int32(n)); granted.Sub(q.comp.granted) > 0 {
		q.comp.granted = granted
	}
}

// waitsForCredit reports whether the first packet of w must wait because the peer may have no receive for it.
func (q *QP) waitsForCredit(w *sendWQE) bool {
	if q.comp.unlimited || !w.op.takesReceive() || w.number.Sub(q.comp.granted) <= 1 {
		return false
	}
	if !w.waited {
		w.waited = true
		q.count(CreditWaits)
	}
	return true
}

// ackSyndrome is what an ACK of this queue pair grants: the receives that are posted. The receive of a SEND that has
// begun is one of them, because MSN does not count that SEND yet.
func (q *QP) ackSyndrome() roce.Syndrome {
	if !q.cfg.FlowControl {
		return roce.SyndromeUnlimited
	}
	return roce.SyndromeACK(roce.CreditCodeFor(uint32(q.resp.queue.len())))
}
