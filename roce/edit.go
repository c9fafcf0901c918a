package roce

import (
	"encoding/binary"
	"net/netip"
)

// Flow is what all packets of one requester to one destination have in common.
type Flow struct {
	Src, Dst netip.Addr
	DestQPN  QPN
}

// addresses are source and destination as they stand on the wire, one behind the other.
func (f *Flow) addresses() (b [32]byte) {
	if f.Dst.Is4() {
		src, dst := f.Src.As4(), f.Dst.As4()
		copy(b[copy(b[:], src[:]):], dst[:])
		return b
	}
	src, dst := f.Src.As16(), f.Dst.As16()
	copy(b[copy(b[:], src[:]):], dst[:])
	return b
}

// Edit turns a packet of one flow into the copy that one receiver expects. Everything that is the
// same for every packet of the flow is worked out once, by NewEdit: what the IPv4 checksum changes
// by, and what the ICRC changes by. The setters of View do the same field by field for packets of
// any flow; a test holds the two against each other.
//
// An Edit is right only for packets whose addresses and dest QPN are those of the flow it was made
// from.
type Edit struct {
	// Addresses are the source and the destination of the copy as they stand on the wire: 8 bytes
	// of IPv4, 32 of IPv6.
	Addresses [32]byte
	// L2 is the whole Ethernet header of the copy; L2Bytes of it are used.
	L2      [22]byte
	L2Bytes uint8
	IPv6    bool
	DestQPN QPN
	// Checksum is added to the complement of the IPv4 header checksum (RFC 1624). The hop that
	// this box is (the TTL falls by one) is part of it.
	Checksum uint16
	// Priority is the priority of the VLAN tags. In L2 they have priority 0.
	Priority TagPriority
	// CRC is what the change of addresses and dest QPN leaves in the CRC register at the end of the
	// BTH.
	CRC uint32
	// pastRETH is CRC advanced by the 16 bytes of a RETH.
	pastRETH uint32
}

// Target is where one memory region of the source lies at one receiver. The zero value changes
// nothing.
type Target struct {
	DeltaVA uint64 // added to the VA, modulo 2^64
	RKey    uint32 // of the copy
	// CRC is what the change of the R_Key leaves in the CRC register at the end of the RETH.
	CRC uint32
}

// NewEdit makes the edit of packets of flow from that become packets of flow to behind the Ethernet
// header l2. Both flows are IPv4 or both are IPv6.
func NewEdit(from, to Flow, l2 []byte) Edit {
	e := Edit{DestQPN: to.DestQPN & psnMask, IPv6: to.Dst.Is6(), L2Bytes: uint8(len(l2))}
	copy(e.L2[:], l2)
	var change MaskedHeaders
	addresses, at, n := 8, 12, ipv4Bytes
	if e.IPv6 {
		addresses, at, n = 32, 8, ipv6Bytes
	}
	was := from.addresses()
	e.Addresses = to.addresses()
	for i := range addresses {
		change.bytes[at+i] = was[i] ^ e.Addresses[i]
	}
	bth := n + udpBytes
	putUint24(change.bytes[bth+5:], uint32(from.DestQPN^to.DestQPN)&psnMask)
	change.n = bth + BTHBytes
	e.CRC = change.crc(0)
	e.pastRETH = overRETH(e.CRC)
	if !e.IPv6 {
		const oneHop = 0x0100 // the TTL is the high byte of its word
		sum := uint32(^uint16(oneHop))
		for i := 0; i < addresses; i += 2 {
			sum += uint32(^binary.BigEndian.Uint16(was[i:])) + uint32(binary.BigEndian.Uint16(e.Addresses[i:]))
		}
		e.Checksum = fold(sum)
	}
	return e
}

// NewTarget makes the target of a region that starts at fromVA under fromKey at the source and at
// toVA under toKey at the receiver.
func NewTarget(fromVA uint64, fromKey uint32, toVA uint64, toKey uint32) Target {
	var change [8]byte // R_Key and DMA length
	binary.BigEndian.PutUint32(change[:], fromKey^toKey)
	return Target{DeltaVA: toVA - fromVA, RKey: toKey, CRC: crcWord64(binary.LittleEndian.Uint64(change[:]))}
}

// Apply writes the headers of the copy behind the Ethernet header over those in head, and returns
// the copy's ICRC. psn is the copy's. target is nil if the packet has no RETH, or keeps the VA and
// R_Key of its RETH. was is the frame as it was received: another copy may have been written over
// it since.
func (e *Edit) Apply(head []byte, psn PSN, target *Target, was *Original) (icrc uint32) {
	at := int(was.L3)
	var rest *[udpBytes + BTHBytes]byte // what lies behind the IP header, which has no options
	if e.IPv6 {
		ip := (*[ipv6Bytes + udpBytes + BTHBytes]byte)(head[at:])
		ip[1], ip[7] = was.Class, was.HopLimit-1
		copy(ip[8:], e.Addresses[:])
		rest = (*[udpBytes + BTHBytes]byte)(ip[ipv6Bytes:])
		at += len(ip)
	} else {
		ip := (*[ipv4Bytes + udpBytes + BTHBytes]byte)(head[at:])
		ip[1], ip[8] = was.Class, was.HopLimit-1
		binary.BigEndian.PutUint16(ip[ipv4ChecksumOffset:], ^fold(uint32(^was.Checksum)+uint32(e.Checksum)))
		*(*[8]byte)(ip[12:]) = [8]byte(e.Addresses[:])
		rest = (*[udpBytes + BTHBytes]byte)(ip[ipv4Bytes:])
		at += len(ip)
	}
	rest[6], rest[7] = 0, 0
	const others = 0xFF000000_FF000000 // the bits that share these eight bytes with QPN and PSN
	numbers := rest[udpBytes+4:]
	binary.BigEndian.PutUint64(numbers, binary.BigEndian.Uint64(numbers)&others|uint64(e.DestQPN)<<32|uint64(psn&psnMask))
	var crc uint32
	behind, change := int(was.AtICRC)-at, uint32(psn^was.PSN)&psnMask
	if target != nil {
		reth := (*[RETHBytes]byte)(head[at:])
		va := was.VA + target.DeltaVA
		binary.BigEndian.PutUint64(reth[:], va)
		binary.BigEndian.PutUint32(reth[8:], target.RKey)
		crc = e.CRCWith(target) ^ crcPSN(change, RETHBytes) ^ crcVA(va^was.VA)
		behind -= RETHBytes
	} else {
		crc = e.CRC ^ crcPSN(change, 0)
	}
	return was.ICRC ^ advance(crc, behind)
}

// Original is what the copies of one received packet are computed from. They are written into the
// received packet's own buffer, one after the other, so it is kept apart.
type Original struct {
	PSN      PSN
	ICRC     uint32
	VA       uint64 // where there is a RETH, as RKey and DMABytes
	RKey     uint32
	DMABytes uint32
	AtICRC   int32  // where the ICRC stands, from the start of the frame
	Bytes    int32  // of the whole frame
	Checksum uint16 // of the IPv4 header
	HopLimit uint8
	Class    uint8 // the second byte of the IP header, which has the congestion field
	AckReq   bool
	PCP      uint8 // of the outermost VLAN tag
	L3       uint8 // where the IP header starts
}

// Read fills o from the frame that v locates.
func (o *Original) Read(v *View, fragments [][]byte) {
	head := fragments[0]
	o.PSN, o.AckReq, o.ICRC = v.PSN(head), v.AckReq(head), v.StoredICRC(fragments)
	o.L3, o.AtICRC, o.Bytes = uint8(v.L3), int32(v.ICRC), int32(len(head))
	for _, f := range fragments[1:] {
		o.Bytes += int32(len(f))
	}
	o.HopLimit, o.Class, o.Checksum, o.PCP = v.HopLimit(head), head[v.L3+1], 0, v.PCP(head)
	if !v.IPv6 {
		o.Checksum = binary.BigEndian.Uint16(head[v.L3+ipv4ChecksumOffset:])
	}
	o.VA, o.RKey, o.DMABytes = 0, 0, 0
	if v.Opcode.Headers().Has(HasRETH) {
		reth := v.RETH(head)
		o.VA, o.RKey, o.DMABytes = reth.VA, reth.RKey, reth.DMABytes
	}
}

// PutICRC stores icrc in a frame of one fragment, head. View.PutICRC does so for any frame.
func (o *Original) PutICRC(head []byte, icrc uint32) {
	binary.LittleEndian.PutUint32(head[o.AtICRC:], icrc)
}

// WriteAckReq is called after Edit.Apply, which returned icrc, if the copy's AckReq bit may differ
// from the received one. It sets the bit if ask is true, and else restores the received one. It
// returns the copy's ICRC.
func (o *Original) WriteAckReq(v *View, head []byte, ask bool, icrc uint32) uint32 {
	flags := &head[v.BTH+8]
	*flags &^= bthAckReq
	switch {
	case o.AckReq: // Apply has derived the ICRC from that of a packet with the bit
		*flags |= bthAckReq
	case ask:
		*flags |= bthAckReq
		icrc ^= advance(crcTables[3][bthAckReq], v.ICRC-v.Ext) // the PSN's three bytes follow
	}
	return icrc
}

// crcPSN is what a changed PSN leaves in the CRC register so many bytes behind the BTH: 0 to 16.
func crcPSN(xor uint32, behind int) uint32 {
	t := (*[3][256]uint32)(crcTables[behind:])
	return t[2][byte(xor>>16)] ^ t[1][byte(xor>>8)] ^ t[0][byte(xor)]
}

// crcVA is what a changed VA leaves in the CRC register at the end of the RETH, eight bytes behind
// it.
func crcVA(xor uint64) uint32 {
	t := &crcTables
	return t[15][byte(xor>>56)] ^ t[14][byte(xor>>48)] ^ t[13][byte(xor>>40)] ^ t[12][byte(xor>>32)] ^
		t[11][byte(xor>>24)] ^ t[10][byte(xor>>16)] ^ t[9][byte(xor>>8)] ^ t[8][byte(xor)]
}

// CRCWith is what the changes of addresses, dest QPN and the target's R_Key leave together in the
// CRC register at the end of the RETH.
func (e *Edit) CRCWith(t *Target) uint32 { return e.pastRETH ^ t.CRC }

// CRCTables are the tables of CRC-32 IEEE, for code elsewhere that updates an ICRC. [k][b] is the
// register, starting from zero, after byte b and then k zero bytes.
func CRCTables() *[19][256]uint32 { return &crcTables }

// Operator is the linear map of the CRC register that n zero bytes are: the register behind them is
// the XOR of [i][byte i of the register].
func Operator(n int) *[4][256]uint32 {
	var o operator
	o.fill(func(reg uint32) uint32 { return advance(reg, n) })
	return (*[4][256]uint32)(&o)
}
