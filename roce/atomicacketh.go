package roce

import "encoding/binary"

// AtomicAckETHBytes is the length of an AtomicAckETH.
const AtomicAckETHBytes = 8

// AtomicAckETH answers CMP_SWAP and FETCH_ADD with the value that was there before (IBTA vol 1,
// 9.5.3).
type AtomicAckETH struct {
	Original uint64
}

// Decode reads h from the front of b and returns what follows.
func (h *AtomicAckETH) Decode(b []byte) (rest []byte, err error) {
	if len(b) < AtomicAckETHBytes {
		return nil, ErrTruncated
	}
	h.Original = binary.BigEndian.Uint64(b)
	return b[AtomicAckETHBytes:], nil
}

// Append writes h behind b.
func (h *AtomicAckETH) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint64(b, h.Original)
}
