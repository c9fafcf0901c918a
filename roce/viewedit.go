package roce

// The setters change single fields of a frame in place. They do not update the ICRC, but the IPv4
// header checksum by difference, so that a header that was damaged on its way here stays invalid.

// SetECN replaces the congestion field of the IP header.
func (v *View) SetECN(head []byte, ecn uint8) {
	if v.IPv6 {
		head[v.L3+1] = head[v.L3+1]&^0x30 | ecn&3<<4
		return
	}
	ip := head[v.L3 : v.L3+ipv4Bytes]
	setIPv4Word(ip, 0, uint16(ip[0])<<8|uint16(ip[1]&^3|ecn&3))
}

// SetPSN replaces the BTH's packet sequence number.
func (v *View) SetPSN(head []byte, p PSN) { putUint24(head[v.BTH+9:], uint32(p)) }
