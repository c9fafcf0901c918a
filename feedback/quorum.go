package feedback

import (
	"slices"

	"github.com/rocast/rocast/roce"
)

// quorum is what a policy needs that does not wait for every receiver. A path counts as the number
// of receivers that it stands for, all of them or none: a path to another switch acknowledges what
// the policy of that switch takes for acknowledged, and says nothing about single receivers.
type quorum struct {
	weights []uint16 // by path; empty: one receiver each
	ranked  []int32  // scratch space of rank
}

// weigh sets the weights. Weights of 1 alone need no room.
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

// weight is how many receivers path i stands for. Where the policy waits for all, a path is a path.
func (g *Group) weight(i int) int {
	if g.quorum == nil || len(g.quorum.weights) == 0 {
		return 1
	}
	return int(g.quorum.weights[i])
}

// rank returns a counted path at the highest PSN that counted paths for f receivers have
// acknowledged. No two of them are further apart than Window allows, so that PSNs have an order.
func (g *Group) rank(f int) *path {
	r := slices.Grow(g.quorum.ranked[:0], len(g.paths))
	for i := range g.paths {
		if p := &g.paths[i]; p.counted() && p.part != PartUnknown {
			r = append(r, int32(i))
		}
	}
	g.quorum.ranked = r
	slices.SortFunc(r, func(a, b int32) int { return int(g.paths[b].acked.Sub(g.paths[a].acked)) })
	for _, i := range r {
		if f -= g.weight(int(i)); f <= 0 {
			return g.firstAt(g.paths[i].acked)
		}
	}
	panic("feedback: fewer receivers were ranked than the quorum needs")
}

// reached returns how many receivers the counted paths stand for that have acknowledged psn.
func (g *Group) reached(psn roce.PSN) (n int) {
	for i := range g.paths {
		if p := &g.paths[i]; p.counted() && p.part != PartUnknown && !p.acked.Before(psn) {
			n += g.weight(i)
		}
	}
	return n
}

// firstAt returns the first counted path that has acknowledged just psn.
func (g *Group) firstAt(psn roce.PSN) *path {
	for i := range g.paths {
		if p := &g.paths[i]; p.counted() && p.part != PartUnknown && p.acked == psn {
			return p
		}
	}
	panic("feedback: no path stands where a quorum was ranked")
}
