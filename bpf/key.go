package bpf

import (
	"errors"
	"fmt"
	"net/netip"
)

// GroupNone is the group of an entry that says: this address is a group's, whichever its QPN. Frames that match no
// better entry are redirected all the same, for the dataplane to count.
const GroupNone uint32 = 0xffffffff

// Match is which part of a frame a Key is compared with. A frame is looked up in this order, and the first entry found
// decides; a CM datagram only by MatchDst, because it names no group's QP.
type Match uint8

const (
	// MatchDstQPN: destination IP and dest QPN (group-ip, switch-ip; feedback to any address).
	MatchDstQPN = Match(classifierRocastMatchMATCH_DST_QPN)
	// MatchSrcQPN: source IP and dest QPN (virtual-qpn).
	MatchSrcQPN = Match(classifierRocastMatchMATCH_SRC_QPN)
	// MatchDst: destination IP alone. The Key's QPN is 0.
	MatchDst = Match(classifierRocastMatchMATCH_DST)
)

func (m Match) String() string {
	switch m {
	case MatchDstQPN:
		return "dst+qpn"
	case MatchSrcQPN:
		return "src+qpn"
	case MatchDst:
		return "dst"
	}
	return fmt.Sprintf("match(%d)", uint8(m))
}

// Key is what a frame has to carry to be a group's. An IPv4 address may be given in either form.
type Key struct {
	Addr  netip.Addr
	QPN   uint32
	Match Match
}

func (k Key) String() string {
	if k.Match == MatchDst {
		return fmt.Sprintf("%s %s", k.Match, k.Addr)
	}
	return fmt.Sprintf("%s %s 0x%06x", k.Match, k.Addr, k.QPN)
}

// encode is the key as the map holds it (struct rocast_key).
func (k Key) encode() (classifierRocastKey, error) {
	switch {
	case !k.Addr.IsValid():
		return classifierRocastKey{}, errors.New("no address given")
	case k.Addr.Zone() != "":
		return classifierRocastKey{}, fmt.Errorf("address %s has a zone, frames have none: leave it out", k.Addr)
	case k.Match < MatchDstQPN || k.Match > MatchDst:
		return classifierRocastKey{}, fmt.Errorf("%s is no way to match", k.Match)
	case k.Match == MatchDst && k.QPN != 0:
		return classifierRocastKey{}, fmt.Errorf("%s takes no QPN, got 0x%x", k.Match, k.QPN)
	case k.QPN > 0xffffff:
		return classifierRocastKey{}, fmt.Errorf("QPN 0x%x has more than 24 bits", k.QPN)
	}
	key := classifierRocastKey{
		Addr:  k.Addr.As16(),
		Qpn:   k.QPN,
		Match: classifierRocastMatch(k.Match),
	}
	if k.Addr.Unmap().Is6() {
		key.Ipv6 = 1
	}
	return key, nil
}
