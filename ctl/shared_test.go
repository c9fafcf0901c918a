package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/desired"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/etcd"
)

// share lets a box take its groups from etcd until stop is called. A box that is not stopped
// politely keeps its claims until its lease ends.
func (b *box) share(cluster *etcd.Cluster) (stop func(politely bool)) {
	return b.shareFor(cluster, 2*time.Second)
}

// sharedBoxes returns two boxes that share their groups, and reach each other's hosts.
func sharedBoxes(t *testing.T, cluster *etcd.Cluster) (f *fabric, b1, b2 *box) {
	t.Helper()
	f, b1, b2 = twoBoxes(t)
	b2.route(1, "b1")
	b1.share(cluster)
	b2.share(cluster)
	return f, b1, b2
}

// rivals returns two boxes that reach all hosts by the same ways. The first one shares its groups
// with others, until stop, and carries the group of a text; the second one does not share any yet.
func rivals(t *testing.T, text string) (cluster *etcd.Cluster, b1, b2 *box, stop func(politely bool)) {
	t.Helper()
	cluster = etcd.Start(t, 1)
	b1, b2 = twins(t)
	stop = b1.share(cluster)
	b1.create(t, text)
	return cluster, b1, b2, stop
}

func (b *box) shareFor(cluster *etcd.Cluster, lease time.Duration) (stop func(politely bool)) {
	t := b.f.t
	d, err := desired.Open(desired.Config{Endpoints: cluster.Endpoints(), Prefix: "/lab", Box: b.name, Lease: lease, CheckName: groupfile.CheckName}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	b.Desired = d
	if b.through != nil {
		b.Desired = b.through(d)
	}
	b.Controller.share()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- b.shared.Run(ctx) }()
	end := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		d.Close()
	})
	t.Cleanup(end)
	return func(politely bool) {
		if !politely {
			d.Close() // it can give nothing back
		}
		end()
	}
}

func (b *box) eventually(what string, holds func() bool) {
	b.f.t.Helper()
	testlab.Eventually(b.f.t, 20*time.Second, b.name+": "+what, func() bool {
		b.groups.Lock()
		defer b.groups.Unlock()
		return holds()
	}, func() string { return fmt.Sprint(b.logs.All()) })
}

// tells waits for an event that begins so.
func (b *box) tells(begins string) {
	b.f.t.Helper()
	b.eventually("it tells "+begins, func() bool {
		return slices.ContainsFunc(b.happened(), func(e string) bool { return strings.HasPrefix(e, begins) })
	})
}

func (b *box) has(name string) func() bool { return func() bool { return b.groups.Named(name) != nil } }

func (b *box) lacks(name string) func() bool {
	return func() bool { return b.groups.Named(name) == nil }
}

// The group of an RDMA-CM connection is not among the desired ones. It can be removed all the same,
// and regions can come to it.
func TestAConnectionsGroupWhereBoxesShareGroups(t *testing.T) {
	t.Parallel()
	cluster := etcd.Start(t, 1)
	b1 := newFabric(t, 1).box("b1")
	b1.share(cluster)
	file, err := groupfile.Parse([]byte(groupFile("10.1.0.2")))
	if err != nil {
		t.Fatal(err)
	}
	if err := groupsOf(b1.Controller).Create(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	request, err := json.Marshal(another("10.1.0.2"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b1.ChangeRegions(t.Context(), "g1", request); err != nil || !strings.Contains(b1.memory(), "0x20000+100/0x88") {
		t.Errorf("a region: %v", err)
	}
	if err := b1.Remove("g1"); err != nil || b1.published("g1") != nil {
		t.Errorf("%v", err)
	}
}

// The source of g1 is attached to b1. Whichever box is asked, b1 sets the group up, with the part
// of it that is behind b2.
func TestTheBoxOfTheSourceCarriesAGroup(t *testing.T) {
	t.Parallel()
	cluster, ctx := etcd.Start(t, 1), t.Context()
	f, b1, b2 := sharedBoxes(t, cluster)
	text := groupFile("10.1.0.2", "10.2.0.1")
	g, err := b2.Create(ctx, []byte(text))
	if err != nil || g.State != api.Ready {
		t.Fatalf("%+v, %v", g, err)
	}
	f.check("b1: 10.1.0.2 b2 | b2: 10.2.0.1")
	if list := b1.Groups().Groups; len(list) != 1 || list[0].Root != "" {
		t.Errorf("b1 lists %+v", list)
	}
	if _, err := b1.Create(ctx, []byte(text)); err == nil || !strings.Contains(err.Error(), "group g1 exists") {
		t.Errorf("a second group of this name: %v", err)
	}
	if _, err := b2.Update(ctx, "g1", []byte(groupFile("10.1.0.2", "10.1.0.3", "10.2.0.1"))); err != nil {
		t.Fatal(err)
	}
	f.check("b1: 10.1.0.2 10.1.0.3 b2 | b2: 10.2.0.1")
	if _, err := b2.Update(ctx, "g1", []byte(strings.Replace(text, "mtu: 1024", "mtu: 2048", 1))); err == nil || !strings.Contains(err.Error(), "mtu") {
		t.Errorf("a change that no group can make: %v", err)
	}
	if err := b2.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	b1.eventually("g1 is gone", b1.lacks("g1"))
	b2.eventually("g1 is gone", b2.lacks("g1"))
	if err := b2.Remove("g1"); err == nil || !strings.Contains(err.Error(), `no group "g1"`) {
		t.Errorf("a second removal: %v", err)
	}
}

// What the root refuses is not kept: neither a new group nor a change.
func TestWhatTheRootRefusesIsTakenBack(t *testing.T) {
	t.Parallel()
	cluster, ctx := etcd.Start(t, 1), t.Context()
	f, b1, b2 := sharedBoxes(t, cluster)
	b1.sw.Refuse(errors.New("out of slots"))
	if _, err := b2.Create(ctx, []byte(groupFile("10.1.0.2"))); err == nil || !strings.Contains(err.Error(), "box b1, to which the source is attached, refuses the group: out of slots") {
		t.Errorf("%v", err)
	}
	b1.sw.Refuse(nil)
	if list := b2.Groups().Groups; len(list) != 0 {
		t.Errorf("left: %+v", list)
	}
	b2.create(t, groupFile("10.1.0.2"))
	if g, err := b2.Group("g1"); err != nil || g.Root != "b1" || g.State != api.Ready || g.MemberCount != 2 {
		t.Errorf("b2 shows %+v, %v", g, err)
	}
	b1.sw.Refuse(errors.New("out of memory"))
	if _, err := b2.Update(ctx, "g1", []byte(groupFile("10.1.0.2", "10.1.0.3"))); err == nil || !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("%v", err)
	}
	b1.sw.Refuse(nil)
	b1.eventually("the old file is back", func() bool {
		e, _ := b1.Desired.Entry("g1")
		return strings.HasPrefix(e.Report, fmt.Sprintf(`{"revision":%d,"group"`, e.Revision)) && strings.Count(string(e.Text), "qpn") == strings.Count(groupFile("10.1.0.2"), "qpn")
	})
	f.check("b1: 10.1.0.2")
}

// The group's file is kept by the box too, so its groups run while etcd is down, also after a
// restart of the box; changes are refused.
func TestGroupsRunOnWithoutEtcd(t *testing.T) {
	t.Parallel()
	cluster, ctx := etcd.Start(t, 1), t.Context()
	f := newFabric(t, 1)
	b := f.box("b1")
	stop := b.share(cluster)
	b.create(t, groupFile("10.1.0.2"))
	if s := b.Status(); !s.Healthy || !s.Ready {
		t.Errorf("%+v", s)
	}
	cluster.Kill(t, 0)
	soon, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	var refusal *api.Error
	if _, err := b.Update(soon, "g1", []byte(groupFile("10.1.0.2", "10.1.0.3"))); !errors.As(err, &refusal) || refusal.Kind != api.Unavailable || !strings.Contains(refusal.Message, "running groups run on") {
		t.Errorf("%v", err)
	}
	isAway := func() bool {
		s := b.statusAt(time.Now())
		return !s.Ready && len(s.Problems) == 1 && s.Problems[0].Of == api.OfStore && s.Problems[0].State == api.Away && strings.Contains(s.Problems[0].Reason, "changes are refused")
	}
	testlab.Eventually(t, 20*time.Second, "the status says that etcd is away", isAway, nil)
	b.tells("etcd-away: etcd does not answer: ")
	stop(true)
	b.restart(true, false)
	f.check("b1: 10.1.0.2")
	b.share(cluster)
	if !isAway() {
		t.Errorf("at a start: %+v", b.Status())
	}
	f.check("b1: 10.1.0.2")
	b.tells("etcd-away: etcd does not answer: ")
	cluster.Restart(t, 0)
	testlab.Eventually(t, 20*time.Second, "the box is well again", func() bool { s := b.Status(); return s.Healthy && s.Ready }, nil)
	b.tells("etcd-back: etcd answers")
	b.eventually("it has claimed its group again", func() bool { e, _ := b.Desired.Entry("g1"); return e.Root == "b1" && e.Report != "" })
	if _, err := b.Update(ctx, "g1", []byte(groupFile("10.1.0.2", "10.1.0.3"))); err != nil {
		t.Fatal(err)
	}
	f.check("b1: 10.1.0.2 10.1.0.3")
}

// aBoxGoesAway returns two boxes of one cluster. b1 carried the group g1, which b2 created, and is
// away now.
func aBoxGoesAway(t *testing.T) (cluster *etcd.Cluster, b1, b2 *box) {
	t.Helper()
	cluster = etcd.Start(t, 1)
	f := newFabric(t, 2, "b1 b2")
	b1, b2 = f.box("b1"), f.box("b2")
	b2.route(1, "b1")
	stop := b1.share(cluster)
	b2.share(cluster)
	b2.create(t, groupFile("10.1.0.2"))
	stop(true)
	return cluster, b1, b2
}

// While a box was away, a group was removed and another was created. The box catches up.
func TestABoxThatWasAwayCatchesUp(t *testing.T) {
	t.Parallel()
	cluster, b1, b2 := aBoxGoesAway(t)
	if err := b2.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	other := strings.NewReplacer("name: g1", "name: g2", "10.1.0.100", "10.1.0.101").Replace(groupFile("10.1.0.3"))
	if _, err := b2.Desired.Create(t.Context(), "g2", []byte(other)); err != nil {
		t.Fatal(err)
	}
	b2.eventually("g2 is shown", func() bool { s, ok := b2.elsewhere("g2"); return ok && s.State == api.Waiting })
	b1.restart(true, false)
	b1.share(cluster)
	b1.eventually("g2 stands", b1.has("g2"))
	b1.eventually("g1 is gone", b1.lacks("g1"))
}

// While a box was away, its group has got other memory and then other receivers.
func TestABoxThatWasAwayCatchesUpWithSeveralChanges(t *testing.T) {
	t.Parallel()
	cluster, b1, b2 := aBoxGoesAway(t)
	running, err := groupfile.Parse([]byte(groupFile("10.1.0.2")))
	if err != nil {
		t.Fatal(err)
	}
	change := another("10.1.0.2")
	memory, err := withRegions(running, &change)
	if err != nil {
		t.Fatal(err)
	}
	change = another("10.1.0.2", "10.1.0.3")
	if running, err = groupfile.Parse([]byte(groupFile("10.1.0.2", "10.1.0.3"))); err != nil {
		t.Fatal(err)
	}
	both, err := withRegions(running, &change)
	if err != nil {
		t.Fatal(err)
	}
	e, _ := b2.Desired.Entry("g1")
	revision := e.Revision
	for _, step := range []*groupfile.File{memory, both} {
		if revision, err = b2.Desired.Update(t.Context(), "g1", step.Text(), revision); err != nil {
			t.Fatal(err)
		}
	}
	b1.restart(true, false)
	b1.share(cluster)
	b1.eventually("g1 has its memory and receivers", func() bool {
		g := b1.groups.Named("g1")
		return g != nil && g.Wanted != nil && len(g.Wanted.Receivers) == 2 && len(g.Wanted.Memory) == 2
	})
	if got, want := b1.memory(), "0x10000+4096/0x77: 10.1.0.2=0xc000/0x7 10.1.0.3=0xd000/0x7; 0x20000+100/0x88: 10.1.0.2=0x10000c000/0x8 10.1.0.3=0x10000d000/0x8"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Two boxes reach the source. When the one that carries the group dies, the other one takes it
// over, as after a restart, and knows which receivers take no part any more. The first one lets go
// when it comes back.
func TestAnotherBoxTakesOver(t *testing.T) {
	t.Parallel()
	cluster, b1, b2, stop := rivals(t, groupFile("10.1.0.2", "10.1.0.3"))
	b2.share(cluster)
	b2.eventually("it knows of the group", func() bool { e, _ := b2.Desired.Entry("g1"); return e.Root == "b1" })
	b1.newsOf("g1", feedback.NoteEvicted, "10.1.0.3", 1, 1007)
	b2.eventually("it knows who was evicted", func() bool { e, _ := b2.Desired.Entry("g1"); return strings.Contains(string(e.Members), "evicted") })
	stop(false)
	b2.eventually("it has the group", b2.has("g1"))
	if g := b2.published("g1"); !g.Restored || len(g.Paths) != 1 {
		t.Errorf("%+v", g)
	}
	file := filepath.Join(b1.dir, "groups", "g1.yaml")
	if err := os.WriteFile(file, []byte("name: g1\n"), 0o600); err != nil { // it lets go what it cannot read, too
		t.Fatal(err)
	}
	b1.restart(false, false)
	if g := b1.groups.Named("g1"); g == nil || g.Wanted != nil {
		t.Errorf("%+v", g)
	}
	b1.share(cluster)
	b1.eventually("it lets go", b1.lacks("g1"))
}

// The root dies when it may have let another receiver join, and nobody knows with which packet. The
// box that takes the group over must not take the receiver for one that has all packets: its queue
// pair expects other PSNs.
func TestABoxTakesOverWithAReceiverThatMayHaveJoined(t *testing.T) {
	t.Parallel()
	cluster, b1, b2, stop := rivals(t, groupFile("10.1.0.2"))
	ctx := t.Context()
	b1.eventually("its members are in etcd", func() bool { e, _ := b1.Desired.Entry("g1"); return e.Members != nil })
	e, _ := b1.Desired.Entry("g1")
	editor, err := desired.Open(desired.Config{Endpoints: cluster.Endpoints(), Prefix: "/lab", Box: "b9", Lease: time.Minute}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer editor.Close()
	stop(false)
	if _, err := editor.Update(ctx, "g1", []byte(groupFile("10.1.0.2", "10.1.0.3")), e.Revision); err != nil {
		t.Fatal(err)
	}
	b2.share(cluster)
	b2.eventually("it has the group", b2.has("g1"))
	b2.groups.Lock()
	defer b2.groups.Unlock()
	g := b2.groups.Named("g1")
	if a, b := g.Past.Standing(idOf("10.1.0.2")), g.Past.Standing(idOf("10.1.0.3")); a != "" || b != chronicle.Lost {
		t.Errorf("%q, %q", a, b)
	}
	if p := b2.published("g1"); !p.Restored || len(p.Paths) != 1 {
		t.Errorf("%+v", p)
	}
}

// The root of a tree dies. A box that carried a part of the group reaches the source too, and
// becomes the root: the other box takes its word against that of the old root.
func TestABoxBelowReplacesTheRoot(t *testing.T) {
	t.Parallel()
	cluster, ctx := etcd.Start(t, 1), t.Context()
	f := newFabric(t, 3, "b1 b2", "b1 b3", "b2 b3")
	b1, b2, b3 := f.box("b1"), f.box("b2"), f.box("b3")
	for _, b := range []*box{b1, b2} {
		b.route(3, "b3")
	}
	b1.route(2, "b2")
	b3.route(1, "b1")
	b3.route(2, "b2")
	b2.hops.Set(map[string]nexthop.Hop{"10.1.0.1": b1.hops.Hop(addr("10.1.0.1"))})
	stop := b1.share(cluster)
	b3.share(cluster)
	b3.create(t, groupFile("10.2.0.1", "10.3.0.1"))
	f.check("b1: b2 b3 | b2: 10.2.0.1 | b3: 10.3.0.1")
	b2.share(cluster)
	b2.eventually("it knows of the root", func() bool { e, _ := b2.Desired.Entry("g1"); return e.Root == "b1" })
	stop(false)
	b2.eventually("it is the root", func() bool { g := b2.groups.Named("g1"); return g != nil && g.Branch == nil && g.Problem == "" })
	for b, want := range map[*box]string{b2: "b2: 10.2.0.1 b3", b3: "b3: 10.3.0.1"} {
		if got := f.shape(); !strings.Contains(got, want) {
			t.Errorf("%s: the tree is %s", b.name, got)
		}
	}
	if g := b3.groups.Named("g1"); g.Branch.Root != "b2" || !b3.published("g1").Restored {
		t.Errorf("b3: %+v", g.Branch)
	}
	old := b1.groups.Named("g1") // which does not know yet
	b1.edit("g1", func(g *groups.Group) {
		for _, l := range g.Links {
			l.Version, l.Asked = groups.NextVersion(l.Version, time.Now()), time.Time{}
		}
	})
	b1.Branches.Tend(ctx, old)
	if g := b3.groups.Named("g1"); g.Branch.Root != "b2" {
		t.Errorf("b3 follows the old root: %+v", g.Branch)
	}
	b1.restart(false, false)
	b1.share(cluster)
	b1.eventually("it lets go", func() bool { g := b1.groups.Named("g1"); return g == nil || g.Branch != nil })
	if g := b3.groups.Named("g1"); g == nil || g.Branch.Root != "b2" {
		t.Errorf("b3 has lost its part: %+v", g)
	}
}

// The source of a group moves to another box, which becomes the root.
func TestTheSourceMovesToAnotherBox(t *testing.T) {
	t.Parallel()
	cluster := etcd.Start(t, 1)
	_, b1, b2 := sharedBoxes(t, cluster)
	b1.create(t, groupFile("10.1.0.2", "10.1.0.3"))
	b1.sw.Part(b1.published("g1").ID, "10.1.0.3", feedback.PartGone) // and nobody has looked since
	direct := b1.hops.Hop(addr("10.1.0.1"))
	b1.route(1, "b2")
	b2.hops.Set(map[string]nexthop.Hop{"10.1.0.1": direct, "10.1.0.2": direct, "10.1.0.3": direct})
	b2.eventually("it has the group", b2.has("g1"))
	b1.eventually("it has let go", b1.lacks("g1"))
	if g := b2.published("g1"); !g.Restored || len(g.Paths) != 1 {
		t.Errorf("%+v", g)
	}
}

// A group whose source no box reaches, or whose address no box has, is refused and not kept.
func TestAGroupThatNoBoxCanCarry(t *testing.T) {
	t.Parallel()
	cluster := etcd.Start(t, 1)
	f := newFabric(t, 1)
	b := f.box("b1")
	b.share(cluster)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var asking sync.WaitGroup
	for text, want := range map[string]string{
		strings.Replace(groupFile("10.1.0.2"), "ip: 10.1.0.1,", "ip: 10.77.0.1,", 1): "no box says that the source 10.77.0.1 is attached to it",
		strings.Replace(followingFile("10.1.0.2"), "g1", "g2", 1):                    "no box has 10.1.0.200, and with addressing switch-ip the box that has it carries the group",
	} {
		asking.Go(func() {
			if _, err := b.Create(ctx, []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v", err)
			}
		})
	}
	asking.Wait()
	for _, name := range []string{"g1", "g2"} {
		b.eventually("nothing is left", func() bool { e, _ := b.Desired.Entry(name); return !e.Wanted() })
	}
}

// What another program has put into etcd is no group if its key has no name of one, and cannot be
// set up if its file has another name.
func TestNamesInEtcdAreChecked(t *testing.T) {
	cluster := etcd.Start(t, 1)
	f := newFabric(t, 1)
	b := f.box("b1")
	b.share(cluster)
	other, err := desired.Open(desired.Config{Endpoints: cluster.Endpoints(), Prefix: "/lab", Box: "b9", Lease: time.Minute}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	text := groupFile("10.1.0.2")
	for _, name := range []string{"../../x", "\x1b[31mred", "g1 ", strings.Repeat("g", 64)} {
		if _, err := other.Create(t.Context(), name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := other.Create(t.Context(), "g2", []byte(text)); err != nil { // the file of g1
		t.Fatal(err)
	}
	b.eventually("it has heard of them", func() bool { return len(b.Desired.Names()) == 1 })
	b.create(t, text)
	b.eventually("it carries the one that can be", b.has("g1"))
	if names := b.groups.SeenNames(); !slices.Equal(names, []string{"g1"}) || !slices.Equal(b.Desired.Names(), []string{"g1", "g2"}) {
		t.Errorf("%q, %q", names, b.Desired.Names())
	}
}
