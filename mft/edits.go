package mft

import "github.com/rocast/rocast/roce"

// Edits has, for every path of a group, the difference between the packets of one source and the
// copies for the path. It is valid until the group or its source changes.
type Edits struct {
	From  roce.Flow
	Paths []roce.Edit // parallel to Group.Paths
}

// Edits computes the edits for packets of the member of path source (below 0: of the Source). The
// edit of a path whose next hop is unknown must not be used.
func (g *Group) Edits(source int) Edits {
	e := Edits{
		From:  g.Flow(source),
		Paths: make([]roce.Edit, len(g.Paths)),
	}
	for i := range g.Paths {
		p := &g.Paths[i]
		if p.Resolved() {
			e.Paths[i] = roce.NewEdit(e.From, roce.Flow{Src: p.Src, Dst: p.Dst, DestQPN: p.DestQPN}, p.L2[:p.L2Bytes])
			e.Paths[i].Priority = g.Priority(&p.Leg)
		}
	}
	return e
}
