package mft

import "github.com/rocast/rocast/roce"

// Edits has, for every path of a group, the difference between the packets of one source and the
// copies for the path. It is valid until the group or its source changes.
type Edits struct {
	From   roce.Flow
	Paths  []roce.Edit // parallel to Group.Paths
	Shares []roce.Edit // parallel to Group.Shares
}

// Edits computes the edits for packets of the member of path source (below 0: of the Source). The
// edit of a path whose next hop is unknown must not be used.
func (g *Group) Edits(source int) Edits {
	e := Edits{
		From:  g.Flow(source),
		Paths: make([]roce.Edit, len(g.Paths)),
	}
	for i := range g.Paths {
		if leg := &g.Paths[i].Leg; leg.Resolved() {
			e.Paths[i] = g.edit(e.From, leg)
		}
	}
	for k := range g.Shares {
		e.Shares = append(e.Shares, g.edit(e.From, &g.Shares[k].Leg))
	}
	return e
}

func (g *Group) edit(from roce.Flow, leg *Leg) roce.Edit {
	e := roce.NewEdit(from, roce.Flow{Src: leg.Src, Dst: leg.Dst, DestQPN: leg.DestQPN}, leg.L2[:leg.L2Bytes])
	e.Priority = g.Priority(leg)
	return e
}
