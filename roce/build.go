package roce

import (
	"encoding/binary"
	"net/netip"
)

// Functions that build new frames: merged ACKs, CNPs, endpoints, tests. They append, like the
// Append methods of the headers, from the outermost header inwards; AppendICRC completes the frame.
//
//	b = roce.AppendEthernet(b, dst, src, ip.EtherType())
//	b = ip.Append(b, roce.BTHBytes+roce.AETHBytes)
//	b = bth.Append(b)
//	b = aeth.Append(b)
//	b, err = roce.AppendICRC(b)

// MAC is an Ethernet address.
type MAC = [6]byte

// AppendEthernet appends an untagged Ethernet header.
func AppendEthernet(b []byte, dst, src MAC, etherType uint16) []byte {
	b = append(b, dst[:]...)
	b = append(b, src[:]...)
	return binary.BigEndian.AppendUint16(b, etherType)
}

// AppendVLAN appends an Ethernet header with a customer tag of the given TCI: PCP(3) DEI(1)
// VID(12).
func AppendVLAN(b []byte, dst, src MAC, tci, etherType uint16) []byte {
	b = AppendEthernet(b, dst, src, etherTypeVLAN)
	b = binary.BigEndian.AppendUint16(b, tci)
	return binary.BigEndian.AppendUint16(b, etherType)
}

// IPUDP holds the fields that a RoCEv2 sender chooses in the IP and UDP headers. Src and Dst must
// be of one address family, which decides between IPv4 and IPv6.
type IPUDP struct {
	Src, Dst     netip.Addr
	TrafficClass uint8  // IPv4's type of service: DSCP and ECN
	HopLimit     uint8  // IPv4's TTL
	ID           uint16 // IPv4 only
	SrcPort      uint16
}

// EtherType is the Ethernet type of the packet.
func (h *IPUDP) EtherType() uint16 {
	if h.Src.Is4() {
		return etherTypeIPv4
	}
	return etherTypeIPv6
}

// Append appends IP and UDP headers for transportBytes, counted from the BTH to the pad. It adds
// the four bytes of the ICRC, which every RoCEv2 packet has.
func (h *IPUDP) Append(b []byte, transportBytes int) []byte {
	if h.Src.Is4() {
		return AppendIPv4UDP(b, h, transportBytes)
	}
	return AppendIPv6UDP(b, h, transportBytes)
}

// AppendIPv4UDP is Append for IPv4. The header has no options, the don't-fragment bit is set, and
// the checksum is correct.
func AppendIPv4UDP(b []byte, h *IPUDP, transportBytes int) []byte {
	start, datagramBytes := len(b), udpBytes+transportBytes+icrcBytes
	src, dst := h.Src.As4(), h.Dst.As4()
	b = append(b, 0x45, h.TrafficClass)
	b = binary.BigEndian.AppendUint16(b, uint16(ipv4Bytes+datagramBytes))
	b = binary.BigEndian.AppendUint16(b, h.ID)
	b = append(b, 0x40, 0, h.HopLimit, protocolUDP, 0, 0)
	b = append(b, src[:]...)
	b = append(b, dst[:]...)
	binary.BigEndian.PutUint16(b[start+ipv4ChecksumOffset:], IPv4HeaderChecksum(b[start:]))
	return appendUDP(b, h.SrcPort, datagramBytes)
}

// AppendIPv6UDP is Append for IPv6, with flow label 0.
func AppendIPv6UDP(b []byte, h *IPUDP, transportBytes int) []byte {
	datagramBytes := udpBytes + transportBytes + icrcBytes
	src, dst := h.Src.As16(), h.Dst.As16()
	b = append(b, 0x60|h.TrafficClass>>4, h.TrafficClass<<4, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(datagramBytes))
	b = append(b, protocolUDP, h.HopLimit)
	b = append(b, src[:]...)
	b = append(b, dst[:]...)
	return appendUDP(b, h.SrcPort, datagramBytes)
}

// appendUDP leaves the checksum 0, as RoCEv2 senders do: the ICRC covers more than the checksum
// would.
func appendUDP(b []byte, srcPort uint16, datagramBytes int) []byte {
	b = binary.BigEndian.AppendUint16(b, srcPort)
	b = binary.BigEndian.AppendUint16(b, UDPPort)
	b = binary.BigEndian.AppendUint16(b, uint16(datagramBytes))
	return append(b, 0, 0)
}

// AppendICRC appends the ICRC to a frame that is otherwise complete. The error is that of
// View.Decode, if the headers do not describe such a frame.
func AppendICRC(frame []byte) ([]byte, error) {
	frame = append(frame, make([]byte, icrcBytes)...)
	var v View
	if err := v.Decode(frame, len(frame)); err != nil {
		return frame, err
	}
	fragments := [1][]byte{frame}
	v.PutICRC(fragments[:], v.ComputeICRC(fragments[:]))
	return frame, nil
}
