package feedback

import "github.com/rocast/rocast/roce"

// opensGap says whether the new packet psn lies behind a packet that was lost on its way from the
// source. With repair it is not forwarded: the receivers would throw it away, and the retained
// packets would have a hole. The source is sent a NAK for the first missing packet as soon as every
// path has what lies below (replyGoBack).
func (g *Group) opensGap(psn roce.PSN) bool {
	return g.legs != nil && psn != g.source.sent.Next()
}

// gapStands says whether the source has sent more than was forwarded: the packet behind the highest
// one forwarded was lost. A request that no group can carry is not lost (rule 11).
func (g *Group) gapStands() bool {
	return g.legs != nil && g.source.known && g.source.pos.After(g.source.sent) && !g.refusal.covers(g.source.sent.Next())
}
