package ctl

import (
	"context"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/bounds"
	"github.com/rocast/rocast/ctl/frames"
	"github.com/rocast/rocast/ctl/ports"
	"github.com/rocast/rocast/ctl/services"
	"github.com/rocast/rocast/ctl/view"
)

// New returns a Controller without groups; Restore adds the stored ones.
func New(parts Parts) *Controller {
	c := &Controller{Parts: parts, Bounds: bounds.New(parts.Log), started: time.Now(), parsing: make(chan struct{}, 1), gone: map[string]grave{}, moved: map[*group]struct{}{}, failing: map[*group]struct{}{}, paces: map[*group]*pace{}}
	of := bookParts{Switch: parts.Switch, NextHops: parts.NextHops, Addresses: parts.Addresses, Store: parts.Store, Log: parts.Log, Members: c.keepMembers}
	c.book, c.shared = newBook(of, ports.New(parts.Switch.Ports())), newShared()
	c.seenStrays.Store(new([]view.Stray))
	c.Frames = frames.New(parts.Switch, c.carried, noGroup)
	c.Services = services.New(services.Options{
		Control: serving{c}, Hops: parts.NextHops, Addresses: parts.Addresses, Log: parts.Log, Bounds: c.Bounds, Perftest: parts.Perftest, CM: parts.CM,
	})
	c.ports().LogChanges(c.Log, nil)
	for _, n := range c.Neighbours {
		c.NextHops.Track(n.Address)
	}
	return c
}

// Run handles kernel notifications and the data path's notes until ctx is done.
func (c *Controller) Run(ctx context.Context) error {
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return c.NextHops.Run(ctx, c.hopsChanged) })
	tasks.Go(func() error {
		return c.Addresses.Run(ctx, func(p address.Place, name string) {
			c.Log.Warn("another program removed a group's IP; rocastd has added it again",
				zap.Stringer("ip", p.IP), zap.String("interface", name))
		}, c.addressesChanged, c.addressTaken)
	})
	tasks.Go(func() error { c.Switch.Engage(); return nil }) // not before: members of restored groups wait
	tasks.Go(func() error { return c.followPorts(ctx) })
	tasks.Go(func() error { return c.followNotes(ctx) })
	tasks.Go(func() error { return c.Services.KeepUp(ctx) })
	tasks.Go(func() error { return c.followLeases(ctx) })
	tasks.Go(func() error { return c.followDesired(ctx) })
	tasks.Go(func() error { return c.followProgress(ctx) })
	return tasks.Wait()
}

// Close removes the addresses and records a clean stop. Switch.Run must have returned, because
// Close records which groups never carried data.
func (c *Controller) Close() error {
	c.Services.Close() // first: connections and runs remove their groups
	c.book.Lock()
	defer c.book.Unlock()
	if err := c.Addresses.Close(); err != nil {
		return err
	}
	c.closed = true
	c.hear() // process the last notes
	var idle, unclean []string
	for name, g := range c.all() {
		switch {
		case !g.Kept:
		case c.isIdle(g):
			idle = append(idle, name)
		case !c.keepAtStop(g):
			unclean = append(unclean, name)
		}
	}
	return c.Store.Stopped(idle, unclean)
}

// isIdle reports whether the group certainly never carried data.
func (s *book) isIdle(g *group) bool {
	switch {
	case g.Restored || g.Past.Switched:
		return false
	case g.Published == nil:
		return true
	}
	state, ok := s.Switch.GroupState(g.ID)
	return ok && state.Sent == g.Published.Source.FirstPSN.Prev() && state.Traffic.Packets == 0
}
