package ctl

import (
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/above"
	"github.com/rocast/rocast/ctl/bounds"
	"github.com/rocast/rocast/ctl/branches"
	"github.com/rocast/rocast/ctl/cm"
	"github.com/rocast/rocast/ctl/edges"
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
	Above      above.Asker // asks those of the Neighbours whose edge this box is
	Box        string
	Neighbours []neighbour.Config
	Lease      time.Duration // of branches behind this box; 0: branches.DefaultLease
	// Desired keeps the groups that several boxes share, of which this one is Box. nil: this box
	// shares no groups.
	Desired shared.Desired
	// Edges says what may be shared.
	Edges edges.Config
	// Perftest lists the helpers of the config, which Run starts.
	Perftest []perftest.Config
	// CM lists the group IPs of the config that answer RDMA-CM.
	CM      []cm.Config
	Workers int // forwarding threads, as Status shows them
	// FollowBonds is called whenever a link may have changed. It changes the ports if the lower
	// devices of a bond have changed. nil: no bond is followed.
	FollowBonds func()
}

// Controller keeps the desired groups. Its methods may be called from any goroutine.
type Controller struct {
	Parts
	groups *groups.Set
	// Bounds counts how often each bound was met, also those of listeners.
	Bounds *bounds.Book
	// Frames serves captures and traces of frames that pass the box.
	*frames.Frames
	// Services are the services at group IPs: perftest and RDMA-CM.
	Services *services.Services
	// Branches are the parts of this box's groups that other boxes carry, and the parts of their
	// groups that this box carries.
	Branches *branches.Branches
	watch    *watch.Watch
	network  *follow.Network
	started  time.Time
	pulse    pulse
	shared   *shared.Shared // nil: this box shares no groups
	qpns     *edges.QPNs    // of shared copies; nil: no copies are shared
	parsing  chan struct{}  // one token: parsing may need much memory, so only one text is parsed at a time

	// badGroupIPs has the addresses of groupIPs: of hosts: that no group can have, and why. nil:
	// groups can have all of them.
	badGroupIPs atomic.Pointer[map[string]string]
}
