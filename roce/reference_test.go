package roce

import (
	"encoding/binary"
	"net/netip"
)

// What follows makes a copy field by field, with one setter for each: the reference for Edit, which
// makes a copy at once. MaskHeaders comes before and after a set of edits, and UpdateICRC once.

// SetSrcIP replaces the IP source address. The address must be of the frame's address family.
func (v *View) SetSrcIP(head []byte, a netip.Addr) { v.setIP(head, 8, 12, a) }

// SetDstIP replaces the IP destination address. The address must be of the frame's address family.
func (v *View) SetDstIP(head []byte, a netip.Addr) { v.setIP(head, 24, 16, a) }

func (v *View) setIP(head []byte, off6, off4 int, a netip.Addr) {
	if v.IPv6 {
		a16 := a.As16()
		copy(head[v.L3+off6:], a16[:])
		return
	}
	a4 := a.As4()
	ip := head[v.L3 : v.L3+ipv4Bytes]
	setIPv4Word(ip, off4, binary.BigEndian.Uint16(a4[:]))
	setIPv4Word(ip, off4+2, binary.BigEndian.Uint16(a4[2:]))
}

// SetHopLimit replaces IPv6's hop limit, IPv4's time to live.
func (v *View) SetHopLimit(head []byte, n uint8) {
	if v.IPv6 {
		head[v.L3+v.hopLimitOffset()] = n
		return
	}
	ip := head[v.L3 : v.L3+ipv4Bytes]
	setIPv4Word(ip, v.hopLimitOffset(), uint16(n)<<8|uint16(ip[9]))
}

// ClearUDPChecksum sets the UDP checksum to 0, which means that there is none. A copy with other
// addresses must not keep the received checksum: rxe's UDP socket drops a wrong checksum and
// accepts 0, over IPv6 too. The ICRC does not cover this field.
func (v *View) ClearUDPChecksum(head []byte) { binary.BigEndian.PutUint16(head[v.UDP+6:], 0) }

// SetDestQPN replaces the BTH's destination queue pair.
func (v *View) SetDestQPN(head []byte, q QPN) { putUint24(head[v.BTH+5:], uint32(q)) }

// SetRETHTarget replaces VA and R_Key of a packet whose Opcode has a RETH. The DMA length does not
// change, because no edit changes how much is written.
func (v *View) SetRETHTarget(head []byte, va uint64, rkey uint32) {
	reth := head[v.offset(HasRETH):]
	binary.BigEndian.PutUint64(reth, va)
	binary.BigEndian.PutUint32(reth[8:], rkey)
}

// UpdateICRC returns the ICRC after the headers changed from was to is, in front of payloadBytes
// unchanged bytes of payload and pad. Both headers must be masked by Views of the same layout.
func UpdateICRC(icrc uint32, was, is *MaskedHeaders, payloadBytes int) uint32 {
	if was.n != is.n {
		panic("roce: UpdateICRC of headers of different length")
	}
	return icrc ^ advance(crcDelta(was, is), payloadBytes)
}

// crcDelta runs the CRC register, starting from zero, over the bytewise difference of two headers
// of the same length. Where the headers begin with equal bytes, the register stays zero and costs
// one comparison for each word.
func crcDelta(was, is *MaskedHeaders) (reg uint32) {
	i := 0
	for ; i+8 <= was.n; i += 8 {
		delta := binary.LittleEndian.Uint64(was.bytes[i:]) ^ binary.LittleEndian.Uint64(is.bytes[i:])
		if delta ^= uint64(reg); delta != 0 {
			reg = crcWord64(delta)
		} else {
			reg = 0
		}
	}
	if i < was.n {
		delta := binary.LittleEndian.Uint32(was.bytes[i:]) ^ binary.LittleEndian.Uint32(is.bytes[i:])
		reg = crcWord32(reg ^ delta)
	}
	return reg
}
