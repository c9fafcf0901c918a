package feedback

import "github.com/rocast/rocast/roce"

// Snapshot is a group's merging state at one moment, for people to read. PSNs are in the source's
// space.
type Snapshot struct {
	Started bool     // the source was heard, or the group began with it
	Ended   bool     // the source was sent the NAK that ends its QP
	Between bool     // all that the source has sent is acknowledged, and ends with a message
	Sent    roce.PSN // the highest PSN forwarded
	Pos     roce.PSN // the last PSN seen
	Merged  roce.PSN // the last PSN that the source was sent an ACK for
	Paths   []PathSnapshot
}

// PathSnapshot is the state of one receiver.
type PathSnapshot struct {
	Part    Part
	Acked   roce.PSN
	MSN     roce.MSN
	Fresh   bool          // a quorum does not count it yet: the source may wait for packets from before it joined
	Told    bool          // it was asked since a restart, and has answered: Acked means something although Part is PartUnknown
	Pending roce.Syndrome // a NAK that the source was not sent yet, or the one that ended the QP; 0: none

	// What follows is zero without repair (rule 14).

	Repairing bool     // it gets no new data directly
	Unmended  bool     // the source has to help with what it waits for
	Cursor    roce.PSN // the next packet it is sent
	Repaired  uint64   // retained packets that it was sent
	Probes    uint64   // of these, the ones that were sent because it was silent
	GivenUp   uint64   // how often the source had to help
}

// Snapshot returns the group's state.
func (g *Group) Snapshot() Snapshot {
	s := Snapshot{
		Started: g.source.known, Ended: g.end.sent, Between: g.Settled() && !g.source.inside,
		Sent: g.source.sent, Pos: g.source.pos, Merged: g.merged.psn,
	}
	for i := range g.paths {
		p := &g.paths[i]
		s.Paths = append(s.Paths, PathSnapshot{Part: p.part, Acked: p.acked, MSN: p.msn, Fresh: p.fresh, Told: p.told, Pending: p.pending})
		g.snapshotLeg(i, &s.Paths[i])
	}
	return s
}
