package roce

import (
	"encoding/binary"
	"hash/crc32"
)

// The invariant CRC (IBTA vol 1, 7.8.1, and annex A17) protects a packet from end to end: CRC-32
// IEEE over everything from the IP header to the pad, with ones in the fields that a router may
// change. It is stored low byte first, directly behind the pad.

// icrcSeed is the CRC register after eight bytes of ones, which stand for the LRH of an InfiniBand
// packet.
const icrcSeed uint32 = 0xDEBB20E3

// ComputeICRC computes the ICRC of the frame that v locates. fragments are the parts of the frame
// in order; the first one holds all headers. On the wire the result is stored little-endian.
func (v *View) ComputeICRC(fragments [][]byte) uint32 {
	var headers MaskedHeaders
	v.MaskHeaders(fragments[0], &headers)
	crc := ^headers.crc(icrcSeed)

	left := v.ICRC - v.Payload
	part := fragments[0][v.Payload:]
	for next := 1; ; next++ {
		part = part[:min(len(part), left)]
		crc = crc32.Update(crc, crc32.IEEETable, part)
		if left -= len(part); left == 0 {
			return crc
		}
		part = fragments[next]
	}
}

// StoredICRC returns the ICRC that the frame carries.
func (v *View) StoredICRC(fragments [][]byte) uint32 {
	i, off := v.findICRC(fragments)
	if f := fragments[i]; off+icrcBytes <= len(f) {
		return binary.LittleEndian.Uint32(f[off:])
	}
	var icrc uint32
	for shift := 0; shift < 32; shift += 8 {
		i, off = seek(fragments, i, off)
		icrc |= uint32(fragments[i][off]) << shift
		off++
	}
	return icrc
}

// PutICRC stores icrc in the frame.
func (v *View) PutICRC(fragments [][]byte, icrc uint32) {
	i, off := v.findICRC(fragments)
	if f := fragments[i]; off+icrcBytes <= len(f) {
		binary.LittleEndian.PutUint32(f[off:], icrc)
		return
	}
	for shift := 0; shift < 32; shift += 8 {
		i, off = seek(fragments, i, off)
		fragments[i][off] = byte(icrc >> shift)
		off++
	}
}

// ICRCValid reports whether the stored ICRC is correct.
func (v *View) ICRCValid(fragments [][]byte) bool {
	return v.StoredICRC(fragments) == v.ComputeICRC(fragments)
}

// Undamaged reports whether the stored ICRC is correct, and in IPv4 the header checksum, which the
// ICRC does not cover. A copy of a packet with a wrong header checksum has a wrong one too, and its
// receiver drops it (RFC 1122, 3.2.1.2).
func (v *View) Undamaged(fragments [][]byte) bool {
	return (v.IPv6 || v.ipv4ChecksumValid(fragments[0])) && v.ICRCValid(fragments)
}

// findICRC returns the fragment in which the ICRC starts, and the offset in it.
func (v *View) findICRC(fragments [][]byte) (i, off int) { return seek(fragments, 0, v.ICRC) }

// seek moves an offset that lies beyond fragment i into the fragment that holds it.
func seek(fragments [][]byte, i, off int) (int, int) {
	for off >= len(fragments[i]) {
		off -= len(fragments[i])
		i++
	}
	return i, off
}
