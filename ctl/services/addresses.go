package services

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/address"
)

// addresses adds the group IPs of the services to the box.
type addresses struct {
	control Control
	hops    NextHops
	owner   Owner
	log     *zap.Logger
}

// Own adds ip to the interfaces through which the hosts are reached. Those behind other boxes are
// left out: such a box answers for ip where its hosts are. The ways to the hosts are followed until
// release, so that a group with them need not wait for the kernel.
func (a addresses) Own(ip netip.Addr, towards []netip.Addr) (subnets []netip.Prefix, release func(), err error) {
	var held []address.IfAddr
	for _, host := range towards {
		a.hops.Track(host)
	}
	free := func() {
		for _, host := range towards {
			a.hops.Untrack(host)
		}
		for _, assigned := range held {
			if err := a.owner.Release(assigned); err != nil {
				a.log.Error("could not remove the group IP of a service from an interface",
					zap.Stringer("groupIP", ip), zap.Error(err))
			}
		}
	}
	defer func() {
		if err != nil {
			free()
		}
	}()
	at, err := a.ifAddrsFor(ip, towards)
	if err != nil {
		return nil, nil, err
	}
	all, err := a.control.FreeIP(context.Background(), ip, at)
	if err != nil {
		return nil, nil, err
	}
	for _, wanted := range at {
		if err := a.owner.Hold(wanted); err != nil {
			return nil, nil, err
		}
		held = append(held, wanted)
	}
	subnets = slices.DeleteFunc(all, func(s netip.Prefix) bool { return !s.Contains(ip) })
	return subnets, free, nil
}

// Announce tells the hosts that the box has ip. What depends on it is sent again if it is lost, so
// an error is only logged.
func (a addresses) Announce(ip netip.Addr) {
	if err := a.owner.Announce(ip); err != nil {
		a.log.Warn("could not tell the hosts who has the group IP of a service", zap.Stringer("groupIP", ip), zap.Error(err))
	}
}

// ifAddrsFor returns the interfaces through which the hosts are reached. Where all hosts are behind
// other boxes, that is the interface in whose subnet ip is: the client is there.
func (a addresses) ifAddrsFor(ip netip.Addr, towards []netip.Addr) (list []address.IfAddr, err error) {
	var unreached []error
	add := func(host netip.Addr) {
		hop := a.hops.Track(host)
		defer a.hops.Untrack(host)
		boxes, err := a.control.Behind(host)
		at := address.IfAddr{IfIndex: hop.Interface, IP: ip}
		switch {
		case err != nil:
			unreached = append(unreached, err)
		case len(boxes) > 0:
		case hop.Interface == 0:
			unreached = append(unreached, fmt.Errorf("%v is not reached: %s", host, hop.Reason))
		case !slices.Contains(list, at):
			list = append(list, at)
		}
	}
	for _, host := range towards {
		add(host)
	}
	if len(list) == 0 && len(unreached) == 0 {
		add(ip)
	}
	return list, errors.Join(unreached...)
}
