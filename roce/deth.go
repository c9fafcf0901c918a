package roce

import "encoding/binary"

// DETHBytes is the length of a DETH.
const DETHBytes = 8

// DETH is the datagram extended transport header of UD (IBTA vol 1, 9.3.2).
type DETH struct {
	QKey   uint32
	SrcQPN QPN
}

// Decode reads h from the front of b and returns what follows.
func (h *DETH) Decode(b []byte) (rest []byte, err error) {
	if len(b) < DETHBytes {
		return nil, ErrTruncated
	}
	h.QKey = binary.BigEndian.Uint32(b)
	h.SrcQPN = QPN(uint24(b[5:]))
	return b[DETHBytes:], nil
}

// Append writes h behind b.
func (h *DETH) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, h.QKey)
	return appendUint24(append(b, 0), uint32(h.SrcQPN))
}
