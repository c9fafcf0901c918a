package feedback

import "github.com/rocast/rocast/roce"

// data takes a packet of the source. The paths that lack it get it.
func (g *Group) data(now Tick, ev *Event, acts []Action) ([]Action, Outcome) {
	psn := ev.PSN
	if !g.inWindow(psn) {
		return acts, OutsideWindow
	}
	resent := g.arrive(now, psn, ev.AckReq)
	if g.refusal.covers(psn) {
		// The source's QP ends with the refused request. A receiver that got what lies behind it
		// would execute what the source sees fail.
		return g.replies(acts), Refused
	}
	gap := !resent && g.opensGap(psn)
	if gap && !g.guess.stands {
		return g.replies(g.askNewest(now, acts)), Gap
	}
	newest := g.source.sent // before this packet
	if resent {
		g.countAgain(psn, ev.Last)
		g.doubts.recopied.add(psn)
		if psn == newest { // which was sent before a restart, perhaps: an answer has told of it
			g.source.inside = !ev.Last
			g.source.unsure = g.source.unsure && !g.floor.known
		}
	} else {
		g.forward(psn, ev.Last)
		g.doubts.trim(psn)
		if gap {
			g.forgo(psn.Prev())
		}
	}
	g.endGuess(now)
	if ev.First && g.mayJoin(psn, resent) {
		acts = g.join(now, psn, acts)
	}
	g.count(psn, ev.Last)
	acts, copied := g.copies(now, ev, newest, acts)
	outcome := Forwarded
	switch {
	case resent && !copied:
		outcome = Filtered
	case resent:
		outcome = Resent
	}
	if resent && g.floor.known && !g.floor.psn.Before(psn) {
		return g.answer(psn, ev.AckReq, acts), outcome
	}
	return g.replies(acts), outcome
}

// copies sends the packet to the paths that lack it.
//
//   - A path that had everything up to newest begins to lack something now (rule 8).
//   - A path that is to be asked what it has is asked with the first packet of a round as well: the
//     queue to it may be full of the round when its last packet comes.
//   - A path that repair has given up is asked also when the source shows only now that it has let
//     go of what the path waits for (doubts.passes).
//   - A pending NAK for this packet is served by the copy, so it is cleared (rule 4): the receiver
//     repeats it if the copy is lost as well, or the source's timeout helps.
func (g *Group) copies(now Tick, ev *Event, newest roce.PSN, acts []Action) (_ []Action, copied bool) {
	psn, counts := ev.PSN, g.countsDoubts(now, ev.AckReq)
	for i := range g.paths {
		p := &g.paths[i]
		if g.policy.Ack != AckAll && p.tooFarFrom(psn) || counts && g.hopeless(i, g.retained.awaitedBy(p, g.source.sent)) {
			acts = g.fallBehind(i, acts) // and takes no data any more
		} else if (counts || psn == g.doubts.began) && p.isAsked() {
			acts = append(acts, Action{Kind: Question, Path: i, PSN: g.source.first.Add(-2)})
		}
		if counts && g.policy.repairs() && g.legs[i].barred {
			inquire(&g.repair, i)
		}
		if !p.part.takesData() || p.part == PartActive && !p.acked.Before(psn) {
			continue
		}
		if psn.After(newest) && p.acked == newest {
			p.since = now
		}
		if !g.direct(now, i, ev) {
			continue // it gets the packet when its repair comes to it
		}
		if p.acked.Next() == psn {
			g.setPending(p, 0)
			p.copied()
		}
		acts = append(acts, Action{Kind: Copy})
		last := &acts[len(acts)-1] // to write it where it lies costs less than to copy it there
		last.Path, last.PSN = i, psn
		copied = true
	}
	return acts, copied
}

// answerEvery is how many packets of a round are answered at least once. A source may need longer
// than its timeout to come to the next packet that asks for an ACK, and would begin again and
// again: rxe asks every 66th packet, which takes 2.2 ms at 1 Gb/s with a path MTU of 4096. Where
// rounds are shorter, because their ends are lost each time, their packets are counted together.
const answerEvery = 16

// DueAnswer reports whether a resent packet that is acknowledged, like everything up to acked, is
// answered again (rule 3): when it asks for an ACK, because the source would retry until its QP
// ends; every answerEvery packets; and at acked itself, because an ACK may be due that was kept
// back while the source was below it.
func DueAnswer(psn, acked roce.PSN, ackReq bool) bool {
	return ackReq || acked.Sub(psn)%answerEvery == 0
}

// answer acknowledges a resent packet that is acknowledged already, with its own PSN and not with
// the floor: the source has come no further (rule 3). A packet that the source sent before it heard
// a NAK is not answered: the ACK would meet the source on its way back, ahead of its place. A slow
// receiver does not keep the answer back (bound): the source's QP would end.
func (g *Group) answer(psn roce.PSN, ackReq bool, acts []Action) []Action {
	s := &g.source
	s.unanswered = min(s.unanswered+1, answerEvery)
	if due := DueAnswer(psn, g.floor.psn, ackReq) || s.unanswered == answerEvery; due && !psn.After(g.most()) {
		s.unanswered = 0
		if g.relayed {
			if psn = g.most(); psn.After(g.floor.psn) {
				psn = g.floor.psn
			}
		}
		acts = g.ack(psn, acts)
	}
	return g.replyEnd(acts)
}

// lost lets go of the packets up to psn, which the caller no longer has. Where a repair needs them,
// the source has to help.
func (g *Group) lost(psn roce.PSN, acts []Action) []Action {
	if psn.After(g.source.sent) {
		return acts
	}
	g.forgo(psn)
	return g.replies(acts)
}

// refuse takes a request that cannot be merged (rule 11). It is answered as by a receiver that
// executes none, and with the patience of a fatal NAK: what lies below is acknowledged first.
func (g *Group) refuse(now Tick, ev *Event, acts []Action) ([]Action, Outcome) {
	if !g.inWindow(ev.PSN) {
		return acts, OutsideWindow
	}
	if g.floor.known && !ev.PSN.After(g.floor.psn) {
		// The receivers have executed it, and the source has not heard that: its memory has left
		// the group since. A responder answers a request that it has executed whatever became of
		// the memory.
		g.arrive(now, ev.PSN, ev.AckReq)
		return g.answer(ev.PSN, ev.AckReq, acts), Filtered
	}
	if !g.refusal.covers(ev.PSN) {
		g.refusal = refusal{ev.PSN, ev.Syndrome}
		g.endAt(ev.PSN, ev.Syndrome)
	}
	g.arrive(now, ev.PSN, true)
	return g.replies(acts), Refused
}

// arrive moves the source's place to psn, which may ask for an ACK, and reports whether the packet
// was forwarded before.
func (g *Group) arrive(now Tick, psn roce.PSN, asks bool) (resent bool) {
	if !g.source.known {
		g.hearSource(now, psn)
	}
	g.heard(now, psn)
	g.source.told, g.asking.begun = false, false
	fellBack := !psn.After(g.source.pos)
	if fellBack {
		g.newRound(psn)
	}
	g.source.pos, g.source.asks = psn, asks
	if !psn.After(g.merged.psn) {
		// The source did not hear that ACK, or a timeout made it go back further. Real requesters
		// resend from their oldest unacknowledged packet, so what was acknowledged counts as
		// unheard and is acknowledged again when the source reaches it.
		g.merged.psn = psn.Prev()
	}
	if !psn.After(g.end.psn) {
		g.end.comeAgain(now, psn)
	}
	if resent = !psn.After(g.source.sent); resent {
		g.source.resentAt = now
	}
	b := &g.back
	b.came = b.came || b.awaited && b.asked && psn == b.psn
	if b.awaited && (fellBack && psn.After(b.psn) || psn == b.psn && (resent || !b.asked)) || b.answered(now, g.source.pos) {
		// A packet that follows its predecessor was sent before the source heard the NAK. That the
		// source went back shows by a step back, whose first packets may be lost, or by the packet
		// that it was called back to.
		b.awaited = false
	}
	return resent
}

// hearSource handles the first packet of the source after a restart. Everything below it was sent
// before the restart, and the time until now does not count as a receiver's silence.
func (g *Group) hearSource(now Tick, psn roce.PSN) {
	before := psn.Prev()
	g.source.known, g.source.sent, g.source.pos, g.merged.psn = true, before, before, before
	g.source.first = before.Add(-Window)
	g.doubts.doubtRestart(psn)
	g.doubts.countedAt = now
	g.retained.oldest = psn
	g.guess = guess{stands: true, until: now + packetLife}
	g.source.counted = g.source.first.Add(-2) // so that no packet counts before the floor's MSN is known
	if g.needsNone() {
		g.follow() // so that this packet is counted
	}
	for i := range g.paths {
		g.paths[i].since = now
	}
	if ripenLate(g.paths, psn) {
		g.findEnd()
	}
}

// forward notes that new packets up to psn are forwarded.
func (g *Group) forward(psn roce.PSN, last bool) {
	g.source.forward(psn, last)
	g.merged.sends(psn)
	g.gap = gapCalls{}
	g.source.unsure = g.source.unsure && !g.floor.known
	g.retain()
}
