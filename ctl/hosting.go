package ctl

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/gather"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/hosts"
	"github.com/rocast/rocast/ctl/view"
	"github.com/rocast/rocast/roce"
)

// NewHosts lets programs on hosts make groups of a Controller.
func NewHosts(c *Controller, config gather.Config) *hosts.Hosts {
	return hosts.New(hosts.Options{
		Control: hosting{c}, Config: config, Box: c.Box, HasNeighbours: len(c.Neighbours) > 0, Log: c.Log, Bounds: c.Bounds,
	})
}

// hosting is what ctl/hosts needs of control: it implements hosts.Control.
type hosting struct{ c *Controller }

func (h hosting) Lock(ctx context.Context, name string) (done func(), err error) {
	unlock, _, err := h.c.groups.Names.Lock(ctx, "hosts of "+name, "")
	return unlock, err
}

func (h hosting) Group(name string) (hosts.Group, error) { return h.whole(h.c.Group(name)) }

func (h hosting) Create(ctx context.Context, text []byte) (hosts.Group, error) {
	return h.whole(h.c.Create(ctx, text))
}

func (h hosting) Confirm(name string, request []byte) (hosts.Group, error) {
	return h.whole(h.c.Confirm(name, request))
}

func (h hosting) Running(ctx context.Context, name string) (*groupfile.File, hosts.Basis, error) {
	return h.c.running(ctx, name)
}

func (h hosting) Update(ctx context.Context, name string, text []byte, from hosts.Basis) (hosts.Group, error) {
	return h.whole(h.c.update(ctx, name, text, from.(*basis)))
}

func (h hosting) Remove(name string, from hosts.Basis) error {
	return h.c.removeFrom(name, from.(*basis))
}

// whole replaces the end of each link by the members behind it. This box does not know which member
// behind a link is the source at present, so each of them that may send gets the part of the link's
// end.
func (h hosting) whole(described api.Group, err error) (hosts.Group, error) {
	g := hosts.Group{Group: described}
	if err != nil {
		return g, err
	}
	there := h.c.groups.Seen(g.Name)
	if there == nil || there.Wanted == nil {
		return g, nil
	}
	g.Secret, g.Unconfirmed = there.Wanted.HostsSecret, there.Unconfirmed()
	if len(g.Links) == 0 {
		return g, nil
	}
	ends := map[string]string{} // the part of each link, by the address of its box
	var all []api.Member
	for _, m := range g.Members {
		if m.RemoteIP == "" {
			all = append(all, m)
		} else {
			ends[m.IP] = m.Part
		}
	}
	for _, m := range there.Wanted.Members() {
		l := groups.LinkOf(there.Links, m.ID())
		if l == nil || slices.ContainsFunc(all, func(known api.Member) bool { return known.IP == m.IP.String() }) {
			continue
		}
		far := view.Member(&m, api.Reach{})
		if m.Role == groupfile.Both {
			far.Part = ends[l.Remote.IP]
		}
		all = append(all, far)
	}
	g.Members = all
	return g, nil
}

func (h hosting) Known() []hosts.Known {
	all := h.c.groups.AllSeen()
	known := make([]hosts.Known, 0, len(all))
	for _, g := range all {
		k := hosts.Known{Name: g.Name, File: g.Wanted, IsBranch: g.Branch != nil}
		if g.Wanted != nil {
			k.Unconfirmed = g.Unconfirmed()
		}
		known = append(known, k)
	}
	return known
}

func (h hosting) QPNs(ip netip.Addr) map[roce.QPN]bool {
	taken := map[roce.QPN]bool{}
	for _, g := range h.c.Groups().Groups {
		if g.IP == ip.String() {
			taken[roce.QPN(g.QPN)] = true
		}
	}
	return taken
}

func (h hosting) Behind(ctx context.Context, host netip.Addr) (box string, err error) {
	m := groupfile.Member{IP: host}
	defer h.c.resolve(ctx, []groupfile.Member{m})()
	through, err := h.c.Branches.Through(&m, nil)
	if len(through) > 0 {
		box = through[0]
	}
	return box, err
}

func (h hosting) Now(name string) api.Cursor {
	return h.c.groups.Events.After(api.Cursor{}, name).Cursor
}

func (h hosting) Await(ctx context.Context, name string, at api.Cursor) api.Cursor {
	return h.c.Events(ctx, at, name).Cursor
}

func (h hosting) RefuseIP(ctx context.Context, ip netip.Addr) error {
	if slices.ContainsFunc(h.c.Groups().Groups, func(g api.GroupSummary) bool { return g.IP == ip.String() }) {
		return nil
	}
	hop := h.c.NextHops.Track(ip)
	defer h.c.NextHops.Untrack(ip)
	var at []address.IfAddr
	if hop.Interface != 0 {
		at = append(at, address.IfAddr{IfIndex: hop.Interface, IP: ip})
	}
	if err := h.c.refuseIP(ctx, ip, at); err != nil {
		return err
	}
	if len(at) == 0 {
		return fmt.Errorf("ip %v is in no subnet of this box (%s); write an unused address of the subnet of the hosts", ip, hop.Reason)
	}
	return nil
}

func (h hosting) BadIPs(why map[string]string) {
	was := map[string]string{}
	if p := h.c.badGroupIPs.Load(); p != nil {
		was = *p
	}
	for ip, reason := range why {
		if was[ip] != reason {
			h.c.Log.Error("hosts cannot make groups with an IP of groupIPs in the config", zap.String("ip", ip), zap.String("reason", reason))
		}
	}
	h.c.badGroupIPs.Store(&why)
}
