package feedback

import "github.com/rocast/rocast/roce"

// data takes a packet of the source. The paths that lack it get it; the
// source's place in its round is where this packet is.
func (g *Group) data(psn roce.PSN, ackReq bool, acts []Action) ([]Action, Outcome) {
	if !g.inWindow(psn) {
		return acts, OutsideWindow
	}
	resent := g.arrive(psn)
	if g.refusing && !psn.Before(g.refused) {
		// The source's QP ends with what was refused; nothing behind it
		// may reach a receiver.
		return g.tell(acts), Refused
	}
	if !resent {
		g.sent = psn
	}
	if resent && g.unknown == 0 && !g.floor.Before(psn) {
		return g.answer(psn, ackReq, acts), Filtered
	}
	for i := range g.paths {
		p := &g.paths[i]
		if p.dead() || p.known && !p.acked.Before(psn) {
			continue
		}
		if p.pending != 0 && p.acked.Next() == psn {
			g.setPending(p, 0)
		}
		acts = append(acts, Action{Kind: Copy, Path: i, PSN: psn})
	}
	outcome := Forwarded
	if resent {
		outcome = Resent
	}
	return g.tell(acts), outcome
}

// arrive moves the source's place to psn and says whether the packet was
// forwarded before.
func (g *Group) arrive(psn roce.PSN) (resent bool) {
	if !g.started {
		g.started = true
		g.sent, g.merged = psn.Prev(), psn.Prev()
	}
	g.pos = psn
	if !psn.After(g.merged) {
		// It did not hear what it was told, or went back further.
		g.merged = psn.Prev()
	}
	if !psn.After(g.end.psn) {
		g.end.told = false
	}
	if psn.After(g.sent) {
		return false
	}
	if g.awaiting && !psn.Before(g.goBack) {
		g.awaiting = false
	}
	return true
}

// answer is the retransmit filter's (rule 3): a packet that everyone has is
// acknowledged with its own PSN each time it asks, or the source would retry
// until its QP dies. The one at the floor is answered unasked: an
// acknowledgment that was kept back because the source was below it is due.
func (g *Group) answer(psn roce.PSN, ackReq bool, acts []Action) []Action {
	if ackReq || psn == g.floor {
		acts = g.ack(psn, acts)
	}
	return g.tellEnd(acts)
}

// refuse answers a request that cannot be merged (rule 11), as a receiver would
// that takes none, and with the same patience as any fatal NAK.
func (g *Group) refuse(psn roce.PSN, s roce.Syndrome, acts []Action) ([]Action, Outcome) {
	if !g.inWindow(psn) {
		return acts, OutsideWindow
	}
	if !g.refusing || psn.Before(g.refused) {
		g.refusing, g.refused = true, psn
		g.endAt(psn, s)
	}
	g.arrive(psn)
	return g.tell(acts), Refused
}

func (g *Group) inWindow(psn roce.PSN) bool {
	if !g.started {
		return true
	}
	if d := psn.Sub(g.sent); d > Window || d < -Window {
		return false
	}
	return g.unknown > 0 || psn.Sub(g.floor) <= Window
}
