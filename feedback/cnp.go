package feedback

import "time"

const (
	// cnpWindow is how long a path's notifications count in full; each
	// window that passes halves them.
	cnpWindow = Tick(time.Millisecond)
	// cnpInterval is the least time between two that reach the source: what
	// DCQCN's notification point keeps per QP (50 us).
	cnpInterval = Tick(50 * time.Microsecond)
)

// congestion is the ageing of the paths' CNP counts (rule 10).
type congestion struct {
	windowAt Tick
	passedAt Tick
	passed   bool
}

// cnp passes a notification if its path is the most congested one, at most one
// per interval: the source must slow down for its worst receiver, not once for
// each.
func (g *Group) cnp(now Tick, i int, acts []Action) ([]Action, Outcome) {
	if !g.paths[i].part.takesData() {
		return acts, NotTakingPart
	}
	if g.policy.CNP == CNPAll {
		return append(acts, Action{Kind: PassCNP, Path: i}), CNPPassed
	}
	g.ageCNPs(now)
	p, c := &g.paths[i], &g.congestion
	if p.cnps < ^uint16(0) {
		p.cnps++
	}
	for k := range g.paths {
		if g.paths[k].cnps > p.cnps {
			return acts, CNPFiltered
		}
	}
	if c.passed && now-c.passedAt < cnpInterval {
		return acts, CNPFiltered
	}
	c.passed, c.passedAt = true, now
	return append(acts, Action{Kind: PassCNP, Path: i}), CNPPassed
}

func (g *Group) ageCNPs(now Tick) {
	c := &g.congestion
	windows := (now - c.windowAt) / cnpWindow
	if windows <= 0 {
		return
	}
	c.windowAt += windows * cnpWindow
	for i := range g.paths {
		g.paths[i].cnps >>= min(windows, 16)
	}
}
