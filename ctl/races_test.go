package ctl

import (
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/nexthop"
)

// What the lock of a group's name lets run at a time with the lock of the groups shares no memory
// without that. Only the race detector notices.
func TestMuchHappensToABranchAtATime(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.1.0.2", "10.2.0.1", "10.3.0.1", "10.4.0.1"))
	b1, b2 := f.box("b1"), f.box("b2")
	const times = 20
	var doing sync.WaitGroup
	do := func(what func(i int)) {
		doing.Go(func() {
			for i := range times {
				what(i)
			}
		})
	}
	do(func(i int) { // the root changes the group
		receivers := []string{"10.1.0.2", "10.2.0.1", "10.3.0.1", "10.4.0.1"}
		_, _ = b1.Update(t.Context(), "g1", []byte(groupFile(receivers[:3+i%2]...)))
	})
	do(func(i int) { // a member goes to another box, and back
		hop := ctltest.Hop(3, "eth3", 1500, 9)
		hop.Gateways = nexthop.GatewaysOf(linkIP(3 + i%2))
		b2.hops.Set(map[string]nexthop.Hop{"10.3.0.1": hop})
		b2.network.HopsChanged([]netip.Addr{addr("10.3.0.1")})
		for _, g := range b2.Branches.Due(time.Now()) {
			b2.Branches.Tend(t.Context(), g)
		}
	})
	do(func(i int) { // a host has another MAC
		b2.hops.Set(map[string]nexthop.Hop{"10.2.0.1": ctltest.Hop(1, "eth1", 1500, byte(10+i))})
		b2.network.HopsChanged([]netip.Addr{addr("10.2.0.1")})
	})
	do(func(i int) { // the root says of itself that it does not carry the group, and that it does
		if g := b2.groups.Seen("g1"); g != nil && g.Branch != nil {
			b := g.Branch
			_, _ = b2.Branches.PutBranch(t.Context(), "b1", "g1", api.Branch{
				Registration: api.Registration, Root: b.Root, Epoch: b.Epoch, Visited: b.Visited, Version: b.Version, Link: b.Link,
				Lease: 60, Within: 1, Problem: []string{"", "its disk is full"}[i%2],
			})
		}
	})
	do(func(int) { // a program confirms
		_, _ = b2.Confirm("g1", []byte(`{"ip": "10.2.0.1", "qpn": 121, "state": "rts"}`))
	})
	doing.Wait()
	if g, err := b1.Group("g1"); err != nil || g.State == api.Failed {
		t.Errorf("%+v, %v", g.GroupSummary, err)
	}
}

// A program confirms, and the disk refuses it each time, while the box above changes the branch.
// Only the race detector notices what the two share.
func TestAProgramConfirmsWhileTheBranchChanges(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.1.0.2", "10.2.0.1"))
	b2, asked := f.box("b2"), f.asked
	b2.Store.SyncDir = func(string) error { return errors.New("the disk does not answer") }
	const times = 200
	var doing sync.WaitGroup
	doing.Go(func() {
		for range times {
			if _, err := b2.Confirm("g1", []byte(`{"ip": "10.2.0.1", "qpn": 121, "state": "rts"}`)); err == nil {
				t.Error("the disk has refused it, and it counts")
			}
		}
	})
	doing.Go(func() {
		for i := range times {
			next := asked
			next.Version += 1 + uint64(i)
			next.File = strings.Replace(next.File, "10.2.0.1", "10.2.0.9", i%2)
			if _, err := b2.Branches.PutBranch(t.Context(), "b1", "g1", next); err == nil || !strings.Contains(err.Error(), "disk") {
				t.Errorf("the disk refuses: %v", err)
			}
		}
	})
	doing.Wait()
	f.check("b1: 10.1.0.2 b2 | b2: 10.2.0.1")
}
