package mft

import (
	"fmt"
	"net/netip"

	"github.com/rocast/rocast/roce"
)

// Mapping makes this box an edge of the box above: the Source. That box sends one copy of a packet
// to a multicast address for several boxes. Here the copy becomes the packet that this box would
// have had from the Source alone. A mapping never changes: another one has another QPN.
type Mapping struct {
	To     netip.Addr // the multicast address
	QPN    roce.QPN   // the dest QPN of the copies
	AddPSN uint32     // what the PSNs of the Source are above those of the copies, modulo 2^24
}

// IsOfShare reports whether copies of the box at upper can leave by the leg that m maps: it has a
// multicast address of the family, and a QPN of 24 bits that is not 0.
func (m Mapping) IsOfShare(upper netip.Addr) bool {
	return m.To.IsMulticast() && m.To.Is4() == upper.Is4() && m.QPN > 0 && m.QPN < 1<<24
}

// MappingOf returns what maps a packet of the Source to this box, or nil if the packet is no shared
// copy. v locates the packet in head. That the box above has sent it is known from the key by which
// the group was found (mappingKeys).
func (g *Group) MappingOf(v *roce.View, head []byte) *roce.Mapping {
	dst := v.DstIP(head)
	if !dst.IsMulticast() {
		return nil
	}
	qpn := v.DestQPN(head)
	for i := range g.Mappings {
		if m := &g.Mappings[i]; m.QPN == qpn && m.To == dst {
			return &g.maps[i]
		}
	}
	return nil
}

// sealMappings checks the mappings, and computes what the data path needs.
func (g *Group) sealMappings() error {
	g.maps = nil
	to := roce.Flow{Src: g.Source.Dst, Dst: g.Source.Src, DestQPN: g.Source.RemoteQPN}
	for _, m := range g.Mappings {
		switch {
		case g.Relay != nil:
			return fmt.Errorf("copies to %v cannot be mapped: this box passes frames on, and maps by its Relay", m.To)
		case !m.IsOfShare(g.Source.Dst):
			return fmt.Errorf("copies to %v with QPN %d cannot be mapped: a mapping has a QPN and a multicast address of the group's family", m.To, m.QPN)
		}
		g.maps = append(g.maps, roce.NewMapping(roce.Flow{Src: to.Src, Dst: m.To, DestQPN: m.QPN}, to, m.AddPSN))
	}
	return nil
}

// mappingKeys returns the keys of shared copies of the box above. Other boxes may use the same
// address and QPN, so its own address is compared too.
func (g *Group) mappingKeys() (keys []Key) {
	for _, m := range g.Mappings {
		keys = append(keys, Key{Src: g.Source.Dst, Dst: m.To, QPN: m.QPN, Match: MatchPairQPN})
	}
	return keys
}
