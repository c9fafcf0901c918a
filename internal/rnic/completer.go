package rnic

import (
	"time"

	"github.com/rocast/rocast/roce"
)

// completer is the half that takes responses. Names follow rxe's qp->comp; docs/wire.md#requester is the
// table this file is written from.
type completer struct {
	psn          roce.PSN // the oldest unacknowledged one
	msn          roce.MSN // messages completed
	retries      uint8
	rnrRetries   uint8
	startedRetry bool // a NAK made it go back: no further NAK does, until an ACK
	credits
}

// resetRetries is what only an ACK does. A NAK moves the window, and leaves the counts and the flag.
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
	switch {
	case psn.Sub(q.req.nextNew) >= 0:
		q.violate(now, ViolationBeyondSent, psn, aeth.Syndrome)
		if !q.cfg.AsRXE {
			return
		}
	case psn.Sub(q.req.psn) >= 0:
		q.count(ResponsesAheadOfResend)
	}
	q.takeCredits(psn, aeth)
	if q.complete(now, psn, aeth) {
		q.restartTimer(now)
	}
}

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

// complete lets a response act on the send queue, oldest message first. It reports whether the response pushes the
// retransmit timer out: all do, even useless ones, except an RNR NAK.
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
		// The response, whatever it says, is about a later message: this one was delivered.
		switch {
		case w.state != pending:
			q.count(ResponsesPastHead)
			return true
		case w.op == Read: // its data never came
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

// completeInside is for a response not beyond w, the oldest message.
func (q *QP) completeInside(now time.Duration, w *sendWQE, psn roce.PSN, aeth roce.AETH) (restartsTimer bool) {
	ahead := psn.Sub(q.comp.psn)
	switch {
	case ahead < 0 && psn == w.lastPSN: // AsRXE only: rxe completes it whatever the syndrome says
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
	case aeth.Syndrome == roce.NAKSequence: // all before psn was delivered
		q.comp.psn = psn
		q.retry(w, false)
		return true
	}
	q.failWith(fatalStatus(aeth.Syndrome))
	return true
}

// acknowledge takes an ACK of a PSN of w, not acknowledged before.
func (q *QP) acknowledge(now time.Duration, w *sendWQE, psn roce.PSN, aeth roce.AETH) {
	believed := psn.Before(q.req.psn) // ahead of the resend, rxe is left with nothing to time out on if the last ACK is lost
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

// notReady starts the RNR timer. Nothing moves in the window: rxe resends from its own mark, not from the NAK's PSN.
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

// retry is rxe's ERROR_RETRY, on a timeout and on a NAK.
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
		return // the resend has not come this far: it will
	}
	q.comp.startedRetry = true
	q.req.needRetry = true
	q.goBackUnlessNotReady()
}

// goBackUnlessNotReady leaves a retry to the RNR timer while that one runs.
func (q *QP) goBackUnlessNotReady() {
	if q.req.rnrDeadline == Never {
		q.goBack()
	}
}

// Tick acts on timers that have run out. Calling it early does nothing.
func (q *QP) Tick(now time.Duration) {
	if now >= q.req.rnrDeadline {
		q.req.rnrDeadline = Never
		q.goBack()
	}
	if now >= q.req.deadline {
		q.req.deadline = Never
		if w := q.req.queue.front(); !q.req.queue.empty() && w.state != posted {
			q.count(Timeouts)
			q.retry(w, true)
		}
	}
}

// restartTimer pushes the retransmit timer out, as every response does while something is outstanding and no retry is
// due. When nothing is, the timer keeps running, as rxe's: a message posted before it runs out may be resent too
// early.
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
	case s.IsNAK(): // also reasons nobody has defined
		return RemoteOperational
	}
	return FatalError
}

// completeSend ends the oldest send work request.
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
	if r.next == r.queue.head { // completed before it was sent: flushed, or AsRXE
		r.next++
	}
	w.data = nil
	r.queue.pop()
}

// failWith blames the oldest message, and flushes what is behind it.
func (q *QP) failWith(status Status) {
	q.completeSend(status)
	q.fail()
}
