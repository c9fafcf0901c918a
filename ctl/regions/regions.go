// Package regions has the memory of a group that is larger than a group file: a table of ranges,
// and where each receiver keeps them (memory: table in the group file). It also says how a change
// of such a table is written, so that the table can be stored as the list of its changes.
//
// The package does no I/O. Start reading at Table.
package regions

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/mft"
)

// Table is the memory of one group, and where its receivers keep it. It is immutable, and shares
// what does not change with the Table that it was made from. The zero Table has no ranges.
type Table struct {
	memory *mft.Memory
	at     map[groupfile.ID]mft.Regions
}

// Memory is the group's memory. It is not nil: a group with a table has memory, if only later.
func (t *Table) Memory() *mft.Memory {
	if t.memory == nil {
		return mft.MustMemory()
	}
	return t.memory
}

// Len is the number of ranges.
func (t *Table) Len() int { return t.memory.Len() }

// At says where a receiver keeps the ranges.
func (t *Table) At(receiver groupfile.ID) mft.Regions { return t.at[receiver] }

// Bytes is about how long the table is where it is stored.
func (t *Table) Bytes() int64 {
	return int64(t.Len()) * int64(rangeBytes+receiverBytes*len(t.at))
}

// Change is a change of a Table: ranges that leave, and ranges that come.
type Change struct {
	Receivers []groupfile.ID
	Remove    []mft.VirtualRegion
	Add       []Range
}

// Range is a range of memory, and where each of a Change's Receivers keeps it. The lengths of At
// have no meaning: a receiver keeps the whole range.
type Range struct {
	mft.VirtualRegion
	At []mft.Region
}

// Apply returns the table after a change. The change names all receivers that the table will have.
// The errors name no R_Key, which is a secret.
func (t *Table) Apply(c Change) (*Table, error) {
	add := slices.Clone(c.Add)
	slices.SortFunc(add, compareRanges)
	coming := make([]mft.VirtualRegion, len(add))
	for i := range add {
		coming[i] = add[i].VirtualRegion
	}
	for _, v := range c.Remove {
		if at, found := slices.BinarySearchFunc(add, Range{VirtualRegion: v}, compareRanges); found && add[at].VirtualRegion == v {
			return nil, fmt.Errorf("the range of memory at VA %#x leaves and comes in one change; make two", v.VA)
		}
	}
	memory, err := t.Memory().Change(c.Remove, coming)
	if err != nil {
		return nil, err
	}
	next := &Table{memory: memory, at: make(map[groupfile.ID]mft.Regions, len(c.Receivers))}
	for i, id := range c.Receivers {
		if _, known := t.at[id]; !known && memory.Len() > len(add) {
			return nil, fmt.Errorf("where the receiver at %v keeps the ranges of memory is not known", id.IP)
		}
		k := 0 // what comes is asked for in order, except for what is there already
		next.at[id] = t.at[id].Follow(t.memory, memory, func(v mft.VirtualRegion) mft.Region {
			if k == len(add) || add[k].VirtualRegion != v {
				k, _ = slices.BinarySearchFunc(add, Range{VirtualRegion: v}, compareRanges)
			}
			k++
			return add[k-1].At[i]
		})
	}
	return next, nil
}

func compareRanges(a, b Range) int {
	return cmp.Or(cmp.Compare(a.RKey, b.RKey), cmp.Compare(a.VA, b.VA))
}

// Only returns the table without the receivers that are not among these.
func (t *Table) Only(receivers []groupfile.ID) *Table {
	next := &Table{memory: t.memory, at: maps.Clone(t.at)}
	maps.DeleteFunc(next.at, func(id groupfile.ID, _ mft.Regions) bool { return !slices.Contains(receivers, id) })
	return next
}

// Find returns the range that begins at va under rkey.
func (t *Table) Find(va uint64, rkey uint32) (v mft.VirtualRegion, found bool) {
	at := t.memory.Find(va, rkey, 0)
	if at < 0 {
		return v, false
	}
	v = t.memory.Range(at)
	return v, v.VA == va
}

// All yields the ranges in the order of R_Key and VA, each with where the receivers keep it. The
// slice At is valid until yield returns.
func (t *Table) All(receivers []groupfile.ID) iter.Seq[Range] { return t.Part(receivers, 0, t.Len()) }

// Part yields count ranges of All at most, from the from-th on.
func (t *Table) Part(receivers []groupfile.ID, from, count int) iter.Seq[Range] {
	return func(yield func(Range) bool) {
		at, skip := make([]mft.Region, len(receivers)), from
		for index, v := range t.memory.All {
			if skip--; skip >= 0 {
				continue
			}
			if count--; count < 0 {
				return
			}
			for i, id := range receivers {
				kept := t.at[id]
				at[i] = kept.Region(t.memory, index)
			}
			if !yield(Range{v, at}) {
				return
			}
		}
	}
}
