package scale

import "github.com/rocast/rocast/internal/rnic"

// Use is how much of the network was used. Only packets of requesters are counted, not answers.
type Use struct {
	Traversals uint64 // of a link by a packet
	Links      int    // that carried any
	Busiest    uint64 // packets on the link that carried most
	Marked     uint64
	Lost       uint64 // at random; answers too
	Dropped    uint64 // because the queue was full; answers too
	Longest    Time   // that a packet waited in a queue
}

// Use returns what all links carried so far.
func (n *Net) Use() (u Use) {
	for i := range n.links {
		l := &n.links[i]
		u.Traversals += l.data
		u.Busiest = max(u.Busiest, l.data)
		if l.data > 0 {
			u.Links++
		}
		u.Marked, u.Lost, u.Dropped = u.Marked+l.marked, u.Lost+l.lost, u.Dropped+l.dropped
		u.Longest = max(u.Longest, l.longest)
	}
	return u
}

// BoxState is what one switch has to know of all groups.
type BoxState struct {
	Layer         string
	Groups, Paths int
}

// State returns the switches that have state of any group, in the order in which groups came to
// them.
func (n *Net) State() (all []BoxState) {
	index := map[site]int{}
	for _, g := range n.groups {
		for i := range g.boxes {
			b := &g.boxes[i]
			at, known := index[b.site]
			if !known {
				at = len(all)
				index[b.site] = at
				all = append(all, BoxState{Layer: b.layer.String()})
			}
			all[at].Groups++
			all[at].Paths += len(b.paths)
		}
	}
	return all
}

// Fairness is Jain's index: 1 if all rates are equal, and 1/n if one of n has everything (Jain,
// Chiu and Hawe, "A Quantitative Measure of Fairness", 1984).
func Fairness(rates []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, r := range rates {
		sum += r
		squares += r * r
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(rates)) * squares)
}

// BusiestGroups returns how many groups use the way between two switches that most of them use.
func (n *Net) BusiestGroups() (most int) {
	uses := make([]int, len(n.links))
	for _, g := range n.groups {
		for i := range g.boxes {
			for _, p := range g.boxes[i].paths {
				if n.betweenSwitches(p.link) {
					uses[p.link]++
					most = max(most, uses[p.link])
				}
			}
		}
	}
	return most
}

// Timeouts returns how often the requester of the source lost patience.
func (g *Group) Timeouts() uint64 { return g.source.qp.Counters().Get(rnic.Timeouts) }

// IsZero says that there is no flow.
func (f Flow) IsZero() bool { return f.conn == nil }
