package roce

import "math/bits"

// A CRC is linear over GF(2): two messages of one length that differ by d have CRCs that differ by the
// CRC of d from a register of zero, and every zero byte behind d multiplies that register by x^8. A
// copy differs from the received frame in its headers only, so its ICRC follows from the received one
// without touching the payload (docs/wire.md#icrc):
//
//	headers was  aaaaaaBBaaaaCC | payload ...     icrc
//	headers is   aaaaaaDDaaaaEE | payload ...     icrc XOR advance(crc(delta), payload bytes)
//	delta        000000XX0000YY | 0000000 ...
//
// What was wrong stays wrong: the difference between the stored and the right ICRC goes through unchanged,
// so a payload damaged before it came here is not blessed.

// UpdateICRC is the ICRC after the headers changed from was to is, in front of payloadBytes unchanged
// bytes of payload and pad. Both headers must have been masked through Views of one layout.
func UpdateICRC(icrc uint32, was, is *MaskedHeaders, payloadBytes int) uint32 {
	if was.n != is.n {
		panic("roce: UpdateICRC of headers of different length")
	}
	return icrc ^ advance(crcDelta(was, is), payloadBytes)
}

// operator is a linear map of the CRC register, one table per input byte: four look-ups apply it.
type operator [4][256]uint32

func (o *operator) apply(reg uint32) uint32 {
	return o[0][byte(reg)] ^ o[1][byte(reg>>8)] ^ o[2][byte(reg>>16)] ^ o[3][byte(reg>>24)]
}

// zeroOperators[k] passes the register over 2^k zero bytes: 52 KiB, built once, read ever after. Thirteen reach
// 8191 bytes, a path MTU of 4096 with room; a 1024-byte payload takes one of them.
var zeroOperators = makeZeroOperators()

func makeZeroOperators() *[13]operator {
	ops := new([13]operator)
	ops[0].fill(func(reg uint32) uint32 { return crcTables[0][byte(reg)] ^ reg>>8 })
	for k := 1; k < len(ops); k++ {
		half := &ops[k-1]
		ops[k].fill(func(reg uint32) uint32 { return half.apply(half.apply(reg)) })
	}
	return ops
}

// fill tabulates the linear map f.
func (o *operator) fill(f func(uint32) uint32) {
	for i := range o {
		for b := range o[i] {
			o[i][b] = f(uint32(b) << (8 * i))
		}
	}
}

// advance passes the register over n zero bytes, one operator per bit of n.
func advance(reg uint32, n int) uint32 {
	const top = len(zeroOperators) - 1
	for ; n >= 2<<top; n -= 1 << top { // beyond any path MTU, but a 64 KiB datagram is right too
		reg = zeroOperators[top].apply(reg)
	}
	for left := uint(n); left != 0; left &= left - 1 {
		reg = zeroOperators[bits.TrailingZeros(left)].apply(reg)
	}
	return reg
}
