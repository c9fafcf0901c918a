package roce

import "math/bits"

// A CRC is linear over GF(2): if two messages of the same length differ by d, their CRCs differ by
// the CRC of d with a register that starts at zero, and every zero byte behind d multiplies that
// register by x^8. A copy differs from the received frame only in its headers, so the copy's ICRC
// follows from the received one without reading the payload (docs/wire.md#icrc):
//
//	headers was  aaaaaaBBaaaaCC | payload ...     icrc
//	headers is   aaaaaaDDaaaaEE | payload ...     icrc XOR advance(crc(delta), payload bytes)
//	delta        000000XX0000YY | 0000000 ...
//
// A wrong ICRC stays wrong: the difference between the stored and the correct ICRC passes through
// unchanged, so a payload that was damaged on its way here does not become valid.

// operator is a linear map of the CRC register, with one table for each input byte: applying it
// takes four look-ups.
type operator [4][256]uint32

func (o *operator) apply(reg uint32) uint32 {
	return o[0][byte(reg)] ^ o[1][byte(reg>>8)] ^ o[2][byte(reg>>16)] ^ o[3][byte(reg>>24)]
}

// zeroOperators[k] passes the register over 2^k zero bytes. The tables are 52 KiB, built at
// start-up. Thirteen of them reach 8191 bytes, more than a path MTU of 4096 needs; a 1024-byte
// payload takes one.
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

// overRETH is advance over the 16 bytes of a RETH.
func overRETH(reg uint32) uint32 { return zeroOperators[4].apply(reg) }

// fill tabulates the linear map f.
func (o *operator) fill(f func(uint32) uint32) {
	for i := range o {
		for b := range o[i] {
			o[i][b] = f(uint32(b) << (8 * i))
		}
	}
}

// advance passes the register over n zero bytes, with one operator for each bit of n that is set.
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
