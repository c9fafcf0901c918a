package perftest

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/rocast/rocast/roce"
)

// keyBytes is the length of a key line on Ethernet, where a key always has a GID.
const keyBytes = 108

// key describes one queue pair of one side. On the wire a key is a line of hexadecimal fields, each
// followed by a colon, and a NUL at the end:
//
//	0000:0001:000042:bc99a2:00005580:00005590c93c5000:00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:01:00000000:
//	LID  |    QPN    PSN    RKey     VA               GID, a byte each                                SRQN
//	     outstanding READs
type key struct {
	LID      uint16
	OutReads uint16
	QPN      roce.QPN
	PSN      roce.PSN // PSN of the first packet that this side sends
	RKey     uint32
	VA       uint64     // start of the memory that the other side may write to
	GID      netip.Addr // an IPv4-mapped GID is kept as its IPv4 address
	SRQN     uint32
}

// errNotAKey does not quote the line, because the line may contain an R_Key.
var errNotAKey = errors.New("is not a key line")

func parseKey(line []byte) (key, error) {
	if len(line) != keyBytes || line[keyBytes-1] != 0 {
		return key{}, errNotAKey
	}
	f := fields{rest: line}
	k := key{
		LID:      uint16(f.next(4)),
		OutReads: uint16(f.next(4)),
		QPN:      roce.QPN(f.next(6)),
		PSN:      roce.PSN(f.next(6)),
		RKey:     uint32(f.next(8)),
		VA:       f.next(16),
	}
	var gid [16]byte
	for i := range gid {
		gid[i] = byte(f.next(2))
	}
	k.GID = netip.AddrFrom16(gid).Unmap()
	k.SRQN = uint32(f.next(8))
	if f.bad {
		return key{}, errNotAKey
	}
	return k, nil
}

// line is the inverse of parseKey.
func (k key) line() []byte {
	b := make([]byte, 0, keyBytes)
	b = fmt.Appendf(b, "%04x:%04x:%06x:%06x:%08x:%016x:", k.LID, k.OutReads, uint32(k.QPN), uint32(k.PSN), k.RKey, k.VA)
	for _, octet := range k.GID.As16() {
		b = fmt.Appendf(b, "%02x:", octet)
	}
	b = fmt.Appendf(b, "%08x:", k.SRQN)
	return append(b, 0)
}

// fields reads hexadecimal numbers of known width, each followed by a colon. The caller has checked
// the total length.
type fields struct {
	rest []byte
	bad  bool
}

func (f *fields) next(digits int) (n uint64) {
	for _, c := range f.rest[:digits] {
		digit, ok := hexDigit(c)
		f.bad = f.bad || !ok
		n = n<<4 | digit
	}
	f.bad = f.bad || f.rest[digits] != ':'
	f.rest = f.rest[digits+1:]
	return n
}

func hexDigit(c byte) (uint64, bool) {
	switch {
	case '0' <= c && c <= '9':
		return uint64(c - '0'), true
	case 'a' <= c && c <= 'f':
		return uint64(c-'a') + 10, true
	case 'A' <= c && c <= 'F':
		return uint64(c-'A') + 10, true
	}
	return 0, false
}
