package tree

import (
	"cmp"
	"crypto/sha256"
	"slices"
)

// Member is a member of a group as one box sees it.
type Member struct {
	// Through names the neighbours by which the member is reached at equal cost, each once, in any
	// order. If it is empty, this box reaches the member by itself.
	Through []string
	// Now is the neighbour that the member is behind at present; "" for a new member and for one
	// that this box reaches by itself.
	Now string
}

// Plan returns the neighbour of each member, or "" for a member that this box reaches by itself.
//
// A member stays behind its neighbour as long as the neighbour is in its set. The others are given
// to neighbours in turn, and each neighbour is given all members that it can reach. First come the
// neighbours that the group needs anyway: those that it already has, then those that are the only
// way to some member. Then comes the neighbour that reaches most of the remaining members. So the
// number of neighbours, which is the number of copies on links, is at most H(n) times the smallest
// possible one, where n is the number of members and H(n) = 1 + 1/2 + ... + 1/n (greedy set cover,
// Chvatal 1979). If several neighbours are equally good, the one with the smallest load is taken:
// load is the number of groups that use a neighbour. Where loads are equal too, a hash of the
// group's name and the neighbour's decides, so that the groups of many boxes do not all begin with
// the same neighbour.
func Plan(group string, members []Member, load func(neighbour string) int) []string {
	p := planner{members: members, given: make([]string, len(members)), has: map[string]int{}}
	for i, m := range members {
		if m.Now != "" && slices.Contains(m.Through, m.Now) {
			p.give(i, m.Now)
		}
	}
	for {
		waiting := p.waiting()
		if len(waiting) == 0 {
			return p.given
		}
		p.giveAll(slices.MinFunc(waiting, func(a, b candidate) int {
			return cmp.Or(b.compare(a), cmp.Compare(load(a.neighbour), load(b.neighbour)),
				cmp.Compare(rank(group, a.neighbour), rank(group, b.neighbour)))
		}).neighbour)
	}
}

type planner struct {
	members []Member
	given   []string       // the neighbour of each member; "": none yet, or none needed
	has     map[string]int // the number of members that each neighbour has
}

// candidate is a neighbour that can reach members that have no neighbour yet.
type candidate struct {
	neighbour string
	has       int // number of other members that have this neighbour
	only      int // number of the members to which it is the only way
	reaches   int // number of the members
}

// compare returns a positive number if a is better than b.
func (a candidate) compare(b candidate) int {
	return cmp.Or(cmp.Compare(a.has, b.has), cmp.Compare(a.only, b.only), cmp.Compare(a.reaches, b.reaches))
}

func (p *planner) waiting() (list []candidate) {
	for i, m := range p.members {
		if p.given[i] != "" {
			continue
		}
		for _, name := range m.Through {
			at := slices.IndexFunc(list, func(c candidate) bool { return c.neighbour == name })
			if at < 0 {
				at = len(list)
				list = append(list, candidate{neighbour: name, has: p.has[name]})
			}
			list[at].reaches++
			if len(m.Through) == 1 {
				list[at].only++
			}
		}
	}
	return list
}

func (p *planner) give(i int, neighbour string) {
	p.given[i] = neighbour
	p.has[neighbour]++
}

// giveAll gives the neighbour all members that it reaches and that have no neighbour yet.
func (p *planner) giveAll(neighbour string) {
	for i, m := range p.members {
		if p.given[i] == "" && slices.Contains(m.Through, neighbour) {
			p.give(i, neighbour)
		}
	}
}

// rank orders the neighbours of a group by a hash (rendezvous hashing).
func rank(group, neighbour string) string {
	sum := sha256.Sum256([]byte(group + "\x00" + neighbour))
	return string(sum[:])
}
