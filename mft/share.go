package mft

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/rocast/rocast/roce"
)

// Bounds of the shares of a group.
const (
	// MaxShares bounds the shares of one group. Each has a lane of its own at its port, as a path
	// has.
	MaxShares = 64
	// ShareRegions is the most ranges that the memory of a group with shares has: an edge maps no
	// more.
	ShareRegions = 4
)

// Share is a leg that several receivers share. One copy of each new packet leaves by it, the
// network replicates the copy, and the edge of each receiver maps it to the receiver's queue pair.
// Or one box replicates and maps it, which passes on what is for these receivers (Relay).
// The copy has the PSN, the VA and the R_Key of the source's own packet. Whatever is for one
// receiver alone, such as repair, goes by the leg of the receiver's path.
//
// The dest QPN of the leg names the generation: the set of members, the turn, and the constants by
// which the members' edges map. When one of them would change, the share gets another dest QPN, so
// an edge that knows only the former generation drops the copies.
type Share struct {
	// Leg has the multicast address as Dst and its MAC address in L2, or the address of the box.
	// Src is that of the members' paths.
	Leg
	// Members are the receivers whose edges have confirmed this generation, two or more. They are
	// hosts, or boxes that map the copies themselves (Mapping), on the network behind the port,
	// because no router passes the copies on.
	Members []QP
	// Turn is the number of the turn whose packets these edges map (dataplane.GroupState.Turns). In
	// another turn the constants are others, and a member may be the source. Its edge must not map
	// the source's own packets to the source: its queue pair would end.
	Turn uint32
	// Others are receivers whose edges may map the copies already, and that get copies of their own
	// until these edges have confirmed.
	Others []QP
}

// Shared returns the share whose copies leave as those for p do, but to a multicast address, or to
// the box that passes on what is for p.
func (p *Path) Shared(to netip.Addr, generation roce.QPN, members []QP) Share {
	s := Share{Leg: Leg{
		Port: p.Port, L2: p.L2, L2Bytes: p.L2Bytes, DestQPN: generation, Src: p.Src, Dst: to,
	}, Members: members}
	if to.IsMulticast() {
		mac := multicastMAC(to)
		copy(s.L2[:], mac[:])
	}
	return s
}

// multicastMAC is the address to which Ethernet sends an IP multicast address (RFC 1112, 6.4; RFC
// 2464, 7).
func multicastMAC(ip netip.Addr) [6]byte {
	if ip.Is4() {
		a := ip.As4()
		return [6]byte{0x01, 0x00, 0x5e, a[1] & 0x7f, a[2], a[3]}
	}
	a := ip.As16()
	return [6]byte{0x33, 0x33, a[12], a[13], a[14], a[15]}
}

// ShareOf returns the index of the share of a path, or -1 if it has none.
func (g *Group) ShareOf(path int) int {
	if g.shareOf == nil { // as most groups
		return -1
	}
	return int(g.shareOf[path])
}

// MappedBy returns the index of the share whose copies the edge of a path's receiver may map, or
// -1. It is ShareOf the path, or that of a share of which the receiver is one of the Others.
func (g *Group) MappedBy(path int) int {
	if g.mappedBy == nil {
		return -1
	}
	return int(g.mappedBy[path])
}

// SharePath returns a share as the path for which its copies are made. It is no member's.
func (g *Group) SharePath(share int) *Path { return &g.sharePaths[share] }

// sealShares checks the shares, and computes what the data path needs. ranks are how many paths
// leave by each port.
func (g *Group) sealShares(ranks map[PortID]uint16) error {
	g.shareOf, g.mappedBy, g.sharePaths = nil, nil, nil
	switch {
	case len(g.Shares) == 0:
		return nil
	case len(g.Shares) > MaxShares:
		return fmt.Errorf("%d shares are more than the %d that a group can have", len(g.Shares), MaxShares)
	case g.Memory.Len() > ShareRegions && slices.ContainsFunc(g.Shares, func(s Share) bool { return s.Dst.IsMulticast() }):
		return fmt.Errorf("edges map no more than %d memory regions, and the group has %d", ShareRegions, g.Memory.Len())
	}
	g.shareOf = slices.Repeat([]int8{-1}, len(g.Paths))
	g.mappedBy = slices.Clone(g.shareOf)
	for k := range g.Shares {
		s := &g.Shares[k]
		if err := g.checkShare(s); err != nil {
			return err
		}
		for n, m := range slices.Concat(s.Members, s.Others) {
			i := g.FindPath(m.IP, m.RemoteQPN)
			if i < 0 {
				return fmt.Errorf("a share has the member %v with QPN %d, which the group does not have", m.IP, m.RemoteQPN)
			}
			if g.mappedBy[i] >= 0 {
				return fmt.Errorf("%v is in two shares", m.IP)
			}
			g.mappedBy[i] = int8(k)
			if n >= len(s.Members) {
				continue // its next hop may be unknown
			}
			if err := s.fits(&g.Paths[i]); err != nil {
				return err
			}
			g.shareOf[i] = int8(k)
		}
		g.sharePaths = append(g.sharePaths, Path{
			Leg: s.Leg, Rank: ranks[s.Port],
			Regions: g.Memory.At(func(v VirtualRegion) Region { return Region(v) }),
		})
		ranks[s.Port]++
	}
	return nil
}

func (g *Group) checkShare(s *Share) error {
	switch {
	case len(s.Members) < 2:
		return fmt.Errorf("the share at %v has %d members, and is of use for two or more", s.Dst, len(s.Members))
	case s.Dst.Is4() != g.Source.Dst.Is4():
		return fmt.Errorf("a share cannot send to %v: the group needs an address of its own family", s.Dst)
	case !s.Resolved() || s.DestQPN == 0:
		return fmt.Errorf("the share at %v has no port or no QPN", s.Dst)
	}
	for k := range g.Shares {
		if o := &g.Shares[k]; o != s && o.Dst == s.Dst && o.DestQPN == s.DestQPN {
			return fmt.Errorf("two shares at %v have QPN %d", s.Dst, s.DestQPN)
		}
	}
	return nil
}

// fits reports why the member of a path cannot have the share's copies; nil: it can.
func (s *Share) fits(p *Path) error {
	switch {
	case !s.Dst.IsMulticast() && p.Dst != s.Dst:
		return fmt.Errorf("%v cannot share: its frames are not passed on by the box at %v", p.Dst, s.Dst)
	case p.Box != NoBox && (p.Sends || !s.Dst.IsMulticast()) || p.Multipath && s.Dst.IsMulticast():
		return fmt.Errorf("%v cannot share: it is a box that may send, or has several next hops", p.Dst)
	case p.Port != s.Port || p.VLANs() != s.VLANs():
		return fmt.Errorf("%v cannot share: it is behind another port or VLAN than the share", p.Dst)
	case p.Src != s.Src:
		return fmt.Errorf("%v cannot share: its peer is %v, and the share's copies come from %v", p.Dst, p.Src, s.Src)
	}
	return nil
}
