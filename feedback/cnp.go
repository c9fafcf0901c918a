package feedback

// The counts of notifications are halved by two rules, so that old notifications count less.
const (
	// Each window that passes halves them. A source with DCQCN that has its fair share of a link
	// is notified once in several milliseconds. If windows were shorter than that, each path would
	// have lost its count before the next notification came, and the notifications of all paths
	// would pass (found by simulation: rocsim -congestion).
	cnpWindow = 8 * millisecond
	// All counts are halved when one reaches cnpMost, so that a path that becomes the most
	// congested one is heard after so many notifications at most.
	cnpMost = 16
)

// congestion is what the filter of CNPs remembers beside the paths' counts (rule 10).
type congestion struct {
	halvedAt  Tick // when the counts were last halved
	paidUntil Tick // up to this time the CNPs that passed have used up the pace that the policy allows
}

// cnp passes a notification of the most congested path alone, as Cepheus does: the source must slow
// down for its worst receiver, and not once for each.
//
// The pace is the receiver's: its NIC keeps an interval for each QP (50 us in the DCQCN paper, 4 us
// on ConnectX), so that what passes is what the source would hear of that receiver alone. Of paths
// that are equally congested one stream passes: a notification passes when it gives its path more
// than every other path has, and the highest count grows at the pace of one of them.
func (g *Group) cnp(now Tick, i int, acts []Action) ([]Action, Outcome) {
	if !g.paths[i].part.takesData() {
		return acts, NotTakingPart
	}
	if g.policy.CNP == CNPAll {
		return append(acts, Action{Kind: PassCNP, Path: i}), CNPPassed
	}
	g.ageCNPs(now)
	g.paths[i].cnps++
	most := g.mostCongested(i)
	if g.paths[i].cnps == cnpMost {
		g.halveCNPs(1)
	}
	if !most || !g.congestion.pay(now, Tick(g.policy.CNPInterval)) {
		return acts, CNPFiltered
	}
	return append(acts, Action{Kind: PassCNP, Path: i}), CNPPassed
}

// mostCongested reports whether path i has more notifications than every other path that takes
// data.
func (rx *receivers) mostCongested(i int) bool {
	for k := range rx.paths {
		if p := &rx.paths[k]; k != i && p.part.takesData() && p.cnps >= rx.paths[i].cnps {
			return false
		}
	}
	return true
}

// pay reports whether a notification may pass, at one per interval on average. One may come an
// interval early: a NIC that keeps the same interval is not thinned because links add jitter to it.
func (c *congestion) pay(now, interval Tick) bool {
	if now < c.paidUntil-interval {
		return false
	}
	c.paidUntil = max(c.paidUntil, now) + interval
	return true
}

func (g *Group) ageCNPs(now Tick) {
	c := &g.congestion
	windows := max(0, (now-c.halvedAt)/cnpWindow)
	c.halvedAt += windows * cnpWindow
	g.halveCNPs(windows)
}

func (rx *receivers) halveCNPs(times Tick) {
	for i := range rx.paths {
		rx.paths[i].cnps >>= times
	}
}
