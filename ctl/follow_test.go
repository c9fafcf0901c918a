package ctl

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/internal/testlab"
)

// run starts the controller. From then on, Hops.Set returns when the controller has handled the
// change.
func (w *world) run(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	<-w.hops.Running()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestAMemberIsWaitedForAndThenReached(t *testing.T) {
	w := newWorld(t)
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.3": {Interface: 3, Reason: "the kernel is asking"}})
	w.run(t)
	g := w.create(t, g1)
	m := g.Members[2]
	if g.State != api.Waiting || g.WaitingCount != 1 || m.State != api.Waiting || m.Reason != "the kernel is asking" || m.Port != "" {
		t.Errorf("while it is unknown: %+v", g)
	}
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.3": ctltest.Hop(3, "eth3", 1500, 3)})
	g, _ = w.Group("g1")
	if g.State != api.Ready || g.Members[2].Port != "eth3" || g.Members[2].Reason != "" {
		t.Errorf("once it is known: %+v", g)
	}
	if p := w.sw.Table().Group(w.groups.Named("g1").ID).Paths[1]; p.Port != 2 {
		t.Errorf("published %+v", p)
	}
	w.expect(t, withG1)
}

func TestOnlyConcernedGroupsArePlannedAgain(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	other := strings.Replace(anotherGroup("g2", 2), "10.77.0.3", "10.77.0.4", 1)
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.4": ctltest.Hop(3, "eth3", 1500, 4)})
	w.create(t, other)
	w.run(t)
	for _, c := range []struct {
		name string
		addr string
		hop  nexthop.Hop
		want []string
	}{
		{"g1's receiver got another MAC", "10.77.0.3", ctltest.Hop(3, "eth3", 1500, 33), []string{"g1"}},
		{"g2's moved to another port", "10.77.0.4", ctltest.Hop(2, "eth2", 1500, 4), []string{"g2"}},
		{"the receiver of both", "10.77.0.2", ctltest.Hop(1, "eth1", 1500, 2), []string{"g1", "g2"}},
		{"only the MTU, which still fits", "10.77.0.2", ctltest.Hop(1, "eth1", 9000, 2), nil},
		{"nobody's", "10.77.0.77", ctltest.Hop(1, "eth1", 9000, 2), nil},
	} {
		w.hops.Set(map[string]nexthop.Hop{c.addr: c.hop})
		got := w.sw.Replaced()
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: replaced %v, want %v", c.name, got, c.want)
		}
	}
}

func TestTheIPFollowsTheMembersInterfaces(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.run(t)
	all := map[string]nexthop.Hop{}
	for i, addr := range []string{"10.77.0.1", "10.77.0.2", "10.77.0.3"} { // eth1 to eth3 became ports of bridge 9
		hop := ctltest.Hop(i+1, []string{"eth1", "eth2", "eth3"}[i], 1500, byte(i+1))
		hop.Interface = 9
		all[addr] = hop
	}
	w.hops.Set(all)
	w.expect(t, "table [g1], addresses [10.77.0.100@9 x1], tracking 3, files [g1.yaml]")
}

func TestAPortWhoseMTUShrankIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.run(t)
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.2": ctltest.Hop(2, "eth2", 576, 2)})
	g, _ := w.Group("g1")
	want := "10.77.0.2 is reached through eth2, whose MTU 576 cannot carry path MTU 1024; set it with ip link set eth2 mtu 1088"
	if m := g.Members[1]; m.State != api.Waiting || m.Reason != want {
		t.Errorf("%+v", m)
	}
}

func TestAReplaceThatFailsKeepsTheOldHops(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.run(t)
	w.sw.Refuse(context.DeadlineExceeded)
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.3": ctltest.Hop(1, "eth1", 1500, 3)})
	if g, _ := w.Group("g1"); g.Members[2].Port != "eth3" {
		t.Errorf("shown on %s, published on eth3", g.Members[2].Port)
	}
	if lines := w.logs.FilterMessage("could not publish new next hops; the group keeps its old ones").All(); len(lines) != 1 || lines[0].ContextMap()["group"] != "g1" {
		t.Errorf("logged %v", lines)
	}
	w.network.HopsChanged([]netip.Addr{netip.MustParseAddr("10.77.0.3")})
	if g, _ := w.Group("g1"); g.Members[2].Port != "eth1" {
		t.Errorf("the next change: on %s", g.Members[2].Port)
	}
}

// The published group does not change when the carrier is lost, so frames flow again with the
// carrier.
func TestAMemberBehindAPortWithoutACarrierWaits(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.run(t)
	down := ctltest.Hop(2, "eth2", 1500, 2)
	down.Down, down.Reason = true, "eth2 has no carrier"
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.2": down})
	g, _ := w.Group("g1")
	if m := g.Members[1]; g.State != api.Waiting || g.WaitingCount != 1 || m.State != api.Waiting || m.Reason != "eth2 has no carrier" || m.Port != "eth2" {
		t.Errorf("%+v", g)
	}
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.2": ctltest.Hop(2, "eth2", 1500, 2)})
	if g, _ := w.Group("g1"); g.State != api.Ready || g.WaitingCount != 0 {
		t.Errorf("with the carrier again: %+v", g)
	}
	if replaced := w.sw.Replaced(); len(replaced) != 0 {
		t.Errorf("replaced %v", replaced)
	}
	for _, message := range []string{"member unreachable; its frames flow again when the reason is gone", "member reachable"} {
		if got := w.logs.FilterMessage(message).Len(); got != 1 {
			t.Errorf("%q is logged %d times", message, got)
		}
	}
}

// Of each member, the log has what changed for it, and each thing once.
func TestWhatIsLoggedOfAMembersWay(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.run(t)
	asking, noRoute := nexthop.Hop{Interface: 3, Reason: "the kernel is asking"}, nexthop.Hop{Reason: "no route"}
	moved := ctltest.Hop(2, "eth2", 1500, 3)
	moved.Reason = "a hint"
	for _, c := range []struct {
		member string
		hop    nexthop.Hop
		want   string
	}{
		{"10.77.0.3", asking, "10.77.0.3 waits: the kernel is asking"},
		{"10.77.0.2", ctltest.Hop(2, "eth2", 1500, 22), "10.77.0.2 at eth2"},
		{"10.77.0.3", asking, ""},
		{"10.77.0.3", noRoute, "10.77.0.3 waits: no route"},
		{"10.77.0.3", ctltest.Hop(2, "eth2", 1500, 3), "10.77.0.3 at eth2"},
		{"10.77.0.3", moved, ""},
		{"10.77.0.3", ctltest.Hop(1, "eth1", 1500, 3), "10.77.0.3 at eth1"},
	} {
		w.logs.TakeAll()
		w.hops.Set(map[string]nexthop.Hop{c.member: c.hop})
		var got []string
		for _, line := range w.logs.All() {
			fields := line.ContextMap()
			switch {
			case fields["group"] != "g1":
				t.Errorf("logged %v", line)
			case line.Message == "member reachable":
				got = append(got, fmt.Sprintf("%s at %s", fields["member"], fields["port"]))
			default:
				got = append(got, fmt.Sprintf("%s waits: %s", fields["member"], fields["reason"]))
			}
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("logged %q, want %q", got, c.want)
		}
	}
}

// The members of restored groups do not wait for the kernel engine: it is loaded when all are back.
func TestTheEngineIsLoadedAfterTheGroupsAreRestored(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	if w.sw.Engaged.Load() {
		t.Error("the engine is loaded before the controller runs")
	}
	w.run(t)
	testlab.Eventually(t, testlab.Patience, "the engine is loaded", w.sw.Engaged.Load, nil)
}
