package feedback

import "github.com/rocast/rocast/roce"

// An engine that carries the source's packets may also merge the plain ACKs of the receivers while
// the group is plain: it notes what each path has acknowledged, and when the lowest of that rises
// it tells the source. Before the next event of any kind the engine ends that, and one call of
// Answered reports what it did.

// Progress is up to where the source's stream is acknowledged: by a path, or to the source. PSN and
// MSN are the source's.
type Progress struct {
	PSN roce.PSN
	MSN roce.MSN
}

// Answered is the progress of one path.
type Answered struct {
	Path int
	Progress
}

// MayMerge reports whether an engine may merge the plain ACKs of the active paths: those with the
// MigReq bit that is returned. The group must be plain. Then an ACK that moves a path up causes an
// ACK to the source if it moves the lowest path, and nothing else. The first ACK after that, which
// has the same PSN, says nothing new. With a quorum and with credits that are merged an ACK decides
// more than that; with repair it may for a moment (AcksDecide).
func (g *Group) MayMerge() (migReq, ok bool) {
	ok = g.policy.Ack == AckAll && g.policy.Credits != CreditsMerge
	for i := range g.paths {
		p := &g.paths[i]
		ok = ok && (p.part != PartActive || p.migReq == g.floor.migReq)
	}
	return g.floor.migReq, ok
}

// AcksDecide reports whether an ACK to a plain group that MayMerge may cause more at this moment
// than an ACK to the source. With repair it may measure a round trip, it may be the answer to a
// packet that was sent again, it may be for a packet that its path was not sent, or it may be due
// to the source only behind a NAK. Nothing that an engine carries or merges makes it so.
func (g *Group) AcksDecide() bool {
	for i := range g.legs {
		l := &g.legs[i]
		if g.paths[i].part == PartActive && (l.sampling || l.sentAgain || l.attempts > 0 || l.high != g.source.sent) {
			return true
		}
	}
	return g.lull.asked
}

// Answered handles the ACKs that an engine merged: paths are the places where the paths are now,
// and told is what the source was told last. It does the same as one Response event for each ACK,
// except that the source is sent only what it was not told yet. What was carried must have been
// reported before.
func (g *Group) Answered(now Tick, paths []Answered, told Progress, acts []Action) []Action {
	for i := range paths {
		at := &paths[i]
		if p := &g.paths[at.Path]; p.part == PartActive && at.PSN.After(p.acked) {
			by := at.PSN.Sub(p.acked)
			p.msn = at.MSN
			g.stands(now, p, at.PSN)
			if g.policy.repairs() {
				g.moved(now, at.Path, by)
			}
		}
	}
	g.recount()
	if told.PSN == g.floor.psn {
		g.floor.msn = told.MSN // the lowest path's when the source was told; others have moved since
	}
	if told.PSN.After(g.merged.psn) {
		g.sentACK(told.PSN, told.MSN)
	}
	return g.replies(acts)
}
