package ctl

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/plan"
	"github.com/rocast/rocast/ctl/yamldoc"
)

// resolveWithin is how long Create waits for the kernel to resolve the members of a new group, so
// that traffic may start as soon as Create returns. A member that is still unresolved after this
// time takes part when the kernel has resolved it; the group does not wait.
const resolveWithin = time.Second

// Create makes the group that a file describes. If it returns an error, which is an *api.Error,
// nothing has changed.
func (c *Controller) Create(ctx context.Context, text []byte) (api.Group, error) {
	file, err := c.parse(ctx, text)
	if err != nil {
		return api.Group{}, groups.APIError(err)
	}
	if c.shared != nil {
		if file.Table {
			return api.Group{}, groups.APIError(yamldoc.Errorf(file.Lines["memory"], "memory is a table, which only this box would have, and with "+
				"store: etcd all boxes share what they know of a group; list the regions in the file (at most %d)", groupfile.MaxRegions))
		}
		return c.shared.Create(ctx, file, text)
	}
	return c.create(ctx, file, text)
}

// create makes a group, stores its text, and describes the group.
func (c *Controller) create(ctx context.Context, file *groupfile.File, text []byte) (api.Group, error) {
	v, err := c.setUp(ctx, file, text)
	if err != nil {
		return api.Group{}, err
	}
	return c.view(v), nil
}

// setUp makes a group and stores its text. If text is nil, the group is not stored and ends with
// the daemon.
func (c *Controller) setUp(ctx context.Context, file *groupfile.File, text []byte) (*groups.Version, error) {
	if err := c.groups.RefuseKnown(file); err != nil { // to fail fast; Stand checks again
		return nil, groups.APIError(err)
	}
	defer c.resolve(ctx, file.Members())()
	unlock, _, err := c.groups.Names.Lock(ctx, file.Name, "")
	if err != nil {
		return nil, err
	}
	defer unlock()
	g := groups.New(file, text != nil)
	if err := c.Branches.Stand(ctx, g, text); err != nil {
		return nil, groups.APIError(err)
	}
	v := g.Seen()
	c.Log.Info("group created", zap.String("group", v.Name), zap.Int("members", len(file.Members())),
		zap.Int("neighbours", len(v.Links)), zap.Int("waiting", v.Waiting()))
	return v, nil
}

func (c *Controller) parse(ctx context.Context, text []byte) (*groupfile.File, error) {
	return c.parseBy(ctx, groupfile.Parse, text)
}

// parseStored parses a text that etcd has: another box has accepted it.
func (c *Controller) parseStored(ctx context.Context, text []byte) (*groupfile.File, error) {
	return c.parseBy(ctx, groupfile.ParseStored, text)
}

func (c *Controller) parseBy(ctx context.Context, parser func([]byte) (*groupfile.File, error), text []byte) (file *groupfile.File, err error) {
	err = c.alone(ctx, func() (err error) {
		file, err = parser(text)
		return err
	})
	return file, err
}

// alone runs a parser. Only one parser runs at a time.
func (c *Controller) alone(ctx context.Context, parser func() error) error {
	select {
	case c.parsing <- struct{}{}:
		defer func() { <-c.parsing }()
		return parser()
	case <-ctx.Done():
		return groups.GivenUp(ctx)
	}
}

// resolve tracks the members of a group that is about to be created and waits until the kernel has
// resolved them, at most settleWithin. The caller calls release after the group itself tracks its
// members.
func (c *Controller) resolve(ctx context.Context, members []groupfile.Member) (release func()) {
	addrs := plan.Targets(members)
	for _, addr := range addrs {
		c.NextHops.Track(addr)
	}
	ctx, cancel := context.WithTimeout(ctx, resolveWithin)
	defer cancel()
	c.NextHops.Resolve(ctx, addrs)
	return func() {
		for _, addr := range addrs {
			c.NextHops.Untrack(addr)
		}
	}
}

// Remove ends a group and forgets it, here and at the boxes behind this one.
func (c *Controller) Remove(name string) error { return c.removeFrom(name, nil) }

// removeFrom removes a group. from is the version that the caller has seen; nil: whichever is
// there.
func (c *Controller) removeFrom(name string, from *basis) error {
	if c.shared == nil || c.isHelpers(name) {
		err := c.remove(name, from)
		if err == nil {
			c.Services.Lost(name)
		}
		return err
	}
	revision, err := from.inEtcd(name)
	if err != nil {
		return err
	}
	return c.shared.Remove(name, revision)
}

// isHelpers reports whether a group is that of a perftest run or an RDMA-CM connection. Only this
// box knows such a group.
func (c *Controller) isHelpers(name string) bool {
	v := c.groups.Seen(name)
	return v != nil && !v.Kept
}

func (c *Controller) remove(name string, from *basis) error {
	unlock, _, err := c.groups.Names.Lock(context.Background(), name, "")
	if err != nil {
		return err
	}
	defer unlock()
	c.groups.Lock()
	g := c.groups.Named(name)
	switch {
	case g == nil:
		err = groups.NoGroup(name)
	case g.Branch != nil:
		err = groups.BelongsTo(&g.Version)
	default:
		if err = from.isStill(name, g.Wanted); err == nil {
			err = c.groups.Forget(g)
		}
	}
	c.groups.Unlock()
	if err != nil {
		return groups.APIError(err)
	}
	c.Branches.Withdraw(name, g.Links)
	return nil
}
