package roce

import "encoding/binary"

// UDPPort is the destination port that makes a UDP datagram RoCEv2 (IBTA annex A17).
const UDPPort = 4791

const (
	etherBytes = 14
	vlanBytes  = 4
	ipv4Bytes  = 20
	ipv6Bytes  = 40
	udpBytes   = 8
	icrcBytes  = 4

	// maxVLANs is a service tag and a customer tag. A frame with a third tag is refused with
	// ErrNotIP.
	maxVLANs = 2

	etherTypeIPv4  = 0x0800
	etherTypeIPv6  = 0x86DD
	etherTypeVLAN  = 0x8100
	etherTypeQinQ  = 0x88A8
	protocolUDP    = 17
	ipv4FragMask   = 0x3FFF // more-fragments and offset, not DF
	ipv6HopByHop   = 0
	ipv6Routing    = 43
	ipv6Fragment   = 44
	ipv6DestOption = 60
)

// View locates the headers of one RoCEv2 frame. It holds offsets only and no reference to the
// frame: the accessors take the bytes each time, so one View serves the received frame, the edited
// frame and every copy.
//
//	0        L3    UDP   BTH    Ext        Payload                         ICRC
//	| Ethernet | IP  | UDP | BTH  | RETH ... | PayloadBytes | PadCount bytes | 4 bytes | Ethernet padding
//	           <-------- what MaskHeaders copies --------->
//
// In Decode and in every accessor, head is the frame from its first byte to at least Payload: the
// whole frame, or the first of its fragments. Offsets are counted from the start of the frame.
type View struct {
	L3           int // IPv4 or IPv6 header
	UDP          int
	BTH          int
	Ext          int // extension headers, Opcode.ExtBytes of them
	Payload      int // also the end of all headers
	PayloadBytes int // without pad
	ICRC         int // from the UDP length: Ethernet padding and trailing bytes lie behind it

	Opcode   Opcode
	PadCount uint8
	VLANs    uint8
	IPv6     bool
}

// Decode finds the headers in head. frameBytes is the length of the whole frame. Decode accepts
// what rxe accepts (docs/wire.md#frames): the UDP length decides, trailing bytes are allowed,
// checksums and ICRC are not checked.
//
// After ErrTVer and ErrOpcode the fields up to Ext, and Opcode, are valid, so that a refused packet
// can be attributed to its queue pair. After any other error no field is valid.
func (v *View) Decode(head []byte, frameBytes int) error {
	etherType, err := v.decodeEthernet(head)
	if err != nil {
		return err
	}
	var ipEnd int
	switch etherType {
	case etherTypeIPv4:
		ipEnd, err = v.decodeIPv4(head)
	case etherTypeIPv6:
		ipEnd, err = v.decodeIPv6(head)
	default:
		return ErrNotIP
	}
	if err != nil {
		return err
	}
	return v.decodeTransport(head, ipEnd, frameBytes)
}

// DecodeLike is Decode for a frame of the same length as another one, if both have untagged IPv4
// headers that say the same up to the PSN: Ethernet addresses, IP identification, checksums and
// AckReq may differ. like is the other one's View, and likeHead its head, which has the same length
// as head. For all other frames the result is false.
func (v *View) DecodeLike(like *View, likeHead, head []byte) bool {
	const start, words = etherBytes - 2, 5 // from the EtherType to the first byte of the PSN
	if like.L3 != etherBytes || like.IPv6 || len(head) != len(likeHead) || len(head) < start+8*words {
		return false
	}
	a, b := (*[8 * words]byte)(head[start:]), (*[8 * words]byte)(likeHead[start:])
	differs := func(word int, ignored uint64) uint64 {
		return (binary.BigEndian.Uint64(a[8*word:]) ^ binary.BigEndian.Uint64(b[8*word:])) &^ ignored
	}
	if differs(0, 0xFFFF)| // EtherType, version, class, length, *identification*
		differs(1, 0xFFFF<<16)| // fragment, TTL, protocol, *checksum*, source
		differs(2, 0)| // source, destination, source port
		differs(3, 0xFFFF<<16)| // destination port, length, *checksum*, opcode, flags
		differs(4, 0xFFFF) != 0 { // P_Key, congestion bits, QPN, *AckReq, PSN*
		return false
	}
	*v = *like
	return true
}

// decodeEthernet sets VLANs and L3 and returns the EtherType behind the tags.
func (v *View) decodeEthernet(b []byte) (etherType uint16, err error) {
	v.VLANs, v.L3 = 0, etherBytes
	for {
		if len(b) < v.L3 {
			return 0, ErrTruncated
		}
		etherType = binary.BigEndian.Uint16(b[v.L3-2:])
		if etherType != etherTypeVLAN && etherType != etherTypeQinQ || v.VLANs == maxVLANs {
			return etherType, nil
		}
		v.VLANs++
		v.L3 += vlanBytes
	}
}

// decodeIPv4 sets IPv6 and UDP and returns where the IP packet ends.
func (v *View) decodeIPv4(b []byte) (end int, err error) {
	if len(b) < v.L3+ipv4Bytes {
		return 0, ErrTruncated
	}
	ip := b[v.L3 : v.L3+ipv4Bytes]
	switch {
	case ip[0]>>4 != 4:
		return 0, ErrNotIP
	case binary.BigEndian.Uint16(ip[6:])&ipv4FragMask != 0:
		return 0, ErrFragment
	case ip[0] != 0x45:
		return 0, ErrIPOptions
	case ip[9] != protocolUDP:
		return 0, ErrNotUDP
	}
	v.IPv6, v.UDP = false, v.L3+ipv4Bytes
	return v.L3 + int(binary.BigEndian.Uint16(ip[2:])), nil
}

// decodeIPv6 sets IPv6 and UDP and returns where the IP packet ends.
func (v *View) decodeIPv6(b []byte) (end int, err error) {
	if len(b) < v.L3+ipv6Bytes {
		return 0, ErrTruncated
	}
	ip := b[v.L3 : v.L3+ipv6Bytes]
	if ip[0]>>4 != 6 {
		return 0, ErrNotIP
	}
	switch ip[6] {
	case protocolUDP:
	case ipv6Fragment:
		return 0, ErrFragment
	case ipv6HopByHop, ipv6Routing, ipv6DestOption:
		return 0, ErrIPOptions
	default:
		return 0, ErrNotUDP
	}
	v.IPv6, v.UDP = true, v.L3+ipv6Bytes
	return v.UDP + int(binary.BigEndian.Uint16(ip[4:])), nil
}

// decodeTransport sets what lies behind the IP header.
func (v *View) decodeTransport(b []byte, ipEnd, frameBytes int) error {
	if len(b) < v.UDP+udpBytes {
		return ErrTruncated
	}
	udp := b[v.UDP : v.UDP+udpBytes]
	if binary.BigEndian.Uint16(udp[2:]) != UDPPort {
		return ErrNotRoCE
	}
	v.BTH = v.UDP + udpBytes
	v.Ext = v.BTH + BTHBytes
	udpEnd := v.UDP + int(binary.BigEndian.Uint16(udp[4:]))
	switch {
	case udpEnd > ipEnd || udpEnd < v.Ext+icrcBytes:
		return ErrLength
	case ipEnd > frameBytes || len(b) < v.Ext:
		return ErrTruncated
	}
	bth := b[v.BTH : v.BTH+BTHBytes]
	v.Opcode = Opcode(bth[0])
	switch {
	case bth[1]&0x0F != 0:
		return ErrTVer
	case !v.Opcode.Known():
		return ErrOpcode
	}
	v.PadCount = bth[1] >> bthPadShift & 3
	v.Payload = v.Ext + v.Opcode.ExtBytes()
	v.ICRC = udpEnd - icrcBytes
	v.PayloadBytes = v.ICRC - v.Payload - int(v.PadCount)
	switch {
	case v.PayloadBytes < 0:
		return ErrLength
	case v.Payload > len(b):
		return ErrTruncated
	}
	return nil
}
