package watch

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/dataplane"
)

// lookAtShares records which shared legs reach no receiver, and which edges are silent or fail. A
// leg whose edges are silent is used on: the programs in their kernels map without the process that
// asks, and the data path sees whether copies arrive. What a silent edge cannot do is to load new
// mappings.
func (w *Watch) lookAtShares(g *groups.Group, now time.Time, state dataplane.GroupState) {
	g.Found.DeadLegs = deadLegs(g, state)
	w.lookAtFailing(g)
	was := g.Found.SilentEdges
	g.Found.SilentEdges = silentEdges(g, now)
	for id, silent := range g.Found.SilentEdges {
		if _, known := was[id]; !known {
			w.Log.Warn("the edge of a receiver is silent", append(fieldsOf(g, id), zap.Duration("for", silent))...)
			w.Groups.MemberEvent(api.EdgeSilent, g, id, "the edge at %v has not asked for %v; what it maps is used as long as shared copies arrive; "+
				"rocast-edge status there says why", id.IP, silent)
		}
	}
	for id := range was {
		if _, still := g.Found.SilentEdges[id]; !still && g.EdgeOf(id) != nil {
			w.Log.Info("the edge of a receiver asks again", fieldsOf(g, id)...)
			w.Groups.MemberEvent(api.EdgeAsks, g, id, "the edge at %v asks again", id.IP)
		}
	}
}

// lookAtFailing records which edges cannot load their mappings of a group. Its others share on.
func (w *Watch) lookAtFailing(g *groups.Group) {
	was := g.Found.FailingEdges
	g.Found.FailingEdges = nil
	for qp, at := range g.Sharing.Receivers {
		if at.Fails == "" {
			continue
		}
		if g.Found.FailingEdges == nil {
			g.Found.FailingEdges = map[groupfile.ID]string{}
		}
		id := groupfile.ID(qp)
		g.Found.FailingEdges[id] = at.Fails
		if was[id] != at.Fails {
			w.Log.Warn("a receiver gets copies of its own because a mapping fails", append(fieldsOf(g, id), zap.String("cause", at.Fails))...)
			w.Groups.MemberEvent(api.EdgeFails, g, id, "%s", at.Fails)
		}
	}
}

// deadLegs says which legs bring their copies to none of the receivers that share them, or "".
func deadLegs(g *groups.Group, state dataplane.GroupState) (text string) {
	dead := 0
	for k := range state.Shares {
		s := &state.Shares[k]
		if state.Group == nil || s.Retired || s.Working > 0 {
			continue
		}
		if dead++; dead > 1 {
			continue
		}
		leg := &state.Group.Shares[k]
		port := "the port"
		if l := g.Leg(groupfile.ID(leg.Members[0])); l != nil {
			port = l.Hop.PortName
		}
		text = fmt.Sprintf("shared copies to %v reach none of their %d receivers, so each gets its own, and the link of %s may not carry these; "+
			"docs/edge.md says what a switch needs", leg.Dst, len(leg.Members), port)
	}
	if dead > 1 {
		text += fmt.Sprintf("; and %d more legs", dead-1)
	}
	return text
}

// silentEdges returns for how long the edges of receivers have been silent.
func silentEdges(g *groups.Group, now time.Time) (silent map[groupfile.ID]time.Duration) {
	for qp, at := range g.Sharing.Receivers {
		if at.Edge == nil {
			continue
		}
		if d := at.Edge.Silent(now); d > 0 {
			if silent == nil {
				silent = map[groupfile.ID]time.Duration{}
			}
			silent[groupfile.ID(qp)] = d.Truncate(time.Second)
		}
	}
	return silent
}
