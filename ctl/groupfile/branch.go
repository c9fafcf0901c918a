package groupfile

import (
	"slices"

	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/mft"
)

// ParseBranch reads a group file that has no source, for the part of a group that another box asks
// this one to carry. upper is that box's end of the link: the first source of this part. That box
// accepted the text, and may be of an older release.
func ParseBranch(text []byte, upper Member) (*File, error) {
	return parse(text, yamldoc.ParseStored, func(document yamldoc.Value, p *parser) {
		link := member{Member: upper, value: document}
		link.Line = document.Line()
		if upper.Role == Both {
			link.sendPSN = document.Line()
			link.Regions = SameRegions(p.Memory)
			link.regions = slices.Repeat([]yamldoc.Value{document}, len(p.Memory))
		}
		// The first member with role both is the first source.
		p.members = append([]member{link}, p.members...)
	})
}

// SameRegions returns the regions of a link: a box passes VAs and R_Keys on as it receives them.
func SameRegions(memory []mft.VirtualRegion) (regions []mft.Region) {
	for _, r := range memory {
		regions = append(regions, mft.Region(r))
	}
	return regions
}
