package roce

import "encoding/binary"

// FETHBytes is the length of an FETH.
const FETHBytes = 4

const (
	fethPlacementMask    = 0x0F
	fethSelectivityMask  = 0x03
	fethSelectivityShift = 4
)

// FETH is the FLUSH extended transport header. A RETH follows it. The bits are those of rxe_hdr.h
// (FETH_PLT_MASK, FETH_SEL_MASK).
type FETH struct {
	Placement   uint8 // 4 bits: 1 global visibility, 2 persistence
	Selectivity uint8 // 2 bits: 0 the range in the RETH, 1 the whole region
}

// Decode reads h from the front of b and returns what follows.
func (h *FETH) Decode(b []byte) (rest []byte, err error) {
	if len(b) < FETHBytes {
		return nil, ErrTruncated
	}
	word := binary.BigEndian.Uint32(b)
	h.Placement = uint8(word & fethPlacementMask)
	h.Selectivity = uint8(word >> fethSelectivityShift & fethSelectivityMask)
	return b[FETHBytes:], nil
}

// Append writes h behind b.
func (h *FETH) Append(b []byte) []byte {
	word := uint32(h.Selectivity&fethSelectivityMask)<<fethSelectivityShift | uint32(h.Placement&fethPlacementMask)
	return binary.BigEndian.AppendUint32(b, word)
}
