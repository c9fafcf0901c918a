package feedback

import (
	"slices"

	"github.com/rocast/rocast/roce"
)

// OfSource stands for the old index of a path that belongs to the source: see Rearrange.
const OfSource = -2

// Rearrange gives the group the paths of a new membership: from[i] is the old index of new path i,
// or -1 for a path that joins. A path that joins gets data from the next message on: a fresh QP
// that sees the middle of a message first refuses it as invalid and ends. Weights are those of the
// new paths, as in [Config]. A path that stays must not weigh more than before: the receivers that
// it stands for in addition have nothing of what it has acknowledged.
//
// OfSource in from is a path of the source, which had none: its member only sent, and may receive
// now when another member is the source.
//
// Parts says which paths take no part yet, or no more, as in [Config]; nil: none. Of a path that
// stays it says only whether it is still PartWaiting: else it joins now.
//
// Send a Timer event afterwards: without the paths that left, replies may be due.
func (g *Group) Rearrange(from []int, weights []uint16, parts []Part) {
	paths := make([]path, len(from))
	for i, old := range from {
		part := PartJoining
		if parts != nil && parts[i] != PartActive {
			part = parts[i]
		}
		if old == OfSource {
			paths[i] = path{part: PartGone, credit: creditNone}
			continue
		}
		if old < 0 {
			paths[i] = path{part: part, credit: creditNone}
			continue
		}
		paths[i] = g.paths[old]
		if p := &paths[i]; p.part == PartWaiting {
			p.part = part
		} else if old == g.absent && g.away == PartWaiting {
			g.away = part
		}
	}
	g.paths = paths
	g.rearrangeLegs(from)
	if g.needed != none {
		g.needed = slices.Index(from, g.needed)
	}
	g.pending = pendingNAKs{}
	for i := range paths {
		g.pending.add(paths[i].pending, 1)
	}
	if g.quorum != nil {
		g.quorum.weigh(weights)
	}
	if g.absent != none {
		g.vouch(slices.Index(from, g.absent), g.beside)
	}
	if i := slices.Index(from, OfSource); i >= 0 {
		g.away = PartActive
		g.vouch(i, 0)
	}
	g.recount()
	g.findEnd()
}

// mayJoin reports whether the joining paths may begin with psn, the first packet of a message: with
// any new one before which no packet is missing, because the MSN of a path that joins is the number
// of messages before it. Where no other receiver is left they begin with the first packet that is
// not acknowledged, and with no other, even if it is sent for the second time: no other path asks
// for what was lost on the uplink, and no other path could acknowledge it.
func (g *Group) mayJoin(psn roce.PSN, resent bool) bool {
	if g.floor.known && g.living() == 0 {
		return psn == g.floor.psn.Next()
	}
	upTo, _ := g.counts()
	return !resent && psn == upTo.Next()
}

// join makes the joining paths active with psn, the first packet of a message. The MSN that their
// MSN 0 maps to is the number of messages before psn. Without those that wait to join, too few
// receivers may be left: then these join too, because nobody could acknowledge psn.
func (g *Group) join(now Tick, psn roce.PSN, acts []Action) []Action {
	needed := g.needsWaiting()
	joined, messages := false, g.Messages()
	if g.floor.known && g.living() == 0 {
		messages = g.floor.msn // messages behind psn may have been counted already
	}
	for i := range g.paths {
		p := &g.paths[i]
		if p.part != PartJoining && !(needed && p.part == PartWaiting) {
			continue
		}
		p.part, p.acked, p.msn, p.since, joined = PartActive, psn.Prev(), messages, now, true
		p.fresh, p.from = g.isFresh(psn), psn
		g.beginLeg(i, psn.Prev())
		acts = append(acts,
			Action{Kind: Join, Path: i, PSN: psn, MSN: messages},
			Action{Kind: Notice, Note: NoteJoined, Path: i, PSN: psn})
	}
	if joined {
		g.recount()
		acts = g.evictDead(acts)
		g.findEnd() // a packet that no receiver was left for may be acknowledged now
	}
	return acts
}

// evictDead evicts the receivers that ended with a fatal NAK when the group could not do without
// them, if it can now: the source has sent the refused packet again, so it has not heard the NAK.
func (g *Group) evictDead(acts []Action) []Action {
	for i := range g.paths {
		if p := &g.paths[i]; p.part == PartDead && i != g.needed && g.policy.givesUp(p.silent == silenceEmpty) && g.living() >= g.least() {
			acts = g.evict(i, acts)
		}
	}
	return acts
}

// needsWaiting reports whether too few receivers are left without those that wait, even with those
// that join.
func (rx *receivers) needsWaiting() bool {
	n := rx.living()
	for i := range rx.paths {
		if rx.paths[i].part == PartJoining {
			n += rx.weight(i)
		}
	}
	return n < rx.least()
}
