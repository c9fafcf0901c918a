package roce

import "encoding/binary"

const ipv4ChecksumOffset = 10

// IPv4HeaderChecksum computes the checksum of the 20-byte header at the front of b. It does not
// read the checksum field.
func IPv4HeaderChecksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < ipv4Bytes; i += 2 {
		if i != ipv4ChecksumOffset {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
	}
	return ^fold(sum)
}

// ipv4ChecksumValid adds up as a receiver does, because a checksum of 0 may also be written as
// 0xFFFF (RFC 1624, 3).
func (v *View) ipv4ChecksumValid(head []byte) bool {
	others := ^IPv4HeaderChecksum(head[v.L3:])
	return fold(uint32(others)+uint32(binary.BigEndian.Uint16(head[v.L3+ipv4ChecksumOffset:]))) == 0xFFFF
}

// setIPv4Word replaces one 16-bit word of an IPv4 header and updates the checksum: RFC 1624, HC' =
// ~(~HC + ~m + m').
func setIPv4Word(ip []byte, off int, word uint16) {
	was := binary.BigEndian.Uint16(ip[off:])
	checksum := binary.BigEndian.Uint16(ip[ipv4ChecksumOffset:])
	sum := uint32(^checksum) + uint32(^was) + uint32(word)
	binary.BigEndian.PutUint16(ip[off:], word)
	binary.BigEndian.PutUint16(ip[ipv4ChecksumOffset:], ^fold(sum))
}

// fold adds the carries of a one's complement sum back in.
func fold(sum uint32) uint16 {
	sum = sum>>16 + sum&0xFFFF
	sum = sum>>16 + sum&0xFFFF
	return uint16(sum)
}
