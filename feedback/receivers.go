package feedback

import (
	"math"
	"slices"

	"github.com/rocast/rocast/roce"
)

// receivers are the paths of a group, and how the policy counts them. What one of them says is
// merged with what the others have said by the types that know the source: see stream, repair and
// replier.
type receivers struct {
	policy  Policy
	paths   []path
	quorum  *quorum // nil: the policy waits for every receiver
	needed  int     // the path that never leaves (Need); none: there is no such path
	absent  int     // the path of the source itself; none: the source only sends
	beside  int     // receivers that have what the source hears an ACK of, whatever the paths say (vouch)
	relayed bool    // the source is another box (Relay)
	pending pendingNAKs
}

// none stands for "no path" where an index of a path is expected.
const none = -1

// Relay notes whether the source is another box. A NIC that sends an old packet again hears an ACK
// of that packet, because one of later packets would be ahead of its place (rule 3). A box takes
// any ACK of what it has sent, as from a NIC. So it hears of the newest packet that counts as
// acknowledged. Behind a crash it needs that: it takes the highest packet of which it hears for the
// newest one of its source, and would end the turn too early.
func (rx *receivers) Relay(box bool) { rx.relayed = box }

// setPending replaces a path's pending NAK. 0 clears it.
func (rx *receivers) setPending(p *path, s roce.Syndrome) {
	rx.pending.add(p.pending, -1)
	rx.pending.add(s, 1)
	p.pending = s
}

func (rx *receivers) clearNAKs() {
	for i := range rx.paths {
		if p := &rx.paths[i]; p.part == PartActive {
			rx.setPending(p, 0)
		}
	}
}

// dueNAK is the strongest pending NAK of the paths at a PSN: the longest RNR NAK, or else a
// sequence NAK (rule 5).
func (rx *receivers) dueNAK(at roce.PSN) roce.Syndrome {
	var strongest roce.Syndrome
	for i := range rx.paths {
		p := &rx.paths[i]
		if p.part != PartActive || p.pending == 0 || p.acked != at {
			continue
		}
		if strongest == 0 || strongest == roce.NAKSequence ||
			p.pending.IsRNR() && p.pending.RNRTimer().LongerThan(strongest.RNRTimer()) {
			strongest = p.pending
		}
	}
	return strongest
}

// someoneLacks reports whether a path that is not below the floor, which is at from, asks for a
// packet again. What a path below the floor asks for a quorum has: the source has let go of it, or
// will with its next ACK.
func (rx *receivers) someoneLacks(from roce.PSN) bool {
	for i := range rx.paths {
		p := &rx.paths[i]
		if p.part == PartActive && p.pending == roce.NAKSequence && !p.acked.Before(from) {
			return true
		}
	}
	return false
}

// someoneAheadOf reports whether another path has got further than p. What a path has acknowledged
// before its fatal NAK counts.
func (rx *receivers) someoneAheadOf(p *path) bool {
	for i := range rx.paths {
		q := &rx.paths[i]
		if (q.part == PartActive || q.part == PartDead) && (p.part == PartUnknown || q.acked.After(p.acked)) {
			return true
		}
	}
	return false
}

// someoneBelow reports whether a path may wait for a packet below psn.
func (rx *receivers) someoneBelow(psn roce.PSN) bool {
	return slices.ContainsFunc(rx.paths, func(p path) bool {
		return p.part == PartUnknown || p.part == PartActive && p.acked.Next().Before(psn)
	})
}

// living counts the receivers that can acknowledge what the source waits for.
func (rx *receivers) living() (n int) {
	for i := range rx.paths {
		if p := &rx.paths[i]; p.part.takesData() && !p.fresh {
			n += rx.weight(i)
		}
	}
	return n
}

// spare reports whether the group can do without path i.
func (rx *receivers) spare(i int) bool {
	return i != rx.needed && rx.living()-rx.weight(i) >= rx.least()
}

// Need says that path i leads to the switch above: the receivers behind that switch are not this
// one's to give up, and none of its other receivers makes up for them. The path is neither evicted
// nor left behind, and a source waits for it, or ends. The policy must be AckAll.
func (rx *receivers) Need(i int) { rx.needed = i }

// waitsAbove reports whether path i is that of the box above, and is to tell what it has. It is not
// while that box is the source.
func (rx *receivers) waitsAbove(i int) bool { return i == rx.needed && rx.paths[i].part == PartUnknown }

// msnAt is the MSN that goes with what p has acknowledged: the lowest of the counted paths that
// have acknowledged as much. It is p's own, except where p leads to another switch. Such a path may
// acknowledge a resent packet by that packet's own PSN, with the MSN of what came after it, and
// other paths may lack that.
func (rx *receivers) msnAt(p *path) roce.MSN {
	lowest := p.msn
	for i := range rx.paths {
		q := &rx.paths[i]
		if q.counted() && q.part != PartUnknown && !q.acked.Before(p.acked) && q.msn.Sub(lowest) < 0 {
			lowest = q.msn
		}
	}
	return lowest
}

// credits is the lowest limit of all receivers, which is MSN plus credits, as seen from the MSN
// that the reply carries (rule 6). Codes themselves do not compare. A receiver that has not sent an
// ACK yet limits nothing: zero credits for it would stop the source, and an RNR NAK tells when it
// has no receive. But if no other receiver has a limit, the reply grants nothing instead of
// everything: after the first "unlimited" a requester ignores credits for ever
// (docs/wire.md#msn-and-credits).
func (rx *receivers) credits(msn roce.MSN) roce.Syndrome {
	lowest, limited, unheard := int32(math.MaxInt32), false, false
	for i := range rx.paths {
		p := &rx.paths[i]
		credits, has := p.credit.Credits()
		if p.part != PartActive && !(p.part == PartUnknown && p.told) || !has {
			unheard = unheard || p.part == PartActive && p.credit == creditNone
			continue
		}
		lowest, limited = min(lowest, p.msn.Add(int32(credits)).Sub(msn)), true
	}
	switch {
	case !limited && unheard:
		return roce.SyndromeACK(0)
	case !limited:
		return roce.SyndromeUnlimited
	}
	return roce.SyndromeACK(roce.CreditCodeFor(uint32(max(0, lowest))))
}

// Part is how path i takes part.
func (rx *receivers) Part(i int) Part { return rx.paths[i].part }

// Acked is the highest PSN that path i has acknowledged.
func (rx *receivers) Acked(i int) roce.PSN { return rx.paths[i].acked }

// MSN is the MSN of path i's last answer, in the source's space.
func (rx *receivers) MSN(i int) roce.MSN { return rx.paths[i].msn }

// Progress returns what path i has acknowledged.
func (rx *receivers) Progress(i int) Progress { return Progress{rx.paths[i].acked, rx.paths[i].msn} }
