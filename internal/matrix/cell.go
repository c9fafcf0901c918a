package matrix

import (
	"fmt"
	"slices"
	"strings"
)

// Cell is one value of each dimension, by its number.
type Cell []uint8

// Get returns the cell's value of a dimension.
func (c Cell) Get(dimension string) string {
	d := find(dimension)
	return Dimensions[d].Values[c[d]].Name
}

// Is reports whether the cell has the value.
func (c Cell) Is(dimension, value string) bool { return c.Get(dimension) == value }

// String returns the cell's line: what is not the default. Parse is the inverse.
func (c Cell) String() string {
	var words []string
	for d, v := range c {
		if v != 0 {
			words = append(words, Dimensions[d].Name+"="+Dimensions[d].Values[v].Name)
		}
	}
	if words == nil {
		return Dimensions[0].Name + "=" + Dimensions[0].Values[0].Name
	}
	return strings.Join(words, " ")
}

// Parse returns the cell of a line.
func Parse(line string) (Cell, error) {
	some, err := parse(line)
	if err != nil {
		return nil, err
	}
	c := make(Cell, len(Dimensions))
	for _, s := range some {
		c[s.dimension] = s.value
	}
	return c, nil
}

// chosen is one value of one dimension.
type chosen struct {
	dimension int
	value     uint8
}

func (s chosen) String() string {
	return Dimensions[s.dimension].Name + "=" + Dimensions[s.dimension].Values[s.value].Name
}

func parse(line string) (some []chosen, err error) {
	for _, word := range strings.Fields(line) {
		dimension, value, _ := strings.Cut(word, "=")
		d := find(dimension)
		if d < 0 {
			return nil, fmt.Errorf("there is no dimension %q", dimension)
		}
		v := slices.IndexFunc(Dimensions[d].Values, func(v Value) bool { return v.Name == value })
		if v < 0 {
			return nil, fmt.Errorf("%s has no value %q", dimension, value)
		}
		if slices.ContainsFunc(some, func(s chosen) bool { return s.dimension == d }) {
			return nil, fmt.Errorf("%s has two values", dimension)
		}
		some = append(some, chosen{d, uint8(v)})
	}
	return some, nil
}

// find returns the number of a dimension, or -1.
func find(dimension string) int {
	return slices.IndexFunc(Dimensions, func(d Dimension) bool { return d.Name == dimension })
}

// unset is the value of a dimension that is not chosen yet, in a cell that is being made.
const unset = 0xFF

// Has reports whether the cell has all values of a line, as a Rule has one.
func (c Cell) Has(line string) bool { return c.hasAll(mustParse(line)) }

func (c Cell) hasAll(some []chosen) bool {
	for _, s := range some {
		if c[s.dimension] != s.value {
			return false
		}
	}
	return true
}

// Check returns an error if a line, of a cell or of a part of one, cannot be read.
func Check(line string) error {
	_, err := parse(line)
	return err
}

func mustParse(line string) []chosen {
	some, err := parse(line)
	if err != nil {
		panic(fmt.Sprintf("matrix: %s: %v", line, err)) // a rule of the declaration, which tests read
	}
	return some
}

// MayLoseQuorum reports whether too few receivers for a quorum may be left, so that a source's
// queue pair may end. Without repair some receivers never get what the quorum went on without, and
// others were evicted or have left.
func (c Cell) MayLoseQuorum() bool {
	evicts := c.Is("evict", "yes") || c.Is("event", "refused") && c.Is("on-fatal", "evict")
	return c.Is("ack", "quorum") && (evicts || c.Is("event", "leave") && c.Is("repair", "off"))
}
