package feedback

import (
	"slices"

	"github.com/rocast/rocast/roce"
)

// quorum is the state of a policy that does not wait for every receiver. A path counts as the
// number of receivers that it stands for, all of them or none: a path to another switch
// acknowledges what the policy of that switch takes for acknowledged, and says nothing about single
// receivers.
type quorum struct {
	weights []uint16 // by path; empty: one receiver each
	ranked  []int32  // scratch space of rank
}

// weigh sets the weights. It stores none if all are 1.
func (q *quorum) weigh(weights []uint16) {
	q.weights = nil
	if slices.ContainsFunc(weights, func(w uint16) bool { return w != 1 }) {
		q.weights = slices.Clone(weights)
	}
}

// copyOf returns a copy of from, if possible in the memory of q.
func (q *quorum) copyOf(from *quorum) *quorum {
	if from == nil {
		return nil
	}
	if q == nil {
		q = new(quorum)
	}
	q.weights = append(q.weights[:0], from.weights...)
	return q
}

// weight returns the number of receivers that path i stands for. It is 1 for every path if the
// policy waits for all.
func (rx *receivers) weight(i int) int {
	if rx.quorum == nil || len(rx.quorum.weights) == 0 {
		return 1
	}
	return int(rx.quorum.weights[i])
}

// vouch notes which path is that of the source, which is away, and how many receivers are beside
// it. Where the path leads to a box behind this one, the source is behind that box, and the boxes
// there let it hear an ACK only when all others behind that path have the packet (rule 9). So these
// count for the quorum. They do not if the path had fallen behind: they lack something of another
// source then, and count for nothing. Where the policy waits for all, they are enough if no other
// path is left, or if the group never had one.
func (g *Group) vouch(i, beside int) {
	g.absent, g.beside = max(i, none), 0
	if i >= 0 && g.away == PartActive {
		if g.beside = beside; g.quorum != nil {
			g.beside = min(beside, g.weight(i)-1)
		}
	}
}

// need is how many receivers of the counted paths have to have a packet before the source hears
// that it arrived. The policy is a quorum.
func (rx *receivers) need() int { return max(0, int(rx.policy.Ack)-rx.beside) }

// needsNone reports whether the receivers behind the source's own path are enough.
func (rx *receivers) needsNone() bool {
	if rx.quorum == nil {
		return rx.beside > 0 && !slices.ContainsFunc(rx.paths, func(p path) bool { return p.counted() })
	}
	return rx.need() == 0
}

// least returns the smallest number of receivers with which the group goes on.
func (rx *receivers) least() int {
	switch {
	case rx.quorum != nil:
		return rx.need()
	case rx.beside > 0:
		return 0
	}
	return 1
}

// rank returns a counted path at the highest PSN that counted paths for f receivers have
// acknowledged. No two of them are further apart than Window allows, so that PSNs have an order.
func (rx *receivers) rank(f int) *path {
	r := slices.Grow(rx.quorum.ranked[:0], len(rx.paths))
	for i := range rx.paths {
		if p := &rx.paths[i]; p.counted() && p.part != PartUnknown {
			r = append(r, int32(i))
		}
	}
	rx.quorum.ranked = r
	slices.SortFunc(r, func(a, b int32) int { return int(rx.paths[b].acked.Sub(rx.paths[a].acked)) })
	for _, i := range r {
		if f -= rx.weight(int(i)); f <= 0 {
			return rx.firstAt(rx.paths[i].acked)
		}
	}
	panic("feedback: fewer receivers were ranked than the quorum needs")
}

// reached returns the number of receivers that have acknowledged psn: a counted path counts with
// its weight.
func (rx *receivers) reached(psn roce.PSN) (n int) {
	for i := range rx.paths {
		if p := &rx.paths[i]; p.counted() && p.part != PartUnknown && !p.acked.Before(psn) {
			n += rx.weight(i)
		}
	}
	return n
}

// firstAt returns the first counted path that has acknowledged just psn.
func (rx *receivers) firstAt(psn roce.PSN) *path {
	for i := range rx.paths {
		if p := &rx.paths[i]; p.counted() && p.part != PartUnknown && p.acked == psn {
			return p
		}
	}
	panic("feedback: no path stands where a quorum was ranked")
}
