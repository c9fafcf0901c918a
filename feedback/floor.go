package feedback

import (
	"slices"

	"github.com/rocast/rocast/roce"
)

// floor is the highest PSN that the ack policy takes for acknowledged: what
// every counted path has, or what the f-th best has. It falls when who had more
// leaves a quorum, but not below what the source was told.
type floor struct {
	psn    roce.PSN
	known  bool     // psn means something: enough paths have spoken once
	msn    roce.MSN // of a path that stands there (rule 6)
	migReq bool     // the same path's
	above  int      // counted paths above psn
	need   int      // so many must be above it for it to move; 0: nothing can move it
	ranked []int32  // scratch for quorum
}

// ready says whether enough paths have spoken to merge anything (rule 13).
func (g *Group) ready() bool { return g.floor.known }

// recount finds the floor anew: when the paths that hold it down have left it,
// or when the paths that count have changed.
func (g *Group) recount() {
	lowest, counted, unknown := -1, 0, 0
	for i := range g.paths {
		p := &g.paths[i]
		switch {
		case !p.counted():
			continue
		case p.part == PartUnknown:
			unknown++
			continue
		}
		counted++
		if lowest < 0 || p.acked.Before(g.paths[lowest].acked) {
			lowest = i
		}
	}
	f := &g.floor
	switch need := int(g.policy.Ack); {
	case need == 0:
		f.need = counted
		if unknown > 0 {
			f.need = 0
		}
	case counted < need:
		f.need = 0
		f.known = f.known && g.told
		g.fall()
	default:
		f.need = need
		lowest = g.rank(need, g.paths[lowest].acked)
	}
	if f.need > 0 && lowest >= 0 {
		g.stand(lowest)
	}
	f.above = 0
	for i := range g.paths {
		if p := &g.paths[i]; p.counted() && p.part != PartUnknown && p.acked.After(f.psn) {
			f.above++
		}
	}
}

// isFresh says whether a quorum must not count a path that joins with psn: the
// source has not been told of all that came before.
func (g *Group) isFresh(psn roce.PSN) bool {
	return g.policy.Ack != AckAll && (!g.told || g.toldUpTo.Before(psn.Prev()))
}

// ripen makes those count that are fresh no more.
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

// rank returns the counted path with the f-th highest acked, seen from base: no
// counted path is below it, nor further above than Window allows.
func (g *Group) rank(f int, base roce.PSN) int {
	r := g.floor.ranked[:0]
	for i := range g.paths {
		if p := &g.paths[i]; p.counted() && p.part != PartUnknown {
			r = append(r, p.acked.Sub(base))
		}
	}
	slices.Sort(r)
	at := base.Add(r[len(r)-f])
	for i := range g.paths {
		if p := &g.paths[i]; p.counted() && p.part != PartUnknown && p.acked == at {
			return i
		}
	}
	panic("feedback: a ranked path has gone")
}

// stand puts the floor where path i is, unless the source was told more.
func (g *Group) stand(i int) {
	p, f := &g.paths[i], &g.floor
	switch {
	case !f.known || !p.acked.Before(f.psn) || !g.told || !p.acked.Before(g.toldUpTo):
		f.known, f.psn, f.msn, f.migReq = true, p.acked, p.msn, p.migReq
	default:
		g.fall()
	}
}

// fall takes the floor back to what the source was told: who had more has left.
func (g *Group) fall() {
	if f := &g.floor; f.psn.After(g.toldUpTo) {
		f.psn, f.msn = g.toldUpTo, g.toldMSN
	}
}

// advance moves a path up. The floor follows when enough paths are above it.
func (g *Group) advance(now Tick, p *path, acked roce.PSN) {
	wasAbove := p.acked.After(g.floor.psn)
	p.acked, p.since, p.silent, p.ask, p.unheard = acked, now, false, askNone, 0
	g.setPending(p, 0)
	f := &g.floor
	if f.need == 0 || wasAbove || p.fresh || !acked.After(f.psn) {
		return
	}
	if f.above++; f.above < f.need {
		return
	}
	g.recount()
	g.speech.restart(now)
}
