package feedback

import "github.com/rocast/rocast/roce"

// end is the fatal NAK with the lowest PSN, of a receiver or for a refused request: the source's QP
// will end with it. It bounds all ACKs (limit), so that no packet is acknowledged and then refused.
type end struct {
	psn      roce.PSN
	syndrome roce.Syndrome // 0: none
	sent     bool          // in this round of the source
}

// refusal is the lowest request of the source that no group can carry (rule 11).
type refusal struct {
	psn      roce.PSN
	syndrome roce.Syndrome // 0: none
}

// covers reports whether psn is the refused request or lies behind it.
func (r *refusal) covers(psn roce.PSN) bool { return r.syndrome != 0 && !psn.Before(r.psn) }

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

// endAt notes a fatal NAK. The lowest one counts: the source's QP does not get beyond it.
func (g *Group) endAt(psn roce.PSN, s roce.Syndrome) {
	if g.end.syndrome == 0 || psn.Before(g.end.psn) {
		g.end = end{syndrome: s, psn: psn}
	}
}

// endPSN is the PSN with which the source can be sent a fatal NAK for psn. A quorum may have
// acknowledged more, and the source would take a NAK below that for stale.
func (m *merged) endPSN(psn roce.PSN) roce.PSN {
	if m.known && !psn.After(m.highest) {
		return m.highest.Next()
	}
	return psn
}

// endIfTooFew ends the source's QP behind what is acknowledged if too few receivers are left to
// acknowledge the rest: the source would wait for ever.
func (g *Group) endIfTooFew() {
	if g.hopeful() >= g.policy.Ack.least() {
		return
	}
	g.endAt(g.floor.psn.Next(), roce.NAKRemoteOperational)
}

// hopeful counts the receivers that can acknowledge what the source waits for or sends next.
// Between messages those count that join with the next one; inside a message they cannot help,
// because they have nothing of it.
func (g *Group) hopeful() (n int) {
	n = g.living()
	if between := g.Settled() && !g.source.inside; between {
		for i := range g.paths {
			if g.paths[i].part == PartJoining {
				n += g.weight(i)
			}
		}
	}
	return n
}

// findEnd looks for the end again after a change of members or of the source: a receiver that left
// takes its fatal NAK along. An end that the source was sent stays: its QP has ended.
func (g *Group) findEnd() {
	if g.end.sent {
		return
	}
	g.end = end{psn: g.refusal.psn, syndrome: g.refusal.syndrome}
	for i := range g.paths {
		if p := &g.paths[i]; p.part == PartDead {
			g.endAt(g.merged.endPSN(p.acked.Next()), p.pending)
		}
	}
	g.endIfTooFew()
}

// Ended reports whether the source was sent the NAK that ends its QP.
func (g *Group) Ended() bool { return g.end.sent }
