package bpf

import (
	"errors"
	"fmt"
	"net/netip"
)

// GroupNone is the value of an entry that belongs to no single group. A MatchDst entry says that
// groups are reached by this address: a frame to it that matches no more specific entry is still
// redirected, so that the dataplane counts it. The value of a MatchSrc entry is not read.
const GroupNone uint32 = 0xffffffff

// Match says which fields of a frame are compared with a Key. The classifier tries MatchDstQPN,
// MatchPairQPN, MatchDst and MatchSrc in this order and uses the first entry found. A CM datagram
// names no group's QP, so only MatchDst and MatchSrc are tried for it.
type Match uint8

const (
	// MatchDstQPN: destination IP and dest QPN.
	MatchDstQPN = Match(programsRocastMatchMATCH_DST_QPN)
	// MatchPairQPN: source IP, destination IP and dest QPN.
	MatchPairQPN = Match(programsRocastMatchMATCH_PAIR_QPN)
	// MatchDst: destination IP alone.
	MatchDst = Match(programsRocastMatchMATCH_DST)
	// MatchSrc: source IP alone. Only the box sends from this address, so an incoming RoCEv2 frame
	// from it is dropped.
	MatchSrc = Match(programsRocastMatchMATCH_SRC)
)

func (m Match) String() string {
	switch m {
	case MatchDstQPN:
		return "dst+qpn"
	case MatchPairQPN:
		return "src+dst+qpn"
	case MatchDst:
		return "dst"
	case MatchSrc:
		return "src"
	}
	return fmt.Sprintf("match(%d)", uint8(m))
}

func (m Match) comparesSrc() bool { return m == MatchPairQPN || m == MatchSrc }
func (m Match) comparesDst() bool { return m != MatchSrc }
func (m Match) comparesQPN() bool { return m == MatchDstQPN || m == MatchPairQPN }

// Key holds the fields of one entry. Fields that Match does not compare are zero. IPv4 addresses
// may be given in either form.
type Key struct {
	Src, Dst netip.Addr
	QPN      uint32
	Match    Match
}

func (k Key) String() string {
	s := k.Match.String()
	if k.Match.comparesSrc() {
		s += fmt.Sprintf(" from %s", k.Src)
	}
	if k.Match.comparesDst() {
		s += fmt.Sprintf(" to %s", k.Dst)
	}
	if k.Match.comparesQPN() {
		s += fmt.Sprintf(" 0x%06x", k.QPN)
	}
	return s
}

// encode returns the key in the map's form (struct rocast_key).
func (k Key) encode() (programsRocastKey, error) {
	var key programsRocastKey
	if k.Match < MatchDstQPN || k.Match > MatchSrc {
		return key, fmt.Errorf("%s is not a known match", k.Match)
	}
	if err := errors.Join(
		checkAddr("source", k.Src, k.Match, k.Match.comparesSrc()),
		checkAddr("destination", k.Dst, k.Match, k.Match.comparesDst()),
	); err != nil {
		return key, err
	}
	switch {
	case k.Match == MatchPairQPN && k.Src.Unmap().Is4() != k.Dst.Unmap().Is4():
		return key, fmt.Errorf("%s and %s are of different IP versions, which no frame has", k.Src, k.Dst)
	case !k.Match.comparesQPN() && k.QPN != 0:
		return key, fmt.Errorf("%s takes no QPN, got 0x%x", k.Match, k.QPN)
	case k.QPN > 0xffffff:
		return key, fmt.Errorf("QPN 0x%x has more than 24 bits", k.QPN)
	}
	key.Qpn, key.Match = k.QPN, programsRocastMatch(k.Match)
	if k.Match.comparesSrc() {
		key.Src, key.Ipv6 = k.Src.As16(), ipv6(k.Src)
	}
	if k.Match.comparesDst() {
		key.Dst, key.Ipv6 = k.Dst.As16(), ipv6(k.Dst)
	}
	return key, nil
}

func checkAddr(which string, addr netip.Addr, m Match, compared bool) error {
	switch {
	case !compared && addr.IsValid():
		return fmt.Errorf("%s takes no %s, got %s", m, which, addr)
	case compared && !addr.IsValid():
		return fmt.Errorf("%s needs a %s and none is given", m, which)
	case addr.Zone() != "":
		return fmt.Errorf("%s %s has a zone, frames have none: leave it out", which, addr)
	}
	return nil
}

func ipv6(addr netip.Addr) uint8 {
	if addr.Unmap().Is6() {
		return 1
	}
	return 0
}
