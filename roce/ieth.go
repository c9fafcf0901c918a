package roce

import "encoding/binary"

// IETHBytes is the length of an IETH.
const IETHBytes = 4

// IETH names the R_Key that a SEND with invalidate makes invalid at the receiver (IBTA vol 1,
// 9.3.7).
type IETH struct {
	RKey uint32
}

// Decode reads h from the front of b and returns what follows.
func (h *IETH) Decode(b []byte) (rest []byte, err error) {
	if len(b) < IETHBytes {
		return nil, ErrTruncated
	}
	h.RKey = binary.BigEndian.Uint32(b)
	return b[IETHBytes:], nil
}

// Append writes h behind b.
func (h *IETH) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, h.RKey)
}
