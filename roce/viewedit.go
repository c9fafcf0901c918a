package roce

import (
	"encoding/binary"
	"net/netip"
)

// The setters change single fields of a frame in place. They do not update the ICRC: call
// MaskHeaders before and after a set of edits, and UpdateICRC once. They update the IPv4 header
// checksum by difference, so that a header that was damaged on its way here stays invalid.

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

// SetECN replaces the congestion field of the IP header.
func (v *View) SetECN(head []byte, ecn uint8) {
	if v.IPv6 {
		head[v.L3+1] = head[v.L3+1]&^0x30 | ecn&3<<4
		return
	}
	ip := head[v.L3 : v.L3+ipv4Bytes]
	setIPv4Word(ip, 0, uint16(ip[0])<<8|uint16(ip[1]&^3|ecn&3))
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

// SetPSN replaces the BTH's packet sequence number.
func (v *View) SetPSN(head []byte, p PSN) { putUint24(head[v.BTH+9:], uint32(p)) }

// SetRETHTarget replaces VA and R_Key of a packet whose Opcode has a RETH. The DMA length does not
// change, because no edit changes how much is written.
func (v *View) SetRETHTarget(head []byte, va uint64, rkey uint32) {
	reth := head[v.offset(HasRETH):]
	binary.BigEndian.PutUint64(reth, va)
	binary.BigEndian.PutUint32(reth[8:], rkey)
}
