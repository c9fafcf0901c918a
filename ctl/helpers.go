package ctl

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
)

// helperGroups creates the groups of perftest runs and RDMA-CM connections. These groups end with
// the daemon.
type helperGroups struct{ *Controller }

// Create fails if a member cannot be reached yet: the source sends at once, and its queue pair
// fails if a host does not answer. Create does not ask the workers for the group's state as a
// description of the group does: the source waits for Create.
func (p helperGroups) Create(ctx context.Context, file *groupfile.File) error {
	g, err := p.setUp(ctx, file, nil)
	if err != nil {
		return err
	}
	if waiting := p.unreached(g); len(waiting) > 0 {
		return errors.Join(errors.New(strings.Join(waiting, "; ")), p.Controller.remove(g.name))
	}
	return nil
}

// unreached says which members of a group are not reached, and why.
func (p helperGroups) unreached(g *group) (l []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for leg := range g.legs().Members() {
		if waits, reason := g.waitsFor(leg); waits {
			l = append(l, fmt.Sprintf("%v is not reached: %s", leg.Member.IP, reason))
		}
	}
	for _, link := range g.links {
		if state, reason := link.state(); state != api.Ready {
			l = append(l, fmt.Sprintf("a receiver behind box %s is not reached: %s", link.Box, reason))
		}
	}
	return l
}

// Hold says why frames of a path MTU do not reach a host: the port has a smaller MTU. What cannot
// be known yet, such as where the host is, is left to Create.
func (p helperGroups) Hold(host netip.Addr, pathMTU int) error {
	p.NextHops.Track(host)
	p.mu.Lock()
	defer p.mu.Unlock()
	way := p.plan(&groupfile.File{PathMTU: pathMTU, IP: host, Source: groupfile.Member{IP: host}}).Source
	if way.Unfit {
		return errors.New(way.Reason)
	}
	return nil
}

func (p helperGroups) Release(host netip.Addr) { p.NextHops.Untrack(host) }

func (p helperGroups) Remove(_ context.Context, name string) error {
	return p.Controller.remove(name)
}

// helperAddresses adds the group IPs of the helpers to the box.
type helperAddresses struct{ *Controller }

// Own adds ip to the interfaces through which the hosts are reached. Those behind other boxes are
// left out: such a box answers for ip where its hosts are. The ways to the hosts are followed until
// release, so that a group with them need not wait for the kernel.
func (p helperAddresses) Own(ip netip.Addr, towards []netip.Addr) (subnets []netip.Prefix, release func(), err error) {
	var held []address.Place
	for _, host := range towards {
		p.NextHops.Track(host)
	}
	free := func() {
		for _, host := range towards {
			p.NextHops.Untrack(host)
		}
		for _, place := range held {
			if err := p.Addresses.Release(place); err != nil {
				p.Log.Error("could not remove the group IP of a service from an interface",
					zap.Stringer("groupIP", ip), zap.Error(err))
			}
		}
	}
	defer func() {
		if err != nil {
			free()
		}
	}()
	places, err := p.placesFor(ip, towards)
	if err != nil {
		return nil, nil, err
	}
	if err := p.refuseIP(context.Background(), ip, places); err != nil {
		return nil, nil, err
	}
	all, err := p.subnetsAt(ip, places)
	if err != nil {
		return nil, nil, err
	}
	for _, place := range places {
		if err := p.Addresses.Hold(place); err != nil {
			return nil, nil, err
		}
		held = append(held, place)
	}
	return containing(ip, all), free, nil
}

// Announce tells the hosts that the box has ip. What depends on it is sent again if it is lost, so
// an error is only logged.
func (p helperAddresses) Announce(ip netip.Addr) {
	if err := p.Addresses.Announce(ip); err != nil {
		p.Log.Warn("could not tell the hosts who has the group IP of a service", zap.Stringer("groupIP", ip), zap.Error(err))
	}
}

// placesFor returns the interfaces through which the hosts are reached. Where all hosts are behind
// other boxes, that is the interface in whose subnet ip is: the client is there.
func (p helperAddresses) placesFor(ip netip.Addr, towards []netip.Addr) (places []address.Place, err error) {
	var unreached []error
	add := func(host netip.Addr) {
		hop := p.NextHops.Track(host)
		defer p.NextHops.Untrack(host)
		boxes, err := p.through(&groupfile.Member{IP: host}, nil)
		place := address.Place{IfIndex: hop.Interface, IP: ip}
		switch {
		case err != nil:
			unreached = append(unreached, err)
		case len(boxes) > 0:
		case hop.Interface == 0:
			unreached = append(unreached, fmt.Errorf("%v is not reached: %s", host, hop.Reason))
		case !slices.Contains(places, place):
			places = append(places, place)
		}
	}
	for _, host := range towards {
		add(host)
	}
	if len(places) == 0 && len(unreached) == 0 {
		add(ip)
	}
	return places, errors.Join(unreached...)
}
