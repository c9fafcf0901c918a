package roce

// Packet and message sequence numbers are 24 bits wide and wrap (IBTA vol 1, 9.7.2 and 9.7.7.1).
// The operators < and - give wrong results across the wrap; the methods of these types give correct
// ones.
const (
	psnBits = 24
	psnMask = 1<<psnBits - 1
)

// PSN is a 24-bit packet sequence number. Decode, Add, Next and Prev return values below 2^24. The
// methods accept a value with other bits in its top byte and ignore that byte.
type PSN uint32

// Next is the PSN that follows p.
func (p PSN) Next() PSN { return (p + 1) & psnMask }

// Prev is the PSN that precedes p.
func (p PSN) Prev() PSN { return (p - 1) & psnMask }

// Add moves p by n, forwards or backwards.
func (p PSN) Add(n int32) PSN { return PSN(add24(uint32(p), n)) }

// Sub is the signed distance p-q, from -2^23 to 2^23-1: how far p is ahead of q in the window.
func (p PSN) Sub(q PSN) int32 { return sub24(uint32(p), uint32(q)) }

// Before reports whether p is older than q in the 24-bit window: the sign of the 24-bit difference,
// as in rxe's psn_compare. At a distance of exactly 2^23 each is before the other and neither is
// after; no caller compares PSNs that far apart.
func (p PSN) Before(q PSN) bool { return p.Sub(q) < 0 }

// After reports whether p is newer than q in the 24-bit window.
func (p PSN) After(q PSN) bool { return p.Sub(q) > 0 }

// MSN is the 24-bit message sequence number of an AETH: messages the responder has completed.
type MSN uint32

// Add moves m by n, forwards or backwards.
func (m MSN) Add(n int32) MSN { return MSN(add24(uint32(m), n)) }

// Sub is the signed distance m-q, from -2^23 to 2^23-1.
func (m MSN) Sub(q MSN) int32 { return sub24(uint32(m), uint32(q)) }

// QPN is a 24-bit queue pair number.
type QPN uint32

func add24(a uint32, n int32) uint32 { return (a + uint32(n)) & psnMask }

// sub24 shifts the difference into the top of a word so that its bit 23 becomes the sign.
func sub24(a, b uint32) int32 { return int32((a-b)<<(32-psnBits)) >> (32 - psnBits) }
