package feedback

import (
	"time"

	"github.com/rocast/rocast/roce"
)

// TimerPeriod is how often groups that need it want a Timer event.
const TimerPeriod = Tick(2 * time.Millisecond)

// NeedsTimer says whether anything of the policy depends on time passing.
func (p Policy) NeedsTimer() bool { return p.SilentAfter > 0 || p.Speak != SpeakOff }

// timer looks for receivers that have gone quiet.
func (g *Group) timer(now Tick, acts []Action) []Action {
	if g.policy.SilentAfter > 0 {
		acts = g.silence(now, acts)
	}
	acts = g.tell(acts)
	if g.policy.Speak == SpeakRNR && g.ready() {
		acts = g.speak(now, acts)
	}
	return acts
}

// silence finds paths that make no progress although the source resends and
// others are further (rule 8).
func (g *Group) silence(now Tick, acts []Action) []Action {
	for i := range g.paths {
		p := &g.paths[i]
		if !p.part.takesData() || !g.started || p.part == PartActive && !p.acked.Before(g.sent) {
			continue
		}
		if now-p.since < Tick(g.policy.SilentAfter) || g.resentAt <= p.since || !g.someoneAheadOf(p) {
			continue
		}
		if !p.silent {
			p.silent = true
			acts = append(acts, Action{Kind: Notice, Note: NoteSilent, Path: i, PSN: p.acked.Next()})
		}
		switch {
		case !g.policy.Evict:
		case g.spare():
			acts = g.evict(i, acts)
		case g.told && (p.part == PartUnknown || p.acked.Before(g.toldUpTo)):
			// It waits for what the source has let go of, or does not
			// speak after a restart, which is the same; and whoever
			// else the quorum had has left: nothing can come of it.
			acts = g.fallBehind(i, acts)
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

// speakAfter is how long the floor must have stood still with data beyond it
// before the switch speaks for who is silent: longer than a loaded receiver
// takes, a fraction of any requester's timeout.
const speakAfter = Tick(8 * time.Millisecond)

// speech is what the switch says for a receiver whose resent packet was lost
// again, and which therefore says nothing (rule 4).
type speech struct {
	quietSince Tick
	said       bool     // something was ever said
	hole       roce.PSN // for what
}

func (s *speech) restart(now Tick) { s.quietSince = now }

// speak says, once per hole, an RNR NAK of 10 us. A sequence NAK would be
// ignored by rxe until its next ACK, and repeated it is a livelock. Nor is a NAK
// repeated to a source that has not come back yet: if it is only slow it would go
// back twice, and the switch would take the first time for the second.
func (g *Group) speak(now Tick, acts []Action) []Action {
	hole := g.floor.psn.Next()
	s := &g.speech
	if hole.After(g.pos) || g.awaiting || g.end.told || now-s.quietSince < speakAfter || s.said && s.hole == hole {
		return acts
	}
	s.said, s.hole = true, hole
	const shortest = 1
	return g.sendBack(hole, roce.SyndromeRNR(shortest), acts)
}
