package rnic

import (
	"errors"
	"time"

	"github.com/rocast/rocast/roce"
)

const (
	// maxUnackedPSNs is how far the next PSN may be ahead of the oldest unacknowledged one when
	// another packet is sent. So at most 129 packets are outstanding (RXE_MAX_UNACKED_PSNS).
	maxUnackedPSNs = 128

	// maxPacketsPerACK packets are sent without a request for an ACK, and one more: inside a long
	// message every 66th packet asks (RXE_MAX_PKT_PER_ACK).
	maxPacketsPerACK = 64

	// maxMessageBytes is the length of the longest message (IBTA vol 1, 9.7.4.1.7).
	maxMessageBytes = 1 << 31
)

// wqeState is the state of a send work request in rxe. When the requester goes back, every one of
// them becomes posted again.
//
//	posted -- first packet --> processing -- last packet --> pending -- acknowledged --> completed
//	   ^                           |                            |
//	   +------------ go back ------+----------------------------+
type wqeState uint8

const (
	posted     wqeState = iota // while the oldest one is posted, responses are ignored
	processing                 // some of its packets are sent
	pending                    // all its packets are sent
)

// Remote is a place in the memory of the peer, as a RETH names it.
type Remote struct {
	VA   uint64
	RKey uint32
}

type sendWQE struct {
	wrID     uint64
	op       Operation
	state    wqeState
	numbered bool     // firstPSN and lastPSN are set, when its first packet is sent
	empty    bool     // it is sent without its data
	waited   bool     // it had to wait for a credit
	number   roce.MSN // of the message, from 1 (SSN in IBTA)
	data     []byte   // nil for READ
	bytes    uint32   // of the message
	imm      uint32
	remote   Remote
	firstPSN roce.PSN
	lastPSN  roce.PSN
}

// requester is the sending half: it chooses the next packet. The names follow qp->req of rxe.
type requester struct {
	queue   ring[sendWQE]
	next    uint     // position of the work request that is being sent
	psn     roce.PSN // of the next packet; it falls when the requester goes back
	nextNew roce.PSN // the first PSN that was never sent
	posted  roce.MSN // messages that were posted
	noACK   int      // packets since the last one that asked for an ACK

	needRetry   bool          // the requester has to go back as soon as no RNR timer runs
	deadline    time.Duration // of the retransmit timer
	rnrDeadline time.Duration // of the RNR timer; meanwhile new packets are sent
}

var (
	// ErrQueueFull says that the queue holds as many work requests as its depth, completed ones
	// that were not polled included.
	ErrQueueFull = errors.New("rnic: queue is full")
	// ErrNotConnected says that requests cannot be posted before Connect.
	ErrNotConnected = errors.New("rnic: queue pair is not connected")
	// ErrMessageTooLong says that a message exceeds 2^31 bytes.
	ErrMessageTooLong = errors.New("rnic: message is longer than 2 GiB")
)

// PostWrite asks for data to be written to the memory of the peer. Each resend reads data again, so
// data must not change before the completion. That is true of every request that carries data.
func (q *QP) PostWrite(wrID uint64, data []byte, to Remote) error {
	return q.post(sendWQE{wrID: wrID, op: Write, data: data, remote: to}, len(data))
}

// PostWriteImm is PostWrite that also takes a receive of the peer, whose completion carries imm.
func (q *QP) PostWriteImm(wrID uint64, data []byte, to Remote, imm uint32) error {
	return q.post(sendWQE{wrID: wrID, op: WriteImm, data: data, remote: to, imm: imm}, len(data))
}

// PostSend asks for data to be put into the next receive of the peer.
func (q *QP) PostSend(wrID uint64, data []byte) error {
	return q.post(sendWQE{wrID: wrID, op: Send, data: data}, len(data))
}

// PostSendImm is PostSend with an immediate value.
func (q *QP) PostSendImm(wrID uint64, data []byte, imm uint32) error {
	return q.post(sendWQE{wrID: wrID, op: SendImm, data: data, imm: imm}, len(data))
}

// PostRead asks for bytes of the memory of the peer. This package answers no READ and takes no
// answer to one: the request exists to be refused.
func (q *QP) PostRead(wrID uint64, bytes int, from Remote) error {
	return q.post(sendWQE{wrID: wrID, op: Read, remote: from}, bytes)
}

// post queues w. In ERR the work request is flushed at once, as verbs do.
func (q *QP) post(w sendWQE, bytes int) error {
	switch {
	case q.state == StateInit:
		return ErrNotConnected
	case bytes > maxMessageBytes:
		return ErrMessageTooLong
	case q.sendUsed == q.cfg.SendDepth:
		return ErrQueueFull
	}
	q.sendUsed++
	q.req.posted = q.req.posted.Add(1)
	w.bytes, w.number = uint32(bytes), q.req.posted
	q.req.queue.push(w)
	if q.state == StateError {
		q.completeSend(WRFlushed)
	}
	return nil
}

// Transmit builds the next request packet in buf and returns it, or nil if none may be sent now.
func (q *QP) Transmit(now time.Duration, buf []byte) []byte {
	r := &q.req
	if q.state != StateReady || r.psn.Sub(q.comp.psn) > maxUnackedPSNs {
		return nil
	}
	w := q.current()
	if w == nil {
		return nil
	}
	packet := uint32(r.psn.Sub(w.firstPSN))
	if packet == 0 && q.waitsForCredit(w) || !q.reaction.mayTransmit(now) {
		return nil
	}
	payload := q.payload(w, packet)
	starts, ends := packet == 0, w.op == Read || r.psn == w.lastPSN
	bth := roce.BTH{Opcode: requestOpcode(w.op, starts, ends), PSN: r.psn, AckReq: r.asksForACK(ends)}
	frame := q.requestFrame(buf, &bth, w, payload)
	q.reaction.transmitted(now, len(frame))
	q.advance(w, ends)
	if r.deadline == Never {
		r.deadline = q.timeoutFrom(now)
	}
	return frame
}

// current returns the work request to which the next packet belongs, and gives it its PSNs if it
// has none.
func (q *QP) current() *sendWQE {
	r := &q.req
	if r.next == r.queue.tail {
		return nil
	}
	w := r.queue.at(r.next)
	if !w.numbered {
		w.numbered, w.firstPSN, w.lastPSN = true, r.psn, r.psn.Add(int32(q.packets(w.bytes))-1)
	}
	if r.psn.After(w.lastPSN) {
		q.insert(w)
	}
	return w
}

// insert lets the oldest message, w, be sent as an empty one of one packet. AsRXE only: w was
// acknowledged to its end when half of it was sent again, and has not completed. rxe goes back
// behind it, finds none of its bytes left, and sends that. So the messages behind w get other PSNs
// than before. When rxe goes back again, it sends all of w.
func (q *QP) insert(w *sendWQE) {
	w.empty, w.firstPSN, w.lastPSN = true, q.req.psn, q.req.psn
	q.renumber(q.req.next + 1)
}

// renumber takes their PSNs from the messages from a position of the queue on.
func (q *QP) renumber(from uint) {
	for pos := from; pos != q.req.queue.tail; pos++ {
		q.req.queue.at(pos).numbered = false
	}
}

// packets returns how many PSNs a message takes; an empty message takes one.
func (q *QP) packets(bytes uint32) uint32 {
	mtu := uint32(q.cfg.MTUBytes)
	return max((bytes+mtu-1)/mtu, 1)
}

// dmaBytes is the length that the RETH says.
func (w *sendWQE) dmaBytes() uint32 {
	if w.empty {
		return 0
	}
	return w.bytes
}

func (q *QP) payload(w *sendWQE, packet uint32) []byte {
	if w.op == Read || w.empty {
		return nil
	}
	rest := w.data[packet*uint32(q.cfg.MTUBytes):]
	return rest[:min(len(rest), q.cfg.MTUBytes)]
}

// asksForACK decides the AckReq bit as init_req_packet of rxe does: the packet that ends a message
// does not count as one without a request.
func (r *requester) asksForACK(ends bool) bool {
	asks := ends || r.noACK > maxPacketsPerACK
	r.noACK++
	if asks {
		r.noACK = 0
	}
	return asks
}

// advance moves past the packet that was just built.
func (q *QP) advance(w *sendWQE, ends bool) {
	r := &q.req
	if r.psn.Before(r.nextNew) {
		q.count(FramesRetransmitted)
	}
	w.state = processing
	r.psn = r.psn.Next()
	if ends {
		w.state = pending
		r.next++
		r.psn = w.lastPSN.Next()
	}
	if r.psn.After(r.nextNew) {
		r.nextNew = r.psn
	}
}

// requestOpcodes are the opcodes of the packets of a message: by operation, by whether the packet
// starts the message, and by whether it ends the message.
var requestOpcodes = [...][2][2]roce.Opcode{
	Write:    {{roce.OpWriteMiddle, roce.OpWriteLast}, {roce.OpWriteFirst, roce.OpWriteOnly}},
	WriteImm: {{roce.OpWriteMiddle, roce.OpWriteLastImm}, {roce.OpWriteFirst, roce.OpWriteOnlyImm}},
	Send:     {{roce.OpSendMiddle, roce.OpSendLast}, {roce.OpSendFirst, roce.OpSendOnly}},
	SendImm:  {{roce.OpSendMiddle, roce.OpSendLastImm}, {roce.OpSendFirst, roce.OpSendOnlyImm}},
	Read:     {{}, {roce.OpReadRequest, roce.OpReadRequest}},
}

func requestOpcode(op Operation, starts, ends bool) roce.Opcode {
	return requestOpcodes[op][index(starts)][index(ends)]
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

// goBack makes every unacknowledged packet wait to be sent again, from the oldest unacknowledged
// PSN on. That PSN may lie inside a message: the message then goes on with MIDDLE or LAST, without
// a RETH.
func (q *QP) goBack() {
	r := &q.req
	r.needRetry = false
	for pos := r.queue.head; pos != r.queue.tail; pos++ {
		w := r.queue.at(pos)
		if w.state == posted {
			break
		}
		w.state = posted
	}
	if r.psn != q.comp.psn {
		q.count(GoBacks)
	}
	r.next, r.psn = r.queue.head, q.comp.psn
	if w := r.queue.front(); r.next != r.queue.tail && w.empty {
		w.empty = false
		q.renumber(r.next)
	}
}
