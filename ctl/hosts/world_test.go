package hosts

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/bounds"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/events"
	"github.com/rocast/rocast/ctl/gather"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/roce"
)

// g1 is the file of an operator's group: a source and two receivers.
const g1 = ctltest.G1

// anotherGroup is a group beside g1 with the same hosts and other QPs.
func anotherGroup(name string, qpn int) string { return ctltest.AnotherGroup(name, qpn) }

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// kept is a group of a world.
type kept struct {
	file      *groupfile.File
	confirmed map[groupfile.ID]bool
}

// world is a Control whose groups are files in memory: every member is reached at once.
type world struct {
	mu     sync.Mutex
	groups map[string]*kept
	held   map[string]chan struct{} // names that are locked
	events *events.Log
	book   *bounds.Book
	log    *zap.Logger
	logs   *observer.ObservedLogs
	// created, if it is set, is called when a group is there and Create has not returned.
	created func()
	bad     map[string]string // what BadIPs was told last
	refuses map[netip.Addr]error
	behind  map[netip.Addr]string
	arrives func() // called when all hosts of a group have come; nil: nothing
}

func newWorld() *world {
	core, logs := observer.New(zap.DebugLevel)
	return &world{
		groups: map[string]*kept{}, held: map[string]chan struct{}{}, events: events.New(time.Now), book: bounds.New(zap.NewNop()),
		log: zap.New(core), logs: logs, refuses: map[netip.Addr]error{},
	}
}

// hosts returns Hosts as a daemon has them that begins.
func (w *world) hosts() *Hosts {
	return New(Options{Control: w, Config: gather.Config{GroupIPs: []netip.Addr{addr("10.77.0.200")}}, Box: "b1", Log: w.log, Bounds: w.book})
}

func (w *world) lock(ctx context.Context, name string) (unlock func(), err error) {
	for {
		w.mu.Lock()
		held := w.held[name]
		if held == nil {
			held = make(chan struct{})
			w.held[name] = held
			w.mu.Unlock()
			return func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				delete(w.held, name)
				close(held)
			}, nil
		}
		w.mu.Unlock()
		select {
		case <-held:
		case <-ctx.Done():
			return nil, givenUp(ctx)
		}
	}
}

func (w *world) Lock(ctx context.Context, name string) (func(), error) {
	return w.lock(ctx, "hosts of "+name)
}

func (w *world) Group(name string) (Group, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.groups[name]
	if g == nil {
		return Group{}, api.Errorf(api.NotFound, "there is no group %q; rocast group ls lists the groups", name)
	}
	return g.describe(name), nil
}

func (g *kept) describe(name string) Group {
	d := Group{Group: api.Group{GroupSummary: api.GroupSummary{Name: name, State: api.Ready}}}
	f := g.file
	if f == nil {
		return d
	}
	d.IP, d.QPN, d.MTU, d.Hosts = f.IP.String(), uint32(f.QPN), f.PathMTU, f.Hosts != groupfile.HostsNothing
	d.Secret, d.Unconfirmed = f.HostsSecret, g.unconfirmed()
	d.ClearToSend = len(d.Unconfirmed) == 0
	for _, m := range f.Memory {
		key := api.Hex(m.RKey)
		d.Memory = append(d.Memory, api.Region{VA: api.Hex(m.VA), Length: m.Length, RKey: &key})
	}
	for i, m := range f.Members() {
		v := api.Member{IP: m.IP.String(), QPN: uint32(m.QPN), PSN: uint32(m.FirstPSN), Role: m.Role.String(), Confirm: m.Confirm}
		if i == 0 {
			v.Part = api.PartSource
		}
		d.Members = append(d.Members, v)
	}
	return d
}

func (g *kept) unconfirmed() (ids []groupfile.ID) {
	for _, m := range g.file.Receivers {
		if m.Confirm && !g.confirmed[m.ID()] {
			ids = append(ids, m.ID())
		}
	}
	return ids
}

func (w *world) Known() (all []Known) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, g := range w.groups {
		k := Known{Name: name, File: g.file}
		if g.file != nil {
			k.Unconfirmed = g.unconfirmed()
		}
		all = append(all, k)
	}
	return all
}

func (w *world) QPNs(ip netip.Addr) map[roce.QPN]bool {
	if w.arrives != nil {
		w.arrives()
	}
	taken := map[roce.QPN]bool{}
	for _, g := range w.Known() {
		if g.File != nil && g.File.IP == ip {
			taken[g.File.QPN] = true
		}
	}
	return taken
}

func (w *world) Create(ctx context.Context, text []byte) (Group, error) {
	file, err := groupfile.Parse(text)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return Group{}, lined(err)
	}
	unlock, err := w.lock(ctx, file.Name)
	if err != nil {
		return Group{}, err
	}
	defer unlock()
	w.mu.Lock()
	for name, g := range w.groups {
		if g.file == nil {
			continue
		}
		for _, m := range file.Members() {
			if slices.ContainsFunc(g.file.Members(), func(o groupfile.Member) bool { return o.IP == m.IP && o.QPN == m.QPN }) {
				w.mu.Unlock()
				return Group{}, lined(yamldoc.Errorf(m.Line, "QP %d of %v is in group %s", m.QPN, m.IP, name))
			}
		}
	}
	g := &kept{file: file, confirmed: map[groupfile.ID]bool{}}
	w.groups[file.Name] = g
	created := g.describe(file.Name)
	w.mu.Unlock()
	w.events.Add(api.Event{Kind: api.GroupCreated, Group: file.Name})
	if w.created != nil {
		w.created()
	}
	return created, nil
}

func lined(err error) error {
	if e := (*yamldoc.Error)(nil); errors.As(err, &e) {
		return &api.Error{Kind: api.BadFile, Message: e.Message, Line: e.Line}
	}
	return err
}

func (w *world) Running(ctx context.Context, name string) (*groupfile.File, Basis, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if _, err := w.Group(name); err != nil {
		return nil, nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.groups[name].file, w.groups[name].file, nil
}

func (w *world) Update(ctx context.Context, name string, text []byte, from Basis) (Group, error) {
	file, err := groupfile.Parse(text)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return Group{}, lined(err)
	}
	w.mu.Lock()
	g := w.groups[name]
	if g == nil || Basis(g.file) != from {
		w.mu.Unlock()
		return Group{}, api.Errorf(api.Stale, "group %s is another one", name)
	}
	if err := errors.Join(file.CheckUpdate(g.file), file.CheckOneChange(g.file)); err != nil {
		w.mu.Unlock()
		return Group{}, lined(err)
	}
	for id := range g.confirmed {
		if file.Receiver(id) < 0 {
			delete(g.confirmed, id)
		}
	}
	g.file = file
	updated := g.describe(name)
	w.mu.Unlock()
	w.events.Add(api.Event{Kind: api.GroupUpdated, Group: name})
	return updated, nil
}

func (w *world) Confirm(name string, request []byte) (Group, error) {
	var ready api.Confirmation
	if err := json.Unmarshal(request, &ready); err != nil {
		return Group{}, err
	}
	if _, err := w.Group(name); err != nil {
		return Group{}, err
	}
	w.mu.Lock()
	g := w.groups[name]
	for _, m := range g.file.Receivers {
		if m.IP.String() == ready.IP && uint32(m.QPN) == ready.QPN {
			g.confirmed[m.ID()] = true
		}
	}
	w.mu.Unlock()
	w.events.Add(api.Event{Kind: api.MemberConfirmed, Group: name})
	return w.Group(name)
}

func (w *world) Remove(name string, from Basis) error {
	if _, err := w.Group(name); err != nil {
		return err
	}
	w.mu.Lock()
	if from != nil && Basis(w.groups[name].file) != from {
		w.mu.Unlock()
		return api.Errorf(api.Stale, "group %s is another one", name)
	}
	delete(w.groups, name)
	w.mu.Unlock()
	w.events.Add(api.Event{Kind: api.GroupRemoved, Group: name})
	return nil
}

func (w *world) Behind(ctx context.Context, host netip.Addr) (string, error) {
	return w.behind[host], ctx.Err()
}

func (w *world) Now(name string) api.Cursor { return w.events.After(api.Cursor{}, name).Cursor }

func (w *world) Await(ctx context.Context, name string, at api.Cursor) api.Cursor {
	return w.events.Wait(ctx, at, name).Cursor
}

func (w *world) RefuseIP(_ context.Context, ip netip.Addr) error { return w.refuses[ip] }

func (w *world) BadIPs(why map[string]string) { w.bad = why }

func (w *world) create(t *testing.T, text string) {
	t.Helper()
	if _, err := w.Create(t.Context(), []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// members returns the last numbers of the addresses of a group's members.
func (w *world) members(_ *testing.T, name string) string {
	g, err := w.Group(name)
	return ctltest.Members(g.Group, err)
}

// expect compares the names of the groups.
func (w *world) expect(t *testing.T, names ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := slices.Sorted(maps.Keys(w.groups)); !slices.Equal(got, names) {
		t.Errorf("there are the groups %v, want %v", got, names)
	}
}
