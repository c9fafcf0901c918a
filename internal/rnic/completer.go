package rnic

import (
	"time"

	"github.com/rocast/rocast/roce"
)

// completer is the half of the requester that takes responses. The names follow qp->comp of rxe;
// docs/wire.md#requester is the table that this file implements.
type completer struct {
	psn          roce.PSN // the oldest unacknowledged PSN
	msn          roce.MSN // completed messages
	retries      uint8
	rnrRetries   uint8
	startedRetry bool // a NAK made the requester go back; until an ACK comes, no other NAK does
	credits
}

// resetRetries is called for an ACK only. A NAK moves the window, and leaves the retry counts and
// the flag.
func (q *QP) resetRetries() {
	q.comp.retries, q.comp.rnrRetries, q.comp.startedRetry = q.cfg.RetryCount, q.cfg.RNRRetry, false
}

func (q *QP) receiveResponse(now time.Duration, v *roce.View, frame []byte) {
	if v.Opcode != roce.OpAck {
		q.count(RejectResponse)
		return
	}
	psn, aeth := v.PSN(frame), v.AETH(frame)
	q.count(receivedCounter(aeth.Syndrome))
	if q.Deaf() {
		q.count(ResponsesWhilePosted)
		return
	}
	acknowledges := psn
	if !aeth.Syndrome.IsACK() {
		acknowledges = psn.Prev()
	}
	switch {
	case psn == q.req.nextNew && (aeth.Syndrome == roce.NAKSequence || aeth.Syndrome.IsRNR()):
		q.count(NAKsOfNext)
		if !q.cfg.AsRXE && !q.cfg.TakesNext {
			return
		}
	case psn.Sub(q.req.nextNew) >= 0:
		q.violate(now, ViolationBeyondSent, psn, aeth.Syndrome)
		if !q.cfg.AsRXE {
			return
		}
	case acknowledges.Sub(q.req.psn) >= 0:
		q.count(ResponsesAheadOfResend)
	}
	q.takeCredits(psn, aeth)
	if q.complete(now, psn, aeth) {
		q.restartTimer(now)
	}
}

// Deaf reports whether the queue pair takes no response: a NAK or a timeout has made it go back,
// and it waits with that for the time of an RNR NAK. rxe lets responses lie meanwhile, and ignores
// them when it has gone back.
func (q *QP) Deaf() bool { return q.req.needRetry }

func receivedCounter(s roce.Syndrome) Counter {
	switch {
	case s.IsACK():
		return ACKsReceived
	case s.IsRNR():
		return RNRNAKsReceived
	case s == roce.NAKSequence:
		return NAKSequenceReceived
	}
	return NAKFatalReceived
}

// complete applies a response to the send queue, oldest message first. It reports whether the
// response restarts the retransmit timer: every response does, even a useless one, except an RNR
// NAK.
func (q *QP) complete(now time.Duration, psn roce.PSN, aeth roce.AETH) (restartsTimer bool) {
	for {
		if q.req.queue.empty() || q.req.queue.front().state == posted {
			q.count(ResponsesWhilePosted)
			return true
		}
		w := q.req.queue.front()
		if !psn.After(w.lastPSN) {
			return q.completeInside(now, w, psn, aeth)
		}
		// The response is about a later message, so this one was delivered, whatever the response
		// says.
		switch {
		case w.state != pending:
			q.count(ResponsesPastHead)
			return true
		case w.op == Read: // its data did not come
			q.retry(w, false)
			return true
		}
		q.resetRetries()
		if !w.lastPSN.Before(q.comp.psn) {
			q.comp.psn = w.lastPSN.Next()
		}
		q.completeSend(Success)
		if q.req.queue.empty() {
			return true
		}
	}
}

// completeInside applies a response that is not beyond w, the oldest message.
func (q *QP) completeInside(now time.Duration, w *sendWQE, psn roce.PSN, aeth roce.AETH) (restartsTimer bool) {
	ahead := psn.Sub(q.comp.psn)
	switch {
	case ahead < 0 && psn == w.lastPSN:
		// AsRXE only: rxe completes the message whatever the syndrome says.
		q.completeSend(Success)
		return true
	case ahead < 0:
		q.count(ResponsesStale)
		return true
	case ahead > 0 && w.op == Read:
		q.count(ResponsesPastHead)
		return true
	case aeth.Syndrome.IsACK():
		q.acknowledge(now, w, psn, aeth)
		return true
	case aeth.Syndrome.IsRNR():
		q.notReady(now, aeth.Syndrome.RNRTimer())
		return false
	case aeth.Syndrome == roce.NAKSequence: // everything before psn was delivered
		q.comp.psn = psn
		q.retry(w, false)
		return true
	}
	q.failWith(fatalStatus(aeth.Syndrome))
	return true
}

// acknowledge takes an ACK of a PSN of w that was not acknowledged before.
func (q *QP) acknowledge(now time.Duration, w *sendWQE, psn roce.PSN, aeth roce.AETH) {
	// Ahead of the resend the ACK is not believed: if the last ACK were lost then, rxe would have
	// nothing left to time out on.
	believed := psn.Before(q.req.psn)
	if w.op == Read {
		q.violate(now, ViolationACKForREAD, psn, aeth.Syndrome)
		believed = false
	}
	if believed || q.cfg.AsRXE {
		q.advanceTo(w, psn, aeth.MSN)
	}
}

func (q *QP) advanceTo(w *sendWQE, psn roce.PSN, msn roce.MSN) {
	q.resetRetries()
	q.comp.psn = psn.Next()
	if w.state == pending && psn == w.lastPSN {
		q.completeSend(Success)
	}
	if msn != q.comp.msn {
		q.count(ACKsWrongMSN)
	}
}

// notReady starts the RNR timer. The window does not move: rxe resends from its own oldest
// unacknowledged PSN, and not from the PSN of the NAK.
func (q *QP) notReady(now time.Duration, wait roce.RNRTimer) {
	if q.comp.rnrRetries == 0 {
		q.failWith(RNRRetryExceeded)
		return
	}
	if q.comp.rnrRetries != retryForever {
		q.comp.rnrRetries--
	}
	q.req.rnrDeadline = now + wait.Duration()
}

// retry is ERROR_RETRY of rxe. It is called for a timeout and for a NAK.
func (q *QP) retry(w *sendWQE, timeout bool) {
	if q.comp.startedRetry && !timeout {
		q.count(NAKsIgnored)
		return
	}
	if q.comp.retries == 0 {
		q.failWith(RetryExceeded)
		return
	}
	if q.comp.retries != retryForever {
		q.comp.retries--
	}
	if !q.req.psn.After(q.comp.psn) {
		return // the resend has not reached this PSN, and will
	}
	q.comp.startedRetry = true
	q.req.needRetry = true
	q.goBackUnlessNotReady()
}

// goBackUnlessNotReady goes back at once, or leaves that to the RNR timer while the RNR timer runs.
func (q *QP) goBackUnlessNotReady() {
	if q.req.rnrDeadline == Never {
		q.goBack()
	}
}

// Tick acts on timers that have run out. An early call does nothing.
func (q *QP) Tick(now time.Duration) {
	q.reaction.release(now)
	if now >= q.req.rnrDeadline {
		q.req.rnrDeadline = Never
		q.goBack()
	}
	if now >= q.req.deadline {
		q.req.deadline = Never
		if w := q.req.queue.front(); !q.req.queue.empty() && w.state != posted && !q.Deaf() {
			q.count(Timeouts)
			q.retry(w, true)
		}
	}
}

// restartTimer restarts the retransmit timer, as every response does while something is outstanding
// and no retry is due. When nothing is outstanding the timer keeps running, as in rxe: a message
// that is posted before it runs out may be resent too early.
func (q *QP) restartTimer(now time.Duration) {
	if q.state == StateReady && !q.req.needRetry && q.req.psn.After(q.comp.psn) {
		q.req.deadline = q.timeoutFrom(now)
	}
}

func (q *QP) timeoutFrom(now time.Duration) time.Duration {
	if timeout := q.cfg.ackTimeout(); timeout != Never {
		return now + timeout
	}
	return Never
}

func fatalStatus(s roce.Syndrome) Status {
	switch {
	case s == roce.NAKInvalidRequest:
		return RemoteInvalidRequest
	case s == roce.NAKRemoteAccess:
		return RemoteAccess
	case s.IsNAK(): // undefined reasons too
		return RemoteOperational
	}
	return FatalError
}

// completeSend completes the oldest send work request.
func (q *QP) completeSend(status Status) {
	r := &q.req
	w := r.queue.front()
	c := Completion{WRID: w.wrID, Op: w.op, Status: status}
	if status == Success {
		c.Bytes = w.bytes
		q.comp.msn = q.comp.msn.Add(1)
		q.count(MessagesSent)
	}
	q.completions.push(c)
	if r.next == r.queue.head { // it completes before it was sent: it is flushed, or AsRXE is set
		r.next++
	}
	w.data = nil
	r.queue.pop()
}

// failWith completes the oldest message with an error and flushes the messages behind it.
func (q *QP) failWith(status Status) {
	q.completeSend(status)
	q.fail()
}
