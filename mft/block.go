package mft

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/rocast/rocast/roce"
)

// Bounds of a block. The forwarding core carries a group that exceeds one of them.
const (
	BlockPaths   = 64
	BlockPorts   = 64 // a block names ports below this number only
	BlockRegions = 4
	BlockPathMTU = 2048 // packets of a longer one have two buffers, and XDP sends one copy of them
)

// Block has everything that an engine needs to forward the plain packets of a group without the
// forwarding core: the headers of a plain packet, and the edit that makes the copy for each path.
// It is made from a group and the group's state, and is valid until one of them changes. Begin
// reuses the memory of the Block.
type Block struct {
	Ingress      PortID
	Multipath    bool // the source's packets may come by other ports than Ingress too
	From         roce.Flow
	PKey         uint16
	TrafficClass uint8 // ECN bits zero
	VLANs        VLANs // of the source's packets
	PCP          uint8 // of merged ACKs, if the receiver's ACK has no tag
	PathMTU      int
	Retain       int     // number of packets that the engine must retain; 0: none
	Memory       *Memory // the group's own
	// Source is the leg by which an engine sends merged ACKs; nil: it merges none. It merges only
	// ACKs with this MigReq bit.
	Source   *Leg
	Priority roce.TagPriority // of the tags of merged ACKs
	MigReq   bool
	// Paths are sorted by port: the paths of one port are neighbours, those that share a leg first.
	Paths []BlockPath
	// Shares are the shared legs by which one copy leaves for all paths that have Shared. They are
	// sorted by port.
	Shares []BlockPath
}

// BlockPath is one path of a block, or a share as a path.
type BlockPath struct {
	Path     *Path
	Index    int   // of the path, or of the share, in the group
	Shared   bool  // the receiver gets the copies of a share, and none of its own
	DeltaPSN int32 // the path's PSN minus the source's
	DeltaMSN int32 // the source's MSN minus the path's
	Edit     *roce.Edit
	Targets  []roce.Target // by the index of a range of Block.Memory
}

// Reasons why a group has no block.
var (
	ErrBlockMTU     = fmt.Errorf("the kernel engine sends only one copy of a packet where the path MTU is above %d, and this group needs several", BlockPathMTU)
	ErrBlockRegions = fmt.Errorf("the group has more than %d memory regions, the limit of the kernel engine",
		BlockRegions)
	ErrBlockNoRegion = errors.New("the group's memory has no ranges yet")
	ErrBlockPort     = fmt.Errorf("a member has no next hop, or is not behind one of the first %d ports", BlockPorts)
	ErrBlockPaths    = fmt.Errorf("more than %d receivers and shared legs get data, the limit of the kernel engine", BlockPaths)
	ErrBlockEmpty    = errors.New("no receiver gets data")
	ErrBlockMappings = errors.New("the box above shares its copies between this box and others, and the kernel engine does not map them")
)

// Begin makes b the block of g for packets of the member of path source (below 0: of the Source). b
// has no paths yet. The packets of that member have pkey and trafficClass, and the last one came by
// port ingress.
func (b *Block) Begin(g *Group, source int, ingress PortID, pkey uint16, trafficClass uint8) error {
	leg := g.Leg(source)
	if !g.Hears(leg, ingress) { // the route has changed since
		ingress = leg.Port
	}
	switch {
	case leg.Port >= BlockPorts:
		return ErrBlockPort
	case len(g.Mappings) > 0:
		return ErrBlockMappings
	case g.Memory != nil && g.Memory.Len() == 0:
		return ErrBlockNoRegion
	case g.Memory.Len() > BlockRegions:
		return ErrBlockRegions
	}
	*b = Block{
		Ingress: ingress, Multipath: leg.Multipath, From: g.Flow(source),
		PKey: pkey, TrafficClass: trafficClass, VLANs: leg.VLANs(), PathMTU: g.PathMTU, Memory: g.Memory,
		Paths: b.Paths[:0], Shares: b.Shares[:0],
	}
	return nil
}

// Add adds path i of g. The path's PSNs are the source's PSNs plus deltaPSN, and the source's MSNs
// are the path's plus deltaMSN. shared: the path gets the copies of its share, which AddShare adds.
// The block keeps references to the edits.
func (b *Block) Add(g *Group, i int, deltaPSN, deltaMSN int32, shared bool, e *Edits) error {
	p := &g.Paths[i]
	if err := b.hasRoom(p); err != nil {
		return err
	}
	b.Paths = append(b.Paths, BlockPath{
		Path: p, Index: i, Shared: shared, DeltaPSN: deltaPSN, DeltaMSN: deltaMSN, Edit: &e.Paths[i], Targets: p.Regions.first(),
	})
	return nil
}

// AddShare adds share k of g: one copy leaves by it for all its paths that are added as shared.
func (b *Block) AddShare(g *Group, k int, e *Edits) error {
	p := g.SharePath(k)
	if err := b.hasRoom(p); err != nil {
		return err
	}
	b.Shares = append(b.Shares, BlockPath{Path: p, Index: k, Edit: &e.Shares[k], Targets: p.Regions.first()})
	return nil
}

func (b *Block) hasRoom(p *Path) error {
	switch {
	case p.Port >= BlockPorts:
		return ErrBlockPort
	case len(b.Paths)+len(b.Shares) == BlockPaths:
		return ErrBlockPaths
	}
	return nil
}

// Copies returns how many copies of a packet leave while all receivers take part, all that can
// share do, and the first source sends.
func (g *Group) Copies() int {
	n := len(g.Shares)
	for i := range g.Paths {
		if p := &g.Paths[i]; g.ShareOf(i) < 0 && !(p.Sends && p.Dst == g.Source.Dst) {
			n++
		}
	}
	return n
}

// IsWide reports whether packets of the block may have several buffers. Then it makes one copy of
// each.
func (b *Block) IsWide() bool { return b.PathMTU > BlockPathMTU }

// Copies returns how many copies of a packet the block makes.
func (b *Block) Copies() (n int) {
	for i := range b.Paths {
		if !b.Paths[i].Shared {
			n++
		}
	}
	return n + len(b.Shares)
}

// End completes the block.
func (b *Block) End() error {
	switch {
	case len(b.Paths) == 0:
		return ErrBlockEmpty
	case b.IsWide() && b.Copies() != 1:
		return ErrBlockMTU
	}
	slices.SortStableFunc(b.Paths, func(x, y BlockPath) int {
		if byPort := cmp.Compare(x.Path.Port, y.Path.Port); byPort != 0 || x.Shared == y.Shared {
			return byPort
		}
		if x.Shared {
			return -1
		}
		return 1
	})
	slices.SortStableFunc(b.Shares, func(x, y BlockPath) int { return cmp.Compare(x.Path.Port, y.Path.Port) })
	return nil
}
