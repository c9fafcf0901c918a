package ctl

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/branches"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

func idOf(ip string) groupfile.ID { return groupfile.ID{IP: addr(ip), RemoteQPN: 1} }

// Receivers leave only when all that join have joined: until then the change can be taken back, and
// a receiver that had left would have to join again.
func TestNobodyLeavesBeforeAllHaveJoined(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.1.0.2", "10.3.0.1", "10.3.0.2"))
	f.box("b4").sw.Refuse(errors.New("the classifier is full"))
	_, err := f.box("b1").Update(t.Context(), "g1", []byte(groupFile("10.1.0.2", "10.3.0.1", "10.3.0.3", "10.4.0.1")))
	if err == nil {
		t.Fatal("updated")
	}
	f.check("b1: 10.1.0.2 b2 | b2: b3 | b3: 10.3.0.1 10.3.0.2")
	if s := f.box("b3").groups.Named("g1").Past.Standing(idOf("10.3.0.2")); s != "" {
		t.Errorf("the receiver that stays is %q", s)
	}
	f.box("b1").update(t, groupFile("10.1.0.2", "10.3.0.1", "10.3.0.3", "10.4.0.1"))
	f.check("b1: 10.1.0.2 b2 | b2: b3 b4 | b3: 10.3.0.1 10.3.0.3 | b4: 10.4.0.1")
}

// An update that cannot be stored or published at the root is taken back at the boxes behind it.
func TestAnUpdateThatFailsAtTheRootIsTakenBack(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.1.0.2", "10.3.0.1"))
	for _, fail := range []func() (mend func()){
		func() func() { f.box("b1").sw.Refuse(errors.New("the classifier is full")); return func() {} },
		func() func() {
			inTheWay := filepath.Join(f.box("b1").dir, "groups", ".g1.tree.new")
			if err := os.MkdirAll(filepath.Join(inTheWay, "x"), 0o700); err != nil {
				t.Fatal(err)
			}
			return func() { os.RemoveAll(inTheWay) }
		},
	} {
		mend := fail()
		if _, err := f.box("b1").Update(t.Context(), "g1", []byte(groupFile("10.1.0.2", "10.3.0.1", "10.3.0.2", "10.2.0.1"))); err == nil {
			t.Fatal("updated")
		}
		mend()
		f.check("b1: 10.1.0.2 b2 | b2: b3 | b3: 10.3.0.1")
	}
	if text, err := f.box("b1").Store.Get("g1"); err != nil || string(text) != groupFile("10.1.0.2", "10.3.0.1") {
		t.Errorf("stored is %s, %v", text, err)
	}
}

// A restart after an update finds the links as the update has left them.
func TestTheRootRestartsAfterAnUpdate(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.1.0.2", "10.3.0.1", "10.3.0.2"))
	f.box("b1").update(t, groupFile("10.1.0.2", "10.3.0.1", "10.4.0.1"))
	const want = "b1: 10.1.0.2 b2 | b2: b3 b4 | b3: 10.3.0.1 | b4: 10.4.0.1"
	f.check(want)
	for _, name := range []string{"b1", "b2"} {
		f.box(name).restart(true, false)
		f.tendAll(time.Now())
		f.check(want)
	}
	if later := f.box("b1").groups.Named("g1").Links[0].Later; len(later) != 1 || later[0].ID != idOf("10.4.0.1") {
		t.Errorf("joined later: %v", later)
	}
}

// Routes may change and receivers may join in one update, before the leases are looked at.
func TestAnUpdateFollowsTheRoutesFirst(t *testing.T) {
	f := newFabric(t, 4, "b1 b2", "b1 b3", "b2 b4", "b3 b4")
	b1 := f.box("b1")
	b1.route(4, "b2")
	f.box("b2").route(4, "b4")
	f.box("b3").route(4, "b4")
	f.create(groupFile("10.1.0.2", "10.4.0.1"))
	b1.sw.Carry("g1", 1005)
	b1.route(4, "b3")
	b1.update(t, groupFile("10.1.0.2", "10.4.0.1", "10.4.0.2"))
	f.check("b1: 10.1.0.2 b3 | b3: b4 | b4: 10.4.0.1 10.4.0.2")
	if s := f.box("b4").groups.Named("g1").Past.Standing(idOf("10.4.0.2")); s != chronicle.Joining {
		t.Errorf("the new receiver is %q", s)
	}
	if s := f.box("b4").groups.Named("g1").Past.Standing(idOf("10.4.0.1")); s != "" {
		t.Errorf("the old receiver is %q", s)
	}
	// One that is still joining and moves together with others takes no part any more: whether its
	// QP got a packet is known to the old box only.
	b1.route(4, "b2")
	b1.network.HopsChanged([]netip.Addr{addr("10.4.0.1")})
	f.tendAll(time.Now())
	if m := f.box("b4").part(t, "10.4.0.2"); m.State != api.LeftOut || m.Part != "lost" {
		t.Errorf("%+v", m)
	}
	if m := f.box("b4").part(t, "10.4.0.1"); m.State != api.Ready {
		t.Errorf("%+v", m)
	}
}

// newFork returns a box b1 with a group whose one distant receiver is behind b2. The same receiver
// can be reached by b3.
func newFork(t *testing.T) (*fabric, *box) {
	f := newFabric(t, 3, "b1 b2", "b1 b3")
	b1 := f.box("b1")
	b1.route(8, "b2")
	for _, name := range []string{"b2", "b3"} {
		f.box(name).hops.Set(map[string]nexthop.Hop{"10.8.0.1": b1.hops.Hop(addr("10.1.0.2"))})
	}
	f.create(groupFile("10.1.0.2", "10.8.0.1"))
	return f, b1
}

// newLeaves returns a fabric in which the hosts of b2 and b3 are behind these boxes, with the group
// of a text at b1, whose source has sent packets up to 1005.
func newLeaves(t *testing.T, text string) (f *fabric, b1, b2 *box) {
	t.Helper()
	f = newFabric(t, 3, "b1 b2", "b1 b3")
	b1, b2 = f.box("b1"), f.box("b2")
	b1.route(2, "b2")
	b1.route(3, "b3")
	if strings.Contains(text, "ack: quorum") {
		f.createMerging(text)
	} else {
		f.create(text)
	}
	b1.sw.Carry("g1", 1005)
	return f, b1, b2
}

// A move that fails leaves the group as it is, and is tried again.
func TestAMoveThatFailsIsTriedAgain(t *testing.T) {
	f, b1 := newFork(t)
	b1.route(8, "b3")
	f.cuts(func(_, to, _ string) (bool, bool) { return to != "b3", to != "b3" })
	b1.network.HopsChanged([]netip.Addr{addr("10.8.0.1")})
	f.tendAll(time.Now())
	f.tendAll(time.Now())
	f.check2("b1: 10.1.0.2 b2 | b2: 10.8.0.1")
	if n := b1.logs.FilterMessageSnippet("could not follow them").Len(); n != 1 {
		t.Errorf("logged %d times", n)
	}
	if g, _ := b1.Group("g1"); g.State != api.Degraded || g.Reason != "box b3: it does not answer (timeout)" {
		t.Errorf("%+v", g.GroupSummary)
	}
	b1.expectEvents(t, "group-created g1: ", "degraded g1: it cannot follow its routes: box b3: it does not answer (timeout)")
	f.cuts(nil)
	f.tendAll(time.Now())
	f.check2("b1: 10.1.0.2 b3 | b3: 10.8.0.1")
	if g, _ := b1.Group("g1"); g.State != api.Ready || g.Reason != "" {
		t.Errorf("%+v", g.GroupSummary)
	}
	b1.expectEvents(t, "route-changed g1: some of its members are reached by another way now",
		"restored g1: its members are where their routes lead again")
}

// A source that has switched cannot be followed after a restart, so the paths stay.
func TestAGroupWhoseSourceHasSwitchedDoesNotMove(t *testing.T) {
	f := newFabric(t, 3, "b1 b2", "b1 b3")
	b1 := f.box("b1")
	b1.route(8, "b2")
	f.create(groupFile("10.1.0.2", "10.8.0.1"))
	b1.edit("g1", func(g *groups.Group) { g.Past.Switched = true })
	b1.route(8, "b3")
	b1.network.HopsChanged([]netip.Addr{addr("10.8.0.1")})
	f.tendAll(time.Now())
	f.check2("b1: 10.1.0.2 b2 | b2: 10.8.0.1")
}

// Members may come to this box, and go behind another one.
func TestAMemberMovesToThisBoxAndAway(t *testing.T) {
	f := newFabric(t, 2, "b1 b2")
	b1 := f.box("b1")
	b1.route(8, "b2")
	f.create(groupFile("10.1.0.2", "10.8.0.1"))
	b1.hops.Set(map[string]nexthop.Hop{"10.8.0.1": b1.hops.Hop(addr("10.1.0.2"))})
	b1.network.HopsChanged([]netip.Addr{addr("10.8.0.1")})
	f.tendAll(time.Now())
	f.check("b1: 10.1.0.2 10.8.0.1")
	if f.box("b2").groups.Named("g1") != nil {
		t.Error("b2 still has the group")
	}
	b1.route(8, "b2")
	b1.network.HopsChanged([]netip.Addr{addr("10.8.0.1")})
	f.tendAll(time.Now())
	f.check("b1: 10.1.0.2 b2 | b2: 10.8.0.1")
}

// Boxes behind that do not answer keep a box busy, and it answers its upper box all the same.
func TestARenewalDoesNotWaitForAChange(t *testing.T) {
	f := newTree(t)
	f.create(groupFile(everywhere...))
	unlock, _, err := f.box("b2").groups.Names.Lock(t.Context(), "g1", "b1")
	if err != nil {
		t.Fatal(err)
	}
	f.box("b1").due("g1")
	f.box("b1").Branches.Tend(t.Context(), f.box("b1").groups.Named("g1"))
	if l := f.box("b1").groups.Named("g1").Links[0]; l.Problem != "" || l.Asked.IsZero() {
		t.Errorf("%+v", l)
	}
	unlock()
}

// A whole box may be evicted, as any receiver. Nobody joins behind it then.
func TestALinkThatIsEvicted(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.1.0.2", "10.3.0.1"))
	b1 := f.box("b1")
	l := b1.groups.Named("g1").Links[0]
	b1.news(feedback.NoteEvicted, l.Remote.IP, mftQPN(l.Local.QPN), 1007)
	g, err := b1.Group("g1")
	if err != nil || g.Links[0].State != api.LeftOut || !strings.HasPrefix(g.Links[0].Reason, "evicted: it lacks the source's PSN 1007") {
		t.Errorf("%+v, %v", g.Links, err)
	}
	_, err = b1.Update(t.Context(), "g1", []byte(groupFile("10.1.0.2", "10.3.0.1", "10.3.0.2")))
	if want := "box b2 takes no part in the group any more (evicted), so nobody can join behind it; update the group without the members behind that box, and then with them"; err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	b1.update(t, groupFile("10.1.0.2"))
	b1.update(t, groupFile("10.1.0.2", "10.3.0.1", "10.3.0.2"))
	f.check("b1: 10.1.0.2 b2 | b2: b3 | b3: 10.3.0.1 10.3.0.2")
}

// The box above goes on without a box where one receiver is about to join, because the last other
// one there was silent or has refused a message. The one that joins is named, the box there hears
// at once that nobody there gets data, and can carry the receiver when the group was updated.
func TestWhoJoinsBehindABoxThatIsEvictedIsNamed(t *testing.T) {
	f, b1, b2 := twoBoxes(t)
	f.create(evicting(groupFile("10.1.0.2", "10.2.0.1", "10.2.0.2")))
	for _, b := range f.boxes {
		b.sw.Progress("g1", 1000, 999, nil)
	}
	b1.update(t, evicting(groupFile("10.1.0.2", "10.2.0.1", "10.2.0.2", "10.2.0.3", "10.2.0.4")))
	b2.joins("10.2.0.3", 1001)
	f.renewAll()
	b1.happened()
	b2.happened()
	l := b1.groups.Named("g1").Links[0]
	b1.news(feedback.NoteEvicted, l.Remote.IP, mftQPN(l.Local.QPN), 1003)
	const out = "box b2 takes no part in the group any more (evicted), so nobody there gets data; update the group without the members behind that box, " +
		"and then with them and the psn that their QPs expect"
	b1.expectEvents(t, "member-evicted g1 10.9.0.2: evicted: it lacks the source's PSN 1003 and what follows; to let it join again, group update without it, "+
		"then with it and the psn its QP expects (PSN 1003)", "member-evicted g1 10.2.0.4: it was about to join: "+out+" (PSN 1003)")
	f.tendAll(time.Now())
	b2.expectEvents(t, "neighbour-down g1 b1: "+out)
	if state, reason := b2.state(); state != api.Degraded || reason != "box b1, from which its data comes: "+out {
		t.Errorf("b2 is %s: %s", state, reason)
	}
	b1.update(t, evicting(groupFile("10.1.0.2")))
	b1.update(t, evicting(groupFile("10.1.0.2", "10.2.0.4")))
	f.check("b1: 10.1.0.2 b2 | b2: 10.2.0.4")
	if state, reason := b2.state(); state != api.Ready {
		t.Errorf("b2 is %s: %s", state, reason)
	}
}

// A group that was withdrawn where it was not is no reason for a warning.
func TestAWithdrawalThatFindsNothingIsNotLogged(t *testing.T) {
	f := newTree(t)
	f.box("b4").sw.Refuse(errors.New("the classifier is full"))
	f.refused(groupFile(everywhere...), "the classifier is full")
	for _, b := range f.boxes {
		if lines := b.logs.FilterMessageSnippet("could not withdraw").All(); len(lines) > 0 {
			t.Errorf("%s: %v", b.name, lines)
		}
	}
	f.create(groupFile(everywhere...))
	f.cuts(func(_, to, method string) (bool, bool) { return method != "DELETE" || to != "b2", true })
	if err := f.box("b1").Remove("g1"); err != nil {
		t.Fatal(err)
	}
	if n := f.box("b1").logs.FilterMessageSnippet("could not withdraw").Len(); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

// Programs tell a name that is taken from a failure.
func TestTheKindOfARefusalComesThrough(t *testing.T) {
	f := newTree(t)
	f.box("b3").create(t, strings.NewReplacer("10.1.0.1,", "10.3.0.1,", "qpn: 17", "qpn: 99").Replace(groupFile("10.3.0.2")))
	for receivers, want := range map[string]api.Kind{"10.3.0.4": api.Exists, "10.2.0.1": api.Internal} {
		if want == api.Internal {
			f.box("b2").sw.Refuse(errors.New("the classifier is full"))
		}
		_, err := f.box("b1").Create(t.Context(), []byte(groupFile(receivers)))
		if e := (*api.Error)(nil); !errors.As(err, &e) || e.Kind != want {
			t.Errorf("%s: %v", receivers, err)
		}
	}
}

// The refusal of a box may quote the group file, and so an R_Key. Only the answer to the user who
// sent the file says all of it.
func TestARefusalTellsNoRKey(t *testing.T) {
	const secret = "0xdeadbeef"
	for kind, isTold := range map[api.Kind]bool{api.BadFile: false, api.Internal: false, api.Exists: true, api.BadRequest: true} {
		f, b1 := newFork(t)
		refusing := ""
		f.refuse = func(to, _ string) *api.Error {
			if to != refusing {
				return nil
			}
			return api.Errorf(kind, "rkey %s is no number", secret)
		}
		check := func(what, told string) {
			t.Helper()
			if want := "refuses its part"; strings.Contains(told, secret) != isTold || strings.Contains(told, want) == isTold {
				t.Errorf("%s, %s: %s", kind, what, told)
			}
		}
		all := func() string {
			var b strings.Builder
			for _, box := range f.boxes {
				for _, e := range box.logs.TakeAll() {
					fmt.Fprintln(&b, e.Message, e.ContextMap())
				}
				fmt.Fprintln(&b, box.happened())
			}
			return b.String()
		}

		refusing = "b2" // its part of the running group
		all()
		b1.due("g1")
		f.tendAll(time.Now())
		check("a renewal", all())
		g, _ := b1.Group("g1")
		check("a link", g.Links[0].Reason)
		tree, _ := b1.Tree(t.Context(), "g1")
		check("the tree", tree.Below[0].Reason)

		refusing = "b3" // a move
		b1.route(8, "b3")
		b1.network.HopsChanged([]netip.Addr{addr("10.8.0.1")})
		f.tendAll(time.Now())
		check("a move", all())
		g, _ = b1.Group("g1")
		check("a group", g.Reason)

		refusing = "b2" // what ends
		if err := b1.Remove("g1"); err != nil {
			t.Fatal(err)
		}
		check("a withdrawal", all())

		b1.route(8, "b2")
		_, err := b1.Create(t.Context(), []byte(groupFile("10.1.0.2", "10.8.0.1")))
		if err == nil || !strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the user reads %v", kind, err)
		}
		if e := (*api.Error)(nil); !errors.As(err, &e) || e.Kind != kind && kind != api.BadRequest {
			t.Errorf("%s: the user's error is of kind %s", kind, e.Kind)
		}
		check("a registration", all())
	}
}

// Where a box has no address towards a neighbour, that is said, and local: helps.
func TestALinkNeedsAnAddress(t *testing.T) {
	f := newTree(t)
	b1 := f.box("b1")
	hop := b1.hops.Hop(linkIP(2))
	without := hop
	without.Source, without.Reason = netip.Addr{}, "no route to 10.9.0.2"
	b1.hops.Set(map[string]nexthop.Hop{"10.9.0.2": without})
	f.refused(groupFile(everywhere...), "box b1 has no address towards neighbour b2 (no route to 10.9.0.2); add a route to 10.9.0.2, or local: to the neighbour in the config")
	b1.Branches.Neighbours[0].Local = linkIP(1)
	f.create(groupFile(everywhere...))
	f.check(wholeTree)
}

// A failing group of a tree is said at the root.
func TestTheRootSaysThatABranchFailed(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.1.0.2", "10.4.0.1"))
	b4 := f.box("b4")
	b4.edit("g1", func(g *groups.Group) { g.Problem = "the classifier is full" })
	for _, name := range []string{"b2", "b1"} {
		b := f.box(name)
		b.due("g1")
		b.Branches.Tend(t.Context(), b.groups.Named("g1"))
	}
	if g, _ := f.box("b1").Group("g1"); g.State != api.Waiting || g.Reason != "box b4: the classifier is full" {
		t.Errorf("%+v", g.GroupSummary)
	}
}

// A member that is written as the other end of a link is no member behind a box, wherever its route
// leads.
func TestALinkThatIsWrittenByHandStays(t *testing.T) {
	f := newTree(t)
	b1 := f.box("b1")
	b1.route(8, "b2")
	f.create(strings.Replace(groupFile("10.1.0.2", "10.8.0.1"), "psn: 81", "psn: 81, remoteIP: 10.9.0.1, remoteQPN: 900", 1))
	if got := f.shape(); got != "b1: 10.1.0.2 10.8.0.1" {
		t.Error(got)
	}
}

// Routes that a branch may not use, because they lead back, are no other way.
func TestAWayBackIsNoOtherWay(t *testing.T) {
	f := newTree(t)
	f.create(groupFile(everywhere...))
	b2 := f.box("b2")
	b2.route(3, "b1", "b3")
	b2.network.HopsChanged([]netip.Addr{addr("10.3.0.1")})
	if b2.isUnsettled() {
		t.Error("it is planned again")
	}
	// The only way leads back: the group stays as it is, and that is said.
	b2.route(3, "b1")
	b2.network.HopsChanged([]netip.Addr{addr("10.3.0.1")})
	f.tendAll(time.Now())
	f.check2(wholeTree)
	if g, _ := b2.Group("g1"); g.State != api.Degraded || !strings.Contains(g.Reason, "the way to 10.3.0.1 leads from box b2 back to box b1") {
		t.Errorf("%+v", g.GroupSummary)
	}
	b2.route(3, "b3")
	b2.network.HopsChanged([]netip.Addr{addr("10.3.0.1")})
	f.tendAll(time.Now())
	if g, _ := b2.Group("g1"); g.State != api.Ready || b2.isUnsettled() {
		t.Errorf("%+v", g.GroupSummary)
	}
}

// The receivers that a quorum counts behind a box become fewer when some leave, and never more.
func TestAQuorumNeverCountsMoreBehindABox(t *testing.T) {
	f := newTree(t)
	quorum := func(receivers ...string) string {
		return strings.Replace(groupFile(receivers...), "mtu: 1024", "mtu: 1024\nack: quorum 2", 1)
	}
	f.createMerging(quorum("10.1.0.2", "10.3.0.1", "10.3.0.2", "10.4.0.1"))
	for _, c := range []struct {
		receivers []string
		counts    uint16
	}{
		{[]string{"10.1.0.2", "10.3.0.1", "10.3.0.2", "10.4.0.1"}, 3}, {[]string{"10.1.0.2", "10.3.0.1", "10.4.0.1"}, 2},
		{[]string{"10.1.0.2", "10.3.0.1", "10.4.0.1", "10.4.0.2"}, 2},
	} {
		f.box("b1").update(t, quorum(c.receivers...))
		if got := f.box("b1").published("g1").Paths[1].Receivers; got != c.counts {
			t.Errorf("%v: the link counts as %d, want %d", c.receivers, got, c.counts)
		}
	}
}

// Only a group that spans boxes needs addressing group-ip.
func TestABoxWithNeighboursHasGroupsOfItsOwn(t *testing.T) {
	f := newTree(t)
	f.box("b1").addresses.Box[addr("10.1.0.100")] = true
	f.create(strings.Replace(groupFile("10.1.0.2"), "mtu:", "addressing: switch-ip\nmtu:", 1))
	if got := f.shape(); got != "b1: 10.1.0.2" {
		t.Error(got)
	}
}

// A branch that could not be restored is set up again by the next change.
func TestABranchThatFailedIsReplaced(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.1.0.2", "10.3.0.1"))
	b3 := f.box("b3")
	state := filepath.Join(b3.dir, "groups", "g1.state")
	if err := os.WriteFile(state, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b3.restart(false, false); b3.groups.Named("g1").Published != nil || b3.groups.Named("g1").Problem == "" {
		t.Fatal("the branch has not failed")
	}
	f.box("b1").update(t, groupFile("10.1.0.2", "10.3.0.1", "10.3.0.2"))
	f.check("b1: 10.1.0.2 b2 | b2: b3 | b3: 10.3.0.1 10.3.0.2")
	g := f.box("b3").groups.Named("g1")
	if !g.Restored || g.Past.Standing(idOf("10.3.0.2")) != chronicle.Joining {
		t.Errorf("restored %v, %+v", g.Restored, g.Past)
	}
}

// What an update cannot change makes another group of the branch.
func TestABranchWithOtherKeysIsReplaced(t *testing.T) {
	f := newFabric(t, 2, "b1 b2")
	b2 := f.box("b2")
	put := func(version uint64, mtu string, begun bool) {
		t.Helper()
		file := parsed(t, strings.Replace(groupFile("10.2.0.1"), "1024", mtu, 1))
		_, err := b2.Branches.PutBranch(t.Context(), "b1", "g1", api.Branch{
			Registration: api.Registration, Root: "b1", Epoch: 1, Visited: []string{"b1"}, Version: version, Lease: 60, Within: 1000, Begun: begun,
			Link: api.LinkEnd{IP: "10.9.0.1", QPN: 900, PSN: 5}, File: string(file.BranchText(file.Receivers)),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	put(7, "1024", false)
	put(8, "512", true)
	if g := b2.published("g1"); g.PathMTU != 512 || !g.Restored {
		t.Errorf("%+v", g)
	}
	// A request of before the replacement is too old, and one with the same version changes
	// nothing.
	put(8, "256", true)
	if g := b2.published("g1"); g.PathMTU != 512 {
		t.Errorf("%+v", g)
	}
}

// A group that runs may have a silent-after that a new group is refused for: an older release has
// made it. A box that has lost its part, or to which members move, carries it.
func TestARunningGroupIsNotRefusedForItsSilentAfter(t *testing.T) {
	f := newTree(t)
	file := parsed(t, strings.Replace(groupFile("10.3.0.1"), "mtu:", "silent-after: 19ms\nevict: true\nmtu:", 1))
	for version, begun := range []bool{false, true} {
		_, err := f.box("b2").Branches.PutBranch(t.Context(), "b1", "g1", api.Branch{
			Registration: api.Registration, Root: "b1", Epoch: 1, Visited: []string{"b1"}, Version: uint64(version) + 1, Lease: 60, Within: 1000, Begun: begun,
			Link: api.LinkEnd{IP: "10.9.0.1", QPN: 900, PSN: 5}, File: string(file.BranchText(file.Receivers)),
		})
		if (err == nil) != begun {
			t.Errorf("begun %v: %v", begun, err)
		}
	}
}

// A group gets no first box behind another one by an update if its silent-after is too short for
// that. A member that moves is not refused, and nobody is who joins behind a box of the group.
func TestAnUpdateIsRefusedForAShortSilentAfter(t *testing.T) {
	hasty := func(receivers ...string) string {
		return strings.Replace(groupFile(receivers...), "mtu:", "silent-after: 12ms\nevict: true\nmtu:", 1)
	}
	f, b1, _, _ := threeBoxes(t)
	f.create(hasty("10.1.0.2", "10.1.0.3", "10.1.0.4"))
	_, err := b1.Update(t.Context(), "g1", []byte(hasty("10.1.0.2", "10.1.0.3", "10.1.0.4", "10.2.0.1")))
	if err == nil || !strings.Contains(err.Error(), "silent-after is 12ms at box b1 and evict is true") {
		t.Errorf("%v", err)
	}
	f.check("b1: 10.1.0.2 10.1.0.3 10.1.0.4")
	f.goes("10.1.0.3", "b1", "b2")
	f.check("b1: 10.1.0.2 10.1.0.4 b2 | b2: 10.1.0.3")
	f.goes("10.1.0.4", "b1", "b2", "b3")
	f.check("b1: 10.1.0.2 b2 | b2: 10.1.0.3 b3 | b3: 10.1.0.4")
	b1.update(t, hasty("10.1.0.2", "10.1.0.3", "10.1.0.4", "10.2.0.1"))
	f.check("b1: 10.1.0.2 b2 | b2: 10.1.0.3 10.2.0.1 b3 | b3: 10.1.0.4")
	b1.update(t, hasty("10.1.0.2", "10.2.0.2")) // in place of those who are there
	b1.update(t, hasty("10.1.0.2"))
	_, err = b1.Update(t.Context(), "g1", []byte(hasty("10.1.0.2", "10.2.0.2"))) // the box has left, so it would be the first again
	if err == nil || !strings.Contains(err.Error(), "silent-after is 12ms at box b1 and evict is true") {
		t.Errorf("%v", err)
	}
}

// Where silent-after is too short for a box behind, a box that has left comes back by no update.
// Whoever says how its members can join again says so.
func TestWithAShortSilentAfterNoUpdateBringsABoxBack(t *testing.T) {
	hasty := func(receivers ...string) string {
		return strings.Replace(groupFile(receivers...), "mtu:", "silent-after: 19ms\nevict: true\nmtu:", 1)
	}
	f, b1, b2, _ := threeBoxes(t)
	f.create(hasty("10.1.0.2", "10.1.0.3"))
	f.goes("10.1.0.3", "b1", "b2")
	l := b1.groups.Named("g1").Links[0]
	b1.happened()
	b1.news(feedback.NoteEvicted, l.Remote.IP, mftQPN(l.Local.QPN), 1007)
	const again = "evict is true and silent-after is 19ms, with which no update brings anybody back there; remove the group and create it again with a " +
		"longer silent-after"
	const lacks = "evicted: it lacks the source's PSN 1007 and what follows; " + again
	b1.expectEvents(t, "member-evicted g1 10.9.0.2: "+lacks+" (PSN 1007)")
	g, err := b1.Group("g1")
	if err != nil || g.Links[0].Reason != lacks || g.Members[2].Reason != lacks {
		t.Errorf("%v\nthe link:  %s\nits end: %s\nwant %s", err, g.Links[0].Reason, g.Members[2].Reason, lacks)
	}
	f.tendAll(time.Now())
	const out = "box b2 takes no part in the group any more (evicted), so nobody"
	if state, reason := b2.state(); state != api.Degraded || reason != "box b1, from which its data comes: "+out+" there gets data; "+again {
		t.Errorf("b2 is %s: %s", state, reason)
	}
	if _, err := b1.Update(t.Context(), "g1", []byte(hasty("10.1.0.2", "10.1.0.3", "10.2.0.1"))); err == nil || err.Error() != out+" can join behind it; "+again {
		t.Errorf("\ngot  %v\nwant %s can join behind it; %s", err, out, again)
	}
	b1.update(t, hasty("10.1.0.2"))
	if _, err := b1.Update(t.Context(), "g1", []byte(hasty("10.1.0.2", "10.1.0.3"))); err == nil || !strings.Contains(err.Error(), "double silent-after") {
		t.Errorf("%v", err)
	}
}

// A route that goes and comes back moves nobody: without one it is unknown where a member is.
func TestAMemberStaysWhileNoRouteLeadsToIt(t *testing.T) {
	f := newTree(t)
	f.create(groupFile(everywhere...))
	b1 := f.box("b1")
	hop := b1.hops.Hop(addr("10.3.0.1"))
	b1.hops.Set(map[string]nexthop.Hop{"10.3.0.1": {Reason: "no route to 10.3.0.1"}})
	b1.network.HopsChanged([]netip.Addr{addr("10.3.0.1")})
	if b1.isUnsettled() {
		t.Error("it is planned again")
	}
	b1.update(t, groupFile(append(everywhere, "10.4.0.2")...))
	f.check("b1: 10.1.0.2 b2 | b2: 10.2.0.1 b3 b4 | b3: 10.3.0.1 10.3.0.2 | b4: 10.4.0.1 10.4.0.2")
	b1.hops.Set(map[string]nexthop.Hop{"10.3.0.1": hop})
	b1.network.HopsChanged([]netip.Addr{addr("10.3.0.1")})
	if b1.isUnsettled() || b1.published("g1").Restored {
		t.Error("it has moved")
	}
}

// The root says which box does not answer, wherever it is, and does not list more than anybody
// reads.
func TestTheRootSaysWhichBoxIsMissing(t *testing.T) {
	f := newTree(t)
	f.create(groupFile(everywhere...))
	f.cuts(func(_, to, _ string) (bool, bool) { return to != "b4", to != "b4" })
	for _, name := range []string{"b2", "b1"} {
		b := f.box(name)
		b.due("g1")
		b.Branches.Tend(t.Context(), b.groups.Named("g1"))
	}
	if g, _ := f.box("b1").Group("g1"); g.State != api.Waiting || g.Reason != "box b2: box b4: it does not answer (timeout)" {
		t.Errorf("%+v", g.GroupSummary)
	}
	g := f.box("b2").groups.Named("g1")
	for range 20 {
		g.Links[0].Absent = append(g.Links[0].Absent, api.Absent{Box: "b3"})
	}
	if got := len(f.box("b2").Branches.Absent(g)); got != 16 {
		t.Errorf("it lists %d", got)
	}
}

// An update passes on the root's epoch, and finds loops as a creation does.
func TestAnUpdatePassesOnWhatTheRootSays(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.1.0.2", "10.3.0.1"))
	f.box("b1").update(t, groupFile("10.1.0.2", "10.3.0.1", "10.4.0.1"))
	epoch := f.box("b1").groups.Named("g1").Epoch
	for _, name := range []string{"b2", "b4"} {
		if g := f.box(name).groups.Named("g1"); g.Epoch != epoch || g.Branch.Epoch != epoch {
			t.Errorf("%s has epoch %d and %d, the root %d", name, g.Epoch, g.Branch.Epoch, epoch)
		}
	}
	f.box("b1").route(8, "b2")
	f.box("b2").route(8, "b1")
	_, err := f.box("b1").Update(t.Context(), "g1", []byte(groupFile("10.1.0.2", "10.3.0.1", "10.4.0.1", "10.8.0.1")))
	if err == nil || !strings.Contains(err.Error(), "the way to 10.8.0.1 leads from box b2 back to box b1 (b1, b2, b1); correct the routes") {
		t.Error(err)
	}
	f.check("b1: 10.1.0.2 b2 | b2: b3 b4 | b3: 10.3.0.1 | b4: 10.4.0.1")
}

// A group that was removed while it was due is not registered again.
func TestARemovedGroupIsNotRenewed(t *testing.T) {
	f := newTree(t)
	f.create(groupFile(everywhere...))
	b1 := f.box("b1")
	g := b1.groups.Named("g1")
	b1.due("g1")
	if err := b1.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	b1.Branches.Tend(t.Context(), g)
	f.nothingLeft()
}

// The leases are looked at again and again. What is under way is finished before followLeases ends:
// the state directory is closed then.
func TestLeasesAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, b1 := newFork(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended, answer := make(chan error, 1), make(chan struct{})
		go func() { ended <- b1.Branches.Run(ctx) }()
		b1.route(8, "b3")
		f.cuts(func(string, string, string) (bool, bool) { <-answer; return true, true })
		b1.network.HopsChanged([]netip.Addr{addr("10.8.0.1")})
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Errorf("it has ended before the group has moved (%v)", err)
		default:
		}
		close(answer)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A group that could be published neither with its new links nor with its old ones has failed, and
// moves when it is published again.
func TestAGroupThatHasFailedMovesLater(t *testing.T) {
	f, b1 := newFork(t)
	b1.route(8, "b3")
	b1.sw.Refuse(errors.New("the classifier is full"))             // the new links
	b1.addresses.Refuse(errors.New("the interface has gone away")) // the old ones
	b1.network.HopsChanged([]netip.Addr{addr("10.8.0.1")})
	f.tendAll(time.Now())
	if g, _ := b1.Group("g1"); g.State != api.Failed {
		t.Fatalf("%+v", g.GroupSummary)
	}
	f.tendAll(time.Now())
	if b1.published("g1") != nil {
		t.Error("the group has moved although it has failed")
	}
	b1.groups.RetryFailed()
	f.tendAll(time.Now())
	f.check2("b1: 10.1.0.2 b3 | b3: 10.8.0.1")
	if g, _ := b1.Group("g1"); g.State != api.Ready || b1.isUnsettled() {
		t.Errorf("%+v", g.GroupSummary)
	}
	// One that is being changed moves afterwards, and one that is removed does not.
	b1.route(8, "b2")
	b1.network.HopsChanged([]netip.Addr{addr("10.8.0.1")})
	unlock, _, err := b1.groups.Names.Lock(t.Context(), "g1", "")
	if err != nil {
		t.Fatal(err)
	}
	f.tendAll(time.Now())
	f.check2("b1: 10.1.0.2 b3 | b3: 10.8.0.1")
	unlock()
	if err := b1.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	f.tendAll(time.Now())
	f.nothingLeft()
}

// A box behind has another end of the link than before: the one before is free again.
func TestALinksNewEndLeavesNothingOfTheOldOne(t *testing.T) {
	f, b1, _ := twoBoxes(t)
	f.create(groupFile("10.1.0.2", "10.2.0.1"))
	f.box("b2").edit("g1", func(g *groups.Group) { g.Branch.Own.QPN++ })
	b1.due("g1")
	f.tendAll(time.Now())
	if at := b1.published("g1").FindPath(linkIP(2), mftQPN(b1.groups.Named("g1").Links[0].Local.QPN)); b1.published("g1").Paths[at].DestQPN != mftQPN(b1.groups.Named("g1").Links[0].Remote.QPN) {
		t.Errorf("%+v", b1.published("g1").Paths[at])
	}
	if err := b1.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	f.nothingLeft()
}

// A queue pair has one peer, also where one group is an operator's and the other one a branch that
// an upper box changes.
func TestABranchDoesNotGetTheQPOfAnotherGroup(t *testing.T) {
	f, b1, b2 := twoBoxes(t)
	f.create(groupFile("10.1.0.2", "10.2.0.1"))
	own := strings.NewReplacer("name: g1", "name: own", "10.1.0.100", "10.2.0.100", "{ip: 10.1.0.1, qpn: 17", "{ip: 10.2.0.9, qpn: 17").Replace(groupFile("10.2.0.2"))
	b2.create(t, own)
	_, err := b1.Update(t.Context(), "g1", []byte(groupFile("10.1.0.2", "10.2.0.1", "10.2.0.2")))
	if err == nil || !strings.Contains(err.Error(), "QP 122 of 10.2.0.2 is already in group own") {
		t.Errorf("updated: %v", err)
	}
	if g := b2.published("g1"); g.FindPath(addr("10.2.0.2"), 1) >= 0 {
		t.Errorf("%+v", g.Paths)
	}
}

// The last running receiver behind a box leaves, and one that takes no part any more stays. It
// takes no part afterwards either: nobody knows which packets its QP has.
func TestTheLastRunningReceiverBehindABoxLeaves(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.1.0.2", "10.2.0.1", "10.3.0.1"))
	b1, b2, b3 := f.box("b1"), f.box("b2"), f.box("b3")
	for _, b := range []*box{b1, b2, b3} {
		b.sw.Carry("g1", 1100)
	}
	b1.update(t, groupFile("10.1.0.2", "10.2.0.1", "10.2.0.2", "10.3.0.1", "10.3.0.2"))
	b2.restart(false, false)
	b3.restart(false, false)
	f.renewAll()
	f.renewAll()
	f.check("b1: 10.1.0.2 b2 | b2: 10.2.0.1 b3 | b3: 10.3.0.1")
	b1.update(t, groupFile("10.1.0.2", "10.2.0.2", "10.3.0.2"))
	for range 2 {
		f.check("b1: 10.1.0.2 b2 | b2: b3 | b3: 10.3.0.2")
		g := b3.groups.Named("g1")
		if state, _ := b3.sw.GroupState(g.ID); len(state.Paths) != 1 || state.Paths[0].Part != feedback.PartGone {
			t.Errorf("at b3, the receiver that was lost takes part as %+v", state.Paths)
		}
		if m := b3.part(t, "10.3.0.2"); m.State != api.LeftOut {
			t.Errorf("%+v", m)
		}
		b3.restart(false, false)
		f.renewAll()
	}
	if g, _ := b1.Group("g1"); !g.GoesOn {
		t.Errorf("%+v", g.GroupSummary)
	}
	b1.update(t, groupFile("10.1.0.2", "10.2.0.2", "10.3.0.2", "10.3.0.3"))
	if s := b3.groups.Named("g1").Past.Standing(idOf("10.3.0.3")); s != chronicle.Joining {
		t.Errorf("one that joins is %q", s)
	}
	if g, _ := b1.Group("g1"); len(g.Links) != 1 || g.Links[0].State != api.Ready {
		t.Errorf("%+v", g.Links)
	}
}

// The last receiver behind a box leaves inside a message while another one joins there. It stays
// until the other one has joined, because the box above would go on without the whole box. Between
// messages it leaves at once. So it does where no box is left out, and with on-fatal: evict alone:
// then nobody goes on without it if it does not answer any more.
func TestTheLastReceiverBehindABoxStaysForOneThatJoins(t *testing.T) {
	for name, c := range map[string]struct {
		sent, merged roce.PSN
		waits        bool
		text         func(string) string
	}{
		"inside a message":     {1000, 999, true, evicting},
		"between messages":     {1000, 1000, false, evicting},
		"nothing was sent":     {999, 999, false, evicting},
		"no box is left out":   {1000, 999, false, func(text string) string { return text }},
		"only for a fatal NAK": {1000, 999, false, func(text string) string { return strings.Replace(text, "mtu:", "on-fatal: evict\nmtu:", 1) }},
	} {
		f, b1, b2 := twoBoxes(t)
		f.create(c.text(groupFile("10.1.0.2", "10.2.0.1")))
		for _, b := range f.boxes {
			b.sw.Progress("g1", c.sent, c.merged, nil)
		}
		b1.update(t, c.text(groupFile("10.1.0.2", "10.2.0.1", "10.2.0.2")))
		b1.update(t, c.text(groupFile("10.1.0.2", "10.2.0.2")))
		if stays := b2.groups.Named("g1").Wanted.Receiver(idOf("10.2.0.1")) >= 0; stays != c.waits {
			t.Errorf("%s: the last receiver stays: %v", name, stays)
		}
		g, _ := b1.Group("g1")
		if says := strings.Contains(g.Reason, "10.2.0.1 stays until 10.2.0.2 has joined"); says != c.waits {
			t.Errorf("%s: %+v", name, g.GroupSummary)
		}
		b2.joins("10.2.0.2", 1006)
		f.renewAll()
		if b2.groups.Named("g1").Wanted.Receiver(idOf("10.2.0.1")) >= 0 || b2.published("g1").FindPath(addr("10.2.0.2"), 1) < 0 {
			t.Errorf("%s: %s", name, f.shape())
		}
	}
}

// It stays for one whose program has yet to confirm, too, although that may never happen: if it
// left inside the message, that one would be out for ever. It leaves as soon as the other one has
// joined, or in a pause of the source: then the other one joins with the next message, confirmed or
// not. If neither happens, the group can be updated without both.
func TestTheLastReceiverBehindABoxStaysForOneThatHasToConfirm(t *testing.T) {
	evicts := func(receivers ...string) string {
		return strings.Replace(evicting(groupFile(receivers...)), "{ip: 10.2.0.2,", "{confirm: true, ip: 10.2.0.2,", 1)
	}
	for end, then := range map[string]func(f *fabric, b1, b2 *box){
		"it confirms": func(f *fabric, b1, b2 *box) {
			if _, err := b1.Confirm("g1", []byte(`{"ip": "10.2.0.2", "qpn": 122, "state": "RTR"}`)); err != nil {
				t.Fatal(err)
			}
			f.renewAll()
			if is := part(t, b2.published("g1"), "10.2.0.2"); is != feedback.PartJoining || b2.groups.Named("g1").Wanted.Receiver(idOf("10.2.0.1")) < 0 {
				t.Errorf("it has confirmed and is %v: %s", is, f.shape())
			}
			b2.joins("10.2.0.2", 1006)
		},
		"the source pauses": func(f *fabric, _, _ *box) {
			for _, b := range f.boxes {
				b.sw.Progress("g1", 1000, 1000, nil)
			}
		},
		"both leave": func(_ *fabric, b1, _ *box) { b1.update(t, evicts("10.1.0.2")) },
		"its box is left out": func(f *fabric, b1, b2 *box) { // because the last receiver does not answer any more
			l := b1.groups.Named("g1").Links[0]
			b1.news(feedback.NoteEvicted, l.Remote.IP, mftQPN(l.Local.QPN), 1000)
			f.renewAll()
			if state, reason := b2.state(); state != api.Degraded || !strings.Contains(reason, "box b2 takes no part in the group any more (evicted)") {
				t.Errorf("b2 is %s: %s", state, reason)
			}
			b1.update(t, evicts("10.1.0.2"))
			b1.update(t, evicts("10.1.0.2", "10.2.0.2"))
		},
	} {
		f, b1, b2 := twoBoxes(t)
		f.create(evicts("10.1.0.2", "10.2.0.1"))
		for _, b := range f.boxes {
			b.sw.Progress("g1", 1000, 999, nil)
		}
		b1.update(t, evicts("10.1.0.2", "10.2.0.1", "10.2.0.2"))
		b1.update(t, evicts("10.1.0.2", "10.2.0.2"))
		f.renewAll()
		g, _ := b1.Group("g1")
		if is := part(t, b2.published("g1"), "10.2.0.2"); is != feedback.PartWaiting || b2.groups.Named("g1").Wanted.Receiver(idOf("10.2.0.1")) < 0 ||
			!strings.Contains(g.Reason, "10.2.0.1 stays until 10.2.0.2 has joined") {
			t.Errorf("%s: it is %v: %s; %s", end, is, f.shape(), g.Reason)
		}
		then(f, b1, b2)
		f.renewAll()
		if at2 := b2.published("g1"); end == "both leave" && at2 != nil || end != "both leave" && (at2 == nil || len(at2.Paths) != 1 || at2.Paths[0].Dst != addr("10.2.0.2")) {
			t.Errorf("%s: %s", end, f.shape())
		}
	}
}

// The same in a group that is idle for longer than a lease. The box above asks all the time, so the
// branch stays although its box refuses. Else it would end, and the box would not know any more
// that the other one joins.
func TestABranchStaysThatRefusesAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, b1, b2 := twoBoxes(t)
		f.create(evicting(groupFile("10.1.0.2", "10.2.0.1")))
		for _, b := range f.boxes {
			b.sw.Carry("g1", 1000)
		}
		f.renewAll()
		b1.update(t, evicting(groupFile("10.1.0.2", "10.2.0.1", "10.2.0.2")))
		b1.update(t, evicting(groupFile("10.1.0.2", "10.2.0.2")))
		was := b2.groups.Named("g1")
		for range 50 {
			time.Sleep(branches.DefaultLease / 20)
			f.tendAll(time.Now())
		}
		if g := b2.groups.Named("g1"); g != was || g.Past.Standing(idOf("10.2.0.2")) != chronicle.Joining {
			t.Errorf("the branch is the same: %v; the one that joins is %q", g == was, g.Past.Standing(idOf("10.2.0.2")))
		}
		// If the box above does not ask any more, the branch ends. The first time, data has come.
		for range 2 {
			time.Sleep(branches.DefaultLease + time.Second)
			b2.Branches.Tend(t.Context(), was)
		}
		if b2.groups.Named("g1") != nil {
			t.Error("nobody asks for the branch, and it stays")
		}
	})
}

// It waits for nobody who is out, and does not stay where another one does, or where nobody joins.
func TestTheLastReceiverBehindABoxLeaves(t *testing.T) {
	for _, c := range []struct{ then, evicted string }{
		{"10.2.0.2", "10.2.0.2"}, {"10.2.0.2 10.2.0.3", ""}, {"10.1.0.3", "10.2.0.2"},
	} {
		f, b1, b2 := twoBoxes(t)
		f.create(evicting(groupFile("10.1.0.2", "10.2.0.1", "10.2.0.2")))
		for _, b := range f.boxes {
			b.sw.Carry("g1", 1005)
		}
		if c.evicted != "" {
			b2.note(dataplane.Note{Group: b2.groups.Named("g1").ID, What: feedback.NoteEvicted, Receiver: addr(c.evicted), RemoteQPN: 1, PSN: 1002})
			f.renewAll()
		}
		then := append([]string{"10.1.0.2"}, strings.Fields(c.then)...)
		if strings.Contains(c.then, "10.2.0.3") {
			b1.update(t, evicting(groupFile("10.1.0.2", "10.2.0.1", "10.2.0.2", "10.2.0.3")))
		}
		b1.update(t, evicting(groupFile(then...)))
		if g := b2.groups.Named("g1"); g != nil && g.Wanted.Receiver(idOf("10.2.0.1")) >= 0 {
			t.Errorf("%+v: it stays: %s", c, b1.groups.Named("g1").Links[0].Problem)
		}
	}
}

// The same at a box without others, and where the one that takes no part comes only now.
func TestOnlyReceiversThatAreOutStay(t *testing.T) {
	f := newFabric(t, 2, "b1 b2")
	b1, b2 := f.box("b1"), f.box("b2")
	isOut := func(b *box) {
		t.Helper()
		g := b.groups.Named("g1")
		if state, _ := b.sw.GroupState(g.ID); len(state.Paths) != 1 || state.Paths[0].Part != feedback.PartGone || !g.Restored {
			t.Errorf("restored %v, the receiver takes part as %+v", g.Restored, state.Paths)
		}
	}
	f.create(groupFile("10.1.0.2"))
	b1.update(t, groupFile("10.1.0.2", "10.1.0.3"))
	b1.restart(false, false)
	b1.happened()
	text := "# only this one\n" + groupFile("10.1.0.3")
	b1.sw.Refuse(errors.New("the classifier is full"))
	if _, err := b1.Update(t.Context(), "g1", []byte(text)); err == nil || !strings.Contains(err.Error(), "the classifier is full") {
		t.Errorf("updated: %v", err)
	}
	if got := f.shape(); got != "b1: 10.1.0.2" {
		t.Error(got)
	}
	b1.happened()
	b1.update(t, text)
	isOut(b1)
	if stored, err := b1.Store.Get("g1"); err != nil || string(stored) != text {
		t.Errorf("stored is %s, %v", stored, err)
	}
	if got := fmt.Sprint(b1.happened()); !strings.Contains(got, "updated g1") || !strings.Contains(got, "10.1.0.2") {
		t.Errorf("it tells %s", got)
	}
	b1.restart(false, false)
	isOut(b1)

	if err := b1.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	b1.route(2, "b2")
	f.create(groupFile("10.1.0.2", "10.2.0.1"))
	l := *b1.groups.Named("g1").Links[0]
	l.Members, l.Later, l.Version = []groupfile.ID{idOf("10.2.0.2")}, []groups.Later{{ID: idOf("10.2.0.2"), Out: true}}, l.Version+1
	f.asks(parsed(t, groupFile("10.1.0.2", "10.2.0.2")), &l)
	isOut(b2)
}

// Before a receiver joins, its box hears who has left, and may answer with another end of the link.
// If the group then fails, the update touches no other group of the data path.
func TestAGroupFailsWhileItIsUpdated(t *testing.T) {
	f, b1, _ := twoBoxes(t)
	f.create(groupFile("10.1.0.2", "10.2.0.1", "10.2.0.2"))
	f.cuts(func(_, to, _ string) (bool, bool) { return to != "b2", true })
	b1.update(t, groupFile("10.1.0.2", "10.2.0.1"))
	f.cuts(nil)
	b1.edit("g1", func(g *groups.Group) { g.Links[0].Remote.QPN++ }) // b2 answers with another end
	b1.sw.Refuse(errors.New("the classifier is full"))               // the new end
	b1.addresses.Refuse(errors.New("the interface has gone away"))   // the old one
	b1.sw.Replaced()
	_, err := b1.Update(t.Context(), "g1", []byte(groupFile("10.1.0.2", "10.2.0.1", "10.2.0.3")))
	if err == nil || !strings.Contains(err.Error(), "group g1 does not run (") {
		t.Errorf("updated: %v", err)
	}
	if replaced := b1.sw.Replaced(); len(replaced) > 0 {
		t.Errorf("it has replaced %v", replaced)
	}
	b1.groups.RetryFailed()
	b1.due("g1")
	f.tendAll(time.Now())
	b1.update(t, groupFile("10.1.0.2", "10.2.0.1", "10.2.0.3"))
	f.check("b1: 10.1.0.2 b2 | b2: 10.2.0.1 10.2.0.3")
}

// A branch that has to be replaced and cannot be set up has ended, here and behind the box. The box
// above asks again, and then it stands.
func TestABranchThatCannotBeReplacedHasEnded(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.1.0.2", "10.2.0.1", "10.3.0.1"))
	b1, b2 := f.box("b1"), f.box("b2")
	f.loseWithdrawals("b2", func() {
		if err := b1.Remove("g1"); err != nil {
			t.Fatal(err)
		}
	})
	b2.sw.Refuse(errors.New("the classifier is full"))
	f.refused(groupFile("10.1.0.2", "10.2.0.1", "10.3.0.1"), "the classifier is full")
	f.nothingLeft()
	f.create(groupFile("10.1.0.2", "10.2.0.1", "10.3.0.1"))
	f.check("b1: 10.1.0.2 b2 | b2: 10.2.0.1 b3 | b3: 10.3.0.1")
}

// The box above is needed as a receiver where a member behind it may become the source. Its path
// comes with the first such member, who joins, and with it nothing else changes, at any box on the
// way. Later the path stays.
func TestThePathOfTheBoxAboveComesWithTheFirstSender(t *testing.T) {
	f, b1, b2, b3 := threeBoxes(t)
	plain := groupFile("10.1.0.2", "10.2.0.1", "10.3.0.1")
	f.create(plain)
	for _, b := range f.boxes {
		b.sw.Carry("g1", 1010)
	}
	needs := func(b *box) bool {
		return slices.ContainsFunc(b.published("g1").Paths, func(p mft.Path) bool { return p.Box == mft.BoxAbove })
	}
	b1.update(t, strings.Replace(groupFile("10.1.0.2", "10.2.0.1", "10.3.0.1", "10.3.0.2"), "psn: 32,", "psn: 32, role: both, sendPSN: 7,", 1))
	joins := mft.Part{QP: mft.QP{IP: addr("10.3.0.2"), RemoteQPN: 1}, Part: feedback.PartJoining}
	for _, b := range []*box{b2, b3} {
		g := b.published("g1")
		if parts := g.Parts; !needs(b) || g.Restored || b == b3 && !slices.Equal(parts, []mft.Part{joins}) || b == b2 && len(parts) > 0 {
			t.Errorf("%s needs the box above: %v; restored %v, parts %v", b.name, needs(b), g.Restored, parts)
		}
		b.groups.Lock()
		b.groups.Observe(b.groups.Named("g1"))
		if of := b.groups.Named("g1"); of.Past.Switched || of.Source.IP != linkIP(b.n-1) {
			t.Errorf("%s: the source is %v, switched %v", b.name, of.Source, of.Past.Switched)
		}
		b.groups.Unlock()
	}
	f.check("b1: 10.1.0.2 b2 | b2: 10.2.0.1 b1 b3 | b3: 10.3.0.1 10.3.0.2 b2")
	b1.update(t, plain)
	for _, b := range []*box{b2, b3} {
		if g := b.published("g1"); !needs(b) || g.Restored || len(g.Parts) > 0 {
			t.Errorf("%s: %+v", b.name, g)
		}
	}
	// Also over a stop, and when the boxes above say it all again.
	for _, b := range f.boxes {
		b.restart(true, false)
	}
	for _, b := range f.boxes[:2] {
		b.due("g1")
	}
	f.tendAll(time.Now())
	for _, b := range []*box{b2, b3} {
		if g := b.published("g1"); !needs(b) || len(g.Parts) > 0 {
			t.Errorf("%s: %+v", b.name, g)
		}
	}
}

// The boxes behind the first one know that a group belongs to a connection, also after a crash:
// nobody there can change it by a group file.
func TestBoxesKnowThatAGroupIsOfAService(t *testing.T) {
	f, b1, b2, b3 := threeBoxes(t)
	file, err := groupfile.Parse([]byte(groupFile("10.2.0.1", "10.3.0.1", "10.3.0.2")))
	if err != nil {
		t.Fatal(err)
	}
	s := serving{b1.Controller}
	if unreached, err := s.SetUp(t.Context(), file); err != nil || len(unreached) > 0 {
		t.Fatal(unreached, err)
	}
	b3.restart(false, false)
	for _, b := range f.boxes {
		if g, err := b.Group("g1"); err != nil || g.By != api.ByService {
			t.Errorf("box %s: %+v, %v", b.name, g.GroupSummary, err)
		}
	}
	b3.edit("g1", func(g *groups.Group) { g.Branch.Service = false }) // as an older release has stored it
	b2.edit("g1", func(g *groups.Group) { g.Links[0].Asked = time.Time{} })
	f.tendAll(time.Now())
	if g, err := b3.Group("g1"); err != nil || g.By != api.ByService {
		t.Errorf("once it was renewed: %+v, %v", g.GroupSummary, err)
	}
	b3.happened()
	if err := s.Leave(t.Context(), "g1", addr("10.3.0.2")); err != nil {
		t.Fatal(err)
	}
	f.tendAll(time.Now())
	if got := b3.happened(); !slices.Contains(got, "member-left g1 10.3.0.2: it has disconnected") {
		t.Errorf("%q", got)
	}
	if g := b3.groups.Named("g1"); !g.OfService() || g.Wanted.Receiver(file.Receivers[2].ID()) >= 0 {
		t.Errorf("box b3 has %+v", g.Branch)
	}
	if err := s.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	f.tendAll(time.Now())
	f.create(groupFile("10.2.0.1"))
	if g, _ := b2.Group("g1"); g.By != "" {
		t.Errorf("an operator's group: %+v", g.GroupSummary)
	}
}
