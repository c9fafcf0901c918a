package ctl

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/yamldoc"
)

// Update changes the receivers or the memory of a running group to those of the file. A new
// receiver takes part from the next message on. The group no longer waits for a removed receiver.
// If Update returns an error, which is an *api.Error, nothing has changed.
func (c *Controller) Update(ctx context.Context, name string, text []byte) (api.Group, error) {
	return c.update(ctx, name, text, nil)
}

// update makes text the file of a running group. from is the version that the caller has changed;
// nil: whichever is there.
func (c *Controller) update(ctx context.Context, name string, text []byte, from *basis) (api.Group, error) {
	file, err := c.parse(ctx, text)
	if err != nil {
		return api.Group{}, groups.APIError(err)
	}
	if file.Name != name {
		return api.Group{}, groups.APIError(yamldoc.Errorf(file.Lines["name"],
			"name is %s, and group %s was to be updated; write that name, or update group %s",
			file.Name, name, file.Name))
	}
	if c.shared != nil && !c.isHelpers(name) {
		revision, err := from.inEtcd(name)
		if err != nil {
			return api.Group{}, err
		}
		return c.shared.Update(ctx, file, text, revision)
	}
	defer c.resolve(ctx, file.Members())()
	unlock, _, err := c.groups.Names.Lock(ctx, name, "")
	if err != nil {
		return api.Group{}, err
	}
	defer unlock()
	if ctx.Err() != nil {
		return api.Group{}, groups.GivenUp(ctx)
	}
	c.groups.Lock()
	g := c.groups.Named(name)
	if g != nil && !g.Kept && from == nil {
		err = api.Errorf(api.BadRequest, "group %s belongs to a perftest run or an RDMA-CM connection, which ends it; only groups that were "+
			"created can be updated, and only regions of memory can come to this one (rocast region)", name)
	} else if err = c.mayBecome(g, name, file); err == nil {
		err = from.isStill(name, g.Wanted)
	}
	c.groups.Unlock()
	if err != nil {
		return api.Group{}, groups.APIError(err)
	}
	if err := c.Branches.Change(ctx, g, file, text, nil, nil); err != nil {
		return api.Group{}, groups.APIError(err)
	}
	return c.view(g.Seen()), nil
}

// leave takes a receiver out of the group of a connection.
func (c *Controller) leave(ctx context.Context, name string, receiver netip.Addr) error {
	unlock, _, err := c.groups.Names.Lock(ctx, name, "")
	if err != nil {
		return err
	}
	defer unlock()
	c.groups.Lock()
	g := c.groups.Named(name)
	var next groupfile.File
	if g == nil {
		err = groups.NoGroup(name)
	} else {
		next = *g.Wanted
		next.Receivers = slices.DeleteFunc(slices.Clone(next.Receivers), func(m groupfile.Member) bool { return m.IP == receiver })
		if len(next.Receivers) == len(g.Wanted.Receivers) {
			err = fmt.Errorf("group %s has no receiver %v", name, receiver)
		} else {
			err = c.mayBecome(g, name, &next)
		}
	}
	c.groups.Unlock()
	if err != nil {
		return err
	}
	return c.Branches.Change(ctx, g, &next, next.Text(), nil, nil)
}

// mayBecome refuses changes that an update cannot make.
func (c *Controller) mayBecome(g *groups.Group, name string, file *groupfile.File) error {
	switch {
	case g == nil:
		return groups.NoGroup(name)
	case g.Branch != nil:
		return groups.BelongsTo(&g.Version)
	case g.Published == nil:
		return g.NotRunning()
	}
	if err := errors.Join(file.CheckUpdate(g.Wanted), file.CheckOneChange(g.Wanted), g.RefuseUnplaced(file)); err != nil {
		return err
	}
	if err := g.RefuseToLose(file); err != nil {
		return err
	}
	return c.groups.RefuseTaken(file, nil, g)
}
