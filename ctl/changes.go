package ctl

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/events"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/ports"
	"github.com/rocast/rocast/ctl/store"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// bookSwitch is what a book needs of the data path.
type bookSwitch interface {
	// Retains returns why the data path cannot retain for repair what the policy asks for; nil: it
	// can, or the policy asks for nothing.
	Retains(p feedback.Policy, pathMTU int) error
	Add(*mft.Group) (mft.GroupID, error)
	Replace(mft.GroupID, *mft.Group) error
	Remove(mft.GroupID) error
	GroupState(mft.GroupID) (dataplane.GroupState, bool)
	RunningTurn(mft.GroupID) (mft.Turn, bool)
}

// bookHops is what a book needs of the next hops.
type bookHops interface {
	Track(netip.Addr) nexthop.Hop
	Untrack(netip.Addr)
	Hop(netip.Addr) nexthop.Hop
}

// bookAddresses is what a book needs of the addresses of the box.
type bookAddresses interface {
	Hold(address.Place) error
	Release(address.Place) error
	Sweep() error
}

// bookParts are the components that a book works with.
type bookParts struct {
	Switch    bookSwitch
	NextHops  bookHops
	Addresses bookAddresses
	Store     *store.Store
	Log       *zap.Logger
	// Members is called when the state of the members of a group is stored, unless an upper box
	// asks for the group; nil: nobody hears of it.
	Members func(group string)
	// Shown is called at the end of each change, when readers see it; nil: nobody hears of it.
	Shown func()
}

// book has the groups and ports of this box: as they are, for changes, and as readers see them.
//
// One change happens at a time, because queue pairs, ports, next hops and the load of neighbours
// are checked against all groups: Lock begins a change, and Unlock shows readers what it has
// changed and ends it. A method that does not lock by itself is for the caller that has locked.
//
// A reader takes no lock: it has the version of a group that was shown last, and waits neither for
// a change nor for the disk or the kernel. A change stores what a restart needs of it, changes the
// data path, and then shows. What it has not shown, nobody has seen.
type book struct {
	bookParts
	index
	events *events.Log // what has happened
	names  names       // who changes a group at present

	mu      sync.Mutex // of what follows
	groups  map[string]*group
	open    ports.Set
	changes struct { // that readers do not see yet
		of     map[*group]struct{}
		list   bool // groups have come or gone
		events []api.Event
	}

	shownGroups atomic.Pointer[map[string]*atomic.Pointer[groups.Version]] // by name
	shownPorts  atomic.Pointer[ports.Set]
}

func newBook(parts bookParts, set ports.Set) *book {
	s := &book{bookParts: parts, index: newIndex(), groups: map[string]*group{}, events: events.New(time.Now), names: newNames()}
	s.changes.of = map[*group]struct{}{}
	s.shownGroups.Store(&map[string]*atomic.Pointer[groups.Version]{})
	s.setPorts(set)
	return s
}

// Lock begins a change.
func (s *book) Lock() { s.mu.Lock() }

// Unlock ends a change: readers see it.
func (s *book) Unlock() {
	s.show()
	if s.Shown != nil {
		s.Shown()
	}
	s.mu.Unlock()
}

// changed notes that readers are to see a group as it is at the end of this change.
func (s *book) changed(g *group) { s.changes.of[g] = struct{}{} }

// tell adds an event once readers can see what it tells of: a program that hears of it may ask at
// once.
func (s *book) tell(e api.Event) { s.changes.events = append(s.changes.events, e) }

// tellOf is tell for an event that is about a member.
func (s *book) tellOf(kind api.EventKind, g *group, id groupfile.ID, format string, args ...any) {
	s.tell(memberEvent(kind, g, id, fmt.Sprintf(format, args...)))
}

// tellPacket is tellOf for an event that is about a packet of the source.
func (s *book) tellPacket(kind api.EventKind, g *group, id groupfile.ID, psn roce.PSN, format string, args ...any) {
	e := memberEvent(kind, g, id, fmt.Sprintf(format, args...))
	e.PSN = new(uint32(psn))
	s.tell(e)
}

func memberEvent(kind api.EventKind, g *group, id groupfile.ID, cause string) api.Event {
	return api.Event{Kind: kind, Group: g.Name, Member: id.IP.String(), RemoteQPN: uint32(id.RemoteQPN), Cause: cause}
}

// enlist makes a group one of this box's, and delist ends that.
func (s *book) enlist(g *group) {
	s.groups[g.Name], s.changes.list = g, true
	s.changed(g)
}

func (s *book) delist(g *group) {
	delete(s.groups, g.Name)
	s.changes.list = true
}

// named returns the group of a name, or nil.
func (s *book) named(name string) *group { return s.groups[name] }

// all returns the groups, by name.
func (s *book) all() iter.Seq2[string, *group] { return maps.All(s.groups) }

// byID returns a group that the data path has, or nil if the group has been removed.
func (s *book) byID(id mft.GroupID) *group {
	for _, g := range s.groups {
		if g.Published != nil && g.ID == id {
			return g
		}
	}
	return nil
}

// ports returns the ports of the box.
func (s *book) ports() ports.Set { return s.open }

// setPorts makes these the ports, also for readers.
func (s *book) setPorts(set ports.Set) {
	s.open = set
	s.shownPorts.Store(&set)
}

// show lets readers see what has changed. A change calls it where others may see what is changed so
// far, and in any case when it ends.
func (s *book) show() {
	for g := range s.changes.of {
		g.show()
	}
	clear(s.changes.of)
	if s.changes.list {
		list := make(map[string]*atomic.Pointer[groups.Version], len(s.groups))
		for name, g := range s.groups {
			list[name] = g.shown
		}
		s.shownGroups.Store(&list)
		s.changes.list = false
	}
	for _, e := range s.changes.events {
		s.events.Add(e)
	}
	s.changes.events = nil
}
