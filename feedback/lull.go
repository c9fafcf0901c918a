package feedback

import "github.com/rocast/rocast/roce"

// A silent source has nothing to send, or it waits for an answer that nobody is going to send. With
// repair the switch breaks that silence (rule 14).
//
//   - The ACK of everything that the source has sent may be lost on its way to the source, or the
//     NAK for a gap may be. The switch sends it again, twice at most: every response restarts a
//     requester's timer. A requester ignores an ACK of what was acknowledged, and a NAK that it has
//     heard.
//   - The newest packet X that came did not ask for an ACK, and everything that asked is
//     acknowledged. Then the last ACK may be lost on its way to the source, or the packets behind X
//     on their way from it, for instance the end of a message. The switch asks the receivers for X.
//     When they have it, the source is sent NAK(X), and ACK(X) is kept back until then. That is
//     safe whatever the source has sent: X itself it has sent, X is not acknowledged to it, and
//     all receivers have what lies below. It sends X again, and what was lost behind it.
//
// A source that only pauses, for instance because its host is busy, sends one packet again. It is
// called back once while it is silent, so that its pauses do not use up its retries.

// When the source has been silent for so long, the switch acts.
const (
	// unheardAfter is longer than a source takes to answer. The second time it is twice as long.
	unheardAfter = 500 * microsecond
	unheardTimes = 2
	// slowAfter is the same for an RNR NAK of 10 us. The timer for that may have the grain of a
	// kernel's timers, and a source hears only as many RNR NAKs as its rnr_retry says. So the RNR
	// NAK is sent again once.
	slowAfter = 16 * millisecond
	// muteAfter is longer than a busy source pauses inside a message, and a fraction of any
	// requester's timeout. A source that is slow, for instance because it was told of congestion,
	// has pauseTimes the pause that it made between two packets.
	muteAfter  = 4 * millisecond
	pauseTimes = 4
)

// lull is the time since the source sent something, or was last sent something.
type lull struct {
	acked bool  // the newest packet was acknowledged in it
	asked bool  // the receivers were asked for the newest packet
	seen  bool  // a timer has seen it
	since Tick  // when a timer first saw it, or when the switch last did something about it
	times uint8 // how often the source was sent something again
}

// pace is how fast the source sends.
type pace struct {
	seenAt Tick // when its last packet came
	pause  Tick // the longest time of late between two packets of a message
}

// heard notes that packet psn came, which ends the silence of the source.
func (g *Group) heard(now Tick, psn roce.PSN) {
	if g.repairState == nil {
		return
	}
	if p := &g.pace; g.source.inside && psn == g.source.sent.Next() {
		p.pause = max(now-p.seenAt, p.pause-p.pause/8)
	}
	g.pace.seenAt = now
	g.lull = lull{}
}

// unheard says whether the source may not have heard what it was last sent, so that it is to be
// sent that again.
func (g *Group) unheard() bool {
	l := &g.lull
	return l.times < unheardTimes && !g.end.sent && (g.lastACK() || g.called() && !(g.gap.byRNR && l.times > 0))
}

// lastACK says whether the source was last sent the ACK of everything that it has sent.
func (g *Group) lastACK() bool { return g.lull.acked && g.Settled() && g.merged.psn == g.source.sent }

// called says whether the source was called back to a gap, or because it was silent, and has not
// come.
func (g *Group) called() bool {
	toGap := g.gapDue() && g.back.psn == g.source.sent.Next() && !g.spentCalls()
	toNewest := g.lull.asked && g.back.psn == g.source.sent
	return g.back.awaited && g.back.newest && (toGap || toNewest)
}

// mute says whether the source may wait for an answer that nobody is going to send, and would obey
// a NAK: it ignores one if it has heard no ACK since the last.
func (g *Group) mute() bool {
	s := &g.source
	return g.repairState != nil && !g.lull.asked && s.known && s.pos == s.sent && !s.asks && g.floor.known &&
		g.merged.psn.Before(s.sent) && !g.back.awaited && !g.back.newest && g.end.syndrome == 0
}

// breakSilence does what may help a source that is silent.
func (g *Group) breakSilence(now Tick, acts []Action) []Action {
	l, unheard := &g.lull, g.unheard()
	switch {
	case !unheard && !g.mute():
		return acts
	case !l.seen, !unheard && g.mending(): // a receiver that is being mended will answer
		l.seen, l.since = true, now
		return acts
	case now-l.since < g.patienceWithSource(unheard):
		return acts
	}
	l.since = now
	if !unheard {
		l.asked = true
		return g.replies(g.askNewest(now, acts))
	}
	l.times++
	switch psn := g.back.psn; {
	case !g.called():
		return append(acts, g.reply(g.merged.psn, roce.SyndromeUnlimited))
	case g.gap.byRNR:
		g.gap.calls++
		return append(acts, g.reply(psn, roce.SyndromeRNR(shortestRNR)))
	default:
		return append(g.ackAgain(psn.Prev(), acts), g.reply(psn, roce.NAKSequence))
	}
}

// patienceWithSource is how long the source may be silent.
func (g *Group) patienceWithSource(unheard bool) Tick {
	switch {
	case !unheard:
		return max(muteAfter, pauseTimes*g.pace.pause)
	case g.called() && g.gap.byRNR:
		return slowAfter
	}
	return unheardAfter << g.lull.times
}

// replySilent sends a silent source back to the newest packet that came, when all receivers have
// it.
func (g *Group) replySilent(acts []Action) []Action {
	if g.repairState == nil || !g.lull.asked || g.source.pos != g.source.sent || g.back.newest || g.end.syndrome != 0 || !g.Settled() {
		return acts
	}
	g.gap.byRNR, g.lull.seen = false, false
	g.tally.Called++
	return g.sendBack(g.source.sent, roce.NAKSequence, acts)
}
