package mft

import (
	"fmt"
	"net/netip"
	"testing"
	"unsafe"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/roce"
)

// Each group has many of these. If their size grows, measure the figures of
// docs/evaluation.md#memory again.
func TestPathsAndKeysStaySmall(t *testing.T) {
	if n := unsafe.Sizeof(Path{}); n > 120 {
		t.Errorf("Path has %d bytes", n)
	}
	if n := unsafe.Sizeof(entry{}) + unsafe.Sizeof(holder(0)); n > 44 {
		t.Errorf("a key and its holder have %d bytes", n)
	}
}

// A group's slice of paths has no spare capacity, however the paths were collected.
func TestSpareRoomIsGivenUp(t *testing.T) {
	g := testGroup(addr(100), 1, 0)
	g.Paths = make([]Path, 0, 1000)
	g.Paths = append(g.Paths, testGroup(addr(100), 1, 3).Paths...)
	if _, err := new(Table).With(g); err != nil {
		t.Fatal(err)
	}
	if len(g.Paths) != 3 || cap(g.Paths) > 6 {
		t.Errorf("%d paths in room for %d", len(g.Paths), cap(g.Paths))
	}
}

// A full table refuses one more group with one sentence, until a group is removed.
func TestFullTableRefuses(t *testing.T) {
	table := &Table{slots: MaxGroups}
	if next, err := table.With(testGroup(addr(100), 1, 1)); err == nil || err.Error() != "the table is full: it holds 1048576 groups" {
		t.Errorf("%v, %v", next, err)
	}
	table.free = []GroupID{5 + MaxGroups}
	table.pages = []*page{{}}
	g := testGroup(addr(100), 1, 1)
	next, err := table.With(g)
	if err != nil || next.Group(5+MaxGroups) != g {
		t.Fatalf("the slot of a group that has gone is not used again: %v", err)
	}
	if _, err := next.With(testGroup(addr(101), 1, 1)); err == nil {
		t.Error("one slot was given to two groups")
	}
}

// An IPv4 address and the IPv6 address that maps it are different: a frame carries one or the
// other.
func TestMappedAddressIsAnother(t *testing.T) {
	table, err := new(Table).With(testGroup(addr(100), 1, 1))
	if err != nil {
		t.Fatal(err)
	}
	mapped := netip.AddrFrom16(addr(100).As16())
	if id, ok := table.Lookup(addr(1), mapped, 1); ok {
		t.Errorf("%v finds group %d", mapped, id)
	}
	if _, ok := table.Lookup(addr(1), addr(100), 1); !ok {
		t.Error("the group is not found by its own address")
	}
}

// picks are ways to choose among n groups: sixteen groups in turn, or random ones.
var picks = []struct {
	name string
	next func(i, n int) int
}{
	{"hot", func(i, n int) int { return i % 16 * (n / 16) % n }},
	{"random", func(i, n int) int {
		h := uint64(i) * 0x9E3779B97F4A7C15
		h = (h ^ h>>29) * 0xBF58476D1CE4E5B9
		return int(h >> 40 * uint64(n) >> 24)
	}},
}

// BenchmarkGroup measures how the data path of real ports finds a packet's group from the ID that
// the classifier wrote in front of it. This takes three loads for any number of groups; random
// groups take longer only because the caches do not hold them all.
func BenchmarkGroup(b *testing.B) {
	for _, n := range []int{1, 1000, 100_000} {
		table := load(b, n)
		for _, pick := range picks {
			b.Run(fmt.Sprintf("%s/%d", pick.name, n), func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					if table.Group(GroupID(pick.next(i, n))) == nil {
						b.Fatal("a group is missing")
					}
				}
			})
		}
	}
}

// BenchmarkLookup finds groups by address and QPN. For real ports the classifier does this in its
// own map (BenchmarkClassifyAmong in package bpf). Table.Lookup serves in-memory ports, and control
// when it updates the classifier.
func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{1, 1000, 100_000} {
		table := load(b, n)
		for _, pick := range picks {
			b.Run(fmt.Sprintf("%s/%d", pick.name, n), func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					if _, ok := table.Lookup(addr(1), addr(pick.next(i, n)), 1); !ok {
						b.Fatal("a group is missing")
					}
				}
			})
		}
	}
}

// BenchmarkLoad measures the cost of adding one more group of three, on the way to a large number.
func BenchmarkLoad(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				load(b, n)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/group")
		})
	}
}

func load(b *testing.B, n int) *Table {
	table := new(Table)
	for i := range n {
		table = with(b, table, testGroup(addr(i), 1, 3))
	}
	return table
}

func with(b *testing.B, t *Table, g *Group) *Table {
	t, err := t.With(g)
	if err != nil {
		b.Fatal(err)
	}
	return t
}

// BenchmarkMemory measures the memory of a group with a name and one region, with receivers whose
// QPs all name the group's QPN as their peer (the usual case), or each a different one.
func BenchmarkMemory(b *testing.B) {
	const paths = 300_000
	for _, receivers := range []int{3, 64, 512} {
		for _, each := range []bool{false, true} {
			name := map[bool]string{false: "one", true: "many"}[each]
			b.Run(fmt.Sprintf("%d/%s-remote-QPN", receivers, name), func(b *testing.B) {
				for b.Loop() {
					n := paths / receivers
					testlab.MeasureHeap(b, n, receivers, func() any {
						table := new(Table)
						for i := range n {
							table = with(b, table, fullGroup(i, receivers, each))
						}
						return table
					})
				}
			})
		}
	}
}

// fullGroup has everything that a group in use has.
func fullGroup(i, receivers int, eachItsQPN bool) *Group {
	g := testGroup(addr(i), 1, receivers)
	g.Name = fmt.Sprintf("group-%06d", i)
	g.Memory = MustMemory(VirtualRegion{VA: 0x10000, Length: 1 << 26, RKey: 0x77})
	for k := range g.Paths {
		p := &g.Paths[k]
		p.Regions = g.Memory.At(func(VirtualRegion) Region { return Region{VA: uint64(k) << 32, RKey: uint32(k)} })
		if eachItsQPN {
			p.RemoteQPN = roce.QPN(2 + k)
		}
	}
	return g
}
