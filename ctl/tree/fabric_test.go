package tree

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// fabric is a network of boxes that route by shortest paths, with all equal ones at once.
type fabric struct {
	links map[string][]string // the neighbours of each box
	at    map[string]string   // the box of each host
	load  map[[2]string]int   // groups that use a link in this direction, as the box at its start counts
	ways  map[string]map[string]int
}

func newFabric() *fabric {
	return &fabric{links: map[string][]string{}, at: map[string]string{}, load: map[[2]string]int{}, ways: map[string]map[string]int{}}
}

func (f *fabric) link(a, b string) {
	f.links[a], f.links[b] = append(f.links[a], b), append(f.links[b], a)
}

// distances returns how many links each box is away from a box.
func (f *fabric) distances(to string) map[string]int {
	if known := f.ways[to]; known != nil {
		return known
	}
	far := map[string]int{to: 0}
	for next := []string{to}; len(next) > 0; next = next[1:] {
		for _, b := range f.links[next[0]] {
			if _, seen := far[b]; !seen {
				far[b] = far[next[0]] + 1
				next = append(next, b)
			}
		}
	}
	f.ways[to] = far
	return far
}

// through returns the next-hop set of a box for a host.
func (f *fabric) through(box, host string) (set []string) {
	far := f.distances(f.at[host])
	for _, b := range f.links[box] {
		if far[b] < far[box] {
			set = append(set, b)
		}
	}
	return set
}

// part is what one box does for a group.
type part struct {
	box, from string
	own       []string
	asked     map[string][]string // members by neighbour
}

// multicast plans a group at every box that it needs, from the source's box down.
func (f *fabric) multicast(group, source string, receivers []string) (parts []part) {
	return f.register(group, "", f.at[source], receivers)
}

func (f *fabric) register(group, from, box string, receivers []string) []part {
	members := make([]Member, len(receivers))
	for i, host := range receivers {
		members[i].Through = f.through(box, host)
	}
	mine := part{box: box, from: from, asked: map[string][]string{}}
	for i, neighbour := range Plan(group, members, func(n string) int { return f.load[[2]string{box, n}] }) {
		if neighbour == "" {
			mine.own = append(mine.own, receivers[i])
		} else {
			mine.asked[neighbour] = append(mine.asked[neighbour], receivers[i])
		}
	}
	parts := []part{mine}
	for _, neighbour := range slices.Sorted(maps.Keys(mine.asked)) {
		f.load[[2]string{box, neighbour}]++
		parts = append(parts, f.register(group, box, neighbour, mine.asked[neighbour])...)
	}
	return parts
}

// check returns what is wrong with the plans of all boxes for a group, or "".
func check(parts []part, receivers []string) string {
	reached, boxes := map[string]int{}, map[string]int{}
	for _, p := range parts {
		boxes[p.box]++
		for _, host := range p.own {
			reached[host]++
		}
	}
	for _, host := range receivers {
		if reached[host] != 1 {
			return fmt.Sprintf("%s is reached %d times", host, reached[host])
		}
	}
	if len(reached) != len(receivers) {
		return fmt.Sprintf("%d hosts are reached instead of %d", len(reached), len(receivers))
	}
	// A box that is registered once is sent each packet once, by one link.
	for box, times := range boxes {
		if times != 1 {
			return fmt.Sprintf("box %s is registered %d times", box, times)
		}
	}
	return ""
}

// copies is the number of links between boxes that carry each packet.
func copies(parts []part) int { return len(parts) - 1 }

// fewest returns the smallest number of links that a tree of shortest paths needs: it tries every
// set of boxes, so a fabric must be small.
func (f *fabric) fewest(source string, receivers []string) int {
	root := f.at[source]
	far := f.distances(root)
	boxes := slices.SortedFunc(maps.Keys(far), func(a, b string) int { return cmp.Or(cmp.Compare(far[a], far[b]), cmp.Compare(a, b)) })
	needed := map[string]bool{}
	for _, host := range receivers {
		needed[f.at[host]] = true
	}
	best := len(boxes)
	for set := range 1 << len(boxes) {
		in := map[string]bool{}
		ok := true
		for i, b := range boxes { // from near to far
			if set>>i&1 == 0 {
				ok = ok && !needed[b] && b != root
				continue
			}
			// A box may take packets only from one that is nearer to the root.
			ok = ok && (b == root || slices.ContainsFunc(f.links[b], func(up string) bool { return in[up] && far[up] < far[b] }))
			in[b] = true
		}
		if ok {
			best = min(best, len(in)-1)
		}
	}
	return best
}

// leafSpine returns a fabric in which each leaf has a link to each spine.
func leafSpine(leaves, spines, hosts int) *fabric {
	f := newFabric()
	for l := range leaves {
		leaf := fmt.Sprintf("leaf%d", l)
		for s := range spines {
			f.link(leaf, fmt.Sprintf("spine%d", s))
		}
		for h := range hosts {
			f.at[fmt.Sprintf("h%d.%d", l, h)] = leaf
		}
	}
	return f
}

// fatTree returns the fat tree of k-port boxes (Al-Fares et al. 2008): k pods of k/2 edge and k/2
// aggregation boxes, and k/2 hosts at each edge box.
func fatTree(k int) *fabric {
	f := newFabric()
	half := k / 2
	for pod := range k {
		for a := range half {
			aggregation := fmt.Sprintf("agg%d.%d", pod, a)
			for c := range half {
				f.link(aggregation, fmt.Sprintf("core%d.%d", a, c))
			}
			for e := range half {
				f.link(aggregation, fmt.Sprintf("edge%d.%d", pod, e))
			}
		}
		for e := range half {
			for h := range half {
				f.at[fmt.Sprintf("h%d.%d.%d", pod, e, h)] = fmt.Sprintf("edge%d.%d", pod, e)
			}
		}
	}
	return f
}

func (f *fabric) hosts() []string { return slices.Sorted(maps.Keys(f.at)) }
