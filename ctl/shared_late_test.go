package ctl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rocast/rocast/ctl/desired"
	"github.com/rocast/rocast/ctl/shared"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab/etcd"
)

// lateStates is etcd for a box of which one request to store that a member was evicted is long on
// its way.
type lateStates struct {
	shared.Desired
	next     *atomic.Bool // the next such request is the one
	asked    chan struct{}
	goes     chan struct{}
	answered chan error
}

func newLateStates() lateStates {
	return lateStates{next: new(atomic.Bool), asked: make(chan struct{}), goes: make(chan struct{}), answered: make(chan error, 1)}
}

func (l lateStates) PutMembers(ctx context.Context, name string, created int64, state []byte) error {
	if !strings.Contains(string(state), "evicted") || !l.next.CompareAndSwap(true, false) {
		return l.Desired.PutMembers(ctx, name, created, state)
	}
	close(l.asked)
	<-l.goes
	err := l.Desired.PutMembers(ctx, name, created, state)
	l.answered <- err
	return err
}

// stored waits until etcd knows that a member of g1 was evicted.
func (b *box) stored(ip string) {
	b.f.t.Helper()
	b.eventually("etcd knows that "+ip+" was evicted", func() bool {
		e, _ := b.Desired.Entry("g1")
		return strings.Contains(string(e.Members), "evicted") && strings.Contains(string(e.Members), ip)
	})
}

// While the state of a group's members is on its way to etcd, the group is removed, and created
// again at the same box with the same members. The new group's members have not been evicted.
func TestNoLateStateIsStoredWhenAGroupIsCreatedAgain(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{false, true} {
		cluster, late := etcd.Start(t, 1), newLateStates()
		b1 := newFabric(t, 1).box("b1")
		b1.through = func(d shared.Desired) shared.Desired { late.Desired = d; return late }
		stop := b1.share(cluster)
		text := groupFile("10.1.0.2", "10.1.0.3")
		b1.create(t, text)
		if restarted {
			stop(true)
			b1.restart(false, false)
			b1.share(cluster)
			b1.eventually("it is the root again", func() bool { return b1.root("g1") == "b1" && b1.reportOf("g1") != "" })
		}
		late.next.Store(true)
		b1.newsOf("g1", feedback.NoteEvicted, "10.1.0.3", 1, 1007)
		<-late.asked
		if err := b1.Remove("g1"); err != nil {
			t.Fatal(err)
		}
		b1.create(t, text)
		close(late.goes)
		if err := <-late.answered; !errors.Is(err, desired.ErrNotRoot) {
			t.Errorf("restarted %v: the late state is stored: %v", restarted, err)
		}
		if e, _ := b1.Desired.Entry("g1"); strings.Contains(string(e.Members), "evicted") {
			t.Errorf("restarted %v: etcd knows of the new group %s", restarted, e.Members)
		}
		b1.newsOf("g1", feedback.NoteEvicted, "10.1.0.2", 1, 1007)
		b1.stored("10.1.0.2")
	}
}

// The same with the last state, which a box stores that lets a group go.
func TestNoLateLastStateIsStoredWhenAGroupIsCreatedAgain(t *testing.T) {
	t.Parallel()
	cluster, late, ctx := etcd.Start(t, 1), newLateStates(), t.Context()
	b1, _ := pair(t)
	b1.through = func(d shared.Desired) shared.Desired { late.Desired = d; return late }
	b1.share(cluster)
	b1.hearAddresses()
	text := followingFile("10.1.0.2", "10.1.0.3")
	b1.create(t, text)
	b1.newsOf("g1", feedback.NoteEvicted, "10.1.0.3", 1, 1007)
	b1.stored("10.1.0.3")
	late.next.Store(true)
	b1.addresses.Give(virtualIP, false)
	<-late.asked
	if err := b1.Desired.Remove(ctx, "g1", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := b1.Desired.Create(ctx, "g1", []byte(text)); err != nil {
		t.Fatal(err)
	}
	e, _ := b1.Desired.Entry("g1")
	if claimed, err := b1.Desired.Claim(ctx, "g1", e); !claimed || err != nil {
		t.Fatalf("claimed %v, %v", claimed, err)
	}
	close(late.goes)
	if err := <-late.answered; !errors.Is(err, desired.ErrNotRoot) {
		t.Errorf("the late state is stored: %v", err)
	}
}

// A box that stands by has taken a group over, and a third box would need the state of the members
// as it is now. The group has changed since it was created.
func TestABoxThatHasTakenOverStoresStatesInEtcd(t *testing.T) {
	t.Parallel()
	for _, file := range []func(...string) string{groupFile, followingFile} {
		cluster := etcd.Start(t, 1)
		b1, b2 := pair(t)
		stop := b1.share(cluster)
		b1.create(t, file("10.1.0.2"))
		if _, err := b1.Update(t.Context(), "g1", []byte(file("10.1.0.2", "10.1.0.3"))); err != nil {
			t.Fatal(err)
		}
		b2.share(cluster)
		b2.hearAddresses()
		b2.eventually("it knows of the group", func() bool { return b2.root("g1") == "b1" })
		stop(false)
		b2.addresses.Give(virtualIP, true)
		b2.eventually("it is the root", func() bool { return b2.root("g1") == "b2" && b2.groups.Named("g1") != nil })
		b2.newsOf("g1", feedback.NoteEvicted, "10.1.0.2", 1, 1007)
		b2.stored("10.1.0.2")
	}
}

// otherEtcd is etcd that tells another revision of the creation of groups than it has: it told that
// of an older group, or its keys were put back from a copy meanwhile.
type otherEtcd struct {
	shared.Desired
	is *atomic.Bool
}

func (o otherEtcd) Entry(name string) (desired.Entry, bool) {
	e, ok := o.Desired.Entry(name)
	if o.is.Load() {
		e.Created--
	}
	return e, ok
}

// What was refused because the box knew of an older group is stored when it knows of the present
// one.
func TestEtcdHasARefusedStateWhenTheBoxKnowsTheGroup(t *testing.T) {
	t.Parallel()
	cluster := etcd.Start(t, 1)
	b1 := newFabric(t, 1).box("b1")
	var other atomic.Bool
	other.Store(true)
	late := newLateStates()
	late.next.Store(true)
	close(late.goes)
	b1.through = func(d shared.Desired) shared.Desired { late.Desired = d; return otherEtcd{late, &other} }
	b1.share(cluster)
	b1.create(t, groupFile("10.1.0.2", "10.1.0.3"))
	b1.newsOf("g1", feedback.NoteEvicted, "10.1.0.3", 1, 1007)
	if err := <-late.answered; !errors.Is(err, desired.ErrNotRoot) {
		t.Errorf("a state is stored for another group than etcd has: %v", err)
	}
	other.Store(false)
	b1.stored("10.1.0.3")
}

// waiting is a context that tells when somebody waits for its end.
type waiting struct {
	context.Context
	waits func()
}

func (w waiting) Done() <-chan struct{} {
	w.waits()
	return w.Context.Done()
}

// A box looks at a group that goes with its address, and waits for other work on the group, by
// which the group is removed and created again. The new group is not the old one, and has not begun
// before.
func TestTheAddressCarriesNoOlderGroup(t *testing.T) {
	t.Parallel()
	cluster, ctx := etcd.Start(t, 1), t.Context()
	b1, _ := pair(t)
	b1.share(cluster)
	b1.hearAddresses()
	text := followingFile("10.1.0.2", "10.1.0.3")
	for range 10 {
		b1.create(t, text)
		was := b1.published("g1")
		unlock, _, err := b1.groups.Names.Lock(ctx, "g1", "")
		if err != nil {
			t.Fatal(err)
		}
		waits, done := make(chan struct{}), make(chan struct{})
		looks := waiting{ctx, sync.OnceFunc(func() { close(waits) })}
		go func() { defer close(done); b1.shared.Reconcile(looks, "g1", true) }()
		<-waits
		if err := b1.Desired.Remove(ctx, "g1", 0); err != nil {
			t.Fatal(err)
		}
		revision, err := b1.Desired.Create(ctx, "g1", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		unlock()
		<-done
		b1.eventually("it has the new group", func() bool {
			e, _ := b1.Desired.Entry("g1")
			return e.Held && strings.HasPrefix(e.Report, fmt.Sprintf(`{"revision":%d,`, revision)) && b1.groups.Named("g1") != nil
		})
		if g := b1.published("g1"); g == nil || g.ID == was.ID || g.Restored {
			t.Fatalf("b1 carries %+v: want another group than %d, from its begin", g, was.ID)
		}
		if err := b1.Remove("g1"); err != nil {
			t.Fatal(err)
		}
	}
}
