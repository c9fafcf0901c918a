package roce

import "encoding/binary"

// AtomicETHBytes is the length of an AtomicETH.
const AtomicETHBytes = 28

// AtomicETH is the request of CMP_SWAP and FETCH_ADD (IBTA vol 1, 9.3.4).
type AtomicETH struct {
	VA      uint64
	RKey    uint32
	SwapAdd uint64 // the new value, or what is added
	Compare uint64 // CMP_SWAP only
}

// Decode reads h from the front of b and returns what follows.
func (h *AtomicETH) Decode(b []byte) (rest []byte, err error) {
	if len(b) < AtomicETHBytes {
		return nil, ErrTruncated
	}
	h.VA = binary.BigEndian.Uint64(b)
	h.RKey = binary.BigEndian.Uint32(b[8:])
	h.SwapAdd = binary.BigEndian.Uint64(b[12:])
	h.Compare = binary.BigEndian.Uint64(b[20:])
	return b[AtomicETHBytes:], nil
}

// Append writes h behind b.
func (h *AtomicETH) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.VA)
	b = binary.BigEndian.AppendUint32(b, h.RKey)
	b = binary.BigEndian.AppendUint64(b, h.SwapAdd)
	return binary.BigEndian.AppendUint64(b, h.Compare)
}
