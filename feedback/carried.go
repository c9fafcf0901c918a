package feedback

import "github.com/rocast/rocast/roce"

// An engine in front of the data path may carry the source's packets while the group is plain: then
// a new packet is copied to every path that takes data and causes nothing else, so that nobody has
// to decide anything. What was carried is told by one Carried event before the next event of
// another kind.

// Plain says whether an engine may carry what follows the highest packet sent: the next packet, and
// any number of new ones behind it up to the Horizon, would each cause one Copy to every path whose
// part is PartActive, and nothing else. Everything else that can happen to the group is an event,
// and Plain is asked again after each.
//
// The result is how many paths are PartActive, 0 if the group is not plain. It falls when a path
// leaves, and only a Data event lets it rise.
//
// It is safe because new packets alone move only the source's place and the highest packet sent: no
// answer can become due while what the source was told is all that the policy takes for
// acknowledged.
func (g *Group) Plain() (active int) {
	quiet := g.source.known && g.floor.known && g.source.pos == g.source.sent && g.merged.psn == g.floor.psn &&
		g.refusal.syndrome == 0 && g.end.syndrome == 0 && !g.back.awaited && g.pending == pendingNAKs{}
	if !quiet {
		return 0
	}
	for i := range g.paths {
		p := &g.paths[i]
		switch p.part {
		case PartActive:
			if p.ask != askNone || p.fresh {
				return 0
			}
			active++
		case PartUnknown, PartJoining, PartDead:
			return 0
		}
	}
	return active
}

// Horizon is the last PSN that may be carried while no other event comes: beyond it a path would be
// further behind than 24-bit comparison can bear. The group is plain.
func (g *Group) Horizon() roce.PSN {
	lowest := g.source.sent
	for i := range g.paths {
		if p := &g.paths[i]; p.part == PartActive && p.acked.Before(lowest) {
			lowest = p.acked
		}
	}
	return lowest.Add(Window)
}

// Inside says whether the newest packet is not its message's last.
func (g *Group) Inside() bool { return g.source.inside }

// carried takes what an engine carried: it does what as many Data events would. Since the engine
// looked, the group may have stopped being plain, by an answer or by time passing: then something
// may be due now that the source has got further. A path that has left since got copies for
// nothing; none can have joined, because who joins begins with a Data event.
func (g *Group) carried(now Tick, ev *Event, acts []Action) []Action {
	newest := g.source.sent // before these packets
	for i := range g.paths {
		if p := &g.paths[i]; p.part.takesData() && p.acked == newest {
			p.since = now
		}
	}
	if hole := g.floor.psn.Next(); hole.After(newest) && !hole.After(ev.PSN) {
		g.speech.quietSince = now
	}
	if upTo, messages := g.counts(); upTo == newest {
		g.source.counted, g.source.messages = ev.PSN, messages.Add(ev.MSN.Sub(0))
	}
	g.doubts.recopied.trim(ev.PSN)
	g.source.forward(ev.PSN, ev.Last)
	g.source.pos = ev.PSN
	return g.replies(acts)
}
