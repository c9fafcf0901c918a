package desired

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/certs"
	"github.com/rocast/rocast/internal/testlab/etcd"
)

// box is a connection of a box whose Run has read everything and has a lease.
type box struct {
	*Desired
	stop func()
	dead bool // its connection was cut for good

	mu      sync.Mutex
	changed *sync.Cond
	told    []string
}

func newBox(t *testing.T, cluster *etcd.Cluster, name string) *box {
	t.Helper()
	b := &box{}
	b.changed = sync.NewCond(&b.mu)
	log := zaptest.NewLogger(t, zaptest.WrapOptions(zap.Hooks(func(zapcore.Entry) error { b.notice(nil); return nil })))
	d, err := Open(Config{Endpoints: cluster.Endpoints(), Prefix: "/lab", Box: name, Lease: 2 * time.Second}, log)
	if err != nil {
		t.Fatal(err)
	}
	b.Desired = d
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- d.Run(ctx, b.notice)
	}()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := d.Close(); err != nil && !b.dead {
			t.Error(err)
		}
	})
	t.Cleanup(b.stop)
	b.untilLeased(t, true)
	return b
}

// notice hears of groups from Run. It is also called for every line of the log: the end of a lease
// is only logged.
func (b *box) notice(names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = append(b.told, names...)
	b.changed.Broadcast()
}

// heard returns the names that notice has heard.
func (b *box) heard() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.told)
}

func (b *box) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = nil
}

// until waits until a condition holds. notice says when it may have changed.
func (b *box) until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	late := time.AfterFunc(20*time.Second, b.changed.Broadcast)
	end := time.Now().Add(20 * time.Second)
	defer late.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	for !holds() {
		if time.Now().After(end) {
			t.Fatalf("%s: not after 20 s", what)
		}
		b.changed.Wait()
	}
}

// untilLeased waits until the box has a lease, or has none.
func (b *box) untilLeased(t *testing.T, want bool) {
	t.Helper()
	b.until(t, fmt.Sprintf("%s has a lease: %v", b.Box(), want), func() bool { _, err := b.leased(); return (err == nil) == want })
}

// has waits until the box sees a group so.
func (b *box) has(t *testing.T, name string, holds func(Entry) bool) {
	t.Helper()
	b.until(t, b.Box()+" sees "+name, func() bool { e, _ := b.Entry(name); return holds(e) })
}

func (b *box) create(t *testing.T, name, text string) (revision int64) {
	t.Helper()
	revision, err := b.Create(context.Background(), name, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	b.has(t, name, func(e Entry) bool { return e.Revision == revision })
	return revision
}

// claim claims a group by what the box knows of it, if the box knows of the given revision.
func (b *box) claim(t *testing.T, name string, revision int64) (claimed, begun bool) {
	t.Helper()
	e, _ := b.Entry(name)
	e.Revision = revision
	claimed, err := b.Claim(context.Background(), name, e)
	if err != nil {
		t.Fatal(err)
	}
	return claimed, e.Begun
}

func TestAGroupIsSeenByAllBoxesUntilItIsRemoved(t *testing.T) {
	cluster, ctx := etcd.Start(t, 1), context.Background()
	a, b := newBox(t, cluster, "a"), newBox(t, cluster, "b")
	first := a.create(t, "g1", "one")
	b.has(t, "g1", func(e Entry) bool { return string(e.Text) == "one" && e.Wanted() && !e.Begun })
	if _, err := b.Create(ctx, "g1", []byte("two")); !errors.Is(err, ErrExists) {
		t.Errorf("a second group of this name: %v", err)
	}
	second, err := b.Update(ctx, "g1", []byte("two"), first)
	if err != nil {
		t.Fatal(err)
	}
	a.has(t, "g1", func(e Entry) bool { return string(e.Text) == "two" && e.Revision == second })
	if _, err := a.Update(ctx, "g1", []byte("three"), first); !errors.Is(err, ErrChanged) {
		t.Errorf("an update of what another writer has changed: %v", err)
	}
	if err := a.Remove(ctx, "g1", first); !errors.Is(err, ErrChanged) {
		t.Errorf("a removal of what another writer has changed: %v", err)
	}
	if err := a.Remove(ctx, "g1", second); err != nil {
		t.Fatal(err)
	}
	b.has(t, "g1", func(e Entry) bool { return !e.Wanted() })
	if err := b.Remove(ctx, "g1", second); !errors.Is(err, ErrChanged) {
		t.Errorf("a second removal of this revision: %v", err)
	}
	if err := b.Remove(ctx, "g1", 0); !errors.Is(err, ErrMissing) {
		t.Errorf("a second removal: %v", err)
	}
	if _, err := a.Update(ctx, "g1", []byte("three"), second); !errors.Is(err, ErrChanged) {
		t.Errorf("an update of a removed group: %v", err)
	}
}

func TestOneBoxClaimsAGroupAndAnotherTakesItOver(t *testing.T) {
	cluster, ctx := etcd.Start(t, 1), context.Background()
	a, b := newBox(t, cluster, "a"), newBox(t, cluster, "b")
	revision := a.create(t, "g1", "one")
	if claimed, _ := a.claim(t, "g1", revision-1); claimed {
		t.Error("an older version of the group was claimed")
	}
	if claimed, begun := a.claim(t, "g1", revision); !claimed || begun {
		t.Errorf("claimed %v, begun %v: want a claim of a group that no box has claimed", claimed, begun)
	}
	if claimed, _ := b.claim(t, "g1", revision); claimed {
		t.Error("two boxes have claimed the group")
	}
	if claimed, begun := a.claim(t, "g1", revision); !claimed || !begun {
		t.Errorf("claimed %v, begun %v: want that a box finds its own claim again", claimed, begun)
	}
	if err := errors.Join(a.Report(ctx, "g1", "ready"), a.PutMembers(ctx, "g1", 0, []byte("state"))); err != nil {
		t.Fatal(err)
	}
	if err := b.PutMembers(ctx, "g1", 0, []byte("mine")); !errors.Is(err, ErrNotRoot) {
		t.Errorf("the state of another box's group is stored: %v", err)
	}
	if err := errors.Join(b.Report(ctx, "g1", "mine"), b.Yield(ctx, "g1")); err != nil {
		t.Fatal(err)
	}
	b.has(t, "g1", func(e Entry) bool {
		return e.Root == "a" && e.Last == "a" && e.Report == "ready" && string(e.Members) == "state"
	})
	a.stop()
	b.has(t, "g1", func(e Entry) bool { return e.Root == "" && e.Report == "" })
	if claimed, begun := b.claim(t, "g1", revision); !claimed || !begun {
		t.Errorf("claimed %v, begun %v: want that the group is taken over", claimed, begun)
	}
	if e, _ := b.Entry("g1"); string(e.Members) != "state" {
		t.Errorf("members %q: want what the first box had stored", e.Members)
	}
	if err := b.Yield(ctx, "g1"); err != nil {
		t.Fatal(err)
	}
	b.has(t, "g1", func(e Entry) bool { return e.Root == "" && e.Wanted() })
	if err := b.PutMembers(ctx, "g1", 0, nil); !errors.Is(err, ErrNotRoot) {
		t.Errorf("the state of a group without a root is stored: %v", err)
	}
	if err := b.Remove(ctx, "g1", 0); err != nil {
		t.Fatal(err)
	}
	again := b.create(t, "g1", "two")
	if claimed, begun := b.claim(t, "g1", again); !claimed || begun {
		t.Errorf("claimed %v, begun %v: want that nothing of the removed group is left", claimed, begun)
	}
}

// A box does not claim a group by what it knew before another box carried the group, or before the
// group was removed and created again.
func TestAClaimIsOfWhatTheBoxKnows(t *testing.T) {
	cluster, ctx := etcd.Start(t, 1), context.Background()
	a, b := newBox(t, cluster, "a"), newBox(t, cluster, "b")
	revision := a.create(t, "g1", "one")
	a.has(t, "g1", func(e Entry) bool { return e.Wanted() })
	fresh, _ := a.Entry("g1")
	b.has(t, "g1", func(e Entry) bool { return e.Wanted() })
	if claimed, _ := b.claim(t, "g1", revision); !claimed {
		t.Fatal("b has not claimed the group")
	}
	if err := b.Yield(ctx, "g1"); err != nil {
		t.Fatal(err)
	}
	if claimed, err := a.Claim(ctx, "g1", fresh); claimed || err != nil {
		t.Errorf("claimed %v, %v: want none, because b has carried the group meanwhile", claimed, err)
	}
	a.has(t, "g1", func(e Entry) bool { return e.Begun && e.Last == "b" && e.Root == "" })
	old, _ := a.Entry("g1")
	if err := b.Remove(ctx, "g1", 0); err != nil {
		t.Fatal(err)
	}
	old.Revision = b.create(t, "g1", "one")
	if claimed, err := a.Claim(ctx, "g1", old); claimed || err != nil {
		t.Errorf("claimed %v, %v: want none, because the group is another one", claimed, err)
	}
	a.has(t, "g1", func(e Entry) bool { return e.Wanted() && !e.Begun && e.Last == "" })
	if claimed, begun := a.claim(t, "g1", old.Revision); !claimed || begun {
		t.Errorf("claimed %v, begun %v", claimed, begun)
	}
}

// What a box asks for an older group of a name is not done to the group that was created again,
// although the same box is its root.
func TestARequestForAnOlderGroupIsRefused(t *testing.T) {
	cluster, ctx := etcd.Start(t, 1), context.Background()
	a, b := newBox(t, cluster, "a"), newBox(t, cluster, "b")
	a.claim(t, "g1", a.create(t, "g1", "one"))
	b.has(t, "g1", func(e Entry) bool { return e.Wanted() && e.Root == "a" })
	old, _ := a.Entry("g1")
	if err := a.PutMembers(ctx, "g1", old.Created, []byte("old")); err != nil {
		t.Fatal(err)
	}
	if err := a.Remove(ctx, "g1", 0); err != nil {
		t.Fatal(err)
	}
	if claimed, err := b.TakeOver(ctx, "g1", Entry{}); claimed || err != nil {
		t.Errorf("a group that does not exist is taken over: %v, %v", claimed, err)
	}
	revision := a.create(t, "g1", "one")
	a.claim(t, "g1", revision)
	if err := a.PutMembers(ctx, "g1", old.Created, []byte("old")); !errors.Is(err, ErrNotRoot) {
		t.Errorf("the state of an older group's members is stored: %v", err)
	}
	if err := a.PutMembers(ctx, "g1", old.Created, nil); !errors.Is(err, ErrNotRoot) {
		t.Errorf("the state of the members is removed for an older group: %v", err)
	}
	old.membersAt = 0
	if claimed, err := b.TakeOver(ctx, "g1", old); claimed || err != nil {
		t.Errorf("claimed %v, %v: want none, because the group is another one", claimed, err)
	}
	changed, err := a.Update(ctx, "g1", []byte("two"), revision)
	if err != nil {
		t.Fatal(err)
	}
	b.has(t, "g1", func(e Entry) bool { return e.Revision == changed })
	late := newBox(t, cluster, "late") // it has read what the others have heard
	late.has(t, "g1", func(e Entry) bool { return e.Wanted() })
	for _, knows := range []*box{a, b, late} {
		if e, _ := knows.Entry("g1"); e.Created != revision {
			t.Errorf("%s knows that the group was created with revision %d, want %d", knows.Box(), e.Created, revision)
		}
	}
	for _, created := range []int64{revision, 0} {
		if err := a.PutMembers(ctx, "g1", created, fmt.Appendf(nil, "known %d", created)); err != nil {
			t.Errorf("with %d: %v", created, err)
		}
	}
	b.has(t, "g1", func(e Entry) bool { return string(e.Members) == "known 0" })
	now, _ := b.Entry("g1")
	if claimed, err := b.TakeOver(ctx, "g1", now); !claimed || err != nil {
		t.Errorf("claimed %v, %v: want that the group is taken over", claimed, err)
	}
	if err := a.PutMembers(ctx, "g1", revision, []byte("late")); !errors.Is(err, ErrNotRoot) {
		t.Errorf("the state of another box's group is stored: %v", err)
	}
}

func TestABoxThatDiesLosesItsClaims(t *testing.T) {
	cluster := etcd.Start(t, 1)
	a, b := newBox(t, cluster, "a"), newBox(t, cluster, "b")
	revision := a.create(t, "g1", "one")
	a.claim(t, "g1", revision)
	a.dead = true
	if err := a.client.Close(); err != nil { // nothing is given back
		t.Fatal(err)
	}
	b.has(t, "g1", func(e Entry) bool { return e.Begun && e.Root == "" && e.Wanted() })
}

func TestABoxThatComesLateReadsEverything(t *testing.T) {
	cluster := etcd.Start(t, 1)
	a := newBox(t, cluster, "a")
	for _, name := range []string{"g1", "g2", "g3"} {
		a.create(t, name, name)
	}
	b := newBox(t, cluster, "b")
	b.has(t, "g3", func(e Entry) bool { return string(e.Text) == "g3" })
	b.until(t, "b has all names", func() bool {
		return slices.Contains(b.told, "g1") && slices.Contains(b.told, "g2") && slices.Contains(b.told, "g3")
	})
}

func TestWhatIsNotOursIsLeftAlone(t *testing.T) {
	cluster := etcd.Start(t, 1)
	a := newBox(t, cluster, "a")
	for _, key := range []string{"/lab/groups/", "/lab/other/g1", "/laboratory/groups/g1", "/lab/g1"} {
		if _, err := a.client.Put(context.Background(), key, "x"); err != nil {
			t.Fatal(err)
		}
	}
	a.create(t, "last", "x")
	if e, ok := a.Entry("g1"); ok {
		t.Errorf("g1 is %+v", e)
	}
	b := newBox(t, cluster, "b")
	b.has(t, "last", Entry.wanted)
	other := func(name string) bool { return name != "last" }
	if e, ok := b.Entry("g1"); ok || slices.ContainsFunc(b.heard(), other) {
		t.Errorf("g1 is %+v, told %q", e, b.heard())
	}
}

func (e Entry) wanted() bool { return e.Wanted() }

// While etcd is down a box knows what it knew, refuses changes in one sentence, and catches up
// afterwards.
func TestEtcdDown(t *testing.T) {
	cluster, ctx := etcd.Start(t, 1), context.Background()
	a := newBox(t, cluster, "a")
	revision := a.create(t, "g1", "one")
	a.claim(t, "g1", revision)
	a.create(t, "g2", "two")
	cluster.Kill(t, 0)
	soon, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	// The connection to what was killed may still be there.
	cause := regexp.MustCompile("connection refused|connection reset by peer|EOF")
	if _, err := a.Update(soon, "g1", []byte("two"), revision); err == nil || !strings.Contains(err.Error(), "etcd at "+cluster.Endpoints()[0]+" does not answer, and running groups run on") || !cause.MatchString(err.Error()) {
		t.Errorf("update: %v", err)
	}
	if e, ok := a.Entry("g1"); !ok || string(e.Text) != "one" {
		t.Errorf("%+v %v: want what was known", e, ok)
	}
	a.untilLeased(t, false)
	if _, err := a.Claim(ctx, "g2", Entry{Revision: revision}); err == nil || !strings.Contains(err.Error(), "no lease") {
		t.Errorf("claim: %v", err)
	}
	a.forget()
	cluster.Restart(t, 0)
	a.until(t, "all names are told again", func() bool { return slices.Contains(a.told, "g1") && slices.Contains(a.told, "g2") })
	a.untilLeased(t, true)
	if claimed, begun := a.claim(t, "g1", revision); !claimed || !begun {
		t.Errorf("claimed %v, begun %v: want the claim again", claimed, begun)
	}
}

// A cluster of three has a new leader when its leader is killed, and no change is lost or half
// done: each writer adds a line to the same group until all lines are there.
func TestTheLeaderIsKilledUnderChanges(t *testing.T) {
	cluster, ctx := etcd.Start(t, 3), context.Background()
	const writers, lines = 3, 20
	boxes := make([]*box, writers)
	for i := range boxes {
		boxes[i] = newBox(t, cluster, string(rune('a'+i)))
	}
	boxes[0].create(t, "g1", "")
	var writing sync.WaitGroup
	half := make(chan struct{}, writers)
	for _, b := range boxes {
		b.has(t, "g1", Entry.wanted)
		writing.Go(func() {
			for n := 0; n < lines; {
				e, _ := b.Entry("g1")
				line := b.Box() + string(rune('A'+n)) + "\n"
				if strings.Contains(string(e.Text), line) {
					n++ // also if the answer was lost and the change was not
					if n == lines/2 {
						half <- struct{}{}
					}
					continue
				}
				revision, err := b.Update(ctx, "g1", append(slices.Clone(e.Text), line...), e.Revision)
				switch {
				case err == nil:
					b.has(t, "g1", func(e Entry) bool { return e.Revision >= revision })
				case errors.Is(err, ErrChanged):
					b.has(t, "g1", func(now Entry) bool { return now.Revision != e.Revision })
				}
			}
		})
	}
	<-half
	leader := cluster.Leader(t)
	cluster.Kill(t, leader)
	writing.Wait()
	want := boxes[0].text(t, "g1")
	for _, b := range boxes {
		for n := range lines {
			if line := b.Box() + string(rune('A'+n)) + "\n"; strings.Count(want, line) != 1 {
				t.Errorf("line %q is there %d times", line, strings.Count(want, line))
			}
		}
	}
	cluster.Restart(t, leader)
}

// text returns a group's file as the cluster has it, not as the member has it that is asked: that
// one may lag.
func (b *box) text(t *testing.T, name string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	answer, err := b.client.Get(ctx, b.key(groups, name))
	if err != nil || len(answer.Kvs) != 1 {
		t.Fatalf("%+v %v", answer, err)
	}
	return string(answer.Kvs[0].Value)
}

// A box knows of its own changes at once, and what etcd tells later of the time before does not
// undo them.
func TestABoxKnowsItsOwnChangesAtOnce(t *testing.T) {
	cluster, ctx := etcd.Start(t, 1), context.Background()
	d, err := Open(Config{Endpoints: cluster.Endpoints(), Prefix: "/lab", Box: "a", Lease: 2 * time.Second}, zaptest.NewLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	lease, err := d.client.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	d.setLease(lease.ID, nil) // without Run nothing is heard of etcd
	first, err := d.Create(ctx, "g1", []byte("one"))
	if e, _ := d.Entry("g1"); err != nil || string(e.Text) != "one" || e.Revision != first || e.Created != first || e.Held {
		t.Errorf("%+v, %v", e, err)
	}
	wanted, _ := d.Entry("g1")
	if claimed, err := d.Claim(ctx, "g1", wanted); !claimed || err != nil {
		t.Error(claimed, err)
	}
	if err := d.Report(ctx, "g1", "ready"); err != nil {
		t.Error(err)
	}
	between, err := d.Update(ctx, "g1", []byte("one and a half"), first)
	if err != nil {
		t.Fatal(err)
	}
	second, err := d.Update(ctx, "g1", []byte("two"), between)
	if e, _ := d.Entry("g1"); err != nil || !e.Held || !e.Begun || e.Report != "ready" || string(e.Text) != "two" || e.Revision != second || e.Created != first {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err := d.Update(ctx, "g1", []byte("three"), first); !errors.Is(err, ErrChanged) {
		t.Error(err)
	}
	before := clientv3.GetResponse{Header: &etcdserverpb.ResponseHeader{Revision: second - 1}} // etcd's answer crossed the update
	if d.take(&before, true) {
		t.Error("what etcd answered of the time before is taken")
	}
	if e, _ := d.Entry("g1"); string(e.Text) != "two" {
		t.Errorf("%+v", e)
	}
	d.apply([]*clientv3.Event{{Type: clientv3.EventTypePut, Kv: &mvccpb.KeyValue{Key: []byte("/lab/groups/g1"), Value: []byte("one"), ModRevision: first}}})
	if e, _ := d.Entry("g1"); string(e.Text) != "two" {
		t.Errorf("%+v", e)
	}
	d.setLease(lease.ID+1, nil)
	if e, _ := d.Entry("g1"); e.Held || e.Root != "a" {
		t.Errorf("a claim of an earlier lease: %+v", e)
	}
	d.setLease(lease.ID, nil)
	if err := d.Yield(ctx, "g1"); err != nil {
		t.Error(err)
	}
	if e, _ := d.Entry("g1"); e.Root != "" || e.Held || e.Report != "" {
		t.Errorf("%+v", e)
	}
	if err := d.Remove(ctx, "g1", 0); err != nil {
		t.Error(err)
	}
	if e, _ := d.Entry("g1"); e.Wanted() || e.Begun || e.Created != 0 {
		t.Errorf("%+v", e)
	}
}

// With TLS a box shows its certificate to etcd and checks that of etcd. A box that has no
// certificate, or trusts another authority, gets nothing, and the error says why.
func TestEtcdWithTLS(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	ca, err := certs.NewAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := certs.NewAuthority(other)
	if err != nil {
		t.Fatal(err)
	}
	settings := Settings{Prefix: "/lab", Lease: 2 * time.Second, CA: ca.Path, Endpoints: []string{"https://localhost:1"}}
	if settings.Cert, settings.Key, err = ca.Issue(dir, time.Now().Add(certs.Lifetime), "a"); err != nil {
		t.Fatal(err)
	}
	config, err := settings.Config("a")
	if err != nil {
		t.Fatal(err)
	}
	cluster := etcd.StartTLS(t, 1, ca, config.TLS)
	settings.Endpoints = cluster.Endpoints()
	bare, mistrusting, unknown := settings, settings, settings
	bare.Cert, bare.Key = "", ""
	mistrusting.CA = stranger.Path
	if unknown.Cert, unknown.Key, err = stranger.Issue(other, time.Now().Add(certs.Lifetime), "a"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, want string
		Settings
	}{
		{"its own", "", settings},
		{"no certificate", "remote error: tls: ", bare},
		{"a certificate of another authority", "remote error: tls: ", unknown},
		{"another authority", "certificate signed by unknown authority", mistrusting},
	} {
		config, err := c.Config("a")
		if err != nil {
			t.Fatal(err)
		}
		d, err := Open(config, zaptest.NewLogger(t))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err = d.Create(ctx, "g1", []byte("one"))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// A box knows whether etcd can be relied on: not before it has answered, nor while it is
// down.
func TestEtcdIsAway(t *testing.T) {
	cluster := etcd.Start(t, 1)
	d, err := Open(Config{Endpoints: cluster.Endpoints(), Prefix: "/lab", Box: "b0", Lease: 2 * time.Second}, zaptest.NewLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Away(); !errors.Is(err, errNoAnswerYet) {
		t.Errorf("before it was asked: %v", err)
	}
	b := newBox(t, cluster, "b1")
	is := func(away bool) func() bool { return func() bool { return (b.Away() != nil) == away } }
	testlab.Eventually(t, testlab.Patience, "etcd answers", is(false), nil)
	cluster.Kill(t, 0)
	testlab.Eventually(t, testlab.Patience, "etcd is away", is(true), nil)
	cluster.Restart(t, 0)
	testlab.Eventually(t, testlab.Patience, "etcd is back", is(false), nil)
}
