package feedback

import "github.com/rocast/rocast/roce"

// tell appends what the source is due to hear: an ACK when the minimum moved,
// then a NAK when one is next. Neither ever reaches beyond the source's place
// (rule 1), and the ACK comes first: a NAK alone does not reset a requester's
// retry count (rule 4).
func (g *Group) tell(acts []Action) []Action {
	if g.unknown > 0 {
		return acts
	}
	upTo := g.floor
	if upTo.After(g.pos) {
		upTo = g.pos
	}
	if upTo.After(g.merged) {
		acts = g.ack(upTo, acts)
	}
	return g.tellGoBack(g.tellEnd(acts))
}

// tellEnd passes the fatal NAK whose turn it is: everything below it is
// acknowledged by everyone. It is said once in each round of the source that
// gets to it, in case it was lost.
func (g *Group) tellEnd(acts []Action) []Action {
	e := &g.end
	if e.syndrome == 0 || e.told || g.unknown > 0 || e.psn.After(g.pos) || e.psn.Prev().After(g.floor) {
		return acts
	}
	e.told = true
	return append(acts, g.reply(e.psn, e.syndrome))
}

// tellGoBack passes the RNR or sequence NAK whose turn it is.
func (g *Group) tellGoBack(acts []Action) []Action {
	psn := g.floor.Next()
	if g.end.told {
		return acts // the source's QP is at its end
	}
	if g.sequenceNAKs == 0 && g.rnrNAKs == 0 || psn.After(g.pos) {
		return acts // nothing is due, or its packet is on its way again
	}
	s := g.floorNAK()
	if s == 0 && g.policy.Nak == NakLower && g.sequenceNAKs > 0 {
		s = roce.NAKSequence
	}
	if s == 0 {
		return acts
	}
	for i := range g.paths {
		if p := &g.paths[i]; !p.dead() {
			g.setPending(p, 0) // the go-back serves every NAK above
		}
	}
	g.awaiting, g.goBack = true, psn
	return append(acts, g.reply(psn, s))
}

// floorNAK is the strongest pending NAK of the paths at the floor: the longest
// RNR NAK, else a sequence NAK.
func (g *Group) floorNAK() roce.Syndrome {
	var strongest roce.Syndrome
	for i := range g.paths {
		p := &g.paths[i]
		if p.pending == 0 || p.dead() || p.acked != g.floor {
			continue
		}
		if strongest == 0 || strongest == roce.NAKSequence ||
			p.pending.IsRNR() && p.pending.RNRTimer().LongerThan(strongest.RNRTimer()) {
			strongest = p.pending
		}
	}
	return strongest
}

// ack tells the source that everything up to psn is acknowledged.
func (g *Group) ack(psn roce.PSN, acts []Action) []Action {
	g.merged = psn
	return append(acts, g.reply(psn, roce.SyndromeUnlimited))
}

// reply takes MSN and MigReq from the path with the lowest acked: a PSN and an
// MSN of different receivers do not belong together (rule 6).
func (g *Group) reply(psn roce.PSN, s roce.Syndrome) Action {
	lowest := 0
	for i := range g.paths {
		if g.paths[i].acked == g.floor {
			lowest = i
			break
		}
	}
	p := &g.paths[lowest]
	return Action{Kind: Reply, Path: lowest, PSN: psn, MSN: p.msn, Syndrome: s, MigReq: p.migReq}
}
