package feedback

import "github.com/rocast/rocast/roce"

// After a restart, what the source sends teaches what the receivers have (rule 13). But a source
// whose turn is over sends nothing, and the member that waits for its turn would wait for ever. So
// the caller asks the receivers: by a packet that each of them has executed already, which a
// responder answers with the newest packet that it has executed (docs/wire.md#responder).
//
// An answer looks like any older one, so the first question comes when what was on its way before
// has come, and what comes from then on is true: nobody sends the receivers anything. When all
// receivers that the policy needs stand at one place, the source has sent nothing that one of them
// lacks and another has. If it has sent more, it has heard no acknowledgement of that, and sends it
// again.

const (
	// onItsWay is longer than an answer from before the restart is on its way still. It is less
	// than packetLife, because a restart takes its time too, and a fraction of the time after which
	// a queue pair gives up.
	onItsWay = 50 * millisecond
	// AskPeriod is how often the caller asks, because questions and answers may be lost. It is
	// longer than most round trips.
	AskPeriod = 10 * millisecond
)

// asking is the questions to paths that have not answered since a restart.
type asking struct {
	begun bool
	from  Tick // when they were first wanted
	at    Tick // of the newest one, or from
}

// MayAsk says whether questions help: the source was not heard since a restart.
func (g *Group) MayAsk() bool { return !g.source.known }

// Ask asks the paths whose state is unknown what they have acknowledged, for the member that s
// would make the source. Call it again every AskPeriod while that member waits.
func (g *Group) Ask(now Tick, s SourceSwitch, acts []Action) []Action {
	a := &g.asking
	switch {
	case !g.MayAsk():
		return acts
	case !a.begun || now-a.at > claimLife:
		g.asking = asking{begun: true, from: now, at: now}
		return acts
	case now-a.from >= onItsWay+g.policy.settleWithin() && g.sparesSilent(s):
		acts = g.leaveSilent(acts)
		g.settleAt()
		return acts
	case now-a.from < onItsWay || now-a.at < AskPeriod:
		return acts
	}
	a.at = now
	// The packet in front of the first one of this turn may not have existed, and an answer for the
	// packet that asks says nothing: another box answers a packet that it knows with its own PSN.
	question := g.source.first.Add(-2)
	for i := range g.paths {
		if g.paths[i].part == PartUnknown {
			acts = append(acts, Action{Kind: Question, Path: i, PSN: question})
		}
	}
	return acts
}

// tell takes the answer to a question.
func (g *Group) tell(now Tick, ev *Event, p *path, acked roce.PSN) Outcome {
	a := &g.asking
	if !a.begun || now-a.from < onItsWay || ev.Syndrome.IsFatal() || acked.Before(g.source.first.Prev()) {
		return OutsideWindow
	}
	p.acked, p.told = acked, true
	p.takeCredits(ev)
	p.msn, p.migReq = ev.MSN, ev.MigReq
	g.settleAt()
	return Absorbed
}

// best returns the path that has told the highest place, or nil.
func (g *Group) best() (best *path) {
	for i := range g.paths {
		if p := &g.paths[i]; p.told && (best == nil || p.acked.After(best.acked)) {
			best = p
		}
	}
	return best
}

// sparesSilent says whether the next source can do without the paths that have told nothing: with
// evict, if all others stand at one place, the next source's among them, and somebody receives from
// it. A quorum needs no such rule, because it does not wait for them.
func (g *Group) sparesSilent(s SourceSwitch) bool {
	best := g.best()
	if g.policy.Ack != AckAll || !g.policy.Evict || best == nil {
		return false
	}
	receives := s.OldPath >= 0 && s.OldPath != s.NewPath && g.away.takesData()
	for i := range g.paths {
		p := &g.paths[i]
		if p.told && p.acked != best.acked || !p.told && i == s.NewPath {
			return false
		}
		receives = receives || p.told && i != s.NewPath
	}
	return receives
}

// leaveSilent leaves the paths behind that have told nothing.
func (g *Group) leaveSilent(acts []Action) []Action {
	for i := range g.paths {
		if p := &g.paths[i]; p.part == PartUnknown && !p.told {
			acts = g.fallBehind(i, acts)
		}
	}
	return acts
}

// settleAt makes the group what it is behind the last packet that the receivers have, if enough of
// them have told the same place. Nobody knows whether that packet ends a message; a source that has
// begun another message does not let another member take its turn.
func (g *Group) settleAt() {
	best := g.best()
	if best == nil {
		return
	}
	have, counted := 0, 0
	messages := best.msn
	for i := range g.paths {
		p := &g.paths[i]
		if p.counted() {
			counted += g.weight(i)
		}
		if p.told && p.acked == best.acked {
			have += g.weight(i)
			if p.msn.Sub(messages) < 0 {
				messages = p.msn
			}
		}
	}
	if need := int(g.policy.Ack); need == 0 && have < counted || have < need {
		return
	}
	at, since := best.acked, g.asking.from+onItsWay
	for i := range g.paths {
		if p := &g.paths[i]; p.told && p.acked == at {
			p.part = PartActive
		}
	}
	g.begin(at.Next(), messages)
	g.source.told = true
	g.source.counted = at.Prev() // it may be inside a message
	g.merged.known = false       // nobody knows what the source has heard an ACK of
	g.claim = claim{true, at, since}
	g.doubts.doubtRestart(at.Next())
	g.recount()
}
