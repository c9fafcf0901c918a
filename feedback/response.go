package feedback

import "github.com/rocast/rocast/roce"

// response takes what a receiver answers.
func (g *Group) response(now Tick, ev *Event, acts []Action) ([]Action, Outcome) {
	p := &g.paths[ev.Path]
	acked := ev.PSN
	if !ev.Syndrome.IsACK() {
		acked = acked.Prev() // a NAK acknowledges everything below it
	}
	learned := p.part == PartUnknown
	switch {
	case learned:
		if !g.learn(p, ev.PSN, acked) {
			return acts, OutsideWindow
		}
	case p.part != PartActive:
		return acts, NotTakingPart
	case ev.PSN.After(g.sent):
		return acts, BeyondSent
	}
	d := acked.Sub(p.acked)
	if d < 0 {
		return acts, Stale
	}
	p.takeCredits(ev)
	p.msn, p.migReq = ev.MSN, ev.MigReq
	outcome := Duplicate
	if d > 0 {
		g.advance(now, p, acked)
		outcome = Absorbed
	}
	if learned {
		p.since = now
		g.recount()
		outcome = Absorbed
	}
	if !ev.Syndrome.IsACK() {
		outcome, acts = g.negative(ev, p, acts)
	}
	before := len(acts)
	if acts = g.tell(acts); told(acts[before:]) {
		outcome = Merged
	}
	return acts, outcome
}

// takeCredits notes what the receiver grants beyond the MSN of ev (rule 6). A NAK
// tells no credits: every message that the receiver has executed since its last
// ACK has used one. Rounding down to a code is safe, the next ACK corrects it.
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

func told(acts []Action) bool {
	for i := range acts {
		if acts[i].Kind == Reply {
			return true
		}
	}
	return false
}

// learn takes the first word of a path whose state is unknown (rule 13). What
// it acknowledges was forwarded before the state was lost.
func (g *Group) learn(p *path, psn, acked roce.PSN) bool {
	if !g.started {
		return false
	}
	if d := psn.Sub(g.sent); d > Window || d < -Window {
		return false
	}
	if psn.After(g.sent) {
		g.sent = psn
	}
	p.part, p.acked = PartActive, acked
	return true
}

// negative notes a NAK or RNR NAK for p.acked+1.
func (g *Group) negative(ev *Event, p *path, acts []Action) (Outcome, []Action) {
	s := ev.Syndrome
	if s.IsFatal() {
		return g.fatal(ev, p, acts)
	}
	g.hearAsk(p)
	switch {
	case g.policy.Ack != AckAll && g.told && !ev.PSN.After(g.merged):
		if p.ask == askProven {
			return Behind, g.fallBehind(ev.Path, acts)
		}
		return Swallowed, acts
	case g.awaiting && !ev.PSN.Before(g.goBack):
		return Swallowed, acts // the go-back brings this packet again
	case p.pending.IsRNR() && (s == roce.NAKSequence || !s.RNRTimer().LongerThan(p.pending.RNRTimer())):
		return Swallowed, acts // rule 5
	case s == p.pending:
		return Swallowed, acts
	}
	g.setPending(p, s)
	return Held, acts
}

// fatal takes the NAK that ended a receiver's QP (rule 7).
func (g *Group) fatal(ev *Event, p *path, acts []Action) (Outcome, []Action) {
	acts = append(acts, Action{Kind: Notice, Note: NoteFatal, Path: ev.Path, PSN: ev.PSN, Syndrome: ev.Syndrome})
	if g.policy.OnFatal == FatalEvict && g.spare() {
		return Evicted, g.evict(ev.Path, acts)
	}
	g.setPending(p, ev.Syndrome)
	p.part = PartDead
	g.endAt(g.endPSN(ev.PSN), ev.Syndrome)
	return Held, acts
}

// endPSN is the PSN for which the source can be told a fatal NAK for psn. With a
// quorum it may have been told more; it would take an older one for stale.
func (g *Group) endPSN(psn roce.PSN) roce.PSN {
	if g.told && !psn.After(g.toldUpTo) {
		return g.toldUpTo.Next()
	}
	return psn
}

// evict takes a receiver out of the group.
func (g *Group) evict(i int, acts []Action) []Action {
	g.leave(i, PartGone)
	return append(acts, Action{Kind: Notice, Note: NoteEvicted, Path: i, PSN: g.paths[i].acked.Next()})
}

// spare says whether the group can do without one of its receivers.
func (g *Group) spare() bool {
	return g.living() > max(1, int(g.policy.Ack))
}
