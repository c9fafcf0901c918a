package groups

import (
	"sync/atomic"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/regions"
)

// Group is a desired group as changes have it. What readers see of it is a Version. It is guarded
// by the lock of its Set.
type Group struct {
	Version // as it is now; readers have the one that was shown last
	shown   *atomic.Pointer[Version]

	Epoch       uint64 // see api.Branch
	Claim       int64  // when this box claimed the group, if boxes share their groups; see api.Branch
	Created     int64  // of the group's desired.Entry; 0: not known, or boxes do not share their groups
	unkept      bool   // the chronicle on the disk may not be that of the group
	unkeptInLog bool   // it could not be stored, and the log says so
	tableEnd    int64  // how many bytes of the table are stored
	shareLate   bool   // the edges may have been told of a version that the data path has refused
	held        map[address.IfAddr]bool
}

// New returns a group that a file describes. kept reports whether it is stored in the state
// directory.
func New(file *groupfile.File, kept bool) *Group {
	g := &Group{Version: Version{Name: file.Name, Wanted: file, File: file, Kept: kept}, shown: new(atomic.Pointer[Version])}
	if file.Source.Role == groupfile.Both {
		g.Source = file.Source.ID()
	}
	if file.Table {
		g.Table = new(regions.Table)
	}
	return g
}

// Seen returns the version that readers see, or nil before the group is one of its Set.
func (g *Group) Seen() *Version { return g.shown.Load() }

// show lets readers see the group as it is now.
func (g *Group) show() { g.shown.Store(g.Share()) }

// Everywhere returns the chronicle that a box needs which takes the whole group over: with the
// receivers behind other boxes, which this box's own chronicle does not have. Such a box cannot
// take over a group whose source has switched: what it hears of the turns may be late.
func (g *Group) Everywhere() chronicle.Chronicle {
	all := g.Past.Next(g.File, g.File)
	all.Turn = nil
	for _, l := range g.Links {
		for _, id := range l.Members {
			if p := g.MembershipOf(id); p != g.Origin() {
				p.Enter(&all, id)
			}
		}
	}
	return all
}
