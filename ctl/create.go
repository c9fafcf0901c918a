package ctl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/mft"
)

// settleWithin is how long a new group waits for the kernel to find its members, so that traffic may start right after. Who
// has not answered by then is waited for later.
const settleWithin = time.Second

// Create makes the group that a file describes. After an error, which is an *api.Error, nothing has changed.
func (c *Controller) Create(ctx context.Context, text []byte) (api.Group, error) {
	file, err := c.parse(ctx, text)
	if err != nil {
		return api.Group{}, apiError(err)
	}
	return c.create(ctx, file, text)
}

// create makes a group, and keeps its text; without one the group ends with the daemon.
func (c *Controller) create(ctx context.Context, file *groupfile.File, text []byte) (api.Group, error) {
	if err := c.refuseKnown(file); err != nil { // at once; the name may be taken again while the hosts are asked
		return api.Group{}, err
	}
	defer c.settle(ctx, file)()
	if err := c.refuseOthersIP(ctx, file); err != nil {
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
	if err := c.begin(g, c.refuseUnfit); err != nil {
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

// parse reads a group file.
func (c *Controller) parse(ctx context.Context, text []byte) (file *groupfile.File, err error) {
	err = c.alone(ctx, func() (err error) {
		file, err = groupfile.Parse(text)
		return err
	})
	return file, err
}

// alone runs a parser while no other one runs.
func (c *Controller) alone(ctx context.Context, parser func() error) error {
	select {
	case c.parsing <- struct{}{}:
		defer func() { <-c.parsing }()
		return parser()
	case <-ctx.Done():
		return givenUp(ctx)
	}
}

// givenUp is the error of a request whose client has gone, or that the daemon's stop has cut off.
func givenUp(ctx context.Context) error {
	return api.Errorf(api.Internal, "the request ended before it was done (%v); nothing has changed", ctx.Err())
}

// refuseKnown refuses a name that is taken.
func (c *Controller) refuseKnown(file *groupfile.File) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refuseNameTaken(file)
}

func (c *Controller) refuseNameTaken(file *groupfile.File) error {
	if c.groups[file.Name] == nil {
		return nil
	}
	return &api.Error{Kind: api.Exists, Line: file.Lines["name"],
		Message: fmt.Sprintf("group %s exists; remove it first with rocast group rm %s, or write another name", file.Name, file.Name)}
}

func newGroup(file *groupfile.File, kept bool) *group {
	g := &group{name: file.Name, file: file, kept: kept}
	if file.Source.Role == groupfile.Both {
		g.source = file.Source.ID()
	}
	return g
}

// settle lets the kernel find the members of a group to be. The function it returns ends that, when the group itself
// follows them.
func (c *Controller) settle(ctx context.Context, f *groupfile.File) (release func()) {
	addrs := targets(f)
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

// refuseUnfit refuses a new group for what the box itself lacks. What may still come, like a host, is waited for instead.
func (c *Controller) refuseUnfit(g *group, p plan) error {
	f := g.file
	for _, l := range p.legs {
		if l.unfit {
			return yamldoc.Errorf(f.Lines["mtu"], "mtu: %s", l.reason)
		}
	}
	if f.Addressing != mft.BySwitchIP {
		return nil
	}
	local, err := c.Addresses.Local(f.IP)
	if err == nil && !local {
		err = yamldoc.Errorf(f.Lines["ip"], "ip %v is not this box's, and with addressing switch-ip members name the group by an address "+
			"the box has; add it with ip addr add, or use addressing: group-ip", f.IP)
	}
	return err
}

// refuseOthersIP refuses a new group whose IP the box would take from a living host, or from its own programs. A group that
// comes back after a restart is not asked about: its QPs do not wait, and the IP is theirs.
func (c *Controller) refuseOthersIP(ctx context.Context, f *groupfile.File) error {
	if f.Addressing != mft.ByGroupIP {
		return nil
	}
	c.mu.Lock()
	p := c.planner().plan(f)
	c.mu.Unlock()
	if err := c.refuseTaken(ctx, f.IP, slices.Collect(maps.Keys(p.places(f)))); err != nil {
		if errors.Is(err, errOwnIP) {
			err = fmt.Errorf("%w, or use addressing: switch-ip", err)
		}
		return yamldoc.Errorf(f.Lines["ip"], "%v", err)
	}
	return nil
}

var errOwnIP = errors.New("is this box's own; write an address that nobody has")

// refuseTaken refuses an IP that is in use on a place the box is about to add it to. It asks the hosts there, some tenths of a
// second long, so its caller must not hold c.mu.
func (c *Controller) refuseTaken(ctx context.Context, ip netip.Addr, places []address.Place) error {
	local, err := c.Addresses.Local(ip)
	if err != nil {
		return err
	}
	if local {
		return fmt.Errorf("ip %v %w", ip, errOwnIP)
	}
	if claim, found := c.Addresses.Claimed(ctx, places); found {
		return fmt.Errorf("ip %v is taken (%v); write an address that nobody has", ip, claim)
	}
	return nil
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
		// It is gone from the table and will not come back; what could not be taken back shows in the kernel only.
		c.Log.Error("group removed, but not all of it was given back", zap.String("group", name), zap.Error(err))
		return nil
	}
	c.Log.Info("group removed", zap.String("group", name))
	return nil
}

func noGroup(name string) error {
	return api.Errorf(api.NotFound, "there is no group %q; rocast group ls lists those there are", name)
}

// apiError gives an error the form in which it leaves the daemon.
func apiError(err error) error {
	if e := (*api.Error)(nil); errors.As(err, &e) {
		return e
	}
	if e := (*yamldoc.Error)(nil); errors.As(err, &e) {
		return &api.Error{Kind: api.BadFile, Message: e.Message, Line: e.Line}
	}
	return api.Errorf(api.Internal, "%v", err)
}
