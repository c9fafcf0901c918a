package feedback

import "github.com/rocast/rocast/roce"

// response takes what a receiver answers.
func (g *Group) response(ev *Event, acts []Action) ([]Action, Outcome) {
	p := &g.paths[ev.Path]
	acked := ev.PSN
	if !ev.Syndrome.IsACK() {
		acked = acked.Prev() // a NAK acknowledges everything below it
	}
	learned := !p.known
	if learned {
		if !g.learn(p, ev.PSN, acked) {
			return acts, OutsideWindow
		}
	} else if ev.PSN.After(g.sent) {
		return acts, BeyondSent
	}
	if p.dead() {
		return acts, Swallowed
	}
	d := acked.Sub(p.acked)
	if d < 0 {
		return acts, Stale
	}
	p.migReq = ev.MigReq
	outcome := Duplicate
	if d > 0 {
		g.advance(p, acked)
	}
	if d > 0 || learned {
		outcome = Absorbed
	}
	p.msn = ev.MSN
	if !ev.Syndrome.IsACK() {
		outcome, acts = g.negative(ev, p, acts)
	}
	before := len(acts)
	if acts = g.tell(acts); len(acts) > before {
		outcome = Merged
	}
	return acts, outcome
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
	p.known, p.acked = true, acked
	if g.unknown--; g.unknown == 0 {
		g.recount()
	}
	return true
}

// advance moves a path up. The floor follows when its last path leaves it.
func (g *Group) advance(p *path, acked roce.PSN) {
	wasAtFloor := p.acked == g.floor
	p.acked = acked
	g.setPending(p, 0)
	if g.unknown > 0 || !wasAtFloor {
		return
	}
	if g.atFloor--; g.atFloor == 0 {
		g.recount()
	}
	if g.awaiting && !g.floor.Before(g.goBack) {
		g.awaiting = false
	}
}

// negative notes a NAK or RNR NAK for p.acked+1.
func (g *Group) negative(ev *Event, p *path, acts []Action) (Outcome, []Action) {
	s := ev.Syndrome
	switch {
	case s.IsFatal():
		g.setPending(p, s)
		g.endAt(ev.PSN, s)
		return Held, append(acts, Action{Kind: Fatal, Path: ev.Path, PSN: ev.PSN, Syndrome: s})
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
