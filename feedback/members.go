package feedback

import "github.com/rocast/rocast/roce"

// Rearrange gives the group the paths of a new membership: from[i] is the old
// index of new path i, or -1 for one that joins. A joining path gets data from
// the next message on, because a QP that has seen nothing must not begin with
// the middle of one. Send a Timer event afterwards: without the paths that left
// the minimum may have moved.
func (g *Group) Rearrange(from []int) {
	paths := make([]path, len(from))
	for i, old := range from {
		if old >= 0 {
			paths[i] = g.paths[old]
		} else {
			paths[i] = path{part: PartJoining}
		}
	}
	g.paths = paths
	g.floor.ranked = make([]int32, 0, len(paths))
	g.sequenceNAKs, g.rnrNAKs = 0, 0
	for i := range paths {
		g.countPending(paths[i].pending, 1)
	}
	g.recount()
}

// join lets the joining paths in with psn, the first packet of a message.
func (g *Group) join(psn roce.PSN, acts []Action) []Action {
	joined := false
	for i := range g.paths {
		p := &g.paths[i]
		if p.part != PartJoining {
			continue
		}
		p.part, p.acked, p.msn, joined = PartActive, psn.Prev(), g.messages, true
		acts = append(acts,
			Action{Kind: Join, Path: i, PSN: psn, MSN: g.messages},
			Action{Kind: Notice, Note: NoteJoined, Path: i, PSN: psn})
	}
	if joined {
		g.recount()
	}
	return acts
}

// Idle says whether everything the source sent is acknowledged by every path
// that takes data, so that another member may become the source (rule 12).
func (g *Group) Idle() bool {
	for i := range g.paths {
		p := &g.paths[i]
		if p.part == PartUnknown || p.part == PartActive && p.acked != g.sent {
			return false
		}
	}
	return g.started
}

// SwitchSource makes psn the first packet of a new source, whose own path is
// away (-1: it has none) and takes no data meanwhile. The old source's path
// takes part again. Everything is in the new source's PSN space from here on.
func (g *Group) SwitchSource(psn roce.PSN, old, away int) {
	if old >= 0 {
		g.paths[old].part = PartActive
	}
	if away >= 0 {
		g.paths[away].part = PartGone
	}
	g.begin(psn)
	g.recount()
}
