package ctl

import (
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/bounds"
	"github.com/rocast/rocast/ctl/branches"
	"github.com/rocast/rocast/ctl/cm"
	"github.com/rocast/rocast/ctl/follow"
	"github.com/rocast/rocast/ctl/frames"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/neighbour"
	"github.com/rocast/rocast/ctl/perftest"
	"github.com/rocast/rocast/ctl/services"
	"github.com/rocast/rocast/ctl/shared"
	"github.com/rocast/rocast/ctl/store"
	"github.com/rocast/rocast/ctl/watch"
)

// Parts are the components a Controller works with. The Controller closes Addresses; the caller
// closes the others.
type Parts struct {
	Switch    Switch
	NextHops  NextHops
	Addresses Addresses
	Store     *store.Store
	Log       *zap.Logger
	// Boxes asks the Neighbours, which know this box by the name Box. A box without neighbours has
	// none of these.
	Boxes      branches.Boxes
	Box        string
	Neighbours []neighbour.Config
	Lease      time.Duration // of branches behind this box; 0: branches.DefaultLease
	// Desired has the groups of several boxes, of which this is Box. nil: this box has its own.
	Desired shared.Desired
	// Perftest lists the helpers of the config, which Run starts.
	Perftest []perftest.Config
	// CM lists the group IPs of the config that answer RDMA-CM.
	CM      []cm.Config
	Workers int // forwarding threads, as Status shows them
	// FollowBonds is called whenever a link may have changed: it changes the ports where the lower
	// devices of a bond have changed. nil: no bond is followed.
	FollowBonds func()
}

// Controller keeps the desired groups. Its methods may be called from any goroutine.
type Controller struct {
	Parts
	groups *groups.Set
	// Bounds counts which bounds were met, of listeners too.
	Bounds *bounds.Book
	// Frames tells of those that pass the box.
	*frames.Frames
	// Services are those at group IPs.
	Services *services.Services
	// Branches are the parts of groups that other boxes carry, and those that they ask for.
	Branches *branches.Branches
	watch    *watch.Watch
	network  *follow.Network
	started  time.Time
	pulse    pulse
	shared   *shared.Shared // nil: this box has its groups for itself
	parsing  chan struct{}  // one token: parsing may need much memory, so only one text is parsed at a time

	// BadGroupIPs says which of groupIPs of hosts: no group can have, and why. nil: all can.
	badGroupIPs atomic.Pointer[map[string]string]
}
