package matrix

import (
	"slices"
	"strings"
	"testing"
)

var places = map[string]Runners{"simulation": Simulation, "namespaces": Namespaces}

// A value that runs nowhere says nothing, and a name has to tell values apart.
func TestEveryValueRunsSomewhere(t *testing.T) {
	names := map[string]bool{}
	for _, d := range Dimensions {
		if names[d.Name] || len(d.Values) < 2 {
			t.Errorf("dimension %s", d.Name)
		}
		names[d.Name] = true
		seen := map[string]bool{}
		for _, v := range d.Values {
			if v.Runs == 0 {
				t.Errorf("%s=%s runs nowhere", d.Name, v.Name)
			}
			if seen[v.Name] || strings.ContainsAny(d.Name+v.Name, " =") {
				t.Errorf("%s=%s", d.Name, v.Name)
			}
			seen[v.Name] = true
		}
		if first := d.Values[0]; first.Runs != Everywhere {
			t.Errorf("%s=%s is the default, and does not run everywhere", d.Name, first.Name)
		}
	}
}

// Each rule is about at least two dimensions and about a place where its values run.
func TestRulesAreAboutValues(t *testing.T) {
	for _, rules := range [][]Rule{Refused, Void, Left, Missing} {
		for _, r := range rules {
			some, err := parse(r.Of)
			if err != nil || len(some) < 2 || r.Why == "" {
				t.Errorf("%s: %d values, %v", r.Of, len(some), err)
			}
			for _, s := range some {
				if runs := Dimensions[s.dimension].Values[s.value].Runs; r.Where == 0 || r.Where != Everywhere && runs&r.Where == 0 {
					t.Errorf("%s: %v does not run there", r.Of, s)
				}
			}
		}
	}
}

// Each pair of values, and each three with an event, is in a cell of a place where its values run,
// or a rule says why they do not meet there. Nothing is left out at all places where it would run.
func TestCellsCoverAll(t *testing.T) {
	everywhere := &space{}
	for _, d := range Dimensions {
		var values []uint8
		for v := range d.Values {
			if d.Values[v].Runs != 0 {
				values = append(values, uint8(v))
			}
		}
		everywhere.allowed = append(everywhere.allowed, values)
	}
	for _, rules := range [][]Rule{Refused, Void} {
		for _, r := range rules {
			everywhere.barred = append(everywhere.barred, mustParse(r.Of))
		}
	}
	todo := everywhere.targets()
	cells, lacks := map[string][]Cell{}, map[string]*open{}
	for name, place := range places {
		cells[name], lacks[name] = Cover(place, 1), newOpen(todo)
		for _, c := range cells[name] {
			lacks[name].cover(c)
		}
		t.Logf("%s: %d cells", name, len(cells[name]))
	}
	for _, target := range todo {
		line := join(target)
		covered, meet := false, false // values that do not run at one place meet at none
		for name, place := range places {
			s := at(place)
			meet = meet || s.runs(target) && everywhere.some(target) != nil
			here := !lacks[name].has(&target)
			covered = covered || here
			if runs := s.runs(target); here != (runs && s.some(target) != nil) {
				t.Errorf("%s, in %s: covered %v, and its values run there: %v", line, name, here, runs)
			}
		}
		missing := slices.ContainsFunc(Missing, func(r Rule) bool { return target.includes(mustParse(r.Of)) })
		if meet != covered && !missing {
			t.Errorf("%s: it can be asked for: %v, and some cell has it: %v", line, meet, covered)
		}
	}
	for name, place := range places {
		for _, c := range cells[name] {
			if why, ok := c.Runs(place); !ok {
				t.Errorf("%v, in %s: %s", c, name, why)
			}
		}
	}
}

// includes reports whether a target has all these values.
func (t *target) includes(some []chosen) bool {
	return !slices.ContainsFunc(some, func(one chosen) bool { return !slices.Contains(t[:], one) })
}

func join(t target) string {
	var words []string
	for _, s := range t {
		if !slices.Contains(words, s.String()) {
			words = append(words, s.String())
		}
	}
	return strings.Join(words, " ")
}

// runs reports whether all values of a target run at the place.
func (s *space) runs(t target) bool {
	return !slices.ContainsFunc(t[:], func(one chosen) bool { return !slices.Contains(s.allowed[one.dimension], one.value) })
}

// some returns a cell with the values, or nil: it tries all.
func (s *space) some(t target) Cell {
	c := make(Cell, len(s.allowed))
	for d := range c {
		c[d] = unset
	}
	for _, one := range t {
		c[one.dimension] = one.value
	}
	if !s.meets(c) || !s.any(c, 0) {
		return nil
	}
	return c
}

func (s *space) any(c Cell, d int) bool {
	if d == len(c) {
		return true
	}
	if c[d] != unset {
		return s.any(c, d+1)
	}
	for _, v := range s.allowed[d] {
		if c[d] = v; s.meets(c) && s.any(c, d+1) {
			return true
		}
	}
	c[d] = unset
	return false
}

// A line is read as it was written, and what cannot be read says what is wrong.
func TestLines(t *testing.T) {
	for _, c := range append(Cover(Simulation, 7)[:20], make(Cell, len(Dimensions))) {
		again, err := Parse(c.String())
		if err != nil || !slices.Equal(again, c) {
			t.Errorf("%v is read as %v, %v", c, again, err)
		}
	}
	for line, want := range map[string]string{
		"nak=lower famly=ipv6":  `there is no dimension "famly"`,
		"nak=lower nak=hold":    "nak has two values",
		"family=ipv5 nak=lower": `family has no value "ipv5"`,
	} {
		if _, err := Parse(line); err == nil || err.Error() != want {
			t.Errorf("%s: %v", line, err)
		}
		if err := Check(line); err == nil || err.Error() != want {
			t.Errorf("%s: %v", line, err)
		}
	}
	c, err := Parse("nak=lower event=kill")
	if err != nil || !c.Is("nak", "lower") || c.Get("event") != "kill" || c.Get("family") != "ipv4" || !c.Has("event=kill family=ipv4") || c.Has("nak=hold") {
		t.Errorf("%v, %v", c, err)
	}
}

// The same seed gives the same cells, another seed gives others.
func TestSameSeedSameCells(t *testing.T) {
	lines := func(seed uint64) (s string) {
		for _, c := range Cover(Simulation, seed) {
			s += c.String() + "\n"
		}
		return s
	}
	if first := lines(3); first != lines(3) || first == lines(4) {
		t.Error("the cells do not depend on the seed alone")
	}
}

// What cannot be run says why.
func TestRuns(t *testing.T) {
	for line, want := range map[string]string{
		"shape=etcd":           "shape=etcd is not run there",
		"shape=tree evict=yes": "",
		"shape=racks evict=yes event=route-moved": "",
		"shape=tree ack=quorum evict=yes":         "",
		"source-switch=none event=switch":         "source-switch=none event=switch: no member but the source may send",
		"addressing=virtual-qpn shape=tree":       "addressing=virtual-qpn shape=tree: " + Refused[2].Why,
		"family=ipv6":                             "",
	} {
		c, err := Parse(line)
		if why, ok := c.Runs(Simulation); err != nil || why != want || ok != (want == "") {
			t.Errorf("%s: %q, %v", line, why, err)
		}
	}
}

// A quorum is lost only where receivers lack something for ever and others go.
func TestMayLoseQuorum(t *testing.T) {
	for line, want := range map[string]bool{
		"ack=quorum": false, "ack=quorum repair=off": false, "evict=yes repair=off event=leave": false,
		"ack=quorum evict=yes": true, "ack=quorum event=refused": false, "ack=quorum event=refused on-fatal=evict": true,
		"ack=quorum event=leave": false, "ack=quorum event=leave repair=off": true,
	} {
		c, err := Parse(line)
		if err != nil || c.MayLoseQuorum() != want {
			t.Errorf("%s: %v, %v", line, c.MayLoseQuorum(), err)
		}
	}
}
