package ctl

import (
	"context"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/rocast/rocast/ctl/above"
	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/bounds"
	"github.com/rocast/rocast/ctl/branches"
	"github.com/rocast/rocast/ctl/edges"
	"github.com/rocast/rocast/ctl/follow"
	"github.com/rocast/rocast/ctl/frames"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/ports"
	"github.com/rocast/rocast/ctl/rtnl"
	"github.com/rocast/rocast/ctl/services"
	"github.com/rocast/rocast/ctl/shared"
	"github.com/rocast/rocast/ctl/watch"
)

// New returns a Controller without groups; Restore adds the stored ones.
func New(parts Parts) *Controller {
	c := &Controller{Parts: parts, Bounds: bounds.New(parts.Log), started: time.Now(), parsing: make(chan struct{}, 1)}
	of := groups.Parts{Switch: parts.Switch, NextHops: parts.NextHops, Addresses: parts.Addresses, Store: parts.Store, Log: parts.Log}
	if parts.Edges.On() {
		c.qpns = edges.NewQPNs(parts.Store)
		of.Edges = edges.NewBook(parts.Edges, c.qpns.Draw)
	}
	c.groups = groups.NewSet(of, ports.New(parts.Switch.Ports()))
	c.watch = watch.New(watch.Options{Groups: c.groups, Switch: parts.Switch, Log: parts.Log, Doubt: parts.NextHops.Doubt})
	c.Branches = branches.New(branches.Options{
		Groups: c.groups, Boxes: parts.Boxes, Box: parts.Box, Neighbours: parts.Neighbours, Lease: parts.Lease, Log: parts.Log,
		Resolve: c.resolve, Refuse: c.refuseNetwork, RefuseJoin: c.refuseJoin, RefuseTree: c.refuseTree, Confirmed: c.watch.ConfirmedAbove, Restored: c.watch.Restored, Describe: c.Group,
	})
	c.network = follow.New(follow.Options{
		Groups: c.groups, Switch: parts.Switch, NextHops: parts.NextHops, Log: parts.Log, FollowBonds: parts.FollowBonds, Moves: c.Branches.NoteMove,
	})
	c.Frames = frames.New(parts.Switch, c.groups.Carried, groups.NoGroup)
	c.Services = services.New(services.Options{
		Control: serving{c}, Hops: parts.NextHops, Addresses: parts.Addresses, Log: parts.Log, Bounds: c.Bounds, Perftest: parts.Perftest, CM: parts.CM,
	})
	c.groups.Ports().LogChanges(c.Log, nil)
	for _, n := range c.Neighbours {
		c.NextHops.Track(n.Address)
	}
	if parts.Desired != nil {
		c.share()
	}
	return c
}

// share lets this box share its groups with others.
func (c *Controller) share() {
	c.shared = shared.New(shared.Options{
		Groups: c.groups, Desired: c.Desired, Box: c.Box, Carrier: c.Branches, Log: c.Log, Parse: c.parseStored, Resolve: c.resolve, MayBecome: c.mayBecome,
		IsLocal: c.Addresses.Local, Describe: c.view, Restored: c.watch.Restored,
	})
	c.groups.Members, c.watch.Mark = c.shared.MembersChanged, c.shared.MarkSwitches
}

// edge is what this box needs to be an edge of boxes above.
func (c *Controller) edge() above.Options {
	return above.Options{Groups: c.groups, Boxes: c.Above, Hop: c.NextHops.Hop, Join: rtnl.Join, Log: c.Log}
}

// refuseTree refuses links for a group that cannot have any.
func (c *Controller) refuseTree(g *groups.Group, links []*groups.Link) error {
	if c.shared == nil {
		return nil
	}
	return shared.RefuseTree(g, links)
}

// addressesChanged hears that addresses of the box have come or gone; nil: any may have.
func (c *Controller) addressesChanged(changes []address.Change) {
	if c.shared != nil {
		c.shared.AddressesChanged(changes)
	}
}

// Run handles kernel notifications and the data path's notes until ctx is done.
func (c *Controller) Run(ctx context.Context) error {
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return c.NextHops.Run(ctx, c.network.HopsChanged) })
	tasks.Go(func() error {
		return c.Addresses.Run(ctx, func(p address.IfAddr, name string) {
			c.Log.Warn("another program removed a group's IP; rocastd has added it again",
				zap.Stringer("ip", p.IP), zap.String("interface", name))
		}, c.addressesChanged, c.network.AddressTaken)
	})
	tasks.Go(func() error { c.Switch.Engage(); return nil }) // not before: members of restored groups wait
	tasks.Go(func() error { return c.network.Run(ctx) })
	tasks.Go(func() error { return c.watch.FollowNotes(ctx) })
	tasks.Go(func() error { return c.Services.KeepUp(ctx) })
	tasks.Go(func() error { return c.Branches.Run(ctx) })
	tasks.Go(func() error { return above.Run(ctx, c.edge(), c.Neighbours) })
	if c.shared != nil {
		tasks.Go(func() error { return c.shared.Run(ctx) })
	}
	if c.qpns != nil {
		tasks.Go(func() error {
			return c.qpns.KeepUp(ctx, func(err error) { c.Log.Warn("soon no further receivers may share copies", zap.Error(err)) })
		})
	}
	tasks.Go(func() error { return c.watch.FollowProgress(ctx) })
	return tasks.Wait()
}

// Close removes the addresses and records a clean stop. Switch.Run must have returned, because
// Close records which groups never carried data.
func (c *Controller) Close() error {
	c.Services.Close() // first: connections and runs remove their groups
	c.groups.Lock()
	defer c.groups.Unlock()
	if err := c.Addresses.Close(); err != nil {
		return err
	}
	c.watch.End()
	var idle, unclean []string
	for name, g := range c.groups.All() {
		switch {
		case !g.Kept:
		case !c.groups.KeepAtStop(g):
			unclean = append(unclean, name)
		case c.groups.IsIdle(g):
			idle = append(idle, name)
		}
	}
	return c.Store.Stopped(idle, unclean)
}
