package roce

import "time"

// RNRTimer is the 5-bit timer code of an RNR NAK. Larger codes mean longer times, except that code
// 0 means the longest of all: compare with LongerThan, never with >.
type RNRTimer uint8

const rnrUnit = 10 * time.Microsecond

// rnrUnits is IBTA vol 1 table 45 in units of 10 us.
var rnrUnits = [32]uint32{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// Duration is how long the requester has to wait at least.
func (t RNRTimer) Duration() time.Duration { return time.Duration(rnrUnits[t&31]) * rnrUnit }

// LongerThan reports whether t asks for a longer wait than u.
func (t RNRTimer) LongerThan(u RNRTimer) bool { return rnrUnits[t&31] > rnrUnits[u&31] }
