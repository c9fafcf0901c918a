package edges

import (
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

// Unfit returns why no receiver of a group shares, or "". tree is why the other boxes that carry a
// part of the group do not let it.
func (b *Book) Unfit(f *groupfile.File, policy feedback.Policy, tree string) string {
	switch {
	case f.Copies == groupfile.CopiesOwn:
		return "its file says copies: own"
	case tree != "":
		return tree
	case policy.Repair == feedback.RepairOff:
		return "the group is without repair"
	case f.Table:
		return "its memory is a table"
	case len(f.Memory) > mft.ShareRegions:
		return "its memory has more regions than an edge maps"
	case !b.config.of(f.Source.IP.Is4()).IsValid():
		return "edges: in rocastd.yaml has no addresses of its family"
	}
	return ""
}
