package ctl

import (
	"context"
	"net/netip"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/mft"
)

// Switch is the part of the data path that ctl uses: a dataplane/afxdp.Switch, or its test double.
type Switch interface {
	groups.Switch
	// Engage loads the kernel engine, if it is wanted. The workers carry everything until then.
	Engage()
	Ports() []dataplane.PortInfo
	// Refresh opens and closes ports when their interfaces appear and disappear. It returns the
	// current ports, without counters, and warnings for the operator.
	Refresh() (ports []dataplane.PortInfo, warnings []dataplane.Warning)
	// AddPorts opens interfaces as ports, all or none; bounds has the bound of each one's queue.
	// The caller has called Refresh before.
	AddPorts(names []string, bounds []dataplane.Egress) error
	// RemovePorts closes ports that no group uses any more.
	RemovePorts(names []string)
	NextTurn(mft.GroupID) (mft.Turn, bool)
	BeginTurn(id mft.GroupID, granted bool)
	Counters() []dataplane.Counter
	// Verdicts returns the counters of the classifier, which are among Counters. It asks no worker.
	Verdicts() []dataplane.Counter
	// Astray returns what is known of frames that were refused and that no group counts.
	Astray() []dataplane.Astray
	RepairMemory() dataplane.RepairMemory
	Capture(dataplane.CaptureConfig) (*dataplane.Capture, error)
	Trace(mft.PortID, []byte) (dataplane.Trace, error)
	Notes() <-chan dataplane.Note
	// EndBatches returns when every worker has ended the batch that it was busy with.
	EndBatches()
	Run(context.Context)
}

// NextHops is the part of a nexthop.Tracker that ctl uses.
type NextHops interface {
	groups.NextHops
	Resolve(context.Context, []netip.Addr)
	// Doubt makes the kernel ask again for the MAC of an address whose host is silent.
	Doubt(netip.Addr)
	// SetPorts sets the interfaces that are ports now. It returns the addresses whose next hop
	// changed.
	SetPorts(ifIndexes []int) (changed []netip.Addr)
	// Links delivers a value after links have changed.
	Links() <-chan struct{}
	Run(ctx context.Context, changed func([]netip.Addr)) error
}

// Addresses is the part of an address.Owner that ctl uses.
type Addresses interface {
	groups.Addresses
	Announce(netip.Addr) error
	Local(netip.Addr) (bool, error)
	Subnets(ifIndex int) ([]netip.Prefix, error)
	Claimed(ctx context.Context, at []address.IfAddr, boxes ...[6]byte) (claim address.Claim, found bool)
	Run(ctx context.Context, restored func(address.IfAddr, string), changed func([]address.Change), rival address.Rival) error
	Close() error
}

// Feature is a kernel feature that some kernels lack.
type Feature = api.Feature
