package ctl

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/plan"
)

// settleWithin is how long Create waits for the kernel to resolve the members of a new group, so
// that traffic may start as soon as Create returns. A member that is still unresolved after this
// time is resolved later; the group exists without it.
const settleWithin = time.Second

// Create makes the group that a file describes. If it returns an error, which is an *api.Error,
// nothing has changed.
func (c *Controller) Create(ctx context.Context, text []byte) (api.Group, error) {
	file, err := c.parse(ctx, text)
	if err != nil {
		return api.Group{}, apiError(err)
	}
	return c.create(ctx, file, text)
}

// create makes a group and stores its text. If text is nil, the group is not stored and ends with
// the daemon.
func (c *Controller) create(ctx context.Context, file *groupfile.File, text []byte) (api.Group, error) {
	if err := c.refuseKnown(file); err != nil { // fail fast; checked again below
		return api.Group{}, apiError(err)
	}
	defer c.settle(ctx, file)()
	if err := c.refuseNetwork(ctx, file); err != nil {
		return api.Group{}, apiError(err)
	}
	if ctx.Err() != nil {
		return api.Group{}, givenUp(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refuseNameTaken(file); err != nil {
		return api.Group{}, err
	}
	g := newGroup(file, text != nil)
	if err := c.begin(g); err != nil {
		return api.Group{}, apiError(err)
	}
	if g.kept {
		if err := c.Store.Put(g.name, text); err != nil {
			return api.Group{}, apiError(errors.Join(err, c.end(g)))
		}
	}
	c.groups[g.name] = g
	c.Log.Info("group created", zap.String("group", g.name), zap.Int("members", len(file.Members())), zap.Int("waiting", g.waiting()))
	return c.view(g), nil
}

func (c *Controller) parse(ctx context.Context, text []byte) (file *groupfile.File, err error) {
	err = c.alone(ctx, func() (err error) {
		file, err = groupfile.Parse(text)
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
		return givenUp(ctx)
	}
}

// settle tracks the members of a group that is about to be created and waits until the kernel has
// resolved them, at most settleWithin. The caller calls release after the group itself tracks its
// members.
func (c *Controller) settle(ctx context.Context, f *groupfile.File) (release func()) {
	addrs := plan.Targets(f)
	for _, addr := range addrs {
		c.NextHops.Track(addr)
	}
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	c.NextHops.Settle(ctx, addrs)
	return func() {
		for _, addr := range addrs {
			c.NextHops.Untrack(addr)
		}
	}
}

// Remove ends a group and forgets it.
func (c *Controller) Remove(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.groups[name]
	if g == nil {
		return noGroup(name)
	}
	if g.kept {
		if err := c.Store.Delete(name); err != nil {
			return apiError(err)
		}
	}
	delete(c.groups, name)
	if err := c.end(g); err != nil {
		// The group has left the table and will not come back. An address that could not be removed
		// is visible only in the kernel.
		c.Log.Error("could not remove all addresses of the removed group from the box",
			zap.String("group", name), zap.Error(err))
		return nil
	}
	c.Log.Info("group removed", zap.String("group", name))
	return nil
}
