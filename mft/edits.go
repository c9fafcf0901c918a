package mft

import "github.com/rocast/rocast/roce"

// Edits has, for every path of a group, the difference between the packets of one source and the
// copies for the path. It is valid until the group or its source changes.
type Edits struct {
	From    roce.Flow
	Paths   []roce.Edit // parallel to Group.Paths
	targets []roce.Target
	regions int
}

// Edits computes the edits for the packets of the member of path source; below 0: of the Source.
// The edit of a path whose next hop is unknown must not be used.
func (g *Group) Edits(source int) Edits {
	e := Edits{
		From:    g.Flow(source),
		Paths:   make([]roce.Edit, len(g.Paths)),
		targets: make([]roce.Target, 0, len(g.Paths)*len(g.Memory)),
		regions: len(g.Memory),
	}
	for i := range g.Paths {
		p := &g.Paths[i]
		if p.Resolved() {
			e.Paths[i] = roce.NewEdit(e.From, roce.Flow{Src: p.Src, Dst: p.Dst, DestQPN: p.DestQPN}, p.L2[:p.L2Bytes])
		}
		for k := range g.Memory {
			m := &g.Memory[k]
			to := Region{VA: m.VA, RKey: m.RKey} // a path without regions gets the RETH unchanged
			if len(p.Regions) > 0 {
				to = p.Regions[k]
			}
			e.targets = append(e.targets, roce.NewTarget(m.VA, m.RKey, to.VA, to.RKey))
		}
	}
	return e
}

// Target returns the place of a memory region at the receiver of a path, or nil for region -1,
// which means that the packet has no region.
func (e *Edits) Target(path, region int) *roce.Target {
	if region < 0 {
		return nil
	}
	return &e.targets[path*e.regions+region]
}
