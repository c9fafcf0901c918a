package ctl

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/desired"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/mft"
)

// A desired group with addressing: switch-ip goes with its address. Another program, for example
// keepalived, moves the address between boxes together with a MAC of its own. The box that has the
// address carries the group, and the others stand by.
//
// The address decides at once, and etcd is told afterwards: etcd may need seconds until it has a
// leader again if one of its members has died with the box, and a lease ends after seconds only.

// takeOverSettles is how long a take-over waits for the kernel to resolve the members.
const takeOverSettles = 100 * time.Millisecond

// addressesChanged hears that addresses of the box have come or gone; nil: any may have.
func (c *Controller) addressesChanged(changes []address.Change) {
	if c.Desired == nil {
		return
	}
	for _, a := range changes {
		if a.Gone {
			c.markAddressGone(func(g *groups.Group) bool { return g.Wanted.IP == a.IP })
		}
	}
	if changes == nil {
		c.markAddressGone(func(*groups.Group) bool { return true })
	}
	s := &c.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range changes {
		s.pending.addresses[a.IP] = true
	}
	s.pending.anyAddress = s.pending.anyAddress || changes == nil
	s.rouse()
}

// markAddressGone notes which groups begin again as after a restart, even if their address has come
// back by the time that they are looked at.
func (c *Controller) markAddressGone(isConcerned func(*groups.Group) bool) {
	c.groups.Lock()
	defer c.groups.Unlock()
	for _, g := range c.groups.All() {
		if g.Wanted != nil && g.Wanted.Addressing == mft.BySwitchIP && g.Kept && g.Branch == nil && isConcerned(g) {
			g.AddressGone = true
		}
	}
}

// addressState reports whether etcd does not know yet that this box carries a group, and whether
// the group's address was gone meanwhile.
func (c *Controller) addressState(name string) (untold, gone bool) {
	c.groups.Lock()
	defer c.groups.Unlock()
	g := c.groups.Named(name)
	return g != nil && g.Untold, g != nil && g.AddressGone
}

// standStill notes that a group of this box has its address on another box or nowhere, and that no
// other box can carry it; or that the address is here again.
func (c *Controller) standStill(g *groups.Group, away bool) {
	if g == nil {
		return
	}
	c.groups.Lock()
	defer c.groups.Unlock()
	was := g.Away
	g.AddressGone, g.Away = away, ""
	if away {
		g.Away = fmt.Sprintf("the box does not have its address %v, and no other box can carry it, because its source has switched; "+
			"give the address back to this box, or remove the group and create it again with fresh QPs and PSNs", g.Wanted.IP)
	}
	if g.Away == was {
		return
	}
	c.groups.Changed(g)
	if away {
		c.groups.Tell(api.Event{Kind: api.GroupDegraded, Group: g.Name, Cause: g.Away})
	} else {
		c.watch.Restored(g, "the box has its address again")
	}
}

// addMoved adds the groups that go with an address that has come or gone.
func (c *Controller) addMoved(ctx context.Context, p pending) {
	if len(p.addresses) == 0 && !p.anyAddress && !p.first {
		return
	}
	for _, name := range c.Desired.Names() {
		e, _ := c.Desired.Entry(name)
		if !e.Wanted() {
			continue
		}
		file, err := c.parseDesired(ctx, name, e)
		if err == nil && file.Addressing == mft.BySwitchIP && (p.anyAddress || p.first || p.addresses[file.IP]) {
			p.names[name] = true
		}
	}
}

// away reports whether a desired group goes with an address that this box does not have.
func (c *Controller) away(f *groupfile.File) (bool, error) {
	if f.Addressing != mft.BySwitchIP {
		return false, nil
	}
	local, err := c.Addresses.Local(f.IP)
	return !local && err == nil, err
}

// refuseStandbyTree refuses members behind other boxes for a group that goes with its address: a
// box that gets the address would have to be asked for them within the time that the take-over may
// take.
func (c *Controller) refuseStandbyTree(g *groups.Group, links []*groups.Link) error {
	f := g.Wanted
	if len(links) == 0 || c.Desired == nil || !g.Kept || g.Branch != nil || f.Addressing != mft.BySwitchIP {
		return nil
	}
	return yamldoc.Errorf(f.Lines["addressing"], "addressing is %v, so with store: etcd the group goes with its address from box to box, and "+
		"some members are behind other boxes; use addressing: group-ip", f.Addressing)
}

// tellLater reports whether this box has only just taken a group over. Then etcd is told when the
// other groups that go with the address have been taken over too: it may need seconds to answer.
func (c *Controller) tellLater(name string) bool {
	c.groups.Lock()
	g := c.groups.Named(name)
	just := g != nil && !g.Untold
	if just {
		g.Untold = true
	}
	c.groups.Unlock()
	if just {
		c.shared.mu.Lock()
		defer c.shared.mu.Unlock()
		c.shared.pending.names[name] = true
		c.shared.rouse()
	}
	return just
}

// tellTakenOver makes this box the root of a group that it carries because it has the group's
// address. While etcd does not answer, the group runs on.
func (c *Controller) tellTakenOver(ctx context.Context, name string, e desired.Entry) (told bool) {
	taken, err := c.Desired.TakeOver(ctx, name, e)
	c.groups.Lock()
	defer c.groups.Unlock()
	if g := c.groups.Named(name); g != nil {
		if err != nil && !g.UntoldInLog {
			c.Log.Warn("this box carries a group whose address it has, and could not tell the other boxes; rocastd tries again",
				zap.String("group", name), zap.Error(err))
		}
		g.Untold, g.UntoldInLog = !taken, err != nil
	}
	if taken {
		c.keepMembers(name) // what happened before etcd knew
		c.Log.Info("this box has taken a group over with the group's address", zap.String("group", name))
	}
	return taken
}
