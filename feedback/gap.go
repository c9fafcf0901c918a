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

// missing is the packet for which the source was called back by time.
type missing struct {
	some  bool
	since Tick  // when the source was last sent a NAK for it, or when a timer first saw that
	times uint8 // how often it was sent again
	slow  bool  // the last call was an RNR NAK
	rests bool  // and that was less than gapAgain ago
	calls uint8 // how many RNR NAKs it was sent
}

// The NAK for a gap may be lost as well, and then the source would wait for its timeout. A
// requester that has heard the NAK ignores it when it comes again, unless an ACK came between. But
// every response restarts a requester's timer, so it comes gapTimes more and then no more: after
// gapAgain, and then after twice that. gapAgain is longer than a loaded source takes to go back.
const (
	gapAgain = millisecond
	gapTimes = 2
)

// shortestRNR makes a source wait for 10 us.
const shortestRNR roce.RNRTimer = 1

// opensGap says whether the new packet psn lies behind one that was lost on its way from the
// source.
func (g *Group) opensGap(psn roce.PSN) bool { return g.legs != nil && psn != g.source.sent.Next() }

// askBelowGap sends the last packet before the gap again to the paths that owe no answer to it:
// nothing that lies behind it will ask them. Without an answer the floor would not reach the gap.
func (g *Group) askBelowGap(now Tick, acts []Action) []Action {
	last := g.source.sent
	for i := range g.legs {
		l, p := &g.legs[i], &g.paths[i]
		owes := !l.asked.Before(last) || !p.acked.Before(last)
		if p.part != PartActive || l.state != legDirect || l.barred || owes || last.Before(g.retained.oldest) {
			continue
		}
		l.cursor = last
		acts = g.repair(now, i, true, acts)
	}
	return acts
}

// gapStands says whether the source has sent more than was forwarded. A request that no group can
// carry is not lost (rule 11).
func (g *Group) gapStands() bool {
	return g.legs != nil && g.source.known && g.source.pos.After(g.source.sent) && !g.refusal.covers(g.source.sent.Next())
}

// gapDue says whether every path has what lies below the gap, so that the source is to be called
// back. It is not when its QP has ended.
func (g *Group) gapDue() bool { return g.gapStands() && g.Settled() && !g.end.sent }

// gapUnheard says whether the source was sent a sequence NAK for the gap and has not gone back, so
// that the NAK may be sent again.
func (g *Group) gapUnheard() bool {
	hole := g.source.sent.Next()
	called := g.gapDue() && g.back.newest && g.back.psn == hole
	return called && !g.gap.slow && g.gap.times < gapTimes
}

// repeatGap sends the NAK for the gap again when it may have been lost.
func (g *Group) repeatGap(now Tick, acts []Action) []Action {
	hole := g.source.sent.Next()
	switch {
	case !g.gapUnheard() && !g.gap.rests:
		return acts
	case !g.gap.some:
		g.gap.some, g.gap.since = true, now
		return acts
	case now-g.gap.since < gapAgain<<g.gap.times:
		return acts
	case g.gap.rests:
		g.gap.rests = false
		return g.replyGoBack(acts)
	}
	g.gap.since = now
	g.gap.times++
	return append(acts, g.reply(hole, roce.NAKSequence))
}
