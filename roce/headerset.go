package roce

import "math/bits"

// HeaderSet says which extension headers follow the BTH. A header with a lower bit is earlier on
// the wire. No opcode carries two headers in the opposite order, so the set alone gives every
// offset.
type HeaderSet uint16

const (
	HasDETH         HeaderSet = 1 << bitDETH
	HasFETH         HeaderSet = 1 << bitFETH
	HasRETH         HeaderSet = 1 << bitRETH
	HasAtomicETH    HeaderSet = 1 << bitAtomicETH
	HasAETH         HeaderSet = 1 << bitAETH
	HasAtomicAckETH HeaderSet = 1 << bitAtomicAckETH
	HasImmDt        HeaderSet = 1 << bitImmDt
	HasIETH         HeaderSet = 1 << bitIETH
	HasCNP          HeaderSet = 1 << bitCNP // the 16 reserved bytes of a congestion notification packet
)

const (
	bitDETH = iota
	bitFETH
	bitRETH
	bitAtomicETH
	bitAETH
	bitAtomicAckETH
	bitImmDt
	bitIETH
	bitCNP
)

var headerBytes = [...]uint8{
	bitDETH:         DETHBytes,
	bitFETH:         FETHBytes,
	bitRETH:         RETHBytes,
	bitAtomicETH:    AtomicETHBytes,
	bitAETH:         AETHBytes,
	bitAtomicAckETH: AtomicAckETHBytes,
	bitImmDt:        ImmDtBytes,
	bitIETH:         IETHBytes,
	bitCNP:          CNPBytes,
}

// Has reports whether every header of h is in s.
func (s HeaderSet) Has(h HeaderSet) bool { return s&h == h }

// Bytes is the length of all headers in s.
func (s HeaderSet) Bytes() int {
	n := 0
	for ; s != 0; s &= s - 1 {
		n += int(headerBytes[bits.TrailingZeros16(uint16(s))])
	}
	return n
}

// Offset returns where the single header h starts, counted from the end of the BTH. The result is
// meaningful only if s has h.
func (s HeaderSet) Offset(h HeaderSet) int { return (s & (h - 1)).Bytes() }
