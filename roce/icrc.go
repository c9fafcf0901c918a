package roce

import (
	"encoding/binary"
	"hash/crc32"
)

// The invariant CRC (IBTA vol 1, 7.8.1, and annex A17) protects a packet from end to end: CRC-32 IEEE
// over everything from the IP header to the pad, with what a router may change replaced by ones. It is
// stored low byte first, right behind the pad.

// icrcSeed is the CRC register after eight bytes of ones, which stand where an InfiniBand packet would
// have its LRH.
const icrcSeed uint32 = 0xDEBB20E3

// ComputeICRC computes the ICRC of the frame v locates. fragments are the frame in order; the first
// holds all headers. The result is the value whose little-endian bytes stand on the wire.
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

// StoredICRC is the ICRC the frame carries.
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

// ICRCValid reports whether the frame carries the ICRC it should.
func (v *View) ICRCValid(fragments [][]byte) bool {
	return v.StoredICRC(fragments) == v.ComputeICRC(fragments)
}

// findICRC is the fragment in which the ICRC starts, and where in it.
func (v *View) findICRC(fragments [][]byte) (i, off int) { return seek(fragments, 0, v.ICRC) }

// seek carries an offset that runs past fragment i over into the fragments behind it.
func seek(fragments [][]byte, i, off int) (int, int) {
	for off >= len(fragments[i]) {
		off -= len(fragments[i])
		i++
	}
	return i, off
}
