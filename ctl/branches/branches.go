package branches

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/neighbour"
)

// Options are what Branches work with.
type Options struct {
	Groups *groups.Set
	// Boxes sends requests to the Neighbours, which know this box by the name Box.
	Boxes      Boxes
	Box        string
	Neighbours []neighbour.Config
	Lease      time.Duration // of branches behind this box; 0: DefaultLease
	Log        *zap.Logger

	// Resolve waits until the kernel has resolved members that are about to join, for a bounded
	// time, and tracks them until release is called.
	Resolve func(ctx context.Context, members []groupfile.Member) (release func())
	// Refuse refuses a new group that does not fit the box and its network. It may take some tenths
	// of a second. joins are the members of this box's part that join, if the group begins as after
	// a restart.
	Refuse func(ctx context.Context, g *groups.Group, joins []groupfile.ID) error
	// RefuseJoin refuses members that are to join this box's part of a running group and that the
	// box can never reach.
	RefuseJoin func(next *groups.Version, joins []groupfile.ID) error
	// RefuseTree refuses links for a group that cannot have any. The groups are locked.
	RefuseTree func(*groups.Group, []*groups.Link) error
	// Confirmed is told which receivers have confirmed at a box above. Restored is told that a
	// group follows its routes again. The groups are locked.
	Confirmed func(*groups.Group, []api.MemberID)
	Restored  func(g *groups.Group, cause string)
	// Describe describes a group, for those who ask for its tree.
	Describe func(name string) (api.Group, error)
}

// Branches are the parts of this box's groups that other boxes carry, and the groups of other boxes
// of which this one carries a part. Its methods may be called from any goroutine, except where they
// say that the caller has locked the groups.
type Branches struct {
	Options

	// What follows is guarded by the lock of the groups.

	gone    graves                     // see grave.go
	failing map[*groups.Group]struct{} // groups that have failed, while a neighbour does not know that yet
	moved   map[*groups.Group]struct{} // groups with a member that may be behind another neighbour than before
}

// New returns Branches of no group.
func New(o Options) *Branches {
	return &Branches{Options: o, gone: graves{}, failing: map[*groups.Group]struct{}{}, moved: map[*groups.Group]struct{}{}}
}

// Fails notes that a group has failed, so that Run tells the neighbours in its tree at once. The
// caller has locked the groups.
func (t *Branches) Fails(g *groups.Group) { t.failing[g] = struct{}{} }

// IsBehind reports whether the way to a member leads through a neighbour.
func (t *Branches) IsBehind(m *groupfile.Member) bool {
	return m.Via != "" || len(t.behind(m.IP)) > 0 || len(t.gatewaysTo(m.IP)) > 0
}
