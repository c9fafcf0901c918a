package feedback

import "github.com/rocast/rocast/roce"

// After a restart, what the source sends teaches what the receivers have (rule 13). But a source
// whose turn is over sends nothing, and the member that waits for its turn would wait for ever. So
// the caller asks the receivers: by a packet that each of them has executed already, which a
// responder answers with the newest packet that it has executed (docs/wire.md#responder).
//
// A receiver has told its place when it has given the same answer twice: one answer may be older
// than the question. When all receivers that the policy needs stand at one place, the source has
// sent nothing that one of them lacks and another has. If it has sent more, it has heard no
// acknowledgement of that, and sends it again.

// askAgain is how long the answers to one question are waited for. It is longer than a round trip,
// and a fraction of any requester's timeout.
const askAgain = 4 * millisecond

const toldTwice = 2

// asking is the questions to paths that have not answered since a restart.
type asking struct {
	begun bool
	at    Tick // of the newest question
}

// MayAsk says whether questions help: the source was not heard since a restart.
func (g *Group) MayAsk() bool { return !g.source.known }

// Ask asks the paths whose state is unknown what they have acknowledged.
func (g *Group) Ask(now Tick, acts []Action) []Action {
	if !g.MayAsk() || g.asking.begun && now-g.asking.at < askAgain {
		return acts
	}
	g.asking = asking{begun: true, at: now}
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
func (g *Group) tell(ev *Event, p *path, acked roce.PSN) Outcome {
	if !g.asking.begun || ev.Syndrome.IsFatal() || acked.Before(g.source.first.Prev()) {
		return OutsideWindow
	}
	if p.acked != acked {
		p.acked, p.told = acked, 0
	}
	p.told = min(p.told+1, toldTwice)
	p.takeCredits(ev)
	p.msn, p.migReq = ev.MSN, ev.MigReq
	g.settleAt()
	return Absorbed
}

// settleAt makes the group what it is behind the last packet that the receivers have, if enough of
// them have told the same place. Nobody knows whether that packet ends a message; a source that has
// begun another message does not let another member take its turn.
func (g *Group) settleAt() {
	var best *path
	for i := range g.paths {
		if p := &g.paths[i]; p.told == toldTwice && (best == nil || p.acked.After(best.acked)) {
			best = p
		}
	}
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
		if p.told == toldTwice && p.acked == best.acked {
			have += g.weight(i)
			if p.msn.Sub(messages) < 0 {
				messages = p.msn
			}
		}
	}
	if need := int(g.policy.Ack); need == 0 && have < counted || have < need {
		return
	}
	at := best.acked
	for i := range g.paths {
		if p := &g.paths[i]; p.told == toldTwice && p.acked == at {
			p.part = PartActive
		}
	}
	g.begin(at.Next(), messages)
	g.merged.known = false // nobody knows what the source has heard an ACK of
	g.doubts.doubtRestart(at.Next())
	g.recount()
}
