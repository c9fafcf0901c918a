package feedback

import "github.com/rocast/rocast/roce"

// merged is what the source was sent an ACK for.
type merged struct {
	known   bool     // an ACK was sent, or nothing came before; false after a restart: psn is a guess then
	psn     roce.PSN // the last one; lower while the source resends from below it (see arrive)
	highest roce.PSN // the highest one, if known
	msn     roce.MSN // which went with highest
}

// replies appends what is due to the source: an ACK when the floor has moved, then the NAK whose
// turn it is. The ACK goes first, because a NAK alone does not reset a requester's retry count
// (rule 4).
func (g *Group) replies(acts []Action) []Action {
	if !g.floor.known {
		return acts
	}
	for upTo := g.reach(); upTo.After(g.merged.psn); upTo = g.reach() {
		acts = g.ack(upTo, acts) // other paths may begin to count with it
	}
	return g.replySilent(g.replyGoBack(g.replyEnd(acts)))
}

// reach is the highest PSN that the source may be sent an ACK for now (rule 1).
func (g *Group) reach() roce.PSN {
	upTo := g.floor.psn
	if limit := g.limit(); upTo.After(limit) {
		upTo = limit
	}
	return upTo
}

// limit is the highest PSN that an ACK may have, even if the receivers have more: the source's
// place, and nothing from the packet on with which its QP is to end.
func (g *Group) limit() roce.PSN {
	place := g.place()
	if g.lull.asked && place == g.source.sent {
		place = place.Prev() // the source is going to be sent the NAK for that packet
	}
	if before := g.end.psn.Prev(); g.end.syndrome != 0 && before.Before(place) {
		return before
	}
	return place
}

// replyEnd sends the fatal NAK when its turn has come: the floor is right below it and the source
// has reached it. It is sent once in each round of the source that gets there, in case it was lost.
func (g *Group) replyEnd(acts []Action) []Action {
	e := &g.end
	if e.syndrome == 0 || e.sent || !g.floor.known || e.psn.After(g.source.pos) || e.psn.Prev().After(g.floor.psn) {
		return acts
	}
	e.sent = true
	return because(append(acts, g.reply(e.psn, e.syndrome)), CauseEnd)
}

// replyGoBack sends the RNR NAK or sequence NAK whose turn has come. A NAK acknowledges everything
// below it, so it can only be for floor+1: with hold a path must have asked for that packet, with
// lower any NAK above makes the source resend from there.
func (g *Group) replyGoBack(acts []Action) []Action {
	psn, gap := g.floor.psn.Next(), g.gapDue()
	switch {
	case g.end.sent:
		return acts // the source's QP has ended
	case g.pending.sequence == 0 && g.pending.rnr == 0 && !gap:
		return acts
	case psn.After(g.place()):
		return acts // the source is below it and sends it again anyway
	}
	s, cause := g.dueNAK(g.floor.psn), CauseReceiver
	switch {
	case s.IsRNR():
		cause = CauseNotReady
	case s == 0 && gap:
		cause = CauseGap
	}
	if s == 0 && (gap || g.policy.Nak == NakLower && g.someoneAsks(g.floor.psn) && !g.mending()) {
		s = roce.NAKSequence
	}
	if s == 0 {
		return acts
	}
	again := s == roce.NAKSequence && g.back.newest && psn == g.back.psn
	if again && gap && (g.gap.rests || g.spentCalls()) {
		return acts // it rests, or its packet cannot arrive: the source's own retries decide
	}
	if again && gap {
		g.gap = gapCalls{rests: true, calls: g.gap.calls + 1}
		return because(g.sendBack(psn, roce.SyndromeRNR(shortestRNR), acts), CauseGap)
	}
	if again {
		// A requester ignores the same NAK until an ACK comes between. Sent in vain, it would hold
		// the source's place down.
		g.clearNAKs()
		return acts
	}
	return because(g.sendBack(psn, s, acts), cause)
}

// sendBack makes the source resend from psn, which serves every pending NAK. After a restart the
// source may not have heard the ACK of what lies below (rule 4).
func (g *Group) sendBack(psn roce.PSN, s roce.Syndrome, acts []Action) []Action {
	if below := psn.Prev(); !g.merged.known && g.reach() == below {
		acts = g.ack(below, acts)
	} else if g.back.oneACK && s == roce.NAKSequence {
		acts = g.ackAgain(below, acts)
	}
	g.clearNAKs()
	g.back = goBack{psn: psn, awaited: true, newest: true, by: s}
	g.lull.seen, g.lull.times, g.lull.spoke = false, 0, false
	return append(acts, g.reply(psn, s))
}

// ackAgain sends ACK(psn) once more before NAK(psn+1). A requester that went back because of a NAK
// ignores the next one until it hears an ACK, and a NAK that it ignores still makes every earlier
// ACK stale (docs/wire.md#requester). With repair such NAKs follow each other closely, so that ACK
// must not hang on one frame.
func (g *Group) ackAgain(psn roce.PSN, acts []Action) []Action {
	if !g.policy.repairs() || psn.Before(g.source.first) {
		return acts
	}
	return append(acts, g.reply(psn, roce.SyndromeUnlimited))
}

// ack acknowledges everything up to psn to the source. With a quorum the source lets go of that, so
// a path that certainly lacks some of it is behind.
func (g *Group) ack(psn roce.PSN, acts []Action) []Action {
	acts = append(acts, g.reply(psn, roce.SyndromeUnlimited))
	g.sentACK(psn, acts[len(acts)-1].MSN)
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

// sentACK notes that the source is sent an ACK.
func (g *Group) sentACK(psn roce.PSN, msn roce.MSN) {
	m := &g.merged
	if !m.known || psn.After(m.highest) {
		m.highest, m.msn = psn, msn
	}
	m.psn, m.known = psn, true
	g.back.newest, g.back.oneACK = false, g.back.newest
	g.lull.acked, g.lull.seen, g.lull.times = psn == g.source.sent, false, 0
}

// reply is an acknowledge packet to the source. MSN and MigReq come from the path at the floor
// (rule 6), the MSN only as far as the reply goes.
func (g *Group) reply(psn roce.PSN, s roce.Syndrome) Action {
	upTo := psn
	if !s.IsACK() {
		upTo = psn.Prev()
	}
	msn := g.messagesAt(upTo)
	if s.IsACK() && g.policy.Credits == CreditsMerge {
		s = g.credits(msn)
	}
	return Action{Kind: Reply, PSN: psn, MSN: msn, Syndrome: s, MigReq: g.floor.migReq}
}
