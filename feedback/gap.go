package feedback

import "github.com/rocast/rocast/roce"

// A packet that is lost on its way from the source is the source's to send again. With repair the
// switch says so by itself (rule 14): it does not forward what lies behind the missing packet,
// because the receivers would throw that away and the retained packets would have a hole. The
// source is sent a NAK for the missing packet as soon as every path has what lies below. Where the
// source goes back and the packet is missing again, an RNR NAK of the shortest time follows: a
// requester ignores the same sequence NAK until an ACK comes between.
//
// While the gap stands the source's place is above the highest packet forwarded. No ACK can follow
// it there, because no path has acknowledged what was not forwarded.

// gapCalls is what is known of the calls for the missing packet, or for one that the source was
// called back to and has not sent.
type gapCalls struct {
	calls uint8 // how many RNR NAKs the source was sent since a new packet came
	rests bool  // the last one was less than gapAgain ago
	seen  bool  // a timer has seen the last call
	since Tick  // when it first did
}

// gapAgain is how long after an RNR NAK for a gap the next one may follow: the source's packets may
// have overtaken each other, so that it seems to have gone back twice.
const gapAgain = millisecond

// shortestRNR makes a source wait for 10 us.
const shortestRNR roce.RNRTimer = 1

// guess is whether a restart is so short ago that a packet of the source may be older. The first
// packet that comes is taken for the newest one (rule 13), but if it was under way for long, the
// source has heard the ACK of what lies between, and will not send that for any NAK. A receiver
// that is a NIC acknowledges its newest packet when it gets an old one, but another switch
// acknowledges the old one, so nobody would tell. Therefore nothing is a gap while the guess
// stands: what comes is forwarded as without repair, and what is retained begins anew behind
// packets that did not come.
type guess struct {
	stands bool
	until  Tick // a packet that comes from then on was sent after the restart
}

// packetLife is longer than a packet is on its way.
const packetLife = second

// endGuess ends the guess if the packet that was forwarded, which came at a given time or later,
// was sent after the restart. The source has heard the ACK of no packet from there on, so it sends
// each of them when a NAK calls it back.
func (rp *repair) endGuess(came Tick) {
	if came >= rp.guess.until {
		rp.guess.stands = false
	}
}

// opensGap reports whether the new packet psn lies behind one that was lost on its way from the
// source.
func (rp *repair) opensGap(psn roce.PSN) bool {
	return rp.policy.repairs() && psn != rp.source.sent.Next()
}

// askNewest sends the newest packet again to the paths that owe no answer to it: nothing behind it
// will ask them, because that is lost. Without an answer the floor would not get there.
func (rp *repair) askNewest(now Tick, acts []Action) []Action {
	last := rp.source.sent
	for i := range rp.legs {
		l, p := &rp.legs[i], &rp.paths[i]
		owes := !l.asked.Before(last) || !p.acked.Before(last)
		if p.part != PartActive || l.state != legDirect || l.barred || owes || last.Before(rp.retained.oldest) {
			continue
		}
		l.cursor = last
		acts = rp.resend(now, i, true, acts)
	}
	return acts
}

// gapStands reports whether the source has sent more than was forwarded. It does so too behind a
// request that no group can carry; the NAK for that comes before any other (rule 11).
func (rp *repair) gapStands() bool {
	return rp.policy.repairs() && rp.source.known && rp.source.pos.After(rp.source.sent)
}

// gapDue reports whether every path has what lies below the gap, so that the source is to be called
// back.
func (rr *replier) gapDue() bool { return rr.gapStands() && rr.Settled() }

// spentCalls reports whether the source has had all the RNR NAKs that it is sent before a new
// packet comes.
func (rr *replier) spentCalls() bool { return int(rr.gap.calls) >= rr.policy.RepairAttempts }

// gapTimer ends the time in which no other RNR NAK is sent for the gap.
func (rr *replier) gapTimer(now Tick, acts []Action) []Action {
	switch m := &rr.gap; {
	case !m.rests:
		return acts
	case !m.seen:
		m.seen, m.since = true, now
		return acts
	case now-m.since < gapAgain:
		return acts
	}
	rr.gap.rests = false
	return rr.replyGoBack(acts)
}
