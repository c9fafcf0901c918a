package roce

import (
	"fmt"
	"sort"
)

// CreditCode is the 5-bit end-to-end credit code of an ACK: how many receives are posted beyond the
// AETH's MSN (IBTA vol 1, 9.7.7.2.2).
type CreditCode uint8

// CreditUnlimited turns end-to-end credits off.
const CreditUnlimited CreditCode = 0x1F

// credits is the table of the kernel's rdmavt (credit_table in rc.c).
var credits = [31]uint32{
	0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
}

// Credits returns the number of messages that c grants. limited is false for CreditUnlimited.
func (c CreditCode) Credits() (n uint32, limited bool) {
	if c &= 31; c == CreditUnlimited {
		return 0, false
	}
	return credits[c], true
}

// CreditCodeFor returns the largest code that grants at most n messages. Rounding up would grant
// messages for which no receive is posted.
func CreditCodeFor(n uint32) CreditCode {
	return CreditCode(sort.Search(len(credits), func(i int) bool { return credits[i] > n }) - 1)
}

// String is the number of credits, or "unlimited".
func (c CreditCode) String() string {
	if n, limited := c.Credits(); limited {
		return fmt.Sprintf("credits %d", n)
	}
	return "unlimited"
}
