package ctl

import (
	"sync/atomic"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/regions"
)

// group is a desired group with its runtime state.
type group struct {
	groups.Version // as it is now; readers have the one that was shown last
	shown          *atomic.Pointer[groups.Version]

	epoch       uint64 // see api.Branch
	claim       int64  // when this box claimed the group, if boxes share their groups; see api.Branch
	untold      bool   // this box has taken the group over with its address, and etcd does not know yet
	untoldInLog bool   // etcd was told in vain, and the log says so
	addressGone bool   // the box was without the group's address meanwhile: another one may have carried the group
	switches    bool   // another member is, or wants to be, the source: no other box may take the group over
	marked      bool   // etcd knows that
	marking     bool   // etcd is being told
	unsure      bool   // a turn may be stored that has not begun
	unkept      bool   // the chronicle on the disk may not be that of the group
	unkeptInLog bool   // it could not be stored, and the log says so
	notRenewed  bool   // the running turn could not be stored again, and the log says so
	tableEnd    int64  // how many bytes of the table are stored
	held        map[address.Place]bool
}

func newGroup(file *groupfile.File, kept bool) *group {
	g := &group{Version: groups.Version{Name: file.Name, Wanted: file, File: file, Kept: kept}, shown: new(atomic.Pointer[groups.Version])}
	if file.Source.Role == groupfile.Both {
		g.Source = file.Source.ID()
	}
	if file.Table {
		g.Table = new(regions.Table)
	}
	return g
}

// seenNow returns the version that readers see, or nil before the group is enlisted.
func (g *group) seenNow() *groups.Version { return g.shown.Load() }

// show lets readers see the group as it is now.
func (g *group) show() { g.shown.Store(g.Share()) }
