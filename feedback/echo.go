package feedback

import "github.com/rocast/rocast/roce"

// The ACK of everything that the source has sent may be lost on its way. No later one follows, and
// a source that waits for it before it goes on would need its timeout. So with repair the last ACK
// is sent again, echoTimes at most, after echoAfter and then after twice that, while the source is
// silent (rule 14). A requester ignores an ACK of what was acknowledged. Every response restarts
// its timer; therefore the bound.
const (
	echoAfter = 500 * microsecond
	echoTimes = 2
)

// echo is the last ACK that may be sent again.
type echo struct {
	due   bool  // it acknowledges everything, and the source has sent nothing since
	some  bool  // a timer has seen that
	since Tick  // when it was last sent, or when a timer first saw that
	times uint8 // how often it was sent again
}

// echoes says whether the last ACK is to be sent again.
func (g *Group) echoes() bool {
	return g.echo.due && g.echo.times < echoTimes && !g.end.sent && g.Settled() && g.merged.psn == g.source.sent
}

// repeatLast sends the last ACK again when it may have been lost.
func (g *Group) repeatLast(now Tick, acts []Action) []Action {
	e := &g.echo
	switch {
	case !g.echoes():
		return acts
	case !e.some:
		e.some, e.since = true, now
		return acts
	case now-e.since < echoAfter<<e.times:
		return acts
	}
	e.since = now
	e.times++
	return append(acts, g.reply(g.merged.psn, roce.SyndromeUnlimited))
}
