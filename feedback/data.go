package feedback

import "github.com/rocast/rocast/roce"

// data takes a packet of the source. The paths that lack it get it; the
// source's place in its round is where this packet is.
func (g *Group) data(now Tick, ev *Event, acts []Action) ([]Action, Outcome) {
	psn := ev.PSN
	if !g.inWindow(psn) {
		return acts, OutsideWindow
	}
	resent := g.arrive(now, psn)
	if g.refusing && !psn.Before(g.refused) {
		// The source's QP ends with what was refused; nothing behind it
		// may reach a receiver.
		return g.tell(acts), Refused
	}
	newest := g.sent
	if !resent {
		g.sent, g.inside = psn, !ev.Last
	}
	if ev.First && g.mayJoin(psn, resent) {
		acts = g.join(now, psn, acts)
	}
	g.count(psn, ev.Last)
	g.recopied.trim(psn)
	if resent {
		g.recopied.add(psn)
	}
	acts, copied := g.copies(now, ev, newest, acts)
	outcome := Forwarded
	switch {
	case resent && copied == 0:
		outcome = Filtered
	case resent:
		outcome = Resent
	}
	if resent && g.ready() && !g.floor.psn.Before(psn) {
		return g.answer(psn, ev.AckReq, acts), outcome
	}
	return g.tell(acts), outcome
}

// copies sends the packet to the paths that lack it. One that goes to a path
// again takes the path's pending NAK with it (rule 4). A path that had
// everything, up to newest, begins to lack something now (rule 8).
func (g *Group) copies(now Tick, ev *Event, newest roce.PSN, acts []Action) (_ []Action, copied int) {
	psn, counts := ev.PSN, g.countsDoubts(now, ev.AckReq)
	for i := range g.paths {
		p := &g.paths[i]
		if g.policy.Ack != AckAll && p.tooFarFrom(psn) || counts && g.hopeless(p) {
			acts = g.fallBehind(i, acts)
			continue
		}
		if !p.part.takesData() || p.part == PartActive && !p.acked.Before(psn) {
			continue
		}
		if psn.After(newest) && p.acked == newest {
			p.since = now
		}
		if p.acked.Next() == psn {
			g.setPending(p, 0)
			p.served()
		}
		acts = append(acts, Action{Kind: Copy, Path: i, PSN: psn})
		copied++
	}
	return acts, copied
}

// arrive moves the source's place to psn and says whether the packet was
// forwarded before.
func (g *Group) arrive(now Tick, psn roce.PSN) (resent bool) {
	if !g.started {
		g.started = true
		g.sent, g.merged = psn.Prev(), psn.Prev()
		g.counted = psn.Prev().Prev() // not even those of the packet before are counted: see counts
		for i := range g.paths {
			g.paths[i].since = now // nobody owed anything before
		}
	}
	if psn == g.floor.psn.Next() {
		g.speech.restart(now)
	}
	fellBack := !psn.After(g.pos)
	if fellBack && g.policy.Ack != AckAll {
		g.newRound(psn)
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
	g.resentAt = now
	// What follows on the last packet was sent before the source heard that it
	// is to go back; that it went shows by a step back, or by the packet itself.
	if g.awaiting && (psn == g.goBack || fellBack && psn.After(g.goBack)) {
		g.awaiting = false
		g.speech.restart(now)
	}
	return true
}

// count notes that packet psn was seen, and whether it is the last of a message. A packet counts only
// behind the one counted last: between the two there would be packets that were lost on their way
// here, and some of them may end messages. The source resends those, and all packets behind them.
func (g *Group) count(psn roce.PSN, last bool) {
	counted, messages := g.counts()
	if psn != counted.Next() {
		return
	}
	g.counted, g.messages = psn, messages
	if last {
		g.messages = messages.Add(1)
	}
}

// counts returns the furthest packet up to which the number of messages is known, and that number.
// Beyond what was counted the floor's MSN is that number: after a restart nothing else knows it.
func (g *Group) counts() (upTo roce.PSN, messages roce.MSN) {
	if f := &g.floor; f.known && f.psn.After(g.counted) {
		return f.psn, f.msn
	}
	return g.counted, g.messages
}

// answerEvery is how many packets of a round are answered at least once. A
// source may need longer than its timeout to get to the next one that asks, and
// would begin again and again: rxe asks every 66th, 2.2 ms at 1 Gb/s.
const answerEvery = 16

// DueAnswer says whether a packet that is acknowledged up to acked is answered
// again (rule 3): where it asks, or the source would retry until its QP dies;
// every answerEvery packets; and at acked itself, where an acknowledgment that
// was kept back, because the source was below it, is due.
func DueAnswer(psn, acked roce.PSN, ackReq bool) bool {
	return ackReq || acked.Sub(psn)%answerEvery == 0
}

// answer is the retransmit filter's (rule 3): a packet that is acknowledged is
// acknowledged again with its own PSN, not with what the others have. One
// that a source told to go back still sent before it heard so is not answered:
// the answer would meet it on its way back, ahead of where it then is.
func (g *Group) answer(psn roce.PSN, ackReq bool, acts []Action) []Action {
	if DueAnswer(psn, g.floor.psn, ackReq) && !psn.After(g.limit()) {
		acts = g.ack(psn, acts)
	}
	return g.tellEnd(acts)
}

// refuse answers a request that cannot be merged (rule 11), as a receiver would
// that takes none, and with the same patience as any fatal NAK.
func (g *Group) refuse(now Tick, ev *Event, acts []Action) ([]Action, Outcome) {
	if !g.inWindow(ev.PSN) {
		return acts, OutsideWindow
	}
	if !g.refusing || ev.PSN.Before(g.refused) {
		g.refusing, g.refused, g.refusal = true, ev.PSN, ev.Syndrome
		g.endAt(ev.PSN, ev.Syndrome)
	}
	g.arrive(now, ev.PSN)
	return g.tell(acts), Refused
}

func (g *Group) inWindow(psn roce.PSN) bool {
	if !g.started {
		return true
	}
	if d := psn.Sub(g.sent); d > Window || d < -Window {
		return false
	}
	return !g.ready() || psn.Sub(g.floor.psn) <= Window
}
