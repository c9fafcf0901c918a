package feedback

import (
	"slices"

	"github.com/rocast/rocast/roce"
)

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
//
// That may take it as long as its timeout, and it may be inside a message. So it is asked as well
// before its turn is over: by a NAK, or an RNR NAK, for the packet behind the last one that enough
// of the receivers have. A source that has sent that packet sends it again, and keeps its turn. One
// that has not, because it has nothing more to send, ignores the NAK (docs/wire.md#requester).
//
// When that packet comes, the source may have been idle, and have sent it just before it heard the
// NAK. Then it goes back to that packet, and an ACK could be ahead of its place (rule 1). So it is
// sent none before it shows that it has gone back, or has sent nothing again for long enough.
//
// What comes first after a restart may be an old packet of a source that sends nothing any more. If
// the receivers show that more was sent, and the source does not come to that, then what it has
// shown counts for nothing, and the receivers are asked.

const (
	// onItsWay is longer than an answer from before the restart is on its way still. It is less
	// than packetLife, because a restart takes its time too, and a fraction of the time after which
	// a queue pair gives up.
	onItsWay = 50 * millisecond
	// sourceCalls is how often the source is asked, because each question may cost it a retry.
	sourceCalls = 2
)

// asking is the questions since a restart.
type asking struct {
	turn  roce.PSN // the first packet of the turn with which the group began
	begun bool
	calls uint8 // questions to the source, since it was heard
	from  Tick  // when answers were first wanted since the source was heard
	at    Tick  // of the newest question, or from
}

// MayAsk reports whether questions help: since a restart the source was not heard, or what it has
// sent does not show where it is, or a path has not told what it has and the source sends nothing
// that it could answer. While the source answers, Ask ends the time in which it is sent no ACK.
func (g *Group) MayAsk() bool {
	return !g.source.known || g.doubted() || g.back.answering(g.source.pos) || (g.source.told || g.turnOver()) && someoneUnknown(g.paths)
}

// someoneUnknown reports whether a path has not told what it has since a restart.
func someoneUnknown(paths []path) bool {
	return slices.ContainsFunc(paths, func(p path) bool { return p.part == PartUnknown })
}

// doubted reports whether it is in doubt what the source has sent, since a restart. It is not while
// a counted path lacks something: the source was sent no ACK of that, and sends it again. A switch
// by force does not wait for that. Nor is it certain that the newest packet was sent if nobody has
// it: a box that has crashed too asks for it by a NAK, to hear whether it was sent. Nor does a path
// certainly lack anything if it leads to a box that was sent an old packet (enoughMayHave).
//
// A refused request ends no doubt before the source was sent the NAK: it may have ended meanwhile.
func (g *Group) doubted() bool {
	s := &g.source
	switch {
	case !s.known || !s.unsure || g.end.sent:
		return false
	case s.told || !g.floor.known:
		return true
	}
	return s.pos != s.sent && (g.Settled() || g.policy.Switch == SwitchForce || g.nobodyHasNewest() || g.enoughMayHave())
}

// enoughMayHave reports whether the source may have been sent an ACK of everything before the
// restart, although counted paths have acknowledged less since. A box of an older release that is
// sent an old packet acknowledges that packet, and not its newest one as a NIC does. But its MSN is
// that of its newest one. So a path may have everything that has counted as many messages as one
// that has everything.
func (st *stream) enoughMayHave() bool {
	whole := none
	for i := range st.paths {
		if p := &st.paths[i]; p.counted() && p.acked == st.source.sent && (whole == none || p.msn.Sub(st.paths[whole].msn) < 0) {
			whole = i
		}
	}
	if whole == none {
		return false
	}
	have, all := 0, 0
	for i := range st.paths {
		p := &st.paths[i]
		if !p.counted() {
			continue
		}
		all += st.weight(i)
		if p.part == PartActive && p.msn.Sub(st.paths[whole].msn) >= 0 {
			have += st.weight(i)
		}
	}
	return st.quorum == nil && have == all || st.quorum != nil && have >= st.need()
}

// nobodyHasNewest reports whether all paths that get data have everything but the newest packet.
func (st *stream) nobodyHasNewest() bool {
	before := st.source.sent.Prev()
	return st.merged.psn == before && !slices.ContainsFunc(st.paths, func(p path) bool {
		return p.part.takesData() && p.acked != before
	})
}

// Ask asks the paths whose state is unknown what they have acknowledged, and then the source what
// it has sent, for the member that s would make the source. Call it again every AskPeriod while
// that member waits.
func (g *Group) Ask(now Tick, s SourceSwitch, acts []Action) []Action {
	a := &g.asking
	switch {
	case !g.MayAsk():
		return acts
	case g.back.answered(now, g.source.pos):
		g.back.awaited = false
		return g.replies(acts)
	case g.back.answering(g.source.pos):
		return acts
	case !a.begun || now-a.at > claimLife:
		*a = asking{turn: a.turn, begun: true, from: now, at: now}
		return acts
	case g.source.told:
		return g.askTold(now, s, acts)
	case g.turnOver() && !g.doubted():
		acts = g.Claim(now, acts) // who tells nothing is not waited for longer than others
	case g.source.known:
		// Each question counts as the newest, or a long silent-after would begin anew for ever.
		if now-a.from < g.policy.settleWithin() {
			a.at = now
			return acts
		}
		next := g.NextPSN()
		g.restart(*a)
		g.raise(next) // what was retained is not sent again
		a.at = now - AskPeriod
	case now-a.from >= onItsWay+g.policy.settleWithin() && (g.sparesSilent(s) || g.forces()):
		best := furthest(g.paths)
		for i := range g.paths {
			if g.paths[i].toldLess(best) {
				acts = g.fallBehind(i, acts)
			}
		}
		g.beginBehind(best)
		return acts
	}
	if now-a.from < onItsWay || now-a.at < AskPeriod {
		return acts
	}
	return a.askPaths(now, g.paths, acts)
}

// askTold asks on when enough paths have told one place: the source, and then the paths that have
// told nothing. What those have decides whether the source has an ACK of more, and which of them
// take part in the next turn.
func (g *Group) askTold(now Tick, s SourceSwitch, acts []Action) []Action {
	a := &g.asking
	asks, over := a.asksSource(now)
	if over || s.Asked {
		g.source.unsure = false
	}
	switch {
	case !g.source.unsure:
		asks = now-a.at >= AskPeriod
		acts = g.Claim(now, acts)
	case asks:
		a.calls++
		acts = g.callSource(now, a.turn, acts)
	}
	if !asks {
		return acts
	}
	return a.askPaths(now, g.paths, acts)
}

// callSource asks the source whether it has sent the first packet that too few have: by an RNR NAK
// with repair, and by a NAK without. The ACK of the packets below goes first. It says no more than
// the question.
//
// A source whose timer ran out while the box was away ignores a NAK until it hears an ACK of
// something new (rule 4), and each NAK that it ignores restarts its timer. A source that waits for
// the time of an RNR NAK goes back when that is over, perhaps after 655 ms. Both obey an RNR NAK.
// The second question is an RNR NAK, too: a source that waits, and has heard a NAK of another kind,
// hears nothing before its time is over (docs/wire.md#requester). The time that the question names
// is longer than a round trip, because a source that was only slow hears two questions.
func (rr *replier) callSource(now Tick, turn roce.PSN, acts []Action) []Action {
	next := rr.floor.psn.Next() // some of a quorum may have more
	s := roce.NAKSequence
	if rr.policy.repairs() {
		s = roce.SyndromeRNR(roundTripRNR)
	}
	below := next.Prev()
	if !below.Before(turn) { // else nobody knows what the source has sent there
		acts = append(acts, rr.reply(below, roce.SyndromeUnlimited))
	}
	call := rr.reply(next, s)
	rr.merged = merged{known: true, psn: below, highest: below, msn: call.MSN}
	rr.back = goBack{psn: next, awaited: true, asked: true, askedAt: now, newest: true, by: s}
	return because(append(acts, call), CauseDoubt)
}

// askPaths asks the paths that have told nothing.
func (a *asking) askPaths(now Tick, paths []path, acts []Action) []Action {
	a.at = now
	// The packet in front of the first one of this turn may not have existed, and an answer for the
	// packet that asks says nothing: another box answers a packet that it knows with its own PSN.
	question := a.turn.Add(-2)
	for i := range paths {
		if paths[i].part == PartUnknown {
			acts = append(acts, Action{Kind: Question, Path: i, PSN: question})
		}
	}
	return acts
}

// asksSource reports whether it is time to ask the source, and whether it was asked often enough
// and is silent for as long as an answer is on its way: then it has ended, or waits for nobody.
func (a *asking) asksSource(now Tick) (asks, over bool) {
	if a.calls == sourceCalls {
		return false, now-a.at >= onItsWay
	}
	return now-a.at >= AskPeriod, false
}

// restart makes the place of the source and that of every path unknown. What ends the source's QP
// does so still.
func (g *Group) restart(asked asking) {
	end, before := g.end, slices.Clone(g.paths)
	g.begin(asked.turn, 0)
	keepEnded(g.paths, before)
	g.end = end
	g.asking, g.source.unsure = asked, true
	g.source.first = asked.turn // a source that comes back may resend what it sent before
	g.source.known, g.floor.known, g.merged.known = false, false, false
	for i := range g.paths {
		if p := &g.paths[i]; p.part == PartActive {
			p.part = PartUnknown
		}
	}
	g.recount()
}

// keepEnded gives the paths whose QP has ended the place that they had before the same source began
// anew: the packet that ended one is still the source's to hear of.
func keepEnded(paths, before []path) {
	for i := range paths {
		if p := &paths[i]; p.part == PartDead {
			p.acked, p.msn = before[i].acked, before[i].msn
		}
	}
}

// keepTold gives the paths that have told another place than the others what they have told: they
// grant the source no more than that (rule 6).
func keepTold(paths, before []path) {
	for i := range paths {
		if p := &paths[i]; p.part == PartUnknown && before[i].told {
			p.acked, p.msn, p.told = before[i].acked, before[i].msn, true
		}
	}
}

// takes reports whether what a path has acknowledged is an answer to a question. The turn begins
// with packet first.
func (a *asking) takes(now Tick, ev *Event, acked, first roce.PSN) bool {
	return a.begun && now-a.from >= onItsWay && !ev.Syndrome.IsFatal() && !acked.Before(first.Prev())
}

// tell takes the answer to a question.
func (p *path) tell(ev *Event, acked roce.PSN) {
	p.acked, p.told = acked, true
	p.takeCredits(ev)
	p.msn, p.migReq = ev.MSN, ev.MigReq
}

// knows reports whether it is certain what the path has while the source is unknown: it has told,
// or its QP has ended and has nothing more.
func (p *path) knows() bool { return p.told || p.part == PartDead }

// toldLess reports whether the path has not told that it has what best has.
func (p *path) toldLess(best *path) bool {
	return p.part == PartUnknown && (!p.told || p.acked != best.acked)
}

// furthest returns the path that has told the highest place, or nil.
func furthest(paths []path) (best *path) {
	for i := range paths {
		if p := &paths[i]; p.told && (best == nil || p.acked.After(best.acked)) {
			best = p
		}
	}
	return best
}

// sparesSilent reports whether the next source can do without the paths that have told nothing:
// with evict, if all others stand at one place, the next source's among them, and somebody receives
// from it. A quorum needs no such rule: the group goes on when enough have told one place
// (beginAtFurthest).
func (g *Group) sparesSilent(s SourceSwitch) bool {
	best := furthest(g.paths)
	if g.policy.Ack != AckAll || !g.policy.Evict || best == nil {
		return false
	}
	receives := s.OldPath >= 0 && s.OldPath != s.NewPath && g.away.takesData()
	for i := range g.paths {
		p := &g.paths[i]
		if p.knows() && p.acked != best.acked || !p.knows() && (i == s.NewPath || g.waitsAbove(i)) {
			return false
		}
		receives = receives || p.told && i != s.NewPath
	}
	return receives
}

// forces reports whether the next source waits for nobody who has told less than the furthest
// receiver: with source-switch: force, if the box above has told as much. A quorum needs no such
// rule either.
func (g *Group) forces() bool {
	best := furthest(g.paths)
	if g.policy.Switch != SwitchForce || g.policy.Ack != AckAll || best == nil {
		return false
	}
	return g.needed == none || !g.paths[g.needed].toldLess(best)
}

// beginAtFurthest begins behind the furthest path if enough of them have told the same place.
func (g *Group) beginAtFurthest() {
	best := furthest(g.paths) // the path that has told just now, or one that is further
	ripenLate(g.paths, best.acked.Next())
	have, counted := 0, 0
	for i := range g.paths {
		p := &g.paths[i]
		if !p.counted() {
			continue
		}
		counted += g.weight(i)
		if p.knows() && p.acked == best.acked {
			have += g.weight(i)
		}
	}
	if g.quorum == nil && have == counted || g.quorum != nil && have >= g.need() {
		g.beginBehind(best)
	}
}

// beginBehind makes the group what it is behind the last packet that the receivers have. Nobody
// knows whether that packet ends a message, so the source is asked next.
func (g *Group) beginBehind(best *path) {
	at, asked, before := best.acked, g.asking, slices.Clone(g.paths)
	messages := best.msn
	for i := range g.paths {
		p := &g.paths[i]
		if !p.knows() || p.acked != at {
			continue
		}
		if p.told {
			p.part = PartActive
		}
		if p.msn.Sub(messages) < 0 {
			messages = p.msn
		}
	}
	g.begin(at.Next(), messages)
	keepEnded(g.paths, before)
	keepTold(g.paths, before)
	g.asking = asked
	g.source.told, g.source.unsure = true, true
	g.source.counted = at.Prev() // it may be inside a message
	g.claim = claim{true, at, asked.from + onItsWay}
	g.doubts.doubtRestart(at.Next())
	g.merged.known = false // nobody knows what the source has heard an ACK of
	g.recount()
	g.merged.known, g.merged.highest = g.floor.known, g.floor.psn // but it is no more than that
	g.findEnd()
	g.merged.known = false
}
