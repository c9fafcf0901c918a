package matrix

import (
	"math/rand/v2"
	"slices"
)

// space is the part of the declaration that some runners can run.
type space struct {
	allowed [][]uint8  // by dimension: the values that run there
	barred  [][]chosen // values that do not meet there
}

func at(by Runners) *space {
	s := &space{}
	for _, d := range Dimensions {
		var values []uint8
		for v := range d.Values {
			if d.Values[v].Runs&by != 0 {
				values = append(values, uint8(v))
			}
		}
		s.allowed = append(s.allowed, values)
	}
	for _, rules := range [][]Rule{Refused, Void, Left} {
		for k := range rules {
			if rules[k].Where&by != 0 {
				s.barred = append(s.barred, mustParse(rules[k].Of))
			}
		}
	}
	return s
}

// meets reports whether nothing in the cell, which may have unset values, is barred.
func (s *space) meets(c Cell) bool {
	for _, some := range s.barred {
		if c.hasAll(some) {
			return false
		}
	}
	return true
}

// target is values that some cell has to have together: two, or three of which the last is an
// event.
type target [3]chosen // a pair has its second value twice

// targets returns what has to be covered.
func (s *space) targets() (all []target) {
	event := find(EventDimension)
	for a := range s.allowed {
		for b := range a {
			for _, v := range s.allowed[a] {
				for _, w := range s.allowed[b] {
					pair := target{{a, v}, {b, w}, {b, w}}
					all = append(all, pair)
					if a == event || b == event {
						continue
					}
					for _, e := range s.allowed[event] {
						if Dimensions[event].Values[e].Name != NoEvent {
							all = append(all, target{pair[0], pair[1], {event, e}})
						}
					}
				}
			}
		}
	}
	return all
}

// RunsAt reports whether the runners can run all values of a line.
func RunsAt(line string, by Runners) bool {
	for _, s := range mustParse(line) {
		if Dimensions[s.dimension].Values[s.value].Runs&by == 0 {
			return false
		}
	}
	return true
}

// Runs reports whether the runners can run the cell, and else why not.
func (c Cell) Runs(by Runners) (why string, ok bool) {
	for d, v := range c {
		if Dimensions[d].Values[v].Runs&by == 0 {
			return chosen{d, v}.String() + " is not run there", false
		}
	}
	for _, rules := range [][]Rule{Refused, Void, Left} {
		for _, r := range rules {
			if r.Where&by != 0 && c.Has(r.Of) {
				return r.Of + ": " + r.Why, false
			}
		}
	}
	return "", true
}

// Cover returns cells that the runners can run. Each pair of values that may meet there is in one
// of them, and each three values with an event. The same seed gives the same cells.
func Cover(by Runners, seed uint64) (cells []Cell) {
	s, random := at(by), rand.New(rand.NewPCG(seed, 0))
	todo := s.targets()
	left := newOpen(todo)
	for k := range todo {
		if !left.has(&todo[k]) {
			continue
		}
		c := s.fill(random, &todo[k], left)
		if c == nil { // its values do not meet
			left.take(&todo[k])
			continue
		}
		cells = append(cells, c)
		left.cover(c)
	}
	random.Shuffle(len(cells), func(i, k int) { cells[i], cells[k] = cells[k], cells[i] })
	return cells
}

// fill returns the best of some cells that cover a target, or nil.
func (s *space) fill(random *rand.Rand, first *target, left *open) (best Cell) {
	most := 0
	for range 3 {
		c := make(Cell, len(s.allowed))
		for d := range c {
			c[d] = unset
		}
		for _, one := range first {
			c[one.dimension] = one.value
		}
		if !s.meets(c) || !s.complete(c, random, left) {
			continue
		}
		if n := left.in(c); n > most {
			best, most = c, n
		}
	}
	return best
}

// complete chooses a value for each dimension that has none, and reports whether that is possible.
func (s *space) complete(c Cell, random *rand.Rand, left *open) bool {
	d := nextUnset(c, random)
	if d < 0 {
		return true
	}
	for _, v := range s.ranked(c, d, random, left) {
		c[d] = v
		if s.meets(c) && s.complete(c, random, left) {
			return true
		}
	}
	c[d] = unset
	return false
}

func nextUnset(c Cell, random *rand.Rand) int {
	for _, d := range random.Perm(len(c)) {
		if c[d] == unset {
			return d
		}
	}
	return -1
}

// ranked returns the values of a dimension: first the one that, with the values that the cell has
// already, covers most. Equal ones are in random order.
func (s *space) ranked(c Cell, d int, random *rand.Rand, left *open) []uint8 {
	values := slices.Clone(s.allowed[d])
	random.Shuffle(len(values), func(i, k int) { values[i], values[k] = values[k], values[i] })
	gain := map[uint8]int{}
	for _, v := range values {
		c[d] = v
		gain[v] = left.in(c)
	}
	c[d] = unset
	slices.SortStableFunc(values, func(a, b uint8) int { return gain[b] - gain[a] })
	return values
}

// open is the targets that no cell covers yet.
type open struct {
	first  []int // by dimension: the number of its first value, of all values
	values int
	event  int
	left   []bool // by the numbers of both values, and the event
}

func newOpen(todo []target) *open {
	o := &open{event: find(EventDimension)}
	for _, d := range Dimensions {
		o.first = append(o.first, o.values)
		o.values += len(d.Values)
	}
	o.left = make([]bool, o.values*o.values*(1+len(Dimensions[o.event].Values)))
	for k := range todo {
		o.left[o.index(&todo[k])] = true
	}
	return o
}

// index returns the index of a target in left. A pair has the index of the triple whose event is
// none.
func (o *open) index(t *target) int {
	e := 0
	if t[2] != t[1] {
		e = 1 + int(t[2].value)
	}
	return o.at(t[0], t[1], e)
}

func (o *open) at(a, b chosen, e int) int {
	n := (o.first[a.dimension]+int(a.value))*o.values + o.first[b.dimension] + int(b.value)
	return n*(1+len(Dimensions[o.event].Values)) + e
}

func (o *open) has(t *target) bool { return o.left[o.index(t)] }

func (o *open) take(t *target) { o.left[o.index(t)] = false }

// cover takes what a cell covers.
func (o *open) cover(c Cell) { o.each(c, func(at int) { o.left[at] = false }) }

// in counts the targets that a cell covers. The cell may have unset values.
func (o *open) in(c Cell) (n int) {
	o.each(c, func(at int) {
		if o.left[at] {
			n++
		}
	})
	return n
}

// each calls f with the index of each pair and of each three that a cell has.
func (o *open) each(c Cell, f func(at int)) {
	for a := range c {
		for b := range a {
			if c[a] == unset || c[b] == unset {
				continue
			}
			x, y := chosen{a, c[a]}, chosen{b, c[b]}
			f(o.at(x, y, 0))
			if a != o.event && b != o.event && c[o.event] != unset {
				f(o.at(x, y, 1+int(c[o.event])))
			}
		}
	}
}
