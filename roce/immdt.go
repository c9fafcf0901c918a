package roce

import "encoding/binary"

// ImmDtBytes is the length of an ImmDt.
const ImmDtBytes = 4

// ImmDt is the immediate data that a SEND or WRITE delivers with the receiver's completion (IBTA
// vol 1, 9.3.6). It is opaque: programs choose its byte order.
type ImmDt uint32

// Decode reads h from the front of b and returns what follows.
func (h *ImmDt) Decode(b []byte) (rest []byte, err error) {
	if len(b) < ImmDtBytes {
		return nil, ErrTruncated
	}
	*h = ImmDt(binary.BigEndian.Uint32(b))
	return b[ImmDtBytes:], nil
}

// Append writes h behind b.
func (h *ImmDt) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(*h))
}
