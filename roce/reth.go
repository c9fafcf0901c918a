package roce

import "encoding/binary"

// RETHBytes is the length of a RETH.
const RETHBytes = 16

// RETH is the RDMA extended transport header of WRITE and READ (IBTA vol 1, 9.3.3).
type RETH struct {
	VA       uint64
	RKey     uint32
	DMABytes uint32 // of the whole message, also on FIRST
}

// Decode reads h from the front of b and returns what follows.
func (h *RETH) Decode(b []byte) (rest []byte, err error) {
	if len(b) < RETHBytes {
		return nil, ErrTruncated
	}
	h.VA = binary.BigEndian.Uint64(b)
	h.RKey = binary.BigEndian.Uint32(b[8:])
	h.DMABytes = binary.BigEndian.Uint32(b[12:])
	return b[RETHBytes:], nil
}

// Append writes h behind b.
func (h *RETH) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.VA)
	b = binary.BigEndian.AppendUint32(b, h.RKey)
	return binary.BigEndian.AppendUint32(b, h.DMABytes)
}
