package ctl

import (
	"context"
	"net/netip"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/mft"
)

// Switch is what ctl asks of the data path: a dataplane/afxdp.Switch, or its twin in tests.
type Switch interface {
	Ports() []dataplane.PortInfo
	// Refresh opens and closes ports as their interfaces come and go. It returns them as they are now, without counters,
	// and sentences for the operator.
	Refresh() (ports []dataplane.PortInfo, warnings []string)
	Add(*mft.Group) (mft.GroupID, error)
	Replace(mft.GroupID, *mft.Group) error
	Remove(mft.GroupID) error
	GroupState(mft.GroupID) (dataplane.GroupState, bool)
	Counters() []dataplane.Counter
	Notes() <-chan dataplane.Note
	Run(context.Context)
}

// NextHops is what ctl asks of a nexthop.Tracker.
type NextHops interface {
	Track(netip.Addr) nexthop.Hop
	Untrack(netip.Addr)
	Hop(netip.Addr) nexthop.Hop
	Settle(context.Context, []netip.Addr)
	// SetPorts says which interfaces are ports now, and returns the addresses that are reached differently by that.
	SetPorts(ifIndexes []int) (changed []netip.Addr)
	// Links delivers after links have changed.
	Links() <-chan struct{}
	Run(ctx context.Context, changed func([]netip.Addr)) error
}

// Addresses is what ctl asks of an address.Owner.
type Addresses interface {
	Hold(address.Place) error
	Release(address.Place) error
	Local(netip.Addr) (bool, error)
	Subnets(ifIndex int) ([]netip.Prefix, error)
	Claimed(ctx context.Context, places []address.Place) (claim address.Claim, found bool)
	Sweep() error
	Run(ctx context.Context, told func(string)) error
	Close() error
}

// Feature is something not every kernel has.
type Feature = api.Feature
