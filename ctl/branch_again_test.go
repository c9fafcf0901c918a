package ctl

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/branches"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
)

// loseWithdrawals lets no withdrawal arrive at a box while do runs.
func (f *fabric) loseWithdrawals(to string, do func()) {
	f.cuts(func(_, at, method string) (bool, bool) { return method != "DELETE" || at != to, true })
	do()
	f.cuts(nil)
}

// lose lets the next requests to a box not arrive.
func (f *fabric) lose(to string, n int) {
	f.cuts(func(_, at, _ string) (bool, bool) {
		if at == to {
			n--
		}
		return at != to || n < 0, true
	})
}

// begins fails if a box remembers anything of an earlier group with this name: its receivers'
// standings, or what it has merged.
func (b *box) begins() {
	b.f.t.Helper()
	g := b.groups.Named("g1")
	for i := range g.File.Receivers {
		id := g.File.Receivers[i].ID()
		if s := g.Past.Standing(id); s != "" {
			b.f.t.Errorf("at %s, %v is %q", b.name, id.IP, s)
		}
	}
	if state, _ := b.sw.GroupState(g.ID); state.Sent != 999 || b.published("g1").Restored {
		b.f.t.Errorf("%s goes on at PSN %d, restored %v", b.name, state.Sent, b.published("g1").Restored)
	}
}

// A box may not hear that a group is removed, and the same numbers may be used again at once. The
// branch that it still has is not that of the new group: the new group's first packet would look
// like one that all receivers have, and be acknowledged at once.
func TestAGroupThatIsCreatedAgainBeginsAtAllBoxes(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.1.0.2", "10.3.0.1", "10.3.0.2"))
	b1, b2, b3 := f.box("b1"), f.box("b2"), f.box("b3")
	for _, b := range []*box{b1, b2, b3} {
		b.sw.Carry("g1", 1500)
	}
	b1.update(t, groupFile("10.1.0.2", "10.3.0.1", "10.3.0.2", "10.2.0.1"))
	b2.joins("10.2.0.1", 1600)
	f.loseWithdrawals("b2", func() {
		if err := b1.Remove("g1"); err != nil {
			t.Fatal(err)
		}
	})
	// One of the receivers is new, and one was joining when the group was removed.
	g := f.create(groupFile("10.1.0.2", "10.3.0.1", "10.3.0.2", "10.2.0.1", "10.4.0.1"))
	if g.State != api.Ready {
		t.Errorf("%s: %s", g.State, g.Reason)
	}
	f.check("b1: 10.1.0.2 b2 | b2: 10.2.0.1 b3 b4 | b3: 10.3.0.1 10.3.0.2 | b4: 10.4.0.1")
	for _, b := range f.boxes {
		b.begins()
	}
	for _, ip := range []string{"10.1.0.2", "10.2.0.1", "10.3.0.1", "10.3.0.2", "10.4.0.1"} {
		f.expects(ip, 1000)
	}
}

// The same with an update: the members behind a box leave, which the box does not hear, and come
// back with fresh queue pairs.
func TestMembersThatJoinAgainBeginAtTheirBoxes(t *testing.T) {
	f := newTree(t)
	all := groupFile("10.1.0.2", "10.3.0.1", "10.2.0.1")
	f.create(all)
	b1, b2, b3 := f.box("b1"), f.box("b2"), f.box("b3")
	for _, b := range []*box{b1, b2, b3} {
		b.sw.Carry("g1", 1500)
	}
	f.loseWithdrawals("b2", func() { b1.update(t, groupFile("10.1.0.2")) })
	if f.shape() != "b1: 10.1.0.2 | b2: 10.2.0.1 b3 | b3: 10.3.0.1" {
		t.Fatal(f.shape())
	}
	b1.update(t, all)
	f.check("b1: 10.1.0.2 b2 | b2: 10.2.0.1 b3 | b3: 10.3.0.1")
	b2.begins()
	b3.begins()
	if s := b1.groups.Named("g1").Past.Standing(b1.groups.Named("g1").File.Receivers[1].ID()); s != "joining" {
		t.Errorf("to b1, b2 is %q", s)
	}
}

// A box does not hear that a group is removed. The same numbers are used again with the members
// behind another box, and then routes lead them back, within the lease. The branch that the first
// box still has is not that of the new group: what it knows of its receivers, and where they are in
// the source's PSNs, is that of the group before.
func TestAGroupThatIsCreatedAgainBehindAnotherBoxComesBack(t *testing.T) {
	for name, older := range map[string]bool{"this release": false, "an older upper box": true} {
		f := newFabric(t, 3, "b1 b2", "b1 b3")
		b1, b2 := f.box("b1"), f.box("b2")
		f.older = older
		leads := func(to string) {
			b1.route(2, to)
			b1.network.HopsChanged([]netip.Addr{addr("10.2.0.1"), addr("10.2.0.2")})
			f.tendAll(time.Now())
		}
		host := b1.hops.Hop(addr("10.1.0.2"))
		f.box("b3").hops.Set(map[string]nexthop.Hop{"10.2.0.1": host, "10.2.0.2": host})
		leads("b2")
		f.create(groupFile("10.1.0.2", "10.2.0.1"))
		b1.sw.Carry("g1", 1500)
		b2.sw.Carry("g1", 1500)
		b1.update(t, groupFile("10.1.0.2", "10.2.0.1", "10.2.0.2"))
		b2.joins("10.2.0.2", 1600)
		if s := b2.groups.Named("g1").Past.Standing(idOf("10.2.0.2")); s != chronicle.Joined {
			t.Errorf("%s: an update of the group makes its receiver %q", name, s)
		}
		f.cuts(func(_, to, _ string) (bool, bool) { return to != "b2", true })
		if err := b1.Remove("g1"); err != nil {
			t.Fatal(err)
		}
		leads("b3")
		f.create(groupFile("10.1.0.2", "10.2.0.1", "10.2.0.2"))
		b1.sw.Carry("g1", 1005)
		f.cuts(nil)
		leads("b2")
		t.Log(name)
		f.check("b1: 10.1.0.2 b2 | b2: 10.2.0.1 10.2.0.2")
		f.expects("10.2.0.1", 1000)
		f.expects("10.2.0.2", 1000)
		if g := b2.groups.Named("g1"); g.Past.Standing(idOf("10.2.0.2")) != "" || !g.Restored {
			t.Errorf("restored %v, %+v", g.Restored, g.Past)
		}
	}
}

// A box takes another queue pair for a link because a member comes, and its answer is lost: the box
// above goes on with the queue pair before. It is the same link, so what happened to the others
// there, and what the box above has not heard of, is not forgotten.
func TestALinkThatGoesBackToItsQueuePairForgetsNothing(t *testing.T) {
	f, b1, b2 := newLeaves(t, groupFile("10.1.0.2", "10.2.0.1", "10.3.0.1"))
	b1.update(t, groupFile("10.1.0.2", "10.2.0.1", "10.3.0.1", "10.2.0.2"))
	b2.joins("10.2.0.2", 1010)
	for range 2 {
		f.cuts(func(_, to, _ string) (bool, bool) { return true, to != "b2" })
		f.goes("10.3.0.1", "b1", "b2")
		f.cuts(func(_, to, _ string) (bool, bool) { return to != "b2", true })
		f.goes("10.3.0.1", "b1", "b3")
	}
	f.cuts(nil)
	f.renewAll()
	f.check("b1: 10.1.0.2 b2 b3 | b2: 10.2.0.1 10.2.0.2 | b3: 10.3.0.1")
	f.expects("10.2.0.2", 1010)
	// It is also the same link when it has got another queue pair again and again.
	for range 2 {
		f.goes("10.3.0.1", "b1", "b2")
		b2.edit("g1", func(g *groups.Group) { g.Past.Confirm(idOf("10.2.0.1")) })
		f.goes("10.3.0.1", "b1", "b3")
		for _, b := range []*box{b1, b2} {
			b.restart(false, false)
			f.renewAll()
		}
		f.check("b1: 10.1.0.2 b2 b3 | b2: 10.2.0.1 10.2.0.2 | b3: 10.3.0.1")
		f.expects("10.2.0.2", 1010)
	}
	if past := b2.groups.Named("g1").Past; !past.IsConfirmed(idOf("10.2.0.1")) {
		t.Errorf("b2 has forgotten what has happened there: %+v", past)
	}
}

// Boxes that do not reach each other for longer than a lease lose an idle branch. When they do
// again, the box above renews what it asked for before, and the branch is set up again.
func TestABranchThatHasEndedIsRenewed(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.1.0.2", "10.2.0.1", "10.3.0.1", "10.4.0.1"))
	f.box("b1").update(t, groupFile("10.1.0.2", "10.2.0.1", "10.3.0.1"))
	const want = "b1: 10.1.0.2 b2 | b2: 10.2.0.1 b3 | b3: 10.3.0.1"
	b1, b2 := f.box("b1"), f.box("b2")
	f.cuts(func(from, to, _ string) (bool, bool) { return from != "b1" || to != "b2", true })
	b2.edit("g1", func(g *groups.Group) { g.Branch.Expires = time.Now().Add(-time.Millisecond) })
	b2.Branches.Tend(t.Context(), b2.groups.Named("g1"))
	// A request from before the update comes late, and is still refused.
	if err := f.sent[0](); err == nil || !strings.Contains(err.Error(), "is older than version") {
		t.Errorf("%v", err)
	}
	if f.shape() != "b1: 10.1.0.2 b2" {
		t.Fatal(f.shape())
	}
	f.cuts(nil)
	f.renewAll()
	f.check(want)
	if state, reason := b1.state(); state != api.Ready {
		t.Errorf("%s: %s", state, reason)
	}
}

// A renewal may come at the very end of a lease. If it is answered, the branch stays.
func TestALeaseIsRenewedAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, b2 := twoBoxes(t)
		f.create(groupFile("10.1.0.2", "10.2.0.1"))
		f.renewAll()
		renewed := make(chan error, 1)
		b2.Branches.Log = b2.Branches.Log.WithOptions(zap.Hooks(func(e zapcore.Entry) error {
			if strings.Contains(e.Message, "the lease of a branch was not renewed") {
				go func() {
					_, err := b2.Branches.PutBranch(t.Context(), "b1", "g1", f.asked)
					renewed <- err
				}()
				synctest.Wait() // it is answered, or waits for the end of the branch
			}
			return nil
		}))
		time.Sleep(branches.DefaultLease + time.Millisecond)
		b2.Branches.Tend(t.Context(), b2.groups.Named("g1"))
		if err := <-renewed; err != nil {
			t.Error(err)
		}
		f.check("b1: 10.1.0.2 b2 | b2: 10.2.0.1")
		// One that comes before keeps the branch as it is.
		time.Sleep(branches.DefaultLease + time.Millisecond)
		g := b2.groups.Named("g1")
		if _, err := b2.Branches.PutBranch(t.Context(), "b1", "g1", f.asked); err != nil {
			t.Error(err)
		}
		b2.Branches.Tend(t.Context(), g)
		if b2.groups.Named("g1") != g {
			t.Error("the branch has ended, though its lease was renewed")
		}
	})
}

// evictingFile is groupFile with receivers that are evicted when they are silent.
func evictingFile(receivers ...string) string {
	return strings.Replace(groupFile(receivers...), "mtu:", "silent-after: 1s\nevict: true\nmtu:", 1)
}

// evicts tells a box that a receiver of its group was evicted.
func (b *box) evicts(ip string) {
	b.note(dataplane.Note{Group: b.groups.Named("g1").ID, What: feedback.NoteEvicted, Receiver: addr(ip), RemoteQPN: 1, PSN: 1300})
}

// ends lets the lease of a box's branch end.
func (b *box) ends() {
	for range 2 { // data that came before extends it once
		b.edit("g1", func(g *groups.Group) { g.Branch.Expires = time.Now().Add(-time.Millisecond) })
		if b.Branches.Tend(b.f.t.Context(), b.groups.Named("g1")); b.groups.Named("g1") == nil {
			break
		}
	}
	if b.groups.Named("g1") != nil {
		b.f.t.Fatal("the branch has not ended")
	}
}

// A box and those behind it evict receivers while the box above cannot reach it. The lease ends.
// The branch that stands afterwards does not have these receivers again: the source no longer has
// what they lack, and the group would wait for them. Nor is one lost that has joined meanwhile.
func TestAnEndedBranchRemembersWhoIsOut(t *testing.T) {
	f := newTree(t)
	f.create(evictingFile("10.1.0.2", "10.2.0.1", "10.2.0.2", "10.3.0.1", "10.3.0.2", "10.4.0.1", "10.4.0.2"))
	b1, b2, b3, b4 := f.box("b1"), f.box("b2"), f.box("b3"), f.box("b4")
	all := []string{"10.1.0.2", "10.2.0.1", "10.2.0.2", "10.3.0.1", "10.3.0.2", "10.4.0.1", "10.4.0.2", "10.2.0.3"}
	b1.update(t, evictingFile(all...))
	f.cuts(func(from, to, _ string) (bool, bool) { return from != "b1" && to != "b1", true })
	b2.joins("10.2.0.3", 1200)
	b2.evicts("10.2.0.1")
	b3.evicts("10.3.0.1")
	f.renewAll()
	b4.evicts("10.4.0.1") // which b2 has not heard of when it ends the branch
	b2.ends()
	f.cuts(nil)
	f.renewAll()
	f.check("b1: 10.1.0.2 b2 | b2: 10.2.0.2 10.2.0.3 b3 b4 | b3: 10.3.0.2 | b4: 10.4.0.2")
	f.expects("10.2.0.3", 1200)
	for _, ip := range all {
		out := ip == "10.2.0.1" || ip == "10.3.0.1" || ip == "10.4.0.1"
		if at := b1.groups.Named("g1").MembershipOf(idOf(ip)); at.Out != out {
			t.Errorf("to b1, %s has the place %+v", ip, at)
		}
	}
}

// What a box remembers of an ended branch is true of the same link only: a group that is created
// again has new queue pairs, and so has one that leaves and joins again.
func TestAnEndedBranchIsNoneOfAnotherGroup(t *testing.T) {
	f := newTree(t)
	b1, b2 := f.box("b1"), f.box("b2")
	f.create(evictingFile("10.1.0.2", "10.2.0.1", "10.2.0.2"))
	b2.evicts("10.2.0.1")
	f.cuts(func(from, _, _ string) (bool, bool) { return from != "b1", true })
	b2.ends()
	if err := b1.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	f.cuts(nil)
	f.create(evictingFile("10.1.0.2", "10.2.0.1", "10.2.0.2"))
	f.check("b1: 10.1.0.2 b2 | b2: 10.2.0.1 10.2.0.2")
	b2.begins()
}

// A receiver leaves while its box cannot be reached, and joins again with another queue pair. The
// box does not take the one for the other, whether its branch has ended meanwhile or not.
func TestAReceiverThatLeftUnheardJoinsAgain(t *testing.T) {
	for name, happens := range map[string]func(b2 *box){
		"the branch is there":            func(*box) {},
		"its lease ends":                 (*box).ends,
		"the box restarts":               func(b2 *box) { b2.restart(false, false) },
		"the root restarts":              func(b2 *box) { b2.f.box("b1").restart(false, false) },
		"a request gets through between": func(b2 *box) { b2.f.lose("b2", 1) },
	} {
		for _, joined := range []bool{false, true} {
			f := newTree(t)
			b1, b2 := f.box("b1"), f.box("b2")
			f.create(groupFile("10.1.0.2", "10.2.0.1", "10.2.0.2"))
			all := groupFile("10.1.0.2", "10.2.0.1", "10.2.0.2", "10.2.0.3")
			b1.sw.Carry("g1", 1100)
			b2.sw.Carry("g1", 1100)
			b1.update(t, all)
			f.cuts(func(_, to, _ string) (bool, bool) { return to != "b2", true })
			if joined {
				b2.joins("10.2.0.3", 1200)
			}
			b1.update(t, groupFile("10.1.0.2", "10.2.0.1"))
			f.cuts(nil)
			happens(b2)
			if _, err := b1.Update(t.Context(), "g1", []byte(all)); err != nil {
				if want := "box b2 has not heard who has left"; !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v", name, err)
				}
				f.cuts(nil)
				b1.update(t, all)
			}
			for _, ip := range []string{"10.2.0.2", "10.2.0.3"} {
				if s := b2.groups.Named("g1").Past.Standing(idOf(ip)); s != chronicle.Joining {
					t.Errorf("%s, joined %v: at b2, %s is %q", name, joined, ip, s)
				}
			}
			f.check("b1: 10.1.0.2 b2 | b2: 10.2.0.1 10.2.0.2 10.2.0.3")
		}
	}
}

// A box of an older release asks with a new version for a receiver that joins, without having said
// before that one with the same numbers has left. It may be another queue pair: it does not get the
// place of the one before, and one that was out stays out.
func TestAnEndedBranchIsAskedForByAnOlderBox(t *testing.T) {
	f, b1, b2 := twoBoxes(t)
	f.create(evictingFile("10.1.0.2", "10.2.0.1", "10.2.0.2"))
	b1.sw.Carry("g1", 1100)
	b2.sw.Carry("g1", 1100)
	b1.update(t, evictingFile("10.1.0.2", "10.2.0.1", "10.2.0.2", "10.2.0.3"))
	again := f.asked
	b2.joins("10.2.0.3", 1200)
	b2.evicts("10.2.0.1")
	b2.ends()
	again.Version, again.First, again.Begun, again.Joins = again.Version+1, 0, true, nil
	if _, err := b2.Branches.PutBranch(t.Context(), "b1", "g1", again); err != nil {
		t.Fatal(err)
	}
	for ip, want := range map[string]chronicle.Standing{"10.2.0.1": chronicle.Lost, "10.2.0.2": "", "10.2.0.3": chronicle.Lost} {
		if s := b2.groups.Named("g1").Past.Standing(idOf(ip)); s != want {
			t.Errorf("%s is %q, want %q", ip, s, want)
		}
	}
}

// Who is the source is stored by the box whose branch it was, and a branch that has ended has
// stored nothing.
func TestAnEndedBranchWhoseSourceHasSwitchedStaysEnded(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.1.0.2", "10.2.0.1"))
	b1, b2 := f.box("b1"), f.box("b2")
	b2.edit("g1", func(g *groups.Group) { g.Past.Switched = true })
	b2.ends()
	f.renewAll()
	if g, _ := b1.Group("g1"); b2.groups.Named("g1") != nil || !strings.Contains(g.Reason, "its source has switched") {
		t.Errorf("%s: %+v", f.shape(), g.GroupSummary)
	}
}

// A branch that cannot be removed from the disk goes on, also behind the box, until it can.
func TestABranchThatCannotBeForgottenEndsLater(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.1.0.2", "10.3.0.1"))
	b2 := f.box("b2")
	sync := b2.Store.SyncDir
	expire := func() {
		b2.edit("g1", func(g *groups.Group) { g.Branch.Expires = time.Now().Add(-time.Millisecond) })
		b2.Branches.Tend(t.Context(), b2.groups.Named("g1"))
	}
	b2.Store.SyncDir = func(string) error { return errors.New("the disk does not answer") }
	expire()
	f.check("b1: 10.1.0.2 b2 | b2: b3 | b3: 10.3.0.1")
	b2.Store.SyncDir = sync
	expire()
	if got := f.shape(); got != "b1: 10.1.0.2 b2" {
		t.Error(got)
	}
}

// A box remembers for a lease that a branch was withdrawn. Then no request from before is on its
// way any more, and a lower version is that of a box whose clock was set back.
func TestAWithdrawalIsForgotten(t *testing.T) {
	f := newTree(t)
	b2 := f.box("b2")
	version := uint64(1 << 60)
	withdrawn := func(lease time.Duration) {
		b2.Branches.Lease = lease
		version++
		if err := b2.Branches.DeleteBranch(t.Context(), "b1", "g1", version); kindOf(err) != api.NotFound {
			t.Error(err)
		}
	}
	withdrawn(time.Hour)
	f.refused(groupFile("10.1.0.2", "10.2.0.1"), "is older than version")
	withdrawn(time.Nanosecond)
	f.create(groupFile("10.1.0.2", "10.2.0.1"))
	f.check("b1: 10.1.0.2 b2 | b2: 10.2.0.1")
}

// A box in the middle loses its state directory. The root knows since when a later receiver below
// takes part, so the middle box sends its PSNs by a new link, and the box below counts from there.
func TestABoxInTheMiddleForgets(t *testing.T) {
	for _, heard := range []bool{true, false} {
		f := newTree(t)
		f.create(groupFile("10.1.0.2", "10.3.0.1"))
		b1, b2, b4 := f.box("b1"), f.box("b2"), f.box("b4")
		for _, name := range []string{"b1", "b2", "b3"} {
			f.box(name).sw.Carry("g1", 1005)
		}
		b1.update(t, groupFile("10.1.0.2", "10.3.0.1", "10.4.0.1"))
		b2.joins("10.9.0.4", 1080)
		b4.sw.Carry("g1", 1003)
		if heard {
			f.renewAll()
		}
		b2.restart(false, true)
		b2.route(1, "b1")
		b2.route(3, "b3")
		b2.route(4, "b4")
		f.renewAll()
		f.renewAll()
		if heard {
			f.check("b1: 10.1.0.2 b2 | b2: b3 b4 | b3: 10.3.0.1 | b4: 10.4.0.1")
			f.expects("10.4.0.1", 1080)
			f.expects("10.3.0.1", 1000)
			continue
		}
		// Where it is not known since when, nobody sends that receiver anything.
		if g := b4.published("g1"); g != nil && (len(g.Parts) != len(g.Paths) || g.Parts[0].Part != feedback.PartGone) {
			t.Errorf("b4 sends to %v, of which take part %v", g.Paths, g.Parts)
		}
	}
}

// What a box remembers of an ended branch outlives its lease, but not for ever.
func TestAnEndedBranchIsRememberedForADay(t *testing.T) {
	for after, remembers := range map[time.Duration]bool{time.Hour: true, 23 * time.Hour: true, 25 * time.Hour: false} {
		synctest.Test(t, func(t *testing.T) {
			f := newTree(t)
			f.create(evictingFile("10.1.0.2", "10.2.0.1", "10.2.0.2"))
			b2 := f.box("b2")
			b2.evicts("10.2.0.1")
			b2.ends()
			for _, wait := range []time.Duration{after, time.Second} {
				time.Sleep(wait)
				// Others that end let it forget what is old.
				if err := b2.Branches.DeleteBranch(t.Context(), "b1", fmt.Sprint("other", wait), 1<<60); kindOf(err) != api.NotFound {
					t.Error(err)
				}
			}
			f.renewAll()
			want := "b1: 10.1.0.2 b2 | b2: 10.2.0.2"
			if !remembers {
				want = "b1: 10.1.0.2 b2 | b2: 10.2.0.1 10.2.0.2"
			}
			f.check(want)
		})
	}
}

// A request of before is refused also where another box has asked since, and where a withdrawal of
// before comes again.
func TestARequestOfBeforeIsRefused(t *testing.T) {
	f := newFabric(t, 4, "b1 b2", "b1 b3", "b2 b4", "b3 b4")
	b1, b4 := f.box("b1"), f.box("b4")
	b1.route(4, "b2")
	f.box("b2").route(4, "b4")
	f.box("b3").route(4, "b4")
	create := func() { f.create(groupFile("10.1.0.2", "10.4.0.1")) }
	create()
	if err := b1.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	first := f.withdrawn["b4"]
	create()
	b1.route(4, "b3")
	b1.network.HopsChanged([]netip.Addr{addr("10.4.0.1")})
	f.tendAll(time.Now())
	f.check("b1: 10.1.0.2 b3 | b3: b4 | b4: 10.4.0.1")
	before := f.sent
	if err := b1.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	for _, upper := range []string{"b2", "b3"} {
		if err := b4.Branches.DeleteBranch(t.Context(), upper, "g1", first); kindOf(err) != api.NotFound {
			t.Error(err)
		}
	}
	for i, again := range before {
		if err := again(); kindOf(err) != api.Stale && kindOf(err) != api.NotFound {
			t.Errorf("request %d: %v", i, err)
		}
	}
	f.nothingLeft()
}
