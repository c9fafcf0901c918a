package rnic

import "github.com/rocast/rocast/roce"

type recvWQE struct {
	wrID uint64
	buf  []byte
}

// responder is the receiving half. The names follow qp->resp of rxe; docs/wire.md#responder is the
// table that this file implements.
type responder struct {
	queue      ring[recvWQE]
	psn        roce.PSN // that is expected next
	msn        roce.MSN // executed messages
	sentPSNNAK bool     // a NAK was sent for this gap
	message    incoming
}

// incoming is the message that is being received.
type incoming struct {
	opcode   roce.Opcode // of the latest packet
	open     bool        // FIRST has come, and LAST has not
	remote   Remote      // WRITE: where the next byte goes
	received uint32      // bytes
	left     uint32      // WRITE: bytes still to come
}

// PostRecv posts a receive: a SEND will fill buf, or a WRITE with immediate will complete the
// receive. In ERR the receive is flushed at once.
func (q *QP) PostRecv(wrID uint64, buf []byte) error {
	if q.recvUsed == q.cfg.RecvDepth {
		return ErrQueueFull
	}
	q.recvUsed++
	q.resp.queue.push(recvWQE{wrID: wrID, buf: buf})
	if q.state == StateError {
		q.completeRecv(Completion{Status: WRFlushed, Op: Recv})
	}
	return nil
}

// receiveRequest executes a request or answers why it does not.
func (q *QP) receiveRequest(v *roce.View, frame, buf []byte) (reply []byte) {
	r := &q.resp
	psn := v.PSN(frame)
	switch ahead := psn.Sub(r.psn); {
	case ahead > 0:
		return q.answerGap(buf)
	case ahead < 0:
		return q.answerDuplicate(v, buf)
	}
	r.sentPSNNAK = false
	if why, nak := q.checkSequence(v.Opcode); nak != 0 {
		return q.refuse(buf, psn, why, nak, q.sendInProgress())
	}
	if v.Opcode.ConsumesWQE() && r.queue.empty() {
		q.count(RequestsNotReady)
		q.count(RNRNAKsSent)
		return q.ackFrame(buf, roce.SyndromeRNR(q.cfg.MinRNRTimer), psn)
	}
	if why, nak := q.store(v, frame); nak != 0 {
		return q.refuse(buf, psn, why, nak, v.Opcode.ConsumesWQE() || q.sendInProgress())
	}
	q.finishRequest(v, frame)
	if !v.AckReq(frame) {
		return nil
	}
	return q.sendACK(buf, psn)
}

// answerGap answers the first packet behind a gap with a NAK. For the other packets of the round
// the flag is set; only the missing packet clears it.
func (q *QP) answerGap(buf []byte) []byte {
	q.count(RequestsOutOfOrder)
	if q.resp.sentPSNNAK {
		return nil
	}
	q.resp.sentPSNNAK = true
	q.count(NAKSequenceSent)
	return q.ackFrame(buf, roce.NAKSequence, q.resp.psn)
}

// answerDuplicate acknowledges the newest executed PSN again, whether the request asks for an ACK
// or not (IBTA C9-105). A READ or an atomic would be answered from what the responder remembers,
// and this one remembers nothing.
func (q *QP) answerDuplicate(v *roce.View, buf []byte) []byte {
	q.count(RequestsDuplicate)
	if !isSendOrWrite(v.Opcode) {
		return nil
	}
	return q.sendACK(buf, q.resp.psn.Prev())
}

// Waits reports whether the queue pair has sent the NAK for the packet that it expects. It sends no
// other before that packet comes.
func (q *QP) Waits() bool { return q.resp.sentPSNNAK }

func (q *QP) sendACK(buf []byte, psn roce.PSN) []byte {
	q.count(ACKsSent)
	return q.ackFrame(buf, q.ackSyndrome(), psn)
}

// refuse answers with a fatal NAK. The queue pair goes to error, and a receive that the message had
// taken completes with the same error.
func (q *QP) refuse(buf []byte, psn roce.PSN, why Counter, nak roce.Syndrome, recvTaken bool) []byte {
	q.count(why)
	status, sent := RemoteInvalidRequest, NAKInvalidRequestSent
	if nak == roce.NAKRemoteAccess {
		status, sent = RemoteAccess, NAKRemoteAccessSent
	}
	q.count(sent)
	reply := q.ackFrame(buf, nak, psn)
	if recvTaken {
		q.completeRecv(Completion{Status: status, Op: Recv})
	}
	q.fail()
	return reply
}

// sendInProgress reports whether the oldest receive belongs to a SEND whose LAST has not come.
func (q *QP) sendInProgress() bool { return q.resp.message.open && isSend(q.resp.message.opcode) }

// checkSequence checks whether a packet of this opcode may come now, and whether the opcode is
// supported.
func (q *QP) checkSequence(op roce.Opcode) (why Counter, nak roce.Syndrome) {
	m := &q.resp.message
	continues := op.IsMiddle() || op.IsLast()
	if continues != m.open || m.open && isSend(op) != isSend(m.opcode) {
		return RequestsBadSequence, roce.NAKInvalidRequest
	}
	if !isSendOrWrite(op) {
		return RequestsRefused, roce.NAKInvalidRequest
	}
	return 0, 0
}

// store checks key, range and length, and puts the payload where it belongs.
func (q *QP) store(v *roce.View, frame []byte) (why Counter, nak roce.Syndrome) {
	payload := frame[v.Payload:][:v.PayloadBytes]
	if isSend(v.Opcode) {
		return q.storeSend(v, payload)
	}
	return q.storeWrite(v, frame, payload)
}

func (q *QP) storeSend(v *roce.View, payload []byte) (why Counter, nak roce.Syndrome) {
	m := &q.resp.message
	if !m.open {
		*m = incoming{}
	}
	to := q.resp.queue.front().buf
	if !q.lengthFits(v, len(payload) == q.cfg.MTUBytes) || len(payload) > len(to)-int(m.received) {
		return RequestsBadLength, roce.NAKInvalidRequest
	}
	copy(to[m.received:], payload)
	return 0, 0
}

// storeWrite checks the whole message against the region when the RETH comes, and the rest of the
// message with every packet, because the region may be deregistered meanwhile.
func (q *QP) storeWrite(v *roce.View, frame, payload []byte) (why Counter, nak roce.Syndrome) {
	m := &q.resp.message
	if v.Opcode.Headers().Has(roce.HasRETH) {
		reth := v.RETH(frame)
		*m = incoming{remote: Remote{VA: reth.VA, RKey: reth.RKey}, left: reth.DMABytes}
	}
	var to []byte
	if m.left != 0 { // an empty WRITE names no memory
		var ok bool
		if to, why, ok = q.mem.writable(m.remote.VA, m.remote.RKey, uint64(m.left)); !ok {
			return why, roce.NAKRemoteAccess
		}
	}
	ends := !v.Opcode.IsFirst() && !v.Opcode.IsMiddle()
	full := m.left > uint32(q.cfg.MTUBytes) && len(payload) == q.cfg.MTUBytes
	if !q.lengthFits(v, full) || ends && len(payload) != int(m.left) {
		return RequestsBadLength, roce.NAKInvalidRequest
	}
	copy(to, payload)
	m.remote.VA += uint64(len(payload))
	m.left -= uint32(len(payload))
	return 0, 0
}

// lengthFits checks what holds for SEND and WRITE: FIRST and MIDDLE carry exactly one path MTU
// (full), LAST at least one byte, no packet more than one path MTU, and the pad completes a word.
func (q *QP) lengthFits(v *roce.View, full bool) bool {
	switch {
	case v.PadCount != roce.PadFor(v.PayloadBytes):
		return false
	case v.Opcode.IsFirst() || v.Opcode.IsMiddle():
		return full
	}
	return v.PayloadBytes <= q.cfg.MTUBytes && (v.PayloadBytes > 0 || !v.Opcode.IsLast())
}

// finishRequest counts an executed request, and completes the receive of a message that took one.
func (q *QP) finishRequest(v *roce.View, frame []byte) {
	r := &q.resp
	m := &r.message
	m.received += uint32(v.PayloadBytes)
	m.opcode = v.Opcode
	m.open = v.Opcode.IsFirst() || v.Opcode.IsMiddle()
	r.psn = r.psn.Next()
	q.count(RequestsExecuted)
	q.counters.Count[PayloadBytesReceived] += uint64(v.PayloadBytes)
	if m.open {
		return
	}
	r.msn = r.msn.Add(1)
	q.count(MessagesReceived)
	hasImm := v.Opcode.Headers().Has(roce.HasImmDt)
	if !isSend(v.Opcode) && !hasImm {
		return
	}
	c := Completion{Op: Recv, Bytes: m.received, HasImm: hasImm}
	if !isSend(v.Opcode) {
		c.Op = RecvWriteImm
	}
	if hasImm {
		c.Imm = immediate(v, frame)
	}
	q.completeRecv(c)
}

// completeRecv completes the oldest receive.
func (q *QP) completeRecv(c Completion) {
	w := q.resp.queue.front()
	c.WRID = w.wrID
	w.buf = nil
	q.resp.queue.pop()
	q.completions.push(c)
}

func immediate(v *roce.View, frame []byte) uint32 {
	var imm roce.ImmDt
	_, _ = imm.Decode(frame[v.Ext+v.Opcode.Headers().Offset(roce.HasImmDt):])
	return uint32(imm)
}

func isSend(op roce.Opcode) bool { return op <= roce.OpSendOnlyImm }

func isSendOrWrite(op roce.Opcode) bool { return op <= roce.OpWriteOnlyImm }
