package ctl

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/desired"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/shared"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab/etcd"
)

var virtualIP = addr("10.1.0.200")

// followingFile is groupFile with an address that goes from box to box.
func followingFile(receivers ...string) string {
	return strings.Replace(groupFile(receivers...), "ip: 10.1.0.100\n", "ip: "+virtualIP.String()+"\naddressing: switch-ip\n", 1)
}

// A group that goes with its address has all its members at the box that has the address. Where
// boxes do not share their groups, the address stays, and a group with it may pass other boxes.
func TestAGroupThatFollowsItsAddressPassesNoBox(t *testing.T) {
	f := newTree(t)
	b1 := f.box("b1")
	b1.addresses.Give(virtualIP, true)
	file, err := groupfile.Parse([]byte(followingFile("10.1.0.2", "10.3.0.1")))
	if err != nil {
		t.Fatal(err)
	}
	b1.shared = new(shared.Shared)
	const want = "line 3: addressing is switch-ip, so with store: etcd the group goes with its address from box to box, and some members are behind " +
		"other boxes; use addressing: group-ip"
	if err := b1.Branches.Stand(t.Context(), groups.New(file, true), nil); err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	if err := b1.Branches.Stand(t.Context(), groups.New(file, false), nil); err != nil { // that of a connection by RDMA-CM
		t.Error(err)
	}
	if err := b1.Remove("g1"); err != nil {
		t.Error(err)
	}
	b1.shared = nil
	f.create(followingFile("10.1.0.2", "10.3.0.1"))
	f.check("b1: 10.1.0.2 b2 | b2: b3 | b3: 10.3.0.1")
}

// longLease is much longer than a take-over with the address takes.
const longLease = 10 * time.Second

// pair is two boxes that reach the same hosts. The first one has the address.
func pair(t *testing.T) (b1, b2 *box) {
	t.Helper()
	b1, b2 = twins(t)
	b1.addresses.Give(virtualIP, true)
	return b1, b2
}

// twins returns two boxes that reach all hosts by the same ways.
func twins(t *testing.T) (b1, b2 *box) {
	t.Helper()
	f := newFabric(t, 2)
	b1, b2 = f.box("b1"), f.box("b2")
	b2.hops.CopyFrom(b1.hops)
	return b1, b2
}

// hearAddresses lets a box hear of its addresses, as Run does.
func (b *box) hearAddresses() {
	ctx, cancel := context.WithCancel(context.Background())
	ended, hears := make(chan struct{}), b.addresses.Hears()
	go func() { defer close(ended); _ = b.addresses.Run(ctx, nil, b.addressesChanged, nil) }()
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
	stop := b1.shareFor(cluster, longLease)
	b1.hearAddresses()
	b1.create(t, followingFile("10.1.0.2", "10.1.0.3"))
	stop2 := b2.shareFor(cluster, longLease)
	b2.hearAddresses()
	b2.eventually("it knows of the group", func() bool { return b2.root("g1") == "b1" })
	b1.newsOf("g1", feedback.NoteEvicted, "10.1.0.3", 1, 1007)
	b2.eventually("it knows who was evicted", func() bool { e, _ := b2.Desired.Entry("g1"); return strings.Contains(string(e.Members), "evicted") })
	if b2.groups.Named("g1") != nil {
		t.Error("b2 carries the group without its address")
	}
	stop(false)
	began := time.Now()
	b2.addresses.Give(virtualIP, true)
	b2.eventually("it has the group", b2.has("g1"))
	if took := time.Since(began); took > longLease/3 {
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
	stop = b1.share(cluster)
	b1.eventually("it stands by", b1.lacks("g1"))
	if got := b2.root("g1"); got != "b2" {
		t.Errorf("the root is %q", got)
	}
	stop(true)
	stop2(false)
	b1.restart(true, false)
	b1.addresses.Give(virtualIP, true) // it came while the daemon did not run
	began = time.Now()
	b1.share(cluster)
	b1.eventually("it has the group", b1.has("g1"))
	if took := time.Since(began); took > longLease/3 {
		t.Errorf("with the address at its start, the box took the group after %v", took)
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
	b2.create(t, followingFile("10.1.0.2"))
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
	b1.create(t, followingFile("10.1.0.2", "10.1.0.3"))
	b1.sw.Part(b1.published("g1").ID, "10.1.0.3", feedback.PartGone) // and etcd has not heard
	unlock, _, err := b1.groups.Names.Lock(t.Context(), "g1", "")
	if err != nil {
		t.Fatal(err)
	}
	b1.addresses.Give(virtualIP, false)
	b1.addresses.Give(virtualIP, true)
	unlock()
	b1.eventually("it begins again as after a restart", func() bool {
		g := b1.published("g1")
		return g != nil && g.Restored && len(g.Paths) == 1
	})
}

// slowEtcd answers take-overs only when told to.
type slowEtcd struct {
	shared.Desired
	answers chan struct{}
}

func (s slowEtcd) TakeOver(ctx context.Context, name string, e desired.Entry) (bool, error) {
	select {
	case <-s.answers:
		return s.Desired.TakeOver(ctx, name, e)
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// However many groups there are, none waits until etcd has answered about another one.
func TestNoTakeOverWaitsForEtcd(t *testing.T) {
	t.Parallel()
	const last = 20 // more than are set up at the same time
	cluster := etcd.Start(t, 1)
	b1, b2 := pair(t)
	answers := make(chan struct{})
	b2.through = func(d shared.Desired) shared.Desired { return slowEtcd{d, answers} }
	stop := b1.share(cluster)
	for i := 1; i <= last; i++ {
		file := strings.NewReplacer("name: g1", fmt.Sprint("name: g", i), "qpn: 1\n", fmt.Sprintf("qpn: %d\n", 10+i),
			"qpn: 17", fmt.Sprint("qpn: ", 1000+i), "qpn: 112", fmt.Sprint("qpn: ", 2000+i)).Replace(followingFile("10.1.0.2"))
		b1.create(t, file)
	}
	b2.share(cluster)
	b2.hearAddresses()
	b2.eventually("it knows of the groups", func() bool { return b2.root(fmt.Sprint("g", last)) == "b1" })
	stop(false)
	b2.addresses.Give(virtualIP, true)
	b2.eventually("it has all groups", func() bool { return len(b2.groups.SeenNames()) == last })
	close(answers)
	b2.eventually("etcd knows", func() bool {
		for name := range b2.groups.All() {
			if b2.root(name) != "b2" {
				return false
			}
		}
		return true
	})
}

// countedEtcd counts the take-overs that were tried.
type countedEtcd struct {
	shared.Desired
	tries *atomic.Int64
}

func (c countedEtcd) TakeOver(ctx context.Context, name string, e desired.Entry) (bool, error) {
	defer c.tries.Add(1)
	return c.Desired.TakeOver(ctx, name, e)
}

// etcd has died with the first box. The second one takes the group over all the same, and says so
// when etcd is back, although the first box's claim still lives then.
func TestABoxTakesOverWithoutEtcd(t *testing.T) {
	t.Parallel()
	cluster := etcd.Start(t, 1)
	b1, b2 := pair(t)
	var tries atomic.Int64
	b2.through = func(d shared.Desired) shared.Desired { return countedEtcd{d, &tries} }
	stop := b1.share(cluster)
	b1.create(t, followingFile("10.1.0.2"))
	b2.share(cluster)
	b2.hearAddresses()
	b2.eventually("it knows of the group", func() bool { return b2.root("g1") == "b1" })
	cluster.Kill(t, 0)
	stop(false)
	b2.addresses.Give(virtualIP, true)
	b2.eventually("it has the group", b2.has("g1"))
	const inVain = "this box carries a group whose address it has, and could not tell the other boxes; rocastd tries again"
	b2.eventually("it has tried more than once", func() bool { return tries.Load() > 1 })
	if n := b2.logs.FilterMessage(inVain).Len(); n != 1 {
		t.Errorf("it was logged %d times", n)
	}
	cluster.Restart(t, 0)
	b2.eventually("etcd knows", func() bool { return b2.root("g1") == "b2" })
	if len(b2.logs.FilterMessage("group removed").All()) > 0 {
		t.Error("the group was interrupted")
	}
}
