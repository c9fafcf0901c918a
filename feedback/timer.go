package feedback

// TimerPeriod is how often a group that needs it wants a Timer event.
const TimerPeriod = 2 * millisecond

// NeedsTimer reports whether the policy depends on the passing of time.
func (p Policy) NeedsTimer() bool { return p.SilentAfter != 0 }

// timer looks for receivers that are silent.
func (g *Group) timer(now Tick, acts []Action) []Action {
	if g.policy.SilentAfter != 0 {
		acts = g.silence(now, acts)
	}
	if !g.policy.repairs() {
		return g.replies(acts)
	}
	if g.back.answered(now, g.source.pos) {
		g.back.awaited = false
	}
	acts = g.replies(g.legTimers(now, acts))
	return g.breakSilence(now, g.gapTimer(now, acts))
}

// silence finds the paths that make no progress although the source resends and another path is
// further (rule 8).
func (g *Group) silence(now Tick, acts []Action) []Action {
	for i := range g.paths {
		p := &g.paths[i]
		if !p.part.takesData() || !g.source.known || p.part == PartActive && !p.acked.Before(g.source.sent) {
			continue
		}
		if g.willRepair(i) || now-p.since < Tick(g.policy.SilentAfter) || g.source.resentAt <= p.since || !g.someoneAheadOf(p) {
			continue
		}
		if p.silent == silenceNone {
			p.silent = silenceTotal
			acts = append(acts, Action{Kind: Notice, Note: NoteSilent, Path: i, PSN: p.acked.Next()})
		}
		// A path that cannot be spared stays, because it may come back. It does not stay if it has
		// not acknowledged what the source has let go of, or has not answered since a restart: it
		// may be silent for ever, and the source would wait for ever. So it would where a fatal NAK
		// waits for such a path: the source's QP ends with that NAK in any case.
		stuck := g.merged.known && (p.part == PartUnknown || p.acked.Before(g.merged.highest)) || g.end.syndrome != 0
		if g.policy.Evict && (g.spare(i) || stuck && i != g.needed) {
			acts = g.evict(i, acts)
		}
	}
	return acts
}
