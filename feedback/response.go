package feedback

import "github.com/rocast/rocast/roce"

// response takes the answer of a receiver.
func (g *Group) response(now Tick, ev *Event, acts []Action) ([]Action, Outcome) {
	p := &g.paths[ev.Path]
	acked := ev.PSN
	if !ev.Syndrome.IsACK() {
		acked = acked.Prev() // a NAK acknowledges everything below it
	}
	learned := p.part == PartUnknown
	switch {
	case learned && !g.source.known:
		if !g.asking.takes(now, ev, acked, g.source.first) {
			return acts, OutsideWindow
		}
		p.tell(ev, acked)
		g.beginAtFurthest()
		return acts, Absorbed
	case learned:
		if !g.learn(p, ev, acked) {
			return acts, OutsideWindow
		}
	case p.part != PartActive:
		return acts, NotTakingPart
	case ev.PSN.After(g.sentTo(ev.Path)):
		g.missNAK(ev, p)
		return acts, BeyondSent
	}
	d := acked.Sub(p.acked)
	if d < 0 {
		return acts, Stale
	}
	p.takeCredits(ev)
	p.msn, p.migReq = ev.MSN, ev.MigReq
	outcome := Duplicate
	if d == 0 && !learned {
		p.answersAgain(p.isAsked())
		if g.policy.repairs() && g.legs[ev.Path].inquired() && !ev.Syndrome.IsFatal() {
			var behind bool
			if acts, behind = answersInquiry(&g.repair, now, ev.Path, ev.Syndrome.IsACK(), acts); behind {
				return g.replies(g.fallBehind(ev.Path, acts)), Behind
			}
			if !ev.Syndrome.IsACK() && g.legs[ev.Path].inquired() {
				return acts, Swallowed // what it lacks cannot be repaired, and the next question comes by its timer
			}
		}
	}
	var resumes bool
	if d > 0 {
		g.advance(now, ev.Path, acked)
		resumes = g.policy.repairs() && g.moved(now, ev.Path, d)
		outcome = Absorbed
	}
	if learned {
		p.since = now
		g.learnLeg(now, ev.Path)
		g.recount()
		outcome = Absorbed
	}
	if !ev.Syndrome.IsACK() {
		outcome, acts = g.negative(now, ev, p, acts)
	} else if d > 0 && g.policy.repairs() {
		before := len(acts)
		if acts = g.clock(now, ev.Path, resumes, acts); len(acts) > before {
			outcome = Repaired
		}
	}
	before := len(acts)
	if acts = g.replies(acts); len(acts) > before {
		outcome = Merged
	}
	return acts, outcome
}

// takeCredits notes what the receiver grants beyond the MSN of ev (rule 6). A NAK carries no
// credits: every message that the receiver has executed since its last ACK has used one. Rounding
// down to a code is safe, and the next ACK corrects it.
func (p *path) takeCredits(ev *Event) {
	if ev.Syndrome.IsACK() {
		p.credit = ev.Syndrome.CreditCode()
		return
	}
	if credits, limited := p.credit.Credits(); limited {
		left := max(0, int32(credits)-ev.MSN.Sub(p.msn))
		p.credit = roce.CreditCodeFor(uint32(left))
	}
}

// learn takes the first answer of a path whose state is unknown (rule 13). What it acknowledges was
// forwarded before the state was lost, so sent may rise. An answer outside the window cannot be
// placed.
func (g *Group) learn(p *path, ev *Event, acked roce.PSN) bool {
	psn := ev.PSN
	if s := ev.Syndrome; g.source.told && (s == roce.NAKSequence || s.IsRNR()) {
		psn = acked // the path may lead to a box that asks its source for what was not sent (callSource)
	}
	if d := psn.Sub(g.source.sent); d > Window || d < -Window {
		return false
	}
	if (g.source.told || g.asking.begun) && acked.Before(g.asking.turn.Prev()) {
		return false // no answer to a question, as in tell
	}
	more := psn.After(g.source.sent)
	if more || g.source.told && psn.After(g.floor.psn) { // then a quorum may have more now
		g.source.unsure, g.asking.calls = true, 0
	}
	if more {
		g.source.sent = psn
		// For all that is known, until the source sends that packet again. A source whose turn is
		// over sends nothing again: then it is as in beginAtFurthest.
		g.source.inside = !g.source.told
		g.raise(psn.Next()) // these packets were forwarded before the restart, and are not retained
	}
	g.answersFirst(p)
	p.part, p.acked = PartActive, acked
	return true
}

// negative takes a NAK or RNR NAK for p.acked+1. What lies below it was taken as an ACK before.
func (g *Group) negative(now Tick, ev *Event, p *path, acts []Action) (Outcome, []Action) {
	s := ev.Syndrome
	if s.IsFatal() {
		return g.fatal(ev, p, acts)
	}
	g.hearNAK(ev.Path, g.sentAgain(ev.Path) || g.overtakes(ev.Path, ev.PSN))
	if outcome, repaired, done := g.repairAfterNAK(now, ev, acts); done {
		return outcome, repaired
	}
	switch {
	case g.letGo(ev.PSN) && p.lack == lackProven:
		return Behind, g.fallBehind(ev.Path, acts)
	case g.letGo(ev.PSN):
		inquire(&g.repair, ev.Path)
		return Swallowed, acts // a copy may be on its way, and the source sends no other (rule 9)
	case g.back.awaited && !ev.PSN.Before(g.back.psn):
		return Swallowed, acts // the source is on its way back and sends this packet again (rule 4)
	case p.pending.IsRNR() && (s == roce.NAKSequence || !s.RNRTimer().LongerThan(p.pending.RNRTimer())):
		return Swallowed, acts // the longest RNR NAK counts (rule 5)
	case s == p.pending:
		return Swallowed, acts
	}
	g.setPending(p, s)
	return Held, acts
}

// fatal takes the NAK that ended a receiver's QP (rule 7). Such a path stays counted: the source is
// sent the NAK when everything below it is acknowledged, and nothing from there on is acknowledged.
// A box behind which nobody is left has evicted them as the policy says, and is evicted like them.
func (g *Group) fatal(ev *Event, p *path, acts []Action) (Outcome, []Action) {
	acts = append(acts, Action{Kind: Notice, Note: NoteFatal, Path: ev.Path, PSN: ev.PSN, Syndrome: ev.Syndrome})
	if g.policy.givesUp(ev.Nobody) && g.spare(ev.Path) {
		return Evicted, g.evict(ev.Path, acts)
	}
	g.setPending(p, ev.Syndrome)
	p.part = PartDead
	if ev.Nobody {
		p.silent = silenceEmpty
	}
	g.endLeg(ev.Path)
	g.recountRetained()
	g.endAt(g.merged.endPSN(ev.PSN), ev.Syndrome)
	return Held, acts
}
