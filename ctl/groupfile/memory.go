package groupfile

import (
	"cmp"
	"math"
	"slices"

	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/mft"
)

func (p *parser) readMemory(v yamldoc.Value) error {
	p.Memory = []mft.VirtualRegion{} // memory without ranges, which may get some, is not the same as no memory
	if word, err := v.Text(); err == nil && word == tableWord {
		p.Table = true
		return nil
	}
	return v.EachOrOne("memory", func(item yamldoc.Value) error {
		if len(p.Memory) == MaxRegions {
			return item.Errorf("is one more than a group file can have (%d); join regions, or write memory: table and load them with rocast region load", MaxRegions)
		}
		var r mft.VirtualRegion
		err := readRange(item, &r, "")
		p.Memory = append(p.Memory, r)
		p.memory = append(p.memory, item)
		return err
	})
}

// tableWord is the value of memory for a table beside the file.
const tableWord = "table"

// readRange reads a mapping with va, length and rkey.
func readRange(v yamldoc.Value, r *mft.VirtualRegion, lengthNeeded string) error {
	number := func(dst *uint64, limit uint64) func(yamldoc.Value) error {
		return yamldoc.Into(dst, func(v yamldoc.Value) (uint64, error) { return v.Uint(limit) })
	}
	var rkey uint64
	err := v.Fields(
		yamldoc.Field{Key: "va", Set: number(&r.VA, math.MaxUint64), Needed: "va: N, where it starts"},
		yamldoc.Field{Key: "length", Set: number(&r.Length, math.MaxUint64), Needed: lengthNeeded},
		yamldoc.Field{Key: "rkey", Set: number(&rkey, math.MaxUint32), Needed: "rkey: N, the R_Key it is reached by"},
	)
	r.RKey = uint32(rkey)
	return err
}

// pairRegions fills in the lengths of the memory and checks that every receiver has regions for all
// of it.
func (p *parser) pairRegions() error {
	for i := range p.Memory {
		if err := p.defaultLength(i); err != nil {
			return err
		}
	}
	for _, m := range p.members {
		if m.Role == Source {
			continue
		}
		if p.Table && len(m.Regions) > 0 {
			return m.value.Errorf("has regions, but with memory: table they come with rocast region add and rocast region load; remove them")
		}
		if len(m.Regions) != len(p.Memory) {
			return m.value.Errorf("has %d regions and the group's memory has %d; write one region for each memory, "+
				"in the same order", len(m.Regions), len(p.Memory))
		}
		for i, r := range m.Regions {
			if err := checkRange(m.regions[i], mft.VirtualRegion(r)); err != nil {
				return err
			}
			if r.Length < p.Memory[i].Length {
				return m.regions[i].Errorf("is %d bytes long, memory %d is %d: the source could write beyond it; "+
					"make the memory's length %d or the region longer", r.Length, i+1, p.Memory[i].Length, r.Length)
			}
		}
	}
	return p.checkMemory()
}

// defaultLength sets the length of memory i to that of the shortest region it stands for.
func (p *parser) defaultLength(i int) error {
	if p.Memory[i].Length != 0 {
		return nil
	}
	shortest := uint64(math.MaxUint64)
	for _, m := range p.members {
		if i < len(m.Regions) {
			shortest = min(shortest, m.Regions[i].Length)
		}
	}
	if shortest == math.MaxUint64 {
		return p.memory[i].Errorf("has no length, and no member has a region that could supply it; add length: BYTES")
	}
	p.Memory[i].Length = shortest
	return nil
}

// checkMemory refuses virtual regions if one RETH could match two of them.
func (p *parser) checkMemory() error {
	order := make([]int, len(p.Memory))
	for i := range order {
		order[i] = i
		if err := checkRange(p.memory[i], p.Memory[i]); err != nil {
			return err
		}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := &p.Memory[i], &p.Memory[j]
		return cmp.Or(cmp.Compare(a.RKey, b.RKey), cmp.Compare(a.VA, b.VA))
	})
	for k := 1; k < len(order); k++ {
		i, j := order[k-1], order[k]
		a, b := &p.Memory[i], &p.Memory[j]
		if a.RKey == b.RKey && b.VA-a.VA < a.Length {
			i, j = min(i, j), max(i, j)
			return p.memory[j].Errorf("overlaps memory %d under the same rkey, so an address in both would be "+
				"ambiguous; move it or give it another rkey", i+1)
		}
	}
	return nil
}

func checkRange(v yamldoc.Value, r mft.VirtualRegion) error {
	if r.Length == 0 {
		return v.Errorf("has length 0; write its length in bytes")
	}
	if r.Length-1 > math.MaxUint64-r.VA {
		return v.Errorf("ends beyond 2^64; write a smaller va or length")
	}
	return nil
}
