package rnic

import "github.com/rocast/rocast/roce"

type recvWQE struct {
	wrID uint64
	buf  []byte
}

// responder is the receiving half. Names follow rxe's qp->resp; docs/wire.md#responder is the table this
// file is written from.
type responder struct {
	queue      ring[recvWQE]
	psn        roce.PSN // expected next
	msn        roce.MSN // messages executed
	sentPSNNAK bool     // this gap was NAKed already
	message    incoming
}

// incoming is the message being received.
type incoming struct {
	opcode   roce.Opcode // of its latest packet
	open     bool        // FIRST came and LAST did not
	remote   Remote      // WRITE: where its next byte goes
	received uint32      // bytes
	left     uint32      // WRITE: bytes still to come
}

// PostRecv gives buf to a coming SEND, or its completion to a WRITE with immediate. In ERR it is flushed at once.
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

// receiveRequest executes a request or says why not.
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
	if why, nak := q.place(v, frame); nak != 0 {
		return q.refuse(buf, psn, why, nak, v.Opcode.ConsumesWQE() || q.sendInProgress())
	}
	q.finishRequest(v, frame)
	if !v.AckReq(frame) {
		return nil
	}
	return q.sendACK(buf, psn)
}

// answerGap NAKs the first packet behind a gap. The rest of the round finds the flag set; only the missing packet
// clears it.
func (q *QP) answerGap(buf []byte) []byte {
	q.count(RequestsOutOfOrder)
	if q.resp.sentPSNNAK {
		return nil
	}
	q.resp.sentPSNNAK = true
	q.count(NAKSequenceSent)
	return q.ackFrame(buf, roce.NAKSequence, q.resp.psn)
}

// answerDuplicate acknowledges the newest executed PSN again, asked or not (IBTA C9-105). A READ or atomic would be
// replayed from what is remembered of it, and nothing is.
func (q *QP) answerDuplicate(v *roce.View, buf []byte) []byte {
	q.count(RequestsDuplicate)
	if !isSendOrWrite(v.Opcode) {
		return nil
	}
	return q.sendACK(buf, q.resp.psn.Prev())
}

func (q *QP) sendACK(buf []byte, psn roce.PSN) []byte {
	q.count(ACKsSent)
	return q.ackFrame(buf, q.ackSyndrome(), psn)
}

// refuse answers with a fatal NAK. A receive the message had taken reports the same, and the queue pair is in error.
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

// checkSequence decides whether a packet of this opcode may come now, and whether it is served at all.
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

// place puts the payload where it belongs, after the checks of key, range and length.
func (q *QP) place(v *roce.View, frame []byte) (why Counter, nak roce.Syndrome) {
	payload := frame[v.Payload:][:v.PayloadBytes]
	if isSend(v.Opcode) {
		return q.placeSend(v, payload)
	}
	return q.placeWrite(v, frame, payload)
}

func (q *QP) placeSend(v *roce.View, payload []byte) (why Counter, nak roce.Syndrome) {
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

// placeWrite checks the whole message against the region when its RETH comes, and what is left of it with every packet:
// the region may go meanwhile.
func (q *QP) placeWrite(v *roce.View, frame, payload []byte) (why Counter, nak roce.Syndrome) {
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

// lengthFits checks what holds for SEND and WRITE: FIRST and MIDDLE carry one path MTU (full), LAST something, and no
// packet more; the pad completes a word.
func (q *QP) lengthFits(v *roce.View, full bool) bool {
	switch {
	case v.PadCount != roce.PadFor(v.PayloadBytes):
		return false
	case v.Opcode.IsFirst() || v.Opcode.IsMiddle():
		return full
	}
	return v.PayloadBytes <= q.cfg.MTUBytes && (v.PayloadBytes > 0 || !v.Opcode.IsLast())
}

// finishRequest counts what was executed and completes the receive of a message that used one.
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

// completeRecv ends the oldest receive.
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
