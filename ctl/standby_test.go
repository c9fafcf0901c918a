package ctl

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab/etcd"
)

var virtualIP = addr("10.1.0.200")

// followingFile is groupFile with an address that goes from box to box.
func followingFile(receivers ...string) string {
	return strings.Replace(groupFile(receivers...), "ip: 10.1.0.100\n", "ip: "+virtualIP.String()+"\naddressing: switch-ip\n", 1)
}

// pair is two boxes that reach the same hosts. The first one has the address.
func pair(t *testing.T) (b1, b2 *box) {
	t.Helper()
	f := newFabric(t, 2)
	b1, b2 = f.box("b1"), f.box("b2")
	b2.hops.CopyFrom(b1.hops)
	b1.addresses.Give(virtualIP, true)
	return b1, b2
}

// hearAddresses lets a box hear of its addresses, as Run does.
func (b *box) hearAddresses() {
	ctx, cancel := context.WithCancel(context.Background())
	ended, hears := make(chan struct{}), b.addresses.Hears()
	go func() { defer close(ended); _ = b.addresses.Run(ctx, nil, b.addressesChanged) }()
	b.f.t.Cleanup(func() { cancel(); <-ended })
	<-hears
}

func (b *box) root(name string) string { e, _ := b.Desired.Entry(name); return e.Root }

// The address of a group moves to a box that stands by while the box that had it is dead and its
// claim still lives. The box takes the group over at once, as after a restart, with the state of
// the members. When the first box comes back, it stands by.
func TestABoxTakesOverWithTheAddress(t *testing.T) {
	t.Parallel()
	cluster := etcd.Start(t, 1)
	b1, b2 := pair(t)
	stop := b1.share(cluster)
	b1.hearAddresses()
	if _, err := b1.Create(t.Context(), []byte(followingFile("10.1.0.2", "10.1.0.3"))); err != nil {
		t.Fatal(err)
	}
	b2.share(cluster)
	b2.hearAddresses()
	b2.eventually("it knows of the group", func() bool { return b2.root("g1") == "b1" })
	b1.newsOf("g1", feedback.NoteEvicted, "10.1.0.3", 1, 1007)
	b2.eventually("it knows who was evicted", func() bool { e, _ := b2.Desired.Entry("g1"); return strings.Contains(string(e.Members), "10.1.0.3") })
	if b2.groups["g1"] != nil {
		t.Error("b2 carries the group without its address")
	}
	stop(false)
	began := time.Now()
	b2.addresses.Give(virtualIP, true)
	b2.eventually("it has the group", b2.has("g1"))
	if took := time.Since(began); took > time.Second {
		t.Errorf("the take-over took %v", took)
	}
	if g := b2.published("g1"); !g.Restored || len(g.Paths) != 1 {
		t.Errorf("%+v", g)
	}
	b2.eventually("etcd knows", func() bool { return b2.root("g1") == "b2" })
	b1.restart(false, false)
	if b1.published("g1") == nil {
		t.Fatal("b1 has forgotten the group; the test shows nothing")
	}
	b1.share(cluster)
	b1.eventually("it stands by", b1.lacks("g1"))
	if got := b2.root("g1"); got != "b2" {
		t.Errorf("the root is %q", got)
	}
}

// Both boxes live. The address goes to the second box and comes back, and the first box does not go
// on with what it knew before: the other one may have carried packets.
func TestTheAddressGoesAndComesBack(t *testing.T) {
	t.Parallel()
	cluster := etcd.Start(t, 1)
	b1, b2 := pair(t)
	for _, b := range []*box{b1, b2} {
		b.share(cluster)
		b.hearAddresses()
	}
	if _, err := b2.Create(t.Context(), []byte(followingFile("10.1.0.2"))); err != nil {
		t.Fatal(err)
	}
	if g := b1.published("g1"); g == nil || g.Restored {
		t.Fatalf("%+v", g)
	}
	b1.addresses.Give(virtualIP, false)
	b1.eventually("it has let go", b1.lacks("g1"))
	b2.eventually("no box is the root", func() bool { return b2.root("g1") == "" })
	b2.addresses.Give(virtualIP, true)
	b2.eventually("it is the root", func() bool { return b2.root("g1") == "b2" && b2.published("g1").Restored })
	b2.addresses.Give(virtualIP, false)
	b1.addresses.Give(virtualIP, true)
	b1.eventually("it is the root", func() bool { return b1.root("g1") == "b1" && b1.published("g1") != nil && b1.published("g1").Restored })
	b2.eventually("it has let go", b2.lacks("g1"))
}

// The address is away so shortly that the box finds it there when it looks.
func TestTheAddressIsAwayShortly(t *testing.T) {
	t.Parallel()
	cluster := etcd.Start(t, 1)
	b1, _ := pair(t)
	b1.share(cluster)
	b1.hearAddresses()
	if _, err := b1.Create(t.Context(), []byte(followingFile("10.1.0.2"))); err != nil {
		t.Fatal(err)
	}
	unlock, _, err := b1.names.lock(t.Context(), "g1", "")
	if err != nil {
		t.Fatal(err)
	}
	b1.addresses.Give(virtualIP, false)
	b1.addresses.Give(virtualIP, true)
	unlock()
	b1.eventually("it begins again as after a restart", func() bool { g := b1.published("g1"); return g != nil && g.Restored })
}

// etcd has died with the first box. The second one takes the group over all the same, and says so
// when etcd is back, although the first box's claim still lives then.
func TestABoxTakesOverWithoutEtcd(t *testing.T) {
	t.Parallel()
	cluster := etcd.Start(t, 1)
	b1, b2 := pair(t)
	stop := b1.share(cluster)
	if _, err := b1.Create(t.Context(), []byte(followingFile("10.1.0.2"))); err != nil {
		t.Fatal(err)
	}
	b2.share(cluster)
	b2.hearAddresses()
	b2.eventually("it knows of the group", func() bool { return b2.root("g1") == "b1" })
	cluster.Kill(t, 0)
	stop(false)
	b2.addresses.Give(virtualIP, true)
	b2.eventually("it has the group", b2.has("g1"))
	b2.eventually("etcd does not know", func() bool { return b2.groups["g1"].untold })
	cluster.Restart(t, 0)
	b2.eventually("etcd knows", func() bool { return b2.root("g1") == "b2" && !b2.groups["g1"].untold })
	if len(b2.logs.FilterMessage("group removed").All()) > 0 {
		t.Error("the group was interrupted")
	}
}
