package ctl

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/desired"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/etcd"
)

// Some rules are for new groups alone. A group that exists may break them: an older release has
// made it, or its network is another one now. It goes on when its box starts again, when another
// box takes it over, and when a box behind has lost its part.

// A running group has a silent-after that a new group is refused for, and is idle. Another box
// takes it over, with its boxes behind it.
func TestAGroupWithAShortSilentAfterIsTakenOver(t *testing.T) {
	t.Parallel()
	cluster := etcd.Start(t, 1)
	f := newFabric(t, 4, "b1 b2", "b2 b3", "b3 b4")
	b1, b2, b3 := f.box("b1"), f.box("b2"), f.box("b3")
	for n := 2; n <= 4; n++ {
		b1.route(n, "b2")
	}
	b2.route(3, "b3")
	b2.route(4, "b3")
	b3.route(4, "b4")
	b2.hops.Set(map[string]nexthop.Hop{"10.1.0.1": b1.hops.Hop(addr("10.1.0.1"))})
	text := evicting(groupFile("10.2.0.1", "10.3.0.1", "10.4.0.1"))
	stop := b1.share(cluster)
	b1.create(t, text)
	e, _ := b1.Desired.Entry("g1")
	stop(false)
	older, err := desired.Open(desired.Config{Endpoints: cluster.Endpoints(), Prefix: "/lab", Box: "b9", Lease: time.Minute}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer older.Close()
	if _, err := older.Update(t.Context(), "g1", []byte(strings.Replace(text, "silent-after: 1s", "silent-after: 19ms", 1)), e.Revision); err != nil {
		t.Fatal(err)
	}
	b2.share(cluster)
	b2.eventually("it is the root", func() bool { g := b2.groups.Named("g1"); return g != nil && g.Branch == nil && g.Problem == "" })
	const whole = "b2: 10.2.0.1 b3 | b3: 10.3.0.1 b4 | b4: 10.4.0.1"
	if got := f.shape(); !strings.HasSuffix(got, whole) {
		t.Errorf("the tree is %s", got)
	}
	b3.restart(false, true)
	testlab.Eventually(t, 20*time.Second, "b3 has its part again", func() bool {
		b2.due("g1")
		b2.Branches.Tend(t.Context(), b2.groups.Named("g1")) // which does nothing while another change is under way
		return strings.HasSuffix(f.shape(), whole)
	}, f.shape)
}

// narrow lets a host be behind a port of a box whose MTU is too small for the group.
func (b *box) narrow(ip string) {
	b.hops.Set(map[string]nexthop.Hop{ip: ctltest.Hop(2, "eth2", 1000, 9)})
	b.network.HopsChanged([]netip.Addr{addr(ip)})
}

// waitsFor checks that a box carries the group, and waits for a member alone.
func (b *box) waitsFor(when, ip string) {
	b.f.t.Helper()
	g, err := b.Group("g1")
	if err != nil {
		b.f.t.Errorf("%s: %v", when, err)
		return
	}
	for _, m := range g.Members {
		if waits := m.State == api.Waiting; waits != (m.IP == ip) {
			b.f.t.Errorf("%s: %s: %+v", when, m.IP, m.Reach)
		}
	}
}

// One member is behind a port whose MTU became too small. A new group would be refused for that.
func TestAGroupIsTakenOverWithAPortThatIsTooSmall(t *testing.T) {
	t.Parallel()
	cluster, b1, b2, stop := rivals(t, groupFile("10.1.0.2", "10.1.0.3"))
	stop(false)
	b1.restart(false, false)
	b1.narrow("10.1.0.3")
	b1.waitsFor("after a restart", "10.1.0.3")
	b2.narrow("10.1.0.3")
	b2.share(cluster)
	b2.eventually("it has the group", b2.has("g1"))
	b2.waitsFor("after it was taken over", "10.1.0.3")
}

// The same at a box behind, which starts again with and without its state.
func TestABoxCarriesItsPartAgainWithAPortThatIsTooSmall(t *testing.T) {
	for _, forgets := range []bool{false, true} {
		f, b1, b2 := twoBoxes(t)
		f.create(groupFile("10.1.0.2", "10.2.0.1", "10.2.0.2"))
		b2.narrow("10.2.0.2")
		b2.restart(false, forgets)
		b2.narrow("10.2.0.2")
		b1.due("g1")
		b1.Branches.Tend(t.Context(), b1.groups.Named("g1"))
		b2.waitsFor(map[bool]string{false: "after a restart", true: "without its state"}[forgets], "10.2.0.2")
		if l := b1.groups.Named("g1").Links[0]; l.Problem != "" {
			t.Errorf("without its state %v: %s", forgets, l.Problem)
		}
		if err := b1.Remove("g1"); err != nil {
			t.Fatal(err)
		}
		f.refused(groupFile("10.1.0.2", "10.2.0.1", "10.2.0.2"), "whose MTU 1000 cannot carry path MTU 1024")
	}
}
