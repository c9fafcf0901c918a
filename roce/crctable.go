package roce

import "hash/crc32"

// crcTables are those of CRC-32 IEEE: crcTables[k][b] is the register after byte b and k zero
// bytes, starting from zero. The first eight tables are for slicing by 8. There are 19, because a
// PSN and the RETH behind it have 19 bytes.
var crcTables = makeCRCTables()

func makeCRCTables() (t [19][256]uint32) {
	t[0] = *crc32.IEEETable
	for k := 1; k < len(t); k++ {
		for b, reg := range t[k-1] {
			t[k][b] = t[0][byte(reg)] ^ reg>>8
		}
	}
	return t
}

// crcWord64 returns the register after eight bytes. w holds these bytes, the first one lowest,
// XORed with the register before them.
func crcWord64(w uint64) uint32 {
	t := &crcTables
	return t[7][byte(w)] ^ t[6][byte(w>>8)] ^ t[5][byte(w>>16)] ^ t[4][byte(w>>24)] ^
		t[3][byte(w>>32)] ^ t[2][byte(w>>40)] ^ t[1][byte(w>>48)] ^ t[0][byte(w>>56)]
}

// crcWord32 is crcWord64 for four bytes.
func crcWord32(w uint32) uint32 {
	t := &crcTables
	return t[3][byte(w)] ^ t[2][byte(w>>8)] ^ t[1][byte(w>>16)] ^ t[0][byte(w>>24)]
}
