package feedback

import "github.com/rocast/rocast/roce"

// TimerPeriod is how often a group that needs it wants a Timer event.
const TimerPeriod = 2 * millisecond

// NeedsTimer says whether the policy depends on the passing of time.
func (p Policy) NeedsTimer() bool { return p.SilentAfter != 0 || p.Speak != SpeakOff }

// timer looks for receivers that are silent.
func (g *Group) timer(now Tick, acts []Action) []Action {
	if g.policy.SilentAfter != 0 {
		acts = g.silence(now, acts)
	}
	if g.repairState == nil {
		acts = g.replies(acts)
	} else {
		acts = g.replies(g.legTimers(now, acts))
		acts = g.breakSilence(now, g.gapTimer(now, acts))
	}
	if g.policy.Speak == SpeakRNR && g.floor.known {
		acts = g.speak(now, acts)
	}
	return acts
}

// silence finds the paths that make no progress although the source resends and another path is
// further (rule 8).
func (g *Group) silence(now Tick, acts []Action) []Action {
	for i := range g.paths {
		p := &g.paths[i]
		if !p.part.takesData() || !g.source.known || p.part == PartActive && !p.acked.Before(g.source.sent) {
			continue
		}
		if g.mends(i) || now-p.since < Tick(g.policy.SilentAfter) || g.source.resentAt <= p.since || !g.someoneAheadOf(p) {
			continue
		}
		if !p.silent {
			p.silent = true
			acts = append(acts, Action{Kind: Notice, Note: NoteSilent, Path: i, PSN: p.acked.Next()})
		}
		// A path that cannot be spared stays, because it may come back. It does not stay if it has
		// not acknowledged what the source has let go of, or has not answered since a restart: it
		// may be silent for ever, and the source would wait for ever.
		stuck := g.merged.known && (p.part == PartUnknown || p.acked.Before(g.merged.highest))
		if g.policy.Evict && (g.spare(i) || stuck) {
			acts = g.evict(i, acts)
		}
	}
	return acts
}

func (g *Group) someoneAheadOf(p *path) bool {
	for i := range g.paths {
		q := &g.paths[i]
		if q.part == PartActive && (p.part == PartUnknown || q.acked.After(p.acked)) {
			return true
		}
	}
	return false
}

// speakAfter is how long the floor must have stood still, with data beyond it, before the switch
// speaks for a silent receiver: longer than a loaded receiver takes to answer, and a fraction of
// any requester's timeout.
const speakAfter = 8 * millisecond

// speech is what the switch says for a receiver whose resent packet was lost again, and which is
// silent for that reason: it has sent its NAK (rule 4).
type speech struct {
	quietSince Tick     // the floor moved, the source came back or the packet at the floor was sent again
	spoken     bool     // the switch has spoken before
	hole       roce.PSN // for which packet
}

// speak sends an RNR NAK of 10 us for floor+1, once for each such packet: again and again it would
// keep the source from noticing that a receiver is dead. A sequence NAK would be ignored by rxe
// until its next ACK. Nothing is sent to a source that has not come back yet: if it is only slow it
// goes back twice, and the first time would be taken for the second.
func (g *Group) speak(now Tick, acts []Action) []Action {
	s, hole := &g.speech, g.floor.psn.Next()
	switch {
	case hole.After(g.source.pos), g.back.awaited, g.end.sent, g.mendable():
		return acts
	case now-s.quietSince < speakAfter, s.spoken && s.hole == hole:
		return acts
	}
	s.spoken, s.hole = true, hole
	return because(g.sendBack(hole, roce.SyndromeRNR(shortestRNR), acts), CauseSilentReceiver)
}
