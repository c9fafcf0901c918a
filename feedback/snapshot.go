package feedback

import "github.com/rocast/rocast/roce"

// Snapshot is a group's merging state at one moment, for people to read. PSNs
// are in the source's space.
type Snapshot struct {
	Started bool     // the source has been heard, or the group began here
	Sent    roce.PSN // highest data PSN forwarded
	Pos     roce.PSN // the source's place
	Merged  roce.PSN // what the source was last told
	Paths   []PathSnapshot
}

// PathSnapshot is one receiver's part.
type PathSnapshot struct {
	Part    Part
	Acked   roce.PSN
	MSN     roce.MSN
	Pending roce.Syndrome // NAK the source has not heard; 0: none
}

// Snapshot returns the group's state.
func (g *Group) Snapshot() Snapshot {
	s := Snapshot{Started: g.started, Sent: g.sent, Pos: g.pos, Merged: g.merged}
	for i := range g.paths {
		p := &g.paths[i]
		s.Paths = append(s.Paths, PathSnapshot{Part: p.part, Acked: p.acked, MSN: p.msn, Pending: p.pending})
	}
	return s
}
