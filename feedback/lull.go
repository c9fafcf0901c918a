package feedback

import "github.com/rocast/rocast/roce"

// A silent source has nothing to send, or it waits for an answer that nobody is going to send. With
// repair the switch breaks that silence (rule 14).
//
//   - The ACK of everything that the source has sent may be lost on its way to the source, or the
//     NAK that calls it back may be. The switch sends it again, twice at most: every response
//     restarts a requester's timer. A requester ignores an ACK of what was acknowledged, and a NAK
//     that it has heard.
//   - The source may have gone back, and what it sent then was lost. It does not seem to have gone
//     back, not even if some of it came: new packets in rising order may be older than the call. A
//     requester ignores the same NAK, and obeys an RNR NAK, which the switch sends once, after a
//     longer time. A source that is only slow would go back twice, and the switch would take the
//     first time for the second. Therefore the RNR NAK makes the source wait for longer than a
//     round trip: before it goes back again it has heard the ACKs of what it sent the first time.
//   - The newest packet X that came did not ask for an ACK, and everything that asked is
//     acknowledged. Then the last ACK may be lost on its way to the source, or the packets behind X
//     on their way from it, for instance the end of a message. The switch asks the receivers for X.
//     When they have it, the source is sent NAK(X), and ACK(X) is kept back until then. That is
//     safe whatever the source has sent: X itself it has sent, X is not acknowledged to it, and
//     all receivers have what lies below. It sends X again, and what was lost behind it.
//
// A source that only pauses, for instance because its host is busy, sends one packet again. It is
// called back once while it is silent, so that its pauses do not use up its retries.

// After these times of silence of the source the switch acts.
const (
	// unheardAfter is longer than a source takes to answer. The second time it is twice as long.
	unheardAfter = 500 * microsecond
	unheardTimes = 2
	// slowAfter is the same where an RNR NAK follows. The timer for one that the source has heard
	// may have the grain of a kernel's timers, and a source hears only as many RNR NAKs as its
	// rnr_retry says.
	slowAfter = 16 * millisecond
	// roundTripRNR makes a source wait for 1.28 ms.
	roundTripRNR roce.RNRTimer = 14
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
	times uint8 // how often the source was sent the same again
	spoke bool  // the source was sent an RNR NAK, because it did not come where it was called to
}

// pace is how fast the source sends.
type pace struct {
	seenAt Tick // when its last packet came
	pause  Tick // the longest time of late between two packets of a message
}

// heard notes that packet psn came, which ends the silence of the source.
func (rr *replier) heard(now Tick, psn roce.PSN) {
	if !rr.policy.repairs() {
		return
	}
	if p := &rr.pace; rr.source.inside && psn == rr.source.sent.Next() {
		p.pause = max(now-p.seenAt, p.pause-p.pause/8)
	}
	rr.pace.seenAt = now
	rr.lull = lull{}
}

// unheard reports whether the source may not have heard what it was last sent, or has sent in vain
// what it was called back for, so that it is to be sent something again.
func (rr *replier) unheard() bool {
	return !rr.end.sent && (rr.same() || rr.called() && !rr.lull.spoke)
}

// same reports whether the source is to be sent again just what it was sent last.
func (rr *replier) same() bool {
	return rr.lull.times < unheardTimes && (rr.lastACK() || rr.called() && rr.ignored())
}

// lastACK reports whether the source was last sent the ACK of everything that it has sent.
func (rr *replier) lastACK() bool {
	return rr.lull.acked && rr.Settled() && rr.merged.psn == rr.source.sent
}

// called reports whether the source was called back and has not come. It is not called again while
// it is below that packet, because it went back further: a NAK acknowledges everything below, which
// would be ahead of the source's place, and the source sends the packet again anyway. Nor is it
// while it answers a question.
func (rr *replier) called() bool {
	return rr.back.awaited && !rr.back.psn.After(rr.source.pos) && !rr.spentCalls() && !rr.back.answering(rr.source.pos)
}

// ignored reports whether the source ignores the call for which it has not come, if it has heard
// it.
func (rr *replier) ignored() bool { return rr.back.newest && rr.back.by == roce.NAKSequence }

// mute reports whether the source may wait for an answer that nobody is going to send, and would
// obey a NAK: it ignores one if it has heard no ACK since the last.
func (rr *replier) mute() bool {
	s := &rr.source
	return !rr.lull.asked && s.known && s.pos == s.sent && !s.asks && rr.floor.known &&
		rr.merged.psn.Before(s.sent) && !rr.back.awaited && !rr.back.newest && rr.end.syndrome == 0 && !rr.holdsBack()
}

// breakSilence does what may help a source that is silent.
func (rr *replier) breakSilence(now Tick, acts []Action) []Action {
	l, unheard := &rr.lull, rr.unheard()
	switch {
	case !unheard && !rr.mute():
		return acts
	case !l.seen, !unheard && rr.repairHoldsFloor(): // a receiver under repair will answer
		l.seen, l.since = true, now
		return acts
	case now-l.since < rr.patienceWithSource(unheard):
		return acts
	}
	l.since = now
	if !unheard {
		l.asked = true
		return rr.replies(rr.askNewest(now, acts))
	}
	switch psn := rr.back.psn; {
	case !rr.same():
		l.spoke, rr.gap.calls = true, rr.gap.calls+1
		rr.back.by, rr.back.askedAt = roce.SyndromeRNR(roundTripRNR), now
		return because(append(acts, rr.reply(psn, rr.back.by)), CauseUnheard)
	case rr.called() && rr.ignored():
		l.times, rr.back.askedAt = l.times+1, now
		return because(append(rr.ackAgain(psn.Prev(), acts), rr.reply(psn, roce.NAKSequence)), CauseUnheard)
	default:
		l.times++
		return append(acts, rr.reply(rr.merged.psn, roce.SyndromeUnlimited))
	}
}

// patienceWithSource is how long the source may be silent.
func (rr *replier) patienceWithSource(unheard bool) Tick {
	switch by := rr.back.by; {
	case !unheard:
		return max(muteAfter, pauseTimes*rr.pace.pause)
	case rr.same():
		return unheardAfter << rr.lull.times
	case by.IsRNR():
		return max(slowAfter, 2*Tick(by.RNRTimer().Duration()))
	}
	return slowAfter
}

// replySilent sends a silent source back to the newest packet that came, when all receivers have
// it.
func (rr *replier) replySilent(acts []Action) []Action {
	if !rr.lull.asked || rr.source.pos != rr.source.sent || rr.back.newest || rr.end.syndrome != 0 || !rr.Settled() || rr.holdsBack() {
		return acts
	}
	rr.tally.Called++
	return because(rr.sendBack(rr.source.sent, roce.NAKSequence, acts), CauseSilentSource)
}

// heardTrain is heard for each packet of a train.
func (rr *replier) heardTrain(now Tick, ev *Event) {
	p, packets := &rr.pace, ev.PSN.Sub(rr.source.sent)
	if rr.source.inside {
		p.pause = max(now-p.seenAt, p.pause-p.pause/8)
	}
	ended := ev.MSN.Sub(0) // messages that ended before the last packet
	if ev.Last {
		ended--
	}
	for range packets - 1 - ended { // those that came inside a message, at once
		p.pause -= p.pause / 8
	}
	p.seenAt, rr.lull = now, lull{}
}
