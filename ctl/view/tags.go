package view

import (
	"fmt"
	"maps"
	"slices"

	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/ports"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/mft"
)

// tagsTakenBy says which VLAN tags a port's device takes out of frames; "": none that are known.
func tagsTakenBy(p *dataplane.PortInfo) string {
	if p.UnderVLAN == "" {
		return ""
	}
	return dataplane.TagsTaken(p.Name, p.UnderVLAN)
}

// tagsTaken says for each port whose device takes tags out of frames which members of the group
// send such frames.
func tagsTaken(g *groups.Version, set ports.Set) (notes []string) {
	for _, name := range slices.Sorted(maps.Keys(set)) {
		p := set[name]
		whose, more := "", 0
		for l := range g.Legs().Members() {
			switch {
			case !p.TakesTags || l.VLANs() == (mft.VLANs{}) || l.Hop.Port != p.IfIndex && !l.Hop.Uplinks.Has(p.IfIndex):
			case whose == "":
				whose = l.Member.IP.String()
			default:
				more++
			}
		}
		if more > 0 {
			whose = fmt.Sprintf("%s and %d more members", whose, more)
		}
		if whose != "" {
			notes = append(notes, dataplane.TagsTaken(name, whose))
		}
	}
	return notes
}
