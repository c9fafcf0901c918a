package rnic

import "github.com/rocast/rocast/roce"

// credits is the requester's side of end-to-end flow control (IBTA vol 1, 9.7.7.2). With each ACK
// the peer grants the messages up to the MSN of the AETH plus its credits. A message that takes a
// receive waits until it is granted. One such message may be sent beyond the grant, so that a
// requester that knows of no receive can find out. The rule is that of the kernel's rdmavt
// (rvt_get_credit, rvt_rc_credit_avail).
type credits struct {
	unlimited bool     // no credits are kept, or the peer has sent credit code 0x1F once
	granted   roce.MSN // the last message that the peer has granted; the first message is 1
}

// takeCredits notes what an ACK grants. A grant never shrinks: an older ACK, or one with fewer
// credits, changes nothing.
func (q *QP) takeCredits(psn roce.PSN, aeth roce.AETH) {
	if !aeth.Syndrome.IsACK() || psn.Sub(q.comp.psn) < -1 {
		// A NAK grants nothing. The ACK of the newest acknowledged PSN (-1) may come again with
		// more credits.
		return
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

// waitsForCredit reports whether the first packet of w has to wait, because the peer may have no
// receive for the message.
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

// ackSyndrome returns the syndrome of an ACK, which grants the receives that are posted. The
// receive of a SEND that has begun is one of them, because MSN does not count that SEND yet.
func (q *QP) ackSyndrome() roce.Syndrome {
	if !q.cfg.FlowControl {
		return roce.SyndromeUnlimited
	}
	return roce.SyndromeACK(roce.CreditCodeFor(uint32(q.resp.queue.len())))
}
