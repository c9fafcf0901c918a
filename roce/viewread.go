package roce

import (
	"encoding/binary"
	"net/netip"
)

// SrcIP is the IP source address.
func (v *View) SrcIP(head []byte) netip.Addr {
	if v.IPv6 {
		return netip.AddrFrom16([16]byte(head[v.L3+8:]))
	}
	return netip.AddrFrom4([4]byte(head[v.L3+12:]))
}

// DstIP is the IP destination address.
func (v *View) DstIP(head []byte) netip.Addr {
	if v.IPv6 {
		return netip.AddrFrom16([16]byte(head[v.L3+24:]))
	}
	return netip.AddrFrom4([4]byte(head[v.L3+16:]))
}

// ECN is the congestion field of the IP header: 0 not capable, 1 and 2 capable, 3 congestion
// experienced.
func (v *View) ECN(head []byte) uint8 { return v.TrafficClass(head) & 3 }

// TrafficClass is DSCP and ECN: IPv4's type of service, IPv6's traffic class.
func (v *View) TrafficClass(head []byte) uint8 {
	if v.IPv6 {
		return head[v.L3]<<4 | head[v.L3+1]>>4
	}
	return head[v.L3+1]
}

// HopLimit is IPv6's hop limit, IPv4's time to live.
func (v *View) HopLimit(head []byte) uint8 { return head[v.L3+v.hopLimitOffset()] }

func (v *View) hopLimitOffset() int {
	if v.IPv6 {
		return 7
	}
	return 8
}

// UDPSrcPort is the UDP source port. It is fixed for each queue pair and spreads traffic over ECMP
// paths.
func (v *View) UDPSrcPort(head []byte) uint16 { return binary.BigEndian.Uint16(head[v.UDP:]) }

// UDPChecksum is the UDP checksum, 0 if the sender computed none.
func (v *View) UDPChecksum(head []byte) uint16 { return binary.BigEndian.Uint16(head[v.UDP+6:]) }

// MigReq is the BTH's migration request bit.
func (v *View) MigReq(head []byte) bool { return head[v.BTH+1]&bthMigReq != 0 }

// PKey is the BTH's partition key.
func (v *View) PKey(head []byte) uint16 { return binary.BigEndian.Uint16(head[v.BTH+2:]) }

// DestQPN is the BTH's destination queue pair.
func (v *View) DestQPN(head []byte) QPN { return QPN(uint24(head[v.BTH+5:])) }

// AckReq is the BTH's acknowledge request bit.
func (v *View) AckReq(head []byte) bool { return head[v.BTH+8]&bthAckReq != 0 }

// PSN is the BTH's packet sequence number.
func (v *View) PSN(head []byte) PSN { return PSN(uint24(head[v.BTH+9:])) }

// RETH returns the RETH of a packet whose Opcode has one.
func (v *View) RETH(head []byte) (h RETH) {
	_, _ = h.Decode(head[v.offset(HasRETH):])
	return h
}

// AETH returns the AETH of a packet whose Opcode has one.
func (v *View) AETH(head []byte) (h AETH) {
	_, _ = h.Decode(head[v.offset(HasAETH):])
	return h
}

// offset returns where extension header h starts in the frame.
func (v *View) offset(h HeaderSet) int { return v.Ext + v.Opcode.Headers().Offset(h) }
