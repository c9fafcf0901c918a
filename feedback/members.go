package feedback

import "github.com/rocast/rocast/roce"

// Rearrange gives the group the paths of a new membership: from[i] is the old
// index of new path i, or -1 for one that joins. A joining path gets data from
// the next message on, because a QP that has seen nothing must not begin with
// the middle of one. Send a Timer event afterwards: without the paths that left
// the minimum may have moved.
func (g *Group) Rearrange(from []int) {
	paths := make([]path, len(from))
	for i, old := range from {
		if old >= 0 {
			paths[i] = g.paths[old]
		} else {
			paths[i] = path{part: PartJoining}
		}
	}
	g.paths = paths
	g.floor.ranked = make([]int32, 0, len(paths))
	g.sequenceNAKs, g.rnrNAKs = 0, 0
	for i := range paths {
		g.countPending(paths[i].pending, 1)
	}
	g.recount()
	g.findEnd()
}

// findEnd looks anew for what the source's QP is to end with, unless it was
// told: a receiver that left takes its fatal NAK along.
func (g *Group) findEnd() {
	if g.end.told {
		return
	}
	g.end = end{}
	if g.refusing {
		g.endAt(g.refused, g.refusal)
	}
	g.endIfTooFew(-1)
	for i := range g.paths {
		if p := &g.paths[i]; p.part == PartDead {
			g.endAt(g.endPSN(p.acked.Next()), p.pending)
		}
	}
}

// mayJoin says whether who joins may begin with psn, a message's first packet:
// with any new one. Where nobody else is left it has to be the first that is not
// acknowledged, be it for the second time: nobody else asks for what was lost on
// its way here, and nobody else would have it.
func (g *Group) mayJoin(psn roce.PSN, resent bool) bool {
	if g.floor.known && g.living() == 0 {
		return psn == g.floor.psn.Next()
	}
	upTo, _ := g.counts()
	return !resent && psn == upTo.Next()
}

// join lets the joining paths in with psn, the first packet of a message.
func (g *Group) join(now Tick, psn roce.PSN, acts []Action) []Action {
	joined, messages := false, g.Messages()
	if g.floor.known && g.living() == 0 {
		messages = g.floor.msn // some behind it may have been counted already
	}
	for i := range g.paths {
		p := &g.paths[i]
		if p.part != PartJoining {
			continue
		}
		p.part, p.acked, p.msn, p.since, joined = PartActive, psn.Prev(), messages, now, true
		p.fresh, p.from = g.isFresh(psn), psn
		acts = append(acts,
			Action{Kind: Join, Path: i, PSN: psn, MSN: messages},
			Action{Kind: Notice, Note: NoteJoined, Path: i, PSN: psn})
	}
	if joined {
		g.recount()
		g.findEnd() // what nobody was left for may now be acknowledged
	}
	return acts
}

// Part is how path i takes part.
func (g *Group) Part(i int) Part { return g.paths[i].part }

// Acked is the highest PSN that path i has acknowledged.
func (g *Group) Acked(i int) roce.PSN { return g.paths[i].acked }

// MSN is what path i last said, in the source's space.
func (g *Group) MSN(i int) roce.MSN { return g.paths[i].msn }

// Messages is how many messages of the source were forwarded whole, as far as every packet was seen.
func (g *Group) Messages() roce.MSN {
	_, messages := g.counts()
	return messages
}

// NextPSN is what the source sends next if it does not resend.
func (g *Group) NextPSN() roce.PSN { return g.sent.Next() }

// Settled says whether everything the source sent is acknowledged, as the ack
// policy has it.
func (g *Group) Settled() bool { return g.floor.known && g.floor.psn == g.sent }

// Ended says whether the source was told what ends its QP.
func (g *Group) Ended() bool { return g.end.told }

// MaySwitch says whether another member may become the source now: when what
// the old one sent is acknowledged, by every path that takes data too, or never
// will be because its QP has ended.
func (g *Group) MaySwitch() bool {
	if !g.started || g.refusing || g.inside {
		return false // or the receivers' QPs would see a message begin inside another
	}
	if g.policy.Switch == SwitchForce {
		return g.ready()
	}
	for i := range g.paths {
		p := &g.paths[i]
		if p.part == PartUnknown || p.part == PartActive && p.acked != g.sent {
			return false
		}
	}
	return g.Settled() || g.end.told
}

// Handover is a change of source.
type Handover struct {
	PSN      roce.PSN // the first packet of the new source
	Messages roce.MSN // what the new source has sent before, in messages
	OldPath  int      // path of the old source, which takes part again; -1: it only sends
	NewPath  int      // path of the new source, which is away while it sends; -1
}

// SwitchSource performs a handover (rule 12). Everything is in the new source's
// PSN space from here on, and every path stands right below its first packet. A
// path that lacks something of the old source cannot get it any more: it is
// behind.
func (g *Group) SwitchSource(h Handover, acts []Action) []Action {
	for i := range g.paths {
		if p := &g.paths[i]; p.part == PartActive && p.acked != g.sent {
			p.part = PartBehind
			acts = append(acts, Action{Kind: Notice, Note: NoteBehind, Path: i, PSN: p.acked.Next()})
		}
	}
	if h.OldPath >= 0 {
		g.comeBack(&g.paths[h.OldPath])
	}
	var dead roce.Syndrome
	for i := range g.paths {
		if g.paths[i].part == PartDead {
			dead = g.paths[i].pending
		}
	}
	g.begin(h.PSN)
	if dead != 0 {
		g.endAt(h.PSN, dead) // what the receiver cannot take from the new source either
	}
	g.endIfTooFew(h.NewPath)
	g.messages, g.floor.msn, g.toldMSN = h.Messages, h.Messages, h.Messages
	for i := range g.paths {
		g.paths[i].msn = h.Messages
	}
	g.Away(h.NewPath)
	return acts
}

// comeBack lets the path of a source take part again. What ended its QP as a
// source ended it as a receiver.
func (g *Group) comeBack(p *path) {
	switch {
	case !g.end.told:
		p.part = g.awayWas
	case g.policy.OnFatal == FatalEvict:
		p.part = PartGone
	default:
		p.part, p.pending = PartDead, g.end.syndrome
	}
}

// Away takes the path of the source itself out of the group while it sends.
func (g *Group) Away(i int) {
	if i >= 0 {
		g.awayWas, g.paths[i].part = g.paths[i].part, PartGone
	}
	g.recount()
}
