package ctl

import (
	"context"
	"net/netip"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/groupfile"
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
}

// Controller keeps the desired groups. Its methods may be called from any goroutine.
type Controller struct {
	Parts
	ports map[int]dataplane.PortInfo // by ifindex

	mu     sync.Mutex
	groups map[string]*group
	users  map[netip.Addr]map[*group]struct{} // groups by the addresses they track
}

// group is a desired group and what was done for it.
type group struct {
	name     string
	file     *groupfile.File // nil: the kept file cannot be read
	restored bool            // see mft.Group.Restored
	problem  string          // why it is not published; "" when it is

	id        mft.GroupID
	published *mft.Group // nil: it is not in the Switch
	plan      plan       // what published was made of
	held      map[address.Place]bool
}

// New returns a Controller without groups: see Restore.
func New(parts Parts) *Controller {
	c := &Controller{
		Parts:  parts,
		ports:  map[int]dataplane.PortInfo{},
		groups: map[string]*group{},
		users:  map[netip.Addr]map[*group]struct{}{},
	}
	for _, p := range parts.Switch.Ports() {
		c.ports[p.IfIndex] = p
	}
	return c
}

// Run follows the kernel and the data path's news until ctx is done.
func (c *Controller) Run(ctx context.Context) error {
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return c.NextHops.Run(ctx, c.hopsChanged) })
	tasks.Go(func() error {
		return c.Addresses.Run(ctx, func(sentence string) { c.Log.Warn(sentence) })
	})
	tasks.Go(func() error { return c.logNotes(ctx) })
	return tasks.Wait()
}

// Close gives the addresses back and records the stop as a clean one. Switch.Run has to have returned: what is recorded
// is which groups never carried data.
func (c *Controller) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.Addresses.Close(); err != nil {
		return err
	}
	var idle []string
	for name, g := range c.groups {
		if c.isIdle(g) {
			idle = append(idle, name)
		}
	}
	return c.Store.Stopped(idle)
}

// isIdle says whether it is certain that the group never carried data.
func (c *Controller) isIdle(g *group) bool {
	if g.restored || g.published == nil {
		return !g.restored
	}
	state, ok := c.Switch.GroupState(g.id)
	return ok && state.Sent == g.published.Source.FirstPSN.Prev()
}
