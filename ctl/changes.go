package ctl

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/events"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/ports"
	"github.com/rocast/rocast/ctl/view"
	"github.com/rocast/rocast/mft"
)

// changes lets one change happen at a time, and shows readers at its end what it has changed.
//
// A reader takes no lock: it has the version of a group that was shown last, and waits neither for
// a change nor for the disk or the kernel. A change stores what a restart needs of it, changes the
// data path, and then shows. What it has not shown, nobody has seen.
type changes struct {
	sync.Mutex
	show func() // what has changed since the last call
}

// Unlock ends a change.
func (c *changes) Unlock() {
	c.show()
	c.Mutex.Unlock()
}

// book has the groups and ports of this box: as they are, for changes, and as readers see them.
// What a change uses is guarded by Controller.mu, which the caller of a method holds that changes
// something.
type book struct {
	groups  map[string]*group
	ports   ports.Set
	events  *events.Log
	changes struct { // that readers do not see yet
		of     map[*group]struct{}
		list   bool // groups have come or gone
		events []api.Event
	}

	seenGroups atomic.Pointer[map[string]*atomic.Pointer[groups.Version]] // by name
	seenPorts  atomic.Pointer[ports.Set]
	seenStrays atomic.Pointer[[]view.Stray]
}

func newBook(now func() time.Time, set ports.Set) *book {
	b := &book{groups: map[string]*group{}, events: events.New(now)}
	b.changes.of = map[*group]struct{}{}
	b.seenGroups.Store(&map[string]*atomic.Pointer[groups.Version]{})
	b.seenStrays.Store(new([]view.Stray))
	b.setPorts(set)
	return b
}

// changed notes that readers are to see a group as it is at the end of this change.
func (b *book) changed(g *group) { b.changes.of[g] = struct{}{} }

// tell adds an event once readers can see what it tells of: a program that hears of it may ask at
// once.
func (b *book) tell(e api.Event) { b.changes.events = append(b.changes.events, e) }

// enlist makes a group one of this box's, and delist ends that.
func (b *book) enlist(g *group) {
	b.groups[g.Name], b.changes.list = g, true
	b.changed(g)
}

func (b *book) delist(g *group) {
	delete(b.groups, g.Name)
	b.changes.list = true
}

// setPorts makes these the ports, also for readers.
func (b *book) setPorts(set ports.Set) {
	b.ports = set
	b.seenPorts.Store(&set)
}

// show lets readers see what has changed. A change calls it where others may see what is changed so
// far, and in any case when it ends.
func (b *book) show() {
	for g := range b.changes.of {
		g.show()
	}
	clear(b.changes.of)
	if b.changes.list {
		list := make(map[string]*atomic.Pointer[groups.Version], len(b.groups))
		for name, g := range b.groups {
			list[name] = g.shown
		}
		b.seenGroups.Store(&list)
		b.changes.list = false
	}
	for _, e := range b.changes.events {
		b.events.Add(e)
	}
	b.changes.events = nil
}

// seen returns the version of a group that readers see, or nil.
func (b *book) seen(name string) *groups.Version {
	if g := (*b.seenGroups.Load())[name]; g != nil {
		return g.Load()
	}
	return nil
}

// carried returns the ID of a group that the data path has.
func (b *book) carried(name string) (mft.GroupID, error) {
	switch v := b.seen(name); {
	case v == nil:
		return 0, noGroup(name)
	case v.Published == nil:
		return 0, api.Errorf(api.Unavailable, "this box does not carry group %s; rocast group show %s says why", name, name)
	default:
		return v.ID, nil
	}
}

// seenNames returns the names of all groups that readers see, sorted.
func (b *book) seenNames() []string { return slices.Sorted(maps.Keys(*b.seenGroups.Load())) }

// allSeen returns the versions of all groups that readers see, in the order of their names.
func (b *book) allSeen() (list []*groups.Version) {
	groups := *b.seenGroups.Load()
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		list = append(list, groups[name].Load())
	}
	return list
}

// show lets readers see the group as it is now. The caller holds Controller.mu.
func (g *group) show() { g.shown.Store(g.Share()) }
