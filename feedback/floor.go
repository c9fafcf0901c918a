package feedback

import (
	"math"

	"github.com/rocast/rocast/roce"
)

// floor is the highest PSN that the ack policy takes for acknowledged: what every counted path has,
// or what the f-th best path has. It falls when a path leaves that a quorum needs, but never below
// what the source was sent an ACK for.
//
// Recounting walks over all paths. Between two recounts the paths above the floor are counted, and
// the floor cannot move before enough of them are.
type floor struct {
	known  bool     // enough paths have answered once, so that psn means something (rule 13)
	migReq bool     // of the path that stands at psn
	psn    roce.PSN //
	msn    roce.MSN // of the same path: a PSN and an MSN of different paths do not belong together (rule 6, msnAt)
	above  int      // receivers that the counted paths above psn stand for
	need   int      // so many must be above for the floor to move
}

// never is more paths than a group has: nothing can move the floor.
const never = math.MaxInt

// recount computes the floor again, when enough paths are above it or when the paths that count
// have changed.
func (g *Group) recount() {
	var lowest *path
	counted, unknown := 0, 0
	for i := range g.paths {
		p := &g.paths[i]
		switch {
		case !p.counted():
			continue
		case p.part == PartUnknown:
			unknown++
			continue
		}
		counted += g.weight(i)
		if lowest == nil || p.acked.Before(lowest.acked) {
			lowest = p
		}
	}
	g.recountRetained()
	f := &g.floor
	f.need = never
	switch need := int(g.policy.Ack); {
	case !g.source.known:
		// nobody knows what the source waits for, although some path has it
	case need == 0 && (counted == 0 || unknown > 0):
		// a path that has not answered since the restart may have nothing
	case need == 0:
		f.need = counted
		g.stand(lowest)
	case counted < need:
		f.known = f.known && g.merged.known
		g.fall()
	default:
		f.need = need
		g.stand(g.rank(need))
	}
	f.above = 0
	for i := range g.paths {
		if p := &g.paths[i]; p.counted() && p.part != PartUnknown && p.acked.After(f.psn) {
			f.above += g.weight(i)
		}
	}
	if s := &g.source; s.known && !s.told && f.known && s.pos == s.sent {
		s.unsure = false // nobody has more than it was seen to send
	}
}

// stand puts the floor where a path stands, unless the source was sent an ACK for more.
func (g *Group) stand(p *path) {
	if g.merged.known && p.acked.Before(g.merged.highest) {
		g.fall()
		return
	}
	f := &g.floor
	f.known, f.psn, f.msn, f.migReq = true, p.acked, g.msnAt(p), p.migReq
}

// fall takes the floor back to what the source was sent an ACK for: a path that had more has left.
func (g *Group) fall() { g.floor.psn, g.floor.msn = g.merged.highest, g.merged.msn }

// advance moves path i up. The floor follows when enough paths are above it.
func (g *Group) advance(now Tick, i int, acked roce.PSN) {
	p := &g.paths[i]
	from, wasAbove := p.acked, p.acked.After(g.floor.psn)
	g.stands(now, p, acked)
	f := &g.floor
	if wasAbove || p.fresh || !acked.After(f.psn) {
		g.rise(from)
		return
	}
	if f.above += g.weight(i); f.above < f.need {
		g.rise(from)
		return
	}
	g.recount()
}

// stands notes that a path has acknowledged more than before.
func (g *Group) stands(now Tick, p *path, acked roce.PSN) {
	p.acked, p.since, p.silent, p.ask, p.unheard = acked, now, false, g.askAt(acked.Next()), 0
	g.setPending(p, 0)
}

// isFresh reports whether a quorum must not count a path whose first packet is psn: it acknowledges
// what came before psn by standing there, and has nothing of that. It counts once the source was
// sent an ACK for all of that.
func (g *Group) isFresh(psn roce.PSN) bool {
	return g.policy.Ack != AckAll && (!g.merged.known || g.merged.highest.Before(psn.Prev()))
}

// ripenLate makes those paths count that have joined long before the source sends psn, and reports
// whether there are any. The source has at most firstWindow packets on their way, so it has heard
// the ACK of everything before such a path's first packet.
func ripenLate(paths []path, psn roce.PSN) (ripe bool) {
	for i := range paths {
		p := &paths[i]
		if d := psn.Sub(p.from); p.fresh && (d >= firstWindow || d < -Window) {
			p.fresh, ripe = false, true
		}
	}
	return ripe
}

// ripen makes those paths count that are no longer fresh.
func (g *Group) ripen() {
	ripe := false
	for i := range g.paths {
		if p := &g.paths[i]; p.fresh && !g.isFresh(p.from) {
			p.fresh, ripe = false, true
		}
	}
	if ripe {
		g.recount()
	}
}
