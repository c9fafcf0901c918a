package rnic

import (
	"encoding/binary"
	"time"

	"github.com/rocast/rocast/roce"
)

// Receive takes one frame from the wire. A frame that is not for this queue pair, or not as its
// peer sends frames, is counted and changes nothing. If the frame is a request that has to be
// answered, the answer is built in buf and returned; otherwise the result is nil. The queue pair
// keeps neither slice.
func (q *QP) Receive(now time.Duration, frame, buf []byte) (reply []byte) {
	var v roce.View
	if err := v.Decode(frame, len(frame)); err != nil {
		q.count(RejectReason(err))
		return nil
	}
	return q.ReceiveDecoded(now, &v, frame, buf)
}

// ReceiveDecoded is Receive for an owner of several queue pairs that has decoded the frame to
// choose one of them.
func (q *QP) ReceiveDecoded(now time.Duration, v *roce.View, frame, buf []byte) (reply []byte) {
	if why, ok := q.admit(v, frame); !ok {
		q.count(why)
		return nil
	}
	if v.Opcode == roce.OpCNP {
		q.count(CNPsReceived)
		q.reaction.decrease(now)
		return nil
	}
	q.counters.FramesIn[v.Opcode]++
	if v.Opcode.IsRequest() {
		q.notice(now, v, frame)
		return q.receiveRequest(v, frame, buf)
	}
	q.receiveResponse(now, v, frame)
	return nil
}

// RejectReason returns the counter for a frame that roce.View could not decode.
func RejectReason(err error) Counter {
	switch err {
	case roce.ErrTVer:
		return RejectTVer
	case roce.ErrOpcode:
		return RejectOpcode
	}
	return RejectMalformed
}

// admit makes the checks of docs/wire.md#what-a-host-accepts in their order.
func (q *QP) admit(v *roce.View, frame []byte) (why Counter, ok bool) {
	switch {
	case v.Opcode >= rcOpcodes && v.Opcode != roce.OpCNP:
		return RejectOpcode, false
	case roce.MAC(frame) != q.cfg.MAC:
		return RejectDstMAC, false
	case !ipChecksumValid(v, frame):
		return RejectIPChecksum, false
	case v.UDPChecksum(frame) != 0 && !udpChecksumValid(v, frame):
		return RejectUDPChecksum, false
	case v.DstIP(frame) != q.cfg.IP:
		return RejectDstIP, false
	case v.DestQPN(frame) != q.cfg.QPN:
		return RejectQPN, false
	case q.state != StateReady:
		return RejectState, false
	case v.SrcIP(frame) != q.peer.IP:
		return RejectSrcIP, false
	case v.PKey(frame)|fullMember != roce.DefaultPKey:
		return RejectPKey, false
	case !icrcValid(v, frame):
		return RejectICRC, false
	}
	return 0, true
}

// fullMember is the membership bit of a P_Key. rxe compares only the other 15 bits.
const fullMember = 0x8000

func icrcValid(v *roce.View, frame []byte) bool {
	fragments := [1][]byte{frame}
	return v.ICRCValid(fragments[:])
}

func ipChecksumValid(v *roce.View, frame []byte) bool {
	return v.IPv6 || binary.BigEndian.Uint16(frame[v.L3+10:]) == roce.IPv4HeaderChecksum(frame[v.L3:])
}

// udpChecksumValid checks the sum over the pseudo header, the UDP header and the payload (RFC 768;
// RFC 8200, 8.1). RoCEv2 senders leave the checksum 0, so this is rarely called.
func udpChecksumValid(v *roce.View, frame []byte) bool {
	addresses := frame[v.L3+12 : v.UDP]
	if v.IPv6 {
		addresses = frame[v.L3+8 : v.UDP]
	}
	datagram := frame[v.UDP : v.ICRC+4]
	const protocolUDP = 17
	sum := protocolUDP + uint32(len(datagram))
	for _, part := range [2][]byte{addresses, datagram} {
		for len(part) > 1 {
			sum += uint32(binary.BigEndian.Uint16(part))
			part = part[2:]
		}
		if len(part) == 1 {
			sum += uint32(part[0]) << 8
		}
	}
	sum = sum>>16 + sum&0xFFFF
	return (sum+sum>>16)&0xFFFF == 0xFFFF
}
