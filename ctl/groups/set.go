package groups

import (
	"iter"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/edges"
	"github.com/rocast/rocast/ctl/events"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/ports"
	"github.com/rocast/rocast/ctl/store"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

// Switch is what a Set needs of the data path.
type Switch interface {
	// Retains returns why the data path cannot retain for repair what the policy asks for; nil: it
	// can, or the policy asks for nothing.
	Retains(p feedback.Policy, pathMTU int) error
	Add(*mft.Group) (mft.GroupID, error)
	Replace(mft.GroupID, *mft.Group) error
	Remove(mft.GroupID) error
	GroupState(mft.GroupID) (dataplane.GroupState, bool)
	RunningTurn(mft.GroupID) (mft.Turn, bool)
}

// NextHops is what a Set needs of the next hops.
type NextHops interface {
	Track(netip.Addr) nexthop.Hop
	Untrack(netip.Addr)
	Hop(netip.Addr) nexthop.Hop
}

// Addresses is what a Set needs of the addresses of the box.
type Addresses interface {
	Hold(address.IfAddr) error
	Release(address.IfAddr) error
	Sweep() error
}

// Parts are the components that a Set works with.
type Parts struct {
	Switch    Switch
	NextHops  NextHops
	Addresses Addresses
	Store     *store.Store
	Log       *zap.Logger
	Edges     *edges.Book // nil: nothing is shared
	// Members is called when the state of the members of a group is stored, unless an upper box
	// asks for the group; nil: nobody hears of it.
	Members func(group string)
	// Shown is for tests of the rooms that change groups: it is called at the end of each change,
	// where the groups are still locked and readers see the change. Such a test then compares what
	// readers see with what there is. The daemon leaves it nil.
	Shown func()
}

// Set has the groups and ports of this box: as they are, for changes, and as readers see them.
//
// One change happens at a time, because queue pairs, ports, next hops and the load of neighbours
// are checked against all groups: Lock begins a change, and Unlock shows readers what it has
// changed and ends it. A method that does not lock by itself is for the caller that has locked.
//
// A reader takes no lock: it has the version of a group that was shown last, and waits neither for
// a change nor for the disk or the kernel. A change stores what a restart needs of it, changes the
// data path, and then shows. What it has not shown, nobody has seen.
type Set struct {
	Parts
	shown
	index
	Events *events.Log // what has happened
	Names  Names       // who changes a group at present

	mu      sync.Mutex // of what follows
	groups  map[string]*Group
	open    ports.Set
	mapped  map[string][]api.EdgeMapping // by the box above: what it lets this box map
	changes struct {                     // that readers do not see yet
		of     map[*Group]struct{}
		list   bool // groups have come or gone
		events []api.Event
	}
}

// NewSet returns a Set without groups, with these ports; Restore adds the stored groups.
func NewSet(parts Parts, set ports.Set) *Set {
	s := &Set{Parts: parts, index: newIndex(), groups: map[string]*Group{}, Events: events.New(time.Now), Names: newNames()}
	s.changes.of = map[*Group]struct{}{}
	s.shownGroups.Store(&map[string]*atomic.Pointer[Version]{})
	s.SetPorts(set)
	return s
}

// Lock begins a change.
func (s *Set) Lock() { s.mu.Lock() }

// Unlock ends a change: readers see it.
func (s *Set) Unlock() {
	s.show()
	if s.Shown != nil {
		s.Shown()
	}
	s.mu.Unlock()
}

// Changed notes that readers are to see a group as it is at the end of this change.
func (s *Set) Changed(g *Group) { s.changes.of[g] = struct{}{} }

// show lets readers see what has changed. A change calls it where others may see what is changed so
// far, and in any case when it ends.
func (s *Set) show() {
	for g := range s.changes.of {
		g.show()
	}
	clear(s.changes.of)
	if s.changes.list {
		list := make(map[string]*atomic.Pointer[Version], len(s.groups))
		for name, g := range s.groups {
			list[name] = g.shown
		}
		s.shownGroups.Store(&list)
		s.changes.list = false
	}
	for _, e := range s.changes.events {
		s.Events.Add(e)
	}
	s.changes.events = nil
}

// enlist adds a group to the Set, and delist removes it.
func (s *Set) enlist(g *Group) {
	s.groups[g.Name], s.changes.list = g, true
	s.Changed(g)
}

func (s *Set) delist(g *Group) {
	delete(s.groups, g.Name)
	s.changes.list = true
}

// Named returns the group of a name, or nil.
func (s *Set) Named(name string) *Group { return s.groups[name] }

// All returns the groups, by name.
func (s *Set) All() iter.Seq2[string, *Group] { return maps.All(s.groups) }

// ByID returns a group that the data path has, or nil if the group has been removed.
func (s *Set) ByID(id mft.GroupID) *Group {
	for _, g := range s.groups {
		if g.Published != nil && g.ID == id {
			return g
		}
	}
	return nil
}

// Ports returns the ports of the box.
func (s *Set) Ports() ports.Set { return s.open }

// SetPorts makes these the ports, also for readers.
func (s *Set) SetPorts(set ports.Set) {
	s.open = set
	s.shownPorts.Store(&set)
}
