package feedback

import (
	"slices"

	"github.com/rocast/rocast/roce"
)

// replier is what the source is sent, and when: ACKs as far as the floor and the source's place
// allow, the NAK whose turn it is, the NAK that ends its QP, and what breaks its silence.
type replier struct {
	repair
	end     end
	refusal refusal
	gap     gapCalls
	lull    lull
	pace    pace
}

// merged is what the source was sent an ACK for.
type merged struct {
	known   bool     // an ACK was sent, or nothing came before; false after a restart: psn is a guess then
	psn     roce.PSN // the last one; lower while the source resends from below it (see arrive)
	highest roce.PSN // the highest one, if known
	msn     roce.MSN // which went with highest
	flight  int32    // the most packets beyond highest that the source had on their way since it had none (ahead)
}

// replies appends what is due to the source: an ACK when the floor has moved, then the NAK whose
// turn it is. The ACK goes first, because a NAK alone does not reset a requester's retry count
// (rule 4).
func (rr *replier) replies(acts []Action) []Action {
	if rr.needsNone() && rr.source.known {
		rr.follow()
	}
	if !rr.floor.known {
		return acts
	}
	for upTo := rr.reach(); upTo.After(rr.merged.psn); upTo = rr.reach() {
		acts = rr.ack(upTo, acts) // other paths may begin to count with it
	}
	return rr.replySilent(rr.replyGoBack(rr.replyEnd(acts)))
}

// reach is the highest PSN that the source may be sent an ACK for now (rule 1).
func (rr *replier) reach() roce.PSN {
	upTo := rr.floor.psn
	if limit := rr.limit(); upTo.After(limit) {
		upTo = limit
	}
	return upTo
}

// limit is the highest PSN that an ACK may have now, even if the receivers have more.
func (rr *replier) limit() roce.PSN { return rr.bound(rr.most()) }

// most is the highest PSN that an ACK may have at most: the source's place, which another box has
// not (Relay), and nothing from the packet on with which its QP is to end.
func (rr *replier) most() roce.PSN {
	place := rr.place()
	if rr.relayed {
		place = rr.source.sent
	}
	if rr.lull.asked && place == rr.source.sent {
		place = place.Prev() // the source is going to be sent the NAK for that packet
	}
	if before := rr.end.psn.Prev(); rr.end.syndrome != 0 && before.Before(place) {
		return before
	}
	return place
}

// replyEnd sends the fatal NAK when its turn has come: the floor is right below it and the source
// has reached it. It is sent once in each round of the source that gets there, in case it was lost.
func (rr *replier) replyEnd(acts []Action) []Action {
	e := &rr.end
	if e.syndrome == 0 || e.sent || !rr.floor.known || e.psn.After(rr.source.pos) || e.psn.Prev().After(rr.floor.psn) {
		return acts
	}
	e.sent, e.told = true, true
	a := rr.reply(e.psn, e.syndrome)
	a.Nobody = e.syndrome == roce.NAKRemoteOperational && rr.nobodyLeft()
	return because(append(acts, a), CauseEnd)
}

// nobodyLeft reports whether the source ends only because no receiver is left. A receiver's own NAK
// is another reason: then others may be well.
func (rr *replier) nobodyLeft() bool {
	return rr.hopeful() == 0 && !slices.ContainsFunc(rr.paths, func(p path) bool { return p.part == PartDead && p.silent != silenceEmpty })
}

// replyGoBack sends the RNR NAK or sequence NAK whose turn has come. A NAK acknowledges everything
// below it, so it can only be for floor+1: with hold a path must have asked for that packet, with
// lower any NAK above makes the source resend from there.
func (rr *replier) replyGoBack(acts []Action) []Action {
	psn, gap := rr.floor.psn.Next(), rr.gapDue()
	switch {
	case rr.end.sent:
		return acts // the source's QP has ended
	case rr.pending.sequence == 0 && rr.pending.rnr == 0 && !gap:
		return acts
	case psn.After(rr.place()):
		return acts // the source is below it and sends it again anyway
	case rr.holdsBack():
		return acts // a NAK acknowledges what lies below
	}
	s, cause := rr.dueNAK(rr.floor.psn), CauseReceiver
	switch {
	case s.IsRNR():
		cause = CauseNotReady
	case s == 0 && gap:
		cause = CauseGap
	}
	if s == 0 && (gap || rr.policy.Nak == NakLower && rr.someoneLacks(rr.floor.psn) && !rr.repairHoldsFloor()) {
		s = roce.NAKSequence
	}
	if s == 0 {
		return acts
	}
	again := s == roce.NAKSequence && rr.back.newest && psn == rr.back.psn
	if again && gap && (rr.gap.rests || rr.spentCalls()) {
		return acts // it rests, or its packet cannot arrive: the source's own retries decide
	}
	if again && gap {
		rr.gap = gapCalls{rests: true, calls: rr.gap.calls + 1}
		return because(rr.sendBack(psn, roce.SyndromeRNR(shortestRNR), acts), CauseGap)
	}
	if again {
		// A requester ignores the same NAK until an ACK comes between. Sent in vain, it would hold
		// the source's place down.
		rr.clearNAKs()
		return acts
	}
	return because(rr.sendBack(psn, s, acts), cause)
}

// sendBack makes the source resend from psn, which serves every pending NAK. After a restart the
// source may not have heard the ACK of what lies below (rule 4).
func (rr *replier) sendBack(psn roce.PSN, s roce.Syndrome, acts []Action) []Action {
	if below := psn.Prev(); !rr.merged.known && rr.reach() == below {
		acts = rr.ack(below, acts)
	} else if rr.back.oneACK && s == roce.NAKSequence {
		acts = rr.ackAgain(below, acts)
	}
	rr.clearNAKs()
	rr.back = goBack{psn: psn, awaited: true, newest: true, by: s}
	rr.lull.seen, rr.lull.times, rr.lull.spoke = false, 0, false
	return append(acts, rr.reply(psn, s))
}

// ackAgain sends ACK(psn) once more before NAK(psn+1). A requester that went back because of a NAK
// ignores the next one until it hears an ACK, and a NAK that it ignores still makes every earlier
// ACK stale (docs/wire.md#requester). With repair such NAKs follow each other closely, so that ACK
// must not hang on one frame.
func (rr *replier) ackAgain(psn roce.PSN, acts []Action) []Action {
	if !rr.policy.repairs() || psn.Before(rr.source.first) {
		return acts
	}
	return append(acts, rr.reply(psn, roce.SyndromeUnlimited))
}

// ack acknowledges everything up to psn to the source. With a quorum the source lets go of that, so
// a path that certainly lacks some of it is behind.
func (rr *replier) ack(psn roce.PSN, acts []Action) []Action {
	acts = append(acts, rr.reply(psn, roce.SyndromeUnlimited))
	rr.sentACK(psn, acts[len(acts)-1].MSN)
	if rr.policy.Ack == AckAll {
		return acts
	}
	for i := range rr.paths {
		switch p := &rr.paths[i]; {
		case p.part != PartActive || !p.acked.Before(psn):
		case p.lack == lackProven:
			acts = rr.fallBehind(i, acts)
		case rr.policy.repairs() && rr.legs[i].barred:
			inquire(&rr.repair, i)
		}
	}
	rr.ripen()
	return acts
}

// sentACK notes that the source is sent an ACK.
func (rr *replier) sentACK(psn roce.PSN, msn roce.MSN) {
	m := &rr.merged
	if !m.known || psn.After(m.highest) {
		m.highest, m.msn = psn, msn
	}
	if m.psn, m.known = psn, true; psn == rr.source.sent {
		m.flight = 0
	}
	if rr.relayed && !psn.Before(rr.back.psn) {
		rr.back.awaited = false // another box does not come back to what it hears an ACK of
	}
	rr.back.newest, rr.back.oneACK = false, rr.back.newest
	rr.lull.acked, rr.lull.seen, rr.lull.times = psn == rr.source.sent, false, 0
}

// reply is an acknowledge packet to the source. MSN and MigReq come from the path at the floor
// (rule 6), the MSN only as far as the reply goes.
func (rr *replier) reply(psn roce.PSN, s roce.Syndrome) Action {
	upTo := psn
	if !s.IsACK() {
		upTo = psn.Prev()
	}
	msn := rr.messagesAt(upTo)
	if s.IsACK() && rr.policy.Credits == CreditsMerge {
		s = rr.credits(msn)
	}
	return Action{Kind: Reply, PSN: psn, MSN: msn, Syndrome: s, MigReq: rr.floor.migReq}
}

// ripen makes those paths count that are no longer fresh.
func (rr *replier) ripen() {
	ripe := false
	for i := range rr.paths {
		if p := &rr.paths[i]; p.fresh && !rr.isFresh(p.from) {
			p.fresh, ripe = false, true
		}
	}
	if ripe {
		rr.recount()
	}
}
