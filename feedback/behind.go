package feedback

import (
	"time"

	"github.com/rocast/rocast/roce"
)

// With a quorum (rule 9) the source lets go of packets that some receiver lacks. Such a receiver is
// behind: nothing can repair it any more. The evidence is its NAK, which names a packet that the
// source was told is acknowledged. But a NAK tells what the receiver lacked when it sent the NAK,
// and the switch may have copied that packet to it since. The two cross on the link:
//
//	switch   0 lost on the uplink   data 1 ──╮        ╭── data 0, 1 once more
//	                                         ╲       ╱
//	receiver                         NAK 0 ───╳─────╳────▶ arrives last, and says nothing about the copy
//
// Links keep the order of packets, so a NAK for P proves that the last copy of P was lost if
// everything above P that the receiver was sent went out after that copy. That holds
//   - for a packet that was copied once, in order;
//   - for all packets of a round of the source in which the switch served the receiver's NAK for X:
//     a receiver that lacks X and has said so says nothing else before X arrives, and what arrives
//     behind X belongs to this round.
//
// It does not hold for X itself, because NAKs can come twice, and an RNR NAK is followed by a
// sequence NAK for the same packet.
//
// A NAK that proves nothing may be true all the same: the copy was lost too. A real receiver then
// stays silent for ever, because it sends one NAK a gap. So such a path is in doubt, until it makes
// progress or leaves too many packets unanswered.

// ask is what is known of a path's request for acked+1.
type ask uint8

const (
	askNone   ask = iota // nothing was heard since the path stands there
	askProven            // it sent a NAK, and it lacks the packet for certain
	askDoubt             // it sent a NAK, and a copy of the packet may be on its way
)

// A path in doubt is behind when it has left doubtLimit packets that asked for an ACK unanswered,
// each for doubtPeriod at least. A single one proves little, its ACK may be lost; and time alone
// proves nothing while the source is idle.
const (
	doubtPeriod = Tick(16 * time.Millisecond)
	doubtLimit  = 8
)

// span is the packets from a PSN to another one, both included.
type span struct {
	from, to roce.PSN
	some     bool
}

func (s *span) has(psn roce.PSN) bool {
	return s.some && !psn.Before(s.from) && !psn.After(s.to)
}

func (s *span) add(psn roce.PSN) {
	switch {
	case !s.some:
		*s = span{from: psn, to: psn, some: true}
	case psn.Before(s.from):
		s.from = psn
	case psn.After(s.to):
		s.to = psn
	}
}

// trim drops what lies more than Window below psn: no path that takes data is that far back, and
// PSNs would soon compare the other way round.
func (s *span) trim(psn roce.PSN) {
	if s.some && psn.Sub(s.from) > Window {
		s.from = psn.Add(-Window)
		s.some = !s.to.Before(s.from)
	}
}

// newRound is called when the source falls back to psn.
func (g *Group) newRound(psn roce.PSN) {
	lag := false
	for i := range g.paths {
		p := &g.paths[i]
		p.follows = false
		lag = lag || p.part.takesData() && (p.part == PartUnknown || p.acked.Before(g.recopied.to))
	}
	if !lag {
		g.recopied.some = false
	}
}

// hearAsk notes a NAK of p for acked+1.
func (g *Group) hearAsk(p *path) {
	switch {
	case p.ask == askDoubt:
	case p.follows || !g.recopied.has(p.acked.Next()):
		p.ask = askProven
	default:
		p.ask = askDoubt
	}
}

// served notes that acked+1 is copied to p.
func (p *path) served() {
	if p.ask != askNone {
		p.follows = p.follows || p.ask == askProven
		p.ask, p.unheard = askDoubt, 0
	}
}

// countsDoubts says whether a packet that is copied at now counts for those in doubt.
func (g *Group) countsDoubts(now Tick, ackReq bool) bool {
	if g.policy.Ack == AckAll || !ackReq || now-g.agedAt < doubtPeriod {
		return false
	}
	g.agedAt = now
	return true
}

// hopeless counts one more packet that p has to answer, and says whether p has left too many
// unanswered. The source has let go of what p lacks, so nothing is lost by calling it behind.
func (g *Group) hopeless(p *path) bool {
	if p.part != PartActive || p.ask != askDoubt || !g.told || p.acked.Next().After(g.merged) {
		return false
	}
	p.unheard++
	return p.unheard > doubtLimit
}

// tooFarFrom says whether p is so far back that PSNs would soon compare the other way round.
func (p *path) tooFarFrom(psn roce.PSN) bool {
	return (p.part == PartActive || p.part == PartDead) && psn.Sub(p.acked) > Window
}

// fallBehind ends a path that lacks what the source was told is acknowledged (rule 9): the source
// has let go of it.
func (g *Group) fallBehind(i int, acts []Action) []Action {
	g.leave(i, PartBehind)
	return append(acts, Action{Kind: Notice, Note: NoteBehind, Path: i, PSN: g.paths[i].acked.Next()})
}
