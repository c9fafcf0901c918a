package ctl

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/desired"
	"github.com/rocast/rocast/ctl/shared"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab/etcd"
)

// bothFile lets the first receiver of a file send, too.
func bothFile(text string) string {
	return strings.Replace(text, "ip: 10.1.0.2,", "ip: 10.1.0.2, sendPSN: 2000, role: both,", 1)
}

// switchable is g1 with a receiver that may send.
var switchable = bothFile(groupFile("10.1.0.2", "10.1.0.3"))

// switches lets 10.1.0.2 become the source of g1, and returns what etcd has of the members when the
// turn begins.
func (b *box) switches() (members string) {
	begun := make(chan string, 1)
	b.sw.OnTurn = func(bool) {
		e, _ := b.Desired.Entry("g1")
		begun <- string(e.Members)
	}
	b.asksForATurn()
	return <-begun
}

// asksForATurn lets 10.1.0.2 send a packet of g1 while another member is the source.
func (b *box) asksForATurn() {
	turn := turnOfB
	turn.Source.IP = addr("10.1.0.2")
	b.groups.Lock()
	id := b.groups.Named("g1").ID
	b.groups.Unlock()
	b.sw.Wait(id, turn)
	b.newsOf("g1", feedback.NoteWaits, "10.1.0.2", 1, 2000)
}

// hasTurn reports whether the box carries g1 with the turn that switches began.
func (b *box) hasTurn() bool {
	g := b.groups.Named("g1")
	return g != nil && g.Published != nil && g.Past.Turn != nil
}

// says returns how the box describes g1.
func (b *box) says(t *testing.T) api.GroupSummary {
	t.Helper()
	for _, s := range b.Groups().Groups {
		if s.Name == "g1" {
			return s
		}
	}
	t.Fatalf("%s does not list g1", b.name)
	return api.GroupSummary{}
}

const onlyB1 = "its source has switched, and only b1 knows the offsets between the members' PSNs; start that box, or remove the group and " +
	"create it again with fresh QPs and PSNs"

// Before the source of a group switches for the first time, etcd knows it, and no other box takes
// the group over from then on. The box that carried the group has its turns when it is back.
func TestNoOtherBoxTakesOverAGroupWhoseSourceHasSwitched(t *testing.T) {
	t.Parallel()
	cluster, b1, b2, stop := rivals(t, switchable)
	b2.share(cluster)
	b2.eventually("it knows of the group", func() bool { return b2.root("g1") == "b1" })
	if members := b1.switches(); !strings.Contains(members, `"sourceSwitched": true`) || strings.Contains(members, `"turn"`) {
		t.Errorf("the turn begins, and etcd knows %s", members)
	}
	stop(false)
	b2.eventually("the group has no root", func() bool { return b2.root("g1") == "" })
	b2.shared.Reconcile(t.Context(), "g1", true)
	if s := b2.says(t); b2.published("g1") != nil || b2.root("g1") != "" || s.State != api.Failed || s.Reason != onlyB1 {
		t.Errorf("b2 carries %v, the root is %q, and b2 says %+v", b2.published("g1"), b2.root("g1"), s)
	}
	b1.restart(false, false)
	b1.share(cluster)
	b1.eventually("it is the root again, with the turn", func() bool { return b1.root("g1") == "b1" && b1.hasTurn() })
	b1.newsOf("g1", feedback.NoteEvicted, "10.1.0.3", 1, 2001)
	b2.eventually("it knows who was evicted, and of the switch", func() bool {
		e, _ := b2.Desired.Entry("g1")
		return strings.Contains(string(e.Members), "evicted") && chronicle.SaysSwitched(e.Members)
	})
}

// The root of a group whose source has switched loses its claim while it lives: etcd did not hear
// from it. It goes on, and claims the group again.
func TestALivingRootKeepsItsTurns(t *testing.T) {
	t.Parallel()
	cluster, b1, b2, stop := rivals(t, switchable)
	b2.share(cluster)
	b1.switches()
	id := b1.published("g1").ID
	stop(false)
	b2.eventually("the group has no root", func() bool { return b2.root("g1") == "" })
	b2.shared.Reconcile(t.Context(), "g1", true)
	b1.share(cluster)
	b1.eventually("it is the root again", func() bool { return b1.root("g1") == "b1" })
	if g := b1.published("g1"); g == nil || g.ID != id {
		t.Errorf("the group has begun again: %+v", g)
	}
}

// lateEtcd is etcd for a box that knows what it knew at some time, and no more.
type lateEtcd struct {
	shared.Desired
	known *atomic.Pointer[desired.Entry] // nil: it knows what is
}

func (l lateEtcd) Entry(name string) (desired.Entry, bool) {
	if e := l.known.Load(); e != nil {
		return *e, true
	}
	return l.Desired.Entry(name)
}

// A box that gets the address has not heard yet that the source has switched. It begins the group,
// and does not become its root; it ends the group when it hears of the switch. The turns stay.
func TestABoxHearsOfASwitchAfterItHasTheAddress(t *testing.T) {
	t.Parallel()
	cluster := etcd.Start(t, 1)
	b1, b2 := pair(t)
	var known atomic.Pointer[desired.Entry]
	b2.through = func(d shared.Desired) shared.Desired { return lateEtcd{d, &known} }
	for _, b := range []*box{b1, b2} {
		b.share(cluster)
		b.hearAddresses()
	}
	b1.create(t, bothFile(followingFile("10.1.0.2", "10.1.0.3")))
	b2.eventually("it knows of the group", func() bool { return b2.root("g1") == "b1" })
	before, _ := b2.Desired.Entry("g1")
	known.Store(&before)
	b1.switches()
	b1.addresses.Give(virtualIP, false)
	b2.addresses.Give(virtualIP, true)
	b2.eventually("it begins the group", b2.has("g1"))
	b2.shared.Reconcile(t.Context(), "g1", true)
	if root := b1.root("g1"); root != "b1" {
		t.Errorf("the root is %q: the group is taken over by what was known before the switch", root)
	}
	known.Store(nil)
	b2.shared.Reconcile(t.Context(), "g1", true)
	b2.eventually("it ends the group", b2.lacks("g1"))
	b1.addresses.Give(virtualIP, true)
	b1.eventually("it goes on with the turn", func() bool { return b1.root("g1") == "b1" && b1.hasTurn() && b1.groups.Named("g1").Away == "" })
	if e, _ := b1.Desired.Entry("g1"); !strings.Contains(string(e.Members), "sourceSwitched") {
		t.Errorf("etcd knows %s", e.Members)
	}
}

// The source of a switched group comes behind another box. That box cannot carry the group, so the
// root goes on.
func TestASwitchedGroupStaysAtItsRoot(t *testing.T) {
	t.Parallel()
	cluster := etcd.Start(t, 1)
	f := newFabric(t, 2, "b1 b2")
	b1 := f.box("b1")
	b1.share(cluster)
	b1.create(t, switchable)
	b1.switches()
	b1.route(1, "b2")
	b1.shared.Reconcile(t.Context(), "g1", true)
	b1.eventually("it carries the group", b1.hasTurn)
	if root := b1.root("g1"); root != "b1" {
		t.Errorf("the root is %q", root)
	}
}

// mute is etcd for a box that cannot store the state of members there.
type mute struct{ shared.Desired }

func (mute) PutMembers(context.Context, string, int64, []byte) error { return errors.New("not now") }

// Once etcd knows that the source of a group has switched, no turn waits for etcd, also after a
// restart.
func TestNoLaterTurnWaitsForEtcd(t *testing.T) {
	t.Parallel()
	cluster := etcd.Start(t, 1)
	b1 := newFabric(t, 1).box("b1")
	stop := b1.share(cluster)
	b1.create(t, switchable)
	b1.switches()
	stop(true)
	b1.restart(false, false)
	b1.through = func(d shared.Desired) shared.Desired { return mute{d} }
	b1.share(cluster)
	var begun atomic.Bool
	b1.sw.OnTurn = begun.Store
	b1.asksForATurn()
	b1.eventually("the turn begins", begun.Load)
}

// claimless is etcd for a box that cannot claim a group once it has yielded it.
type claimless struct {
	shared.Desired
	yielded *atomic.Bool
}

func (c claimless) Claim(ctx context.Context, name string, e desired.Entry) (bool, error) {
	if c.yielded.Load() {
		return false, nil
	}
	return c.Desired.Claim(ctx, name, e)
}

// A turn does not begin at a box whose claim has ended: another box may take the group over, and
// would not know of the turn.
func TestNoTurnBeginsWithoutTheClaim(t *testing.T) {
	t.Parallel()
	cluster := etcd.Start(t, 1)
	b1 := newFabric(t, 1).box("b1")
	var yielded atomic.Bool
	b1.through = func(d shared.Desired) shared.Desired { return claimless{d, &yielded} }
	b1.share(cluster)
	b1.create(t, switchable)
	b1.sw.OnTurn = func(granted bool) { t.Errorf("a turn is granted: %v", granted) }
	yielded.Store(true)
	unlock, _, err := b1.groups.Names.Lock(t.Context(), "g1", "") // so that the box keeps the group
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if err := b1.Desired.Yield(t.Context(), "g1"); err != nil {
		t.Fatal(err)
	}
	b1.asksForATurn()
	b1.eventually("it says that the member waits", func() bool {
		return b1.logs.FilterMessageSnippet("another member waits to be the source").Len() > 0
	})
}

// The address of a group whose source has switched leaves its box. No other box can carry the
// group, so its box keeps it, says so, and goes on when the address is back.
func TestTheAddressOfASwitchedGroupGoesAndComesBack(t *testing.T) {
	t.Parallel()
	cluster := etcd.Start(t, 1)
	b1, b2 := pair(t)
	stop := b1.share(cluster)
	b2.share(cluster)
	b1.hearAddresses()
	b2.hearAddresses()
	b1.create(t, bothFile(followingFile("10.1.0.2", "10.1.0.3")))
	b1.switches()
	id := b1.published("g1").ID
	b1.addresses.Give(virtualIP, false)
	const why = "the box does not have its address 10.1.0.200, and no other box can carry it, because its source has switched; give the " +
		"address back to this box, or remove the group and create it again with fresh QPs and PSNs"
	b1.eventually("it says that the address is away", func() bool { g := b1.groups.Named("g1"); return g != nil && g.Away == why })
	if s := b1.says(t); s.State != api.Degraded || s.Reason != why {
		t.Errorf("b1 says %+v", s)
	}
	b2.addresses.Give(virtualIP, true)
	b2.eventually("the root says that it is degraded", func() bool {
		e, _ := b2.Desired.Entry("g1")
		return strings.Contains(e.Report, "does not have its address")
	})
	b2.shared.Reconcile(t.Context(), "g1", true)
	stop(true)
	b2.eventually("the group has no root", func() bool { return b2.root("g1") == "" })
	b1.share(cluster) // as after a restart without the address, it does not know that the address was there
	b2.eventually("the root claims the group again, and says it again", func() bool { return b2.root("g1") == "b1" && b2.reportOf("g1") != "" })
	if s := b2.says(t); b2.published("g1") != nil || s.Reason != why {
		t.Errorf("b2 carries %v, the root is %q, and b2 says %+v", b2.published("g1"), b2.root("g1"), s)
	}
	b2.addresses.Give(virtualIP, false)
	b1.addresses.Give(virtualIP, true)
	b1.eventually("it goes on", func() bool { g := b1.groups.Named("g1"); return g != nil && g.Away == "" && b1.hasTurn() })
	if g := b1.published("g1"); g.ID != id {
		t.Error("the group has begun again")
	}
	b1.eventually("it says so", func() bool { return strings.Contains(b1.reportOf("g1"), `"ready"`) })
	got := strings.Join(b1.happened(), "\n")
	if !strings.Contains(got, "degraded g1: "+why) || !strings.Contains(got, "restored g1: the box has its address again") {
		t.Errorf("b1 tells\n%s", got)
	}
}

func (b *box) reportOf(name string) string { e, _ := b.Desired.Entry(name); return e.Report }

// A group is removed and created again with the same numbers at another box than its root. The new
// group is not the old one: its QPs are new, and the old merging state would acknowledge for them.
func TestAGroupIsCreatedAgainAtAnotherBox(t *testing.T) {
	t.Parallel()
	cluster := etcd.Start(t, 1)
	_, b1, b2 := sharedBoxes(t, cluster)
	text := groupFile("10.1.0.2", "10.1.0.3")
	for range 20 {
		b2.create(t, text)
		was := b1.published("g1")
		if was == nil || was.Restored {
			t.Fatalf("b1 carries %+v: want the new group", was)
		}
		// b1 hears of the removal and of the new group at once.
		unlock, _, err := b1.groups.Names.Lock(t.Context(), "g1", "")
		if err != nil {
			t.Fatal(err)
		}
		e, _ := b2.Desired.Entry("g1")
		if err := b2.Desired.Remove(t.Context(), "g1", e.Revision); err != nil {
			t.Fatal(err)
		}
		created := make(chan error, 1)
		go func() { _, err := b2.Create(t.Context(), []byte(text)); created <- err }()
		b1.eventually("it hears of the new group", func() bool { now, _ := b1.Desired.Entry("g1"); return now.Revision > e.Revision })
		unlock()
		if err := <-created; err != nil {
			t.Fatal(err)
		}
		if g := b1.published("g1"); g == nil || g.ID == was.ID || g.Restored {
			t.Fatalf("b1 carries %+v: want another group than %d", g, was.ID)
		}
		if err := b2.Remove("g1"); err != nil {
			t.Fatal(err)
		}
		b1.eventually("it has let go", b1.lacks("g1"))
	}
}

// The same while the root does not run: what it has stored of the old group is not the new one's.
func TestAGroupIsCreatedAgainWhileItsRootIsDown(t *testing.T) {
	t.Parallel()
	cluster := etcd.Start(t, 1)
	f := newFabric(t, 2)
	b1, b2 := f.box("b1"), f.box("b2")
	stop := b1.share(cluster)
	b2.share(cluster)
	text := groupFile("10.1.0.2", "10.1.0.3")
	b1.create(t, text)
	b1.newsOf("g1", feedback.NoteEvicted, "10.1.0.3", 1, 1007)
	b2.eventually("it knows who was evicted", func() bool { e, _ := b2.Desired.Entry("g1"); return strings.Contains(string(e.Members), "evicted") })
	stop(false)
	if err := b2.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	created := make(chan error, 1)
	go func() { _, err := b2.Create(t.Context(), []byte(text)); created <- err }()
	b2.eventually("the new group is there", func() bool { e, _ := b2.Desired.Entry("g1"); return e.Wanted() })
	b1.restart(false, false)
	if g := b1.published("g1"); g == nil || len(g.Paths) != 1 {
		t.Fatalf("b1 restores %+v: the test shows nothing", g)
	}
	b1.share(cluster)
	if err := <-created; err != nil {
		t.Fatal(err)
	}
	if g := b1.published("g1"); g == nil || g.Restored || len(g.Paths) != 2 {
		t.Errorf("b1 carries %+v: want the new group with both receivers", g)
	}
}

// While the root does not run, another box carries the group, and ends too. The root begins with
// what that box knew, and not with what it has stored itself.
func TestARootThatComesBackDoesNotGoOnWithWhatIsOld(t *testing.T) {
	t.Parallel()
	cluster, b1, b2, stop := rivals(t, groupFile("10.1.0.2", "10.1.0.3"))
	stop(false)
	stop2 := b2.share(cluster)
	b2.eventually("it carries the group", func() bool { return b2.root("g1") == "b2" && b2.groups.Named("g1") != nil })
	b2.newsOf("g1", feedback.NoteEvicted, "10.1.0.3", 1, 1007)
	b2.eventually("etcd knows who was evicted", func() bool { e, _ := b2.Desired.Entry("g1"); return strings.Contains(string(e.Members), "evicted") })
	stop2(true)
	b1.restart(false, false)
	if g := b1.published("g1"); g == nil || len(g.Paths) != 2 {
		t.Fatalf("b1 restores %+v: the test shows nothing", g)
	}
	b1.share(cluster)
	b1.eventually("it is the root", func() bool { return b1.root("g1") == "b1" && b1.groups.Named("g1") != nil })
	b1.eventually("it knows who was evicted", func() bool {
		g := b1.groups.Named("g1")
		return g != nil && g.Published != nil && len(g.Published.Paths) == 1
	})
}
