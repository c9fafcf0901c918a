package roce

import "encoding/binary"

// DefaultPKey is the P_Key of the default partition, of which every Ethernet port is a full member.
const DefaultPKey uint16 = 0xFFFF

// BTHBytes is the length of a BTH.
const BTHBytes = 12

const (
	bthSolicited = 0x80 // byte 1
	bthMigReq    = 0x40
	bthPadShift  = 4
	bthFECN      = 0x80 // byte 4
	bthBECN      = 0x40
	bthAckReq    = 0x80 // byte 8
)

// BTH is the base transport header (IBTA vol 1, 9.2). Decode ignores reserved bits and Append
// writes them as zero. To edit a header without losing them, use [View].
//
//	0 opcode | SE M pad(2) tver(4) | P_Key(16)
//	4 FECN BECN resv(6)            | dest QPN(24)
//	8 A resv(7)                    | PSN(24)
type BTH struct {
	Opcode    Opcode
	Solicited bool  // SE: raise an event at the receiver when the message completes
	MigReq    bool  // ConnectX sends 1, rxe sends 0
	PadCount  uint8 // bytes behind the payload, 0 to 3
	TVer      uint8 // 4 bits, always 0 so far
	PKey      uint16
	FECN      bool
	BECN      bool
	DestQPN   QPN
	AckReq    bool
	PSN       PSN
}

// Decode reads h from the front of b and returns what follows.
func (h *BTH) Decode(b []byte) (rest []byte, err error) {
	if len(b) < BTHBytes {
		return nil, ErrTruncated
	}
	*h = BTH{
		Opcode:    Opcode(b[0]),
		Solicited: b[1]&bthSolicited != 0,
		MigReq:    b[1]&bthMigReq != 0,
		PadCount:  b[1] >> bthPadShift & 3,
		TVer:      b[1] & 0x0F,
		PKey:      binary.BigEndian.Uint16(b[2:]),
		FECN:      b[4]&bthFECN != 0,
		BECN:      b[4]&bthBECN != 0,
		DestQPN:   QPN(uint24(b[5:])),
		AckReq:    b[8]&bthAckReq != 0,
		PSN:       PSN(uint24(b[9:])),
	}
	return b[BTHBytes:], nil
}

// Append writes h behind b.
func (h *BTH) Append(b []byte) []byte {
	flags := h.PadCount&3<<bthPadShift | h.TVer&0x0F | bit(h.Solicited, bthSolicited) | bit(h.MigReq, bthMigReq)
	b = append(b, byte(h.Opcode), flags)
	b = binary.BigEndian.AppendUint16(b, h.PKey)
	b = append(b, bit(h.FECN, bthFECN)|bit(h.BECN, bthBECN))
	b = appendUint24(b, uint32(h.DestQPN))
	b = append(b, bit(h.AckReq, bthAckReq))
	return appendUint24(b, uint32(h.PSN))
}

// PadFor returns the number of pad bytes behind a payload: payload and pad together are a multiple
// of 4 bytes.
func PadFor(payloadBytes int) uint8 { return uint8(-payloadBytes & 3) }
