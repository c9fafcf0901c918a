package regions

import (
	"testing"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/mft"
)

// stored returns the changes that load n ranges for three receivers.
func stored(t testing.TB, n int) (parts [][]byte, ids []groupfile.ID, table *Table) {
	ids = []groupfile.ID{a, b, c}
	change := Change{Receivers: ids}
	for i := range n {
		change.Add = append(change.Add, at(uint64(i)<<8, 1, 3))
	}
	table, err := new(Table).Apply(change)
	if err != nil {
		t.Fatal(err)
	}
	for part := range table.Parts(ids) {
		parts = append(parts, part)
	}
	return parts, ids, table
}

// BenchmarkHistory measures how long it takes to make a table of what was stored.
func BenchmarkHistory(b *testing.B) {
	parts, ids, _ := stored(b, mft.MaxRanges)
	for b.Loop() {
		h := new(History)
		for _, part := range parts {
			if err := h.Add(part); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := h.Table(ids); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkApply measures how long one change takes while a group has as many ranges as it can.
func BenchmarkApply(b *testing.B) {
	_, ids, table := stored(b, mft.MaxRanges-1)
	one := Change{Receivers: ids, Add: []Range{at(mft.MaxRanges<<8, 1, 3)}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := table.Apply(one); err != nil {
			b.Fatal(err)
		}
	}
}
