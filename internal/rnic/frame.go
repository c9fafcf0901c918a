package rnic

import "github.com/rocast/rocast/roce"

var zeroPad [3]byte

// begin starts a frame in buf, up to the BTH. bodyBytes is the length of what follows the BTH,
// without the pad.
func (q *QP) begin(buf []byte, bth *roce.BTH, bodyBytes int) []byte {
	bth.PKey, bth.DestQPN = roce.DefaultPKey, q.peer.QPN
	b := roce.AppendEthernet(buf[:0], q.peer.MAC, q.cfg.MAC, q.ip.EtherType())
	b = q.ip.Append(b, roce.BTHBytes+bodyBytes+int(bth.PadCount))
	q.ip.ID++
	q.counters.FramesOut[bth.Opcode]++
	return bth.Append(b)
}

// seal appends the pad and the ICRC.
func seal(b []byte, pad uint8) []byte {
	b, err := roce.AppendICRC(append(b, zeroPad[:pad]...))
	if err != nil {
		panic("rnic: built a frame that does not decode: " + err.Error())
	}
	return b
}

// requestFrame builds one request packet of w. The requester has chosen its BTH and its payload.
func (q *QP) requestFrame(buf []byte, bth *roce.BTH, w *sendWQE, payload []byte) []byte {
	bth.PadCount = roce.PadFor(len(payload))
	b := q.begin(buf, bth, bth.Opcode.ExtBytes()+len(payload))
	headers := bth.Opcode.Headers()
	if headers.Has(roce.HasRETH) {
		reth := roce.RETH{VA: w.remote.VA, RKey: w.remote.RKey, DMABytes: w.dmaBytes()}
		b = reth.Append(b)
	}
	if headers.Has(roce.HasImmDt) {
		imm := roce.ImmDt(w.imm)
		b = imm.Append(b)
	}
	return seal(append(b, payload...), bth.PadCount)
}

// ackFrame builds an acknowledgement. Its MSN is the present one of the responder, in a NAK too.
func (q *QP) ackFrame(buf []byte, syndrome roce.Syndrome, psn roce.PSN) []byte {
	bth := roce.BTH{Opcode: roce.OpAck, PSN: psn}
	aeth := roce.AETH{Syndrome: syndrome, MSN: q.resp.msn}
	return seal(aeth.Append(q.begin(buf, &bth, roce.AETHBytes)), 0)
}
