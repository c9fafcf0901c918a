package mft

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/rocast/rocast/roce"
)

// blockGroup returns a group with paths by these ports, in the order of their addresses, and n
// memory regions.
func blockGroup(n int, ports ...PortID) *Group {
	g := &Group{IP: addr(100), QPN: 7, PathMTU: 1024, Source: Source{Leg: Leg{Dst: addr(1), L2Bytes: 14, Port: 3}}}
	var memory []VirtualRegion
	for k := range n {
		memory = append(memory, VirtualRegion{VA: uint64(k) << 32, Length: 4096, RKey: uint32(k)})
	}
	if n > 0 {
		g.Memory = MustMemory(memory...)
	}
	for i, port := range ports {
		p := Path{Leg: Leg{Dst: addr(1000 + i), Src: addr(100), Port: port, L2Bytes: 14, DestQPN: roce.QPN(i)}}
		p.Regions = g.Memory.At(func(v VirtualRegion) Region {
			return Region{VA: uint64(i)<<40 | uint64(v.RKey)<<36, RKey: uint32(10*i) + v.RKey}
		})
		g.Paths = append(g.Paths, p)
	}
	return g
}

// block makes the block of all paths of g.
func block(g *Group) (*Block, error) {
	b, edits := new(Block), g.Edits(-1)
	if err := b.Begin(g, -1, NoPort, 0xFFFF, 8); err != nil {
		return nil, err
	}
	for i := range g.Paths {
		if err := b.Add(g, i, int32(100+i), int32(200+i), false, &edits); err != nil {
			return nil, err
		}
	}
	return b, b.End()
}

// The bounds of a block are those of the kernel engine: a larger block would not fit into the
// memory that is shared with the kernel.
func TestBlockBounds(t *testing.T) {
	ports := func(n int) []PortID { return make([]PortID, n) }
	for name, c := range map[string]struct {
		group *Group
		edit  func(*Group)
		want  error
	}{
		"as much as there is room for": {blockGroup(4, ports(64)...), nil, nil},
		"a path too many":              {blockGroup(4, ports(65)...), nil, ErrBlockPaths},
		"a region too many":            {blockGroup(5, 1), nil, ErrBlockRegions},
		"the longest path MTU":         {blockGroup(1, 1), func(g *Group) { g.PathMTU = 2048 }, nil},
		"a longer path MTU":            {blockGroup(1, 1), func(g *Group) { g.PathMTU = 4096 }, nil},
		"a longer one, and two copies": {blockGroup(1, 1, 1), func(g *Group) { g.PathMTU = 4096 }, ErrBlockMTU},
		"a longer one, and two ports":  {blockGroup(1, 1, 2), func(g *Group) { g.PathMTU = 4096 }, ErrBlockMTU},
		"the longest, and two copies":  {blockGroup(1, 1, 1), func(g *Group) { g.PathMTU = 2048 }, nil},
		"a longer one, and no copy":    {blockGroup(1), func(g *Group) { g.PathMTU = 4096 }, ErrBlockEmpty},
		"the last port":                {blockGroup(1, 63), nil, nil},
		"a port beyond it":             {blockGroup(1, 64), nil, ErrBlockPort},
		"no next hop":                  {blockGroup(1, NoPort), nil, ErrBlockPort},
		"the source at the last port":  {blockGroup(1, 1), func(g *Group) { g.Source.Port = 63 }, nil},
		"the source beyond it":         {blockGroup(1, 1), func(g *Group) { g.Source.Port = 64 }, ErrBlockPort},
		"memory without a range":       {blockGroup(0, 1), func(g *Group) { g.Memory = new(Memory) }, ErrBlockNoRegion},
		"a path alone":                 {blockGroup(0, 1), nil, nil},
		"no path":                      {blockGroup(1), nil, ErrBlockEmpty},
	} {
		if c.edit != nil {
			c.edit(c.group)
		}
		if _, err := block(c.group); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// While the kernel has not found the way to a receiver, the copies for it have no source address.
func TestEditsWithoutANextHop(t *testing.T) {
	g := blockGroup(1, NoPort, 2)
	g.Paths[0].Src, g.Paths[0].L2Bytes = netip.Addr{}, 0
	edits := g.Edits(-1)
	if edits.Paths[0] != (roce.Edit{}) || edits.Paths[1] == (roce.Edit{}) {
		t.Errorf("%+v", edits.Paths)
	}
}

// Of the paths of one port those that share a leg come first. A shared leg needs room as a receiver
// does, and has the source's own numbers.
func TestBlockShares(t *testing.T) {
	g := blockGroup(1, 2, 5, 2, 2, 5)
	to := netip.MustParseAddr("239.77.0.1")
	for k, members := range [][]int{{1, 4}, {2, 3}} {
		var qps []QP
		for _, i := range members {
			g.Paths[i].RemoteQPN = g.QPN
			qps = append(qps, g.Paths[i].QP())
		}
		g.Shares = append(g.Shares, g.Paths[members[0]].Shared(to, roce.QPN(901+k), qps))
	}
	if err := g.sealShares(map[PortID]uint16{}); err != nil {
		t.Fatal(err)
	}
	b, edits := new(Block), g.Edits(-1)
	if err := b.Begin(g, -1, NoPort, 0xFFFF, 8); err != nil {
		t.Fatal(err)
	}
	for i := range g.Paths {
		if err := b.Add(g, i, 0, 0, i >= 2, &edits); err != nil {
			t.Fatal(err)
		}
	}
	for k := range g.Shares {
		if err := b.AddShare(g, k, &edits); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.End(); err != nil {
		t.Fatal(err)
	}
	var order []int
	for _, p := range b.Paths {
		order = append(order, p.Index)
	}
	if want := []int{2, 3, 0, 4, 1}; !slices.Equal(order, want) {
		t.Errorf("paths %v, want %v", order, want)
	}
	if s := b.Shares; len(s) != 2 || s[0].Path.DestQPN != 902 || s[1].Path.DestQPN != 901 || b.Copies() != 4 {
		t.Errorf("%d copies, shares %+v", b.Copies(), s)
	}
	s := &b.Shares[1]
	for k, v := range g.Memory.All {
		if s.DeltaPSN != 0 || s.Edit != &edits.Shares[0] || s.Targets[k].RKey != v.RKey || s.Targets[k].DeltaVA != 0 {
			t.Errorf("%+v", s)
		}
	}
	for len(b.Paths)+len(b.Shares) < BlockPaths {
		b.Paths = append(b.Paths, b.Paths[0])
	}
	if err := b.AddShare(g, 0, &edits); err != ErrBlockPaths {
		t.Errorf("a leg too many: %v", err)
	}
}

// A block has the paths of each port together, and each path with its own edit and regions.
func TestBlockPaths(t *testing.T) {
	g := blockGroup(2, 5, 2, 5, 2)
	edits := g.Edits(-1)
	b, err := block(g)
	if err != nil {
		t.Fatal(err)
	}
	var order []int
	for _, p := range b.Paths {
		i := slices.IndexFunc(g.Paths, func(q Path) bool { return q.Dst == p.Path.Dst })
		order = append(order, i)
		if p.DeltaPSN != int32(100+i) || *p.Edit != edits.Paths[i] {
			t.Errorf("path %d has delta %d and the edit %+v", i, p.DeltaPSN, p.Edit)
		}
		for k := range g.Memory.All {
			if p.Targets[k] != *g.Paths[i].Regions.Target(k) || p.Targets[k].RKey != uint32(10*i+k) {
				t.Errorf("region %d of path %d is at %+v", k, i, p.Targets[k])
			}
		}
		if len(p.Targets) != 2 {
			t.Errorf("path %d has %d regions", i, len(p.Targets))
		}
	}
	if want := []int{1, 3, 0, 2}; !slices.Equal(order, want) {
		t.Errorf("paths %v, want %v", order, want)
	}
}
