package ctl

import (
	"context"
	"net/netip"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/perftest"
	"github.com/rocast/rocast/ctl/store"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/mft"
)

// Parts is what a Controller works with. They stay the caller's to close, apart from Addresses.
type Parts struct {
	Switch    Switch
	NextHops  NextHops
	Addresses Addresses
	Store     *store.Store
	Log       *zap.Logger
	// Perftest are the helpers that come up with Run.
	Perftest []perftest.Config
}

// Controller keeps the desired groups. Its methods may be called from any goroutine.
type Controller struct {
	Parts
	perftest *perftest.Helper
	parsing  chan struct{} // holds a token while a text is parsed, which may take much memory: one at a time

	mu     sync.Mutex
	ports  map[int]dataplane.PortInfo // by ifindex; those that are not open by portKey
	groups map[string]*group
	users  map[netip.Addr]map[*group]struct{} // groups by the addresses they track
}

// group is a desired group and what was done for it.
type group struct {
	name     string
	file     *groupfile.File // nil: the kept file cannot be read
	kept     bool            // in the state directory
	restored bool            // see mft.Group.Restored
	problem  string          // why it is not published; "" when it is

	id        mft.GroupID
	published *mft.Group // nil: it is not in the Switch
	plan      plan       // what published was made of
	held      map[address.Place]bool

	chronicle
	source groupfile.ID // the member that is the source now, if it is a receiver too
}

// New returns a Controller without groups: see Restore.
func New(parts Parts) *Controller {
	c := &Controller{
		Parts:   parts,
		parsing: make(chan struct{}, 1),
		groups:  map[string]*group{},
		users:   map[netip.Addr]map[*group]struct{}{},
	}
	c.perftest = perftest.New(perftest.Options{
		Groups: perftestGroups{c}, Addresses: perftestAddresses{c}, Told: func(sentence string) { c.Log.Info(sentence) },
	})
	c.ports = portsByKey(parts.Switch.Ports())
	return c
}

// Run follows the kernel and the data path's news until ctx is done.
func (c *Controller) Run(ctx context.Context) error {
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return c.NextHops.Run(ctx, c.hopsChanged) })
	tasks.Go(func() error {
		return c.Addresses.Run(ctx, func(sentence string) { c.Log.Warn(sentence) })
	})
	tasks.Go(func() error { return c.followPorts(ctx) })
	tasks.Go(func() error { return c.followNotes(ctx) })
	tasks.Go(func() error { return c.keepUp(ctx) })
	return tasks.Wait()
}

// Close gives the addresses back and records the stop as a clean one. Switch.Run has to have returned: what is recorded
// is which groups never carried data.
func (c *Controller) Close() error {
	c.perftest.Close() // its runs remove their groups
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.Addresses.Close(); err != nil {
		return err
	}
	c.hear() // the last news
	var idle []string
	for name, g := range c.groups {
		if g.kept && c.isIdle(g) {
			idle = append(idle, name)
		}
	}
	return c.Store.Stopped(idle)
}

// isIdle says whether it is certain that the group never carried data.
func (c *Controller) isIdle(g *group) bool {
	if g.restored || g.switched || g.published == nil {
		return !g.restored && !g.switched
	}
	state, ok := c.Switch.GroupState(g.id)
	return ok && state.Sent == g.published.Source.FirstPSN.Prev()
}
