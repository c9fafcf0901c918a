package services

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/perftest"
)

// Groups creates the groups of perftest runs and RDMA-CM connections. These groups end with the
// daemon.
type Groups struct {
	Control
	Hops NextHops
}

// Create fails if a member cannot be reached yet: the source sends at once, and its queue pair
// fails if a host does not answer. Create does not ask the workers for the group's state as a
// description of the group does: the source waits for Create.
func (g Groups) Create(ctx context.Context, file *groupfile.File) error {
	unreached, err := g.SetUp(ctx, file)
	if err != nil || len(unreached) == 0 {
		return err
	}
	return errors.Join(errors.New(strings.Join(unreached, "; ")), g.Control.Remove(file.Name))
}

// Hold says why frames of a path MTU do not reach a host: the port has a smaller MTU. What cannot
// be known yet, such as where the host is, is left to Create.
func (g Groups) Hold(host netip.Addr, pathMTU int) error {
	g.Hops.Track(host)
	if why := g.Unfit(host, pathMTU); why != "" {
		return errors.New(why)
	}
	return nil
}

// Release ends what Hold began.
func (g Groups) Release(host netip.Addr) { g.Hops.Untrack(host) }

// Remove removes a group that Create has made.
func (g Groups) Remove(_ context.Context, name string) error { return g.Control.Remove(name) }

// Sent returns how many packets the sources of groups have sent, all together, and how many
// requests their receivers have sent.
func (g Groups) Sent(names []string) (sources, receivers uint64) {
	for _, name := range names {
		t, _ := g.Traffic(name)
		sources += t.FromSource
		receivers += t.FromReceivers
	}
	return sources, receivers
}

// Traffic returns the packet counts of a group; false: the data path does not have the group.
func (g Groups) Traffic(name string) (perftest.Traffic, bool) {
	counts, ok := g.Counters(name)
	return traffic(counts), ok
}
