package roce

import "encoding/binary"

// maxHeaderBytes is IPv6, UDP, BTH and the longest extension, AtomicETH. Every header is a multiple
// of 4 bytes.
const maxHeaderBytes = ipv6Bytes + udpBytes + BTHBytes + AtomicETHBytes

// MaskedHeaders holds the headers of a frame, from IP to the payload, as the ICRC covers them. It
// is a value without pointers: keep one for each frame and one for each copy, and reuse them.
type MaskedHeaders struct {
	n     int
	bytes [maxHeaderBytes]byte
}

// MaskHeaders copies the headers from L3 to Payload into dst, with ones in the fields that the ICRC
// does not cover: type of service, TTL and checksum of IPv4; traffic class, flow label and hop
// limit of IPv6; the UDP checksum; and byte 4 of the BTH with FECN and BECN (docs/wire.md#icrc).
func (v *View) MaskHeaders(head []byte, dst *MaskedHeaders) {
	dst.n = copy(dst.bytes[:], head[v.L3:v.Payload])
	b := &dst.bytes
	if v.IPv6 {
		b[0] |= 0x0F
		b[1], b[2], b[3], b[7] = 0xFF, 0xFF, 0xFF, 0xFF
	} else {
		b[1], b[8], b[10], b[11] = 0xFF, 0xFF, 0xFF, 0xFF
	}
	udp, bth := v.UDP-v.L3, v.BTH-v.L3
	b[udp+6], b[udp+7] = 0xFF, 0xFF
	b[bth+4] = 0xFF
}

// crc runs the CRC register over the headers.
//
// It has its own table look-up because hash/crc32 calls its assembly through a function variable: a
// local array passed to it would escape to the heap, one allocation for each packet. Below 64 bytes
// the library does the same look-ups.
func (m *MaskedHeaders) crc(reg uint32) uint32 {
	i := 0
	for ; i+8 <= m.n; i += 8 {
		reg = crcWord64(uint64(reg) ^ binary.LittleEndian.Uint64(m.bytes[i:]))
	}
	if i < m.n {
		reg = crcWord32(reg ^ binary.LittleEndian.Uint32(m.bytes[i:]))
	}
	return reg
}
