package feedback

import "github.com/rocast/rocast/roce"

// tell appends what the source is due to hear: an ACK when the minimum moved,
// then a NAK when one is next. Neither ever reaches beyond the source's place
// (rule 1), and the ACK comes first: a NAK alone does not reset a requester's
// retry count (rule 4).
func (g *Group) tell(acts []Action) []Action {
	if !g.ready() {
		return acts
	}
	for upTo := g.reach(); upTo.After(g.merged); upTo = g.reach() {
		acts = g.ack(upTo, acts) // with it others may begin to count
	}
	return g.tellGoBack(g.tellEnd(acts))
}

// place is how far the source is in this round, seen from what it will have
// heard: once it is told to go back it is there, whatever is still on its way
// here.
func (g *Group) place() roce.PSN {
	if before := g.goBack.Prev(); g.awaiting && before.Before(g.pos) {
		return before
	}
	return g.pos
}

// reach is what the source may hear an ACK of.
func (g *Group) reach() roce.PSN {
	upTo := g.floor.psn
	if limit := g.limit(); upTo.After(limit) {
		upTo = limit
	}
	return upTo
}

// limit is the furthest PSN the source may hear an ACK of: its place, and never
// what its QP is to end with.
func (g *Group) limit() roce.PSN {
	place := g.place()
	if before := g.end.psn.Prev(); g.end.syndrome != 0 && before.Before(place) {
		return before
	}
	return place
}

// tellEnd passes the fatal NAK whose turn it is: everything below it is
// acknowledged by everyone. It is said once in each round of the source that
// gets to it, in case it was lost.
func (g *Group) tellEnd(acts []Action) []Action {
	e := &g.end
	if e.syndrome == 0 || e.told || !g.floor.known || e.psn.After(g.pos) || e.psn.Prev().After(g.floor.psn) {
		return acts
	}
	e.told = true
	return append(acts, g.reply(e.psn, e.syndrome))
}

// tellGoBack passes the RNR or sequence NAK whose turn it is.
func (g *Group) tellGoBack(acts []Action) []Action {
	psn := g.floor.psn.Next()
	switch {
	case g.end.told:
		return acts // the source's QP is at its end
	case g.sequenceNAKs == 0 && g.rnrNAKs == 0, psn.After(g.pos):
		return acts // nothing is due, or its packet is on its way again
	}
	s := g.dueNAK()
	if s == 0 && g.policy.Nak == NakLower && g.sequenceNAKs > 0 {
		s = roce.NAKSequence
	}
	if s == 0 {
		return acts
	}
	if s == roce.NAKSequence && g.saidBack && psn == g.goBack {
		// The same NAK again without an ACK between is ignored by rxe: it
		// would only hold up what the source is told.
		g.clearNAKs()
		return acts
	}
	return g.sendBack(psn, s, acts)
}

// sendBack makes the source resend from psn, which serves every NAK above.
func (g *Group) sendBack(psn roce.PSN, s roce.Syndrome, acts []Action) []Action {
	g.clearNAKs()
	g.awaiting, g.goBack, g.saidBack = true, psn, true
	return append(acts, g.reply(psn, s))
}

func (g *Group) clearNAKs() {
	for i := range g.paths {
		if p := &g.paths[i]; p.part == PartActive {
			g.setPending(p, 0)
		}
	}
}

// dueNAK is the strongest pending NAK of the paths at the floor: the longest
// RNR NAK, else a sequence NAK.
func (g *Group) dueNAK() roce.Syndrome {
	var strongest roce.Syndrome
	for i := range g.paths {
		p := &g.paths[i]
		if p.part != PartActive || p.pending == 0 || p.acked != g.floor.psn {
			continue
		}
		if strongest == 0 || strongest == roce.NAKSequence ||
			p.pending.IsRNR() && p.pending.RNRTimer().LongerThan(strongest.RNRTimer()) {
			strongest = p.pending
		}
	}
	return strongest
}

// ack tells the source that everything up to psn is acknowledged. With a
// quorum, whoever still waits for some of that is behind for good.
func (g *Group) ack(psn roce.PSN, acts []Action) []Action {
	if !g.told || psn.After(g.toldUpTo) {
		g.toldUpTo, g.toldMSN = psn, g.floor.msn
	}
	g.merged, g.told, g.saidBack = psn, true, false
	acts = append(acts, g.reply(psn, roce.SyndromeUnlimited))
	if g.policy.Ack == AckAll {
		return acts
	}
	for i := range g.paths {
		if p := &g.paths[i]; p.part == PartActive && p.ask == askProven && p.acked.Before(psn) {
			acts = g.fallBehind(i, acts)
		}
	}
	g.ripen()
	return acts
}

// reply takes MSN and MigReq from the path the floor stands on: a PSN and an
// MSN of different receivers do not belong together (rule 6).
func (g *Group) reply(psn roce.PSN, s roce.Syndrome) Action {
	if s.IsACK() && g.policy.Credits == CreditsMerge {
		s = g.credits()
	}
	return Action{Kind: Reply, PSN: psn, MSN: g.floor.msn, Syndrome: s, MigReq: g.floor.migReq}
}

// credits is the lowest limit of all receivers, MSN plus credits, as seen from
// the MSN it is sent with (rule 6). Codes themselves do not compare.
func (g *Group) credits() roce.Syndrome {
	lowest, limited := int32(0), false
	for i := range g.paths {
		p := &g.paths[i]
		credits, has := p.credit.Credits()
		if p.part != PartActive || !has {
			continue
		}
		limit := p.msn.Add(int32(credits)).Sub(g.floor.msn)
		if !limited || limit < lowest {
			lowest, limited = limit, true
		}
	}
	if !limited {
		return roce.SyndromeUnlimited
	}
	return roce.SyndromeACK(roce.CreditCodeFor(uint32(max(0, lowest))))
}
