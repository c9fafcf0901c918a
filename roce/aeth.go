package roce

// AETHBytes is the length of an AETH.
const AETHBytes = 4

// AETH is the ACK extended transport header of every response but READ_RESP_MIDDLE (IBTA vol 1,
// 9.3.5).
type AETH struct {
	Syndrome Syndrome
	MSN      MSN
}

// Decode reads h from the front of b and returns what follows.
func (h *AETH) Decode(b []byte) (rest []byte, err error) {
	if len(b) < AETHBytes {
		return nil, ErrTruncated
	}
	h.Syndrome = Syndrome(b[0])
	h.MSN = MSN(uint24(b[1:]))
	return b[AETHBytes:], nil
}

// Append writes h behind b.
func (h *AETH) Append(b []byte) []byte {
	return appendUint24(append(b, byte(h.Syndrome)), uint32(h.MSN))
}
