package roce

// CNPBytes is the length of the bytes behind the BTH of a congestion notification packet.
const CNPBytes = 16

// CNP is the body of a congestion notification packet (IBTA annex A17, 17.9.3): 16 reserved bytes,
// sent as zero. The information is in the BTH: the opcode, BECN, and the QP whose data met
// congestion.
type CNP struct {
	Reserved [CNPBytes]byte
}

// Decode reads h from the front of b and returns what follows.
func (h *CNP) Decode(b []byte) (rest []byte, err error) {
	if len(b) < CNPBytes {
		return nil, ErrTruncated
	}
	h.Reserved = [CNPBytes]byte(b)
	return b[CNPBytes:], nil
}

// Append writes h behind b.
func (h *CNP) Append(b []byte) []byte { return append(b, h.Reserved[:]...) }

// CNPHeader is the BTH of a congestion notification to the sender that owns dest.
func CNPHeader(dest QPN) BTH {
	return BTH{Opcode: OpCNP, PKey: DefaultPKey, BECN: true, DestQPN: dest}
}
