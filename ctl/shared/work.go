package shared

import (
	"net/netip"
	"sync"

	"github.com/rocast/rocast/ctl/address"
)

// work has the groups that have to be looked at.
type work struct {
	mu      sync.Mutex
	read    bool // all desired groups have been read once
	pending pending
	busy    map[string]bool // the groups on which work is under way; a new change of such a group stays pending
	heard   chan struct{}   // closed, and replaced by a new one, by every change in etcd
	wake    chan struct{}   // has an element if a change is pending
}

// pending has the changes that nobody has looked at yet.
type pending struct {
	first   bool            // all desired groups were read for the first time
	names   map[string]bool // the groups that may have changed; true: try again what was refused or set up before
	members map[string]bool // the groups of whose members the state is to be stored in etcd
	// addresses of the box have come or gone; anyAddress: any may have.
	addresses  map[netip.Addr]bool
	anyAddress bool
}

func newPending() pending {
	return pending{names: map[string]bool{}, members: map[string]bool{}, addresses: map[netip.Addr]bool{}}
}

func newWork() *work {
	return &work{pending: newPending(), busy: map[string]bool{}, heard: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// add lets a group be looked at; again: also if its present version was set up or refused before.
func (p *pending) add(name string, again bool) { p.names[name] = p.names[name] || again }

// hear notes that something has changed in etcd about groups.
func (w *work) hear(names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending.first, w.read = w.pending.first || !w.read, true
	for _, name := range names {
		w.pending.add(name, false)
	}
	close(w.heard)
	w.heard = make(chan struct{})
	w.rouse()
}

// rouse lets somebody look. The caller holds w.mu.
func (w *work) rouse() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// look lets somebody look at a group.
func (w *work) look(name string, again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending.add(name, again)
	w.rouse()
}

// addressesChanged lets somebody look at the groups that go with addresses; nil: with any.
func (w *work) addressesChanged(changes []address.Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range changes {
		w.pending.addresses[a.IP] = true
	}
	w.pending.anyAddress = w.pending.anyAddress || changes == nil
	w.rouse()
}

// membersChanged lets the state of a group's members be stored.
func (w *work) membersChanged(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending.members[name] = true
	w.rouse()
}

// membersAgain is membersChanged for a state that could not be stored: the next tick finds it.
func (w *work) membersAgain(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending.members[name] = true
}

// next returns a channel that is closed when something is heard.
func (w *work) next() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heard
}

// take returns the pending changes, and whether all desired groups have been read once.
func (w *work) take() (p pending, read bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, w.pending = w.pending, newPending()
	return p, w.read
}

// begin reports whether a group can be looked at now. Otherwise the group stays pending until end.
func (w *work) begin(name string, again bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy[name] {
		w.pending.add(name, again)
		return false
	}
	w.busy[name] = true
	return true
}

func (w *work) end(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.busy, name)
	if _, more := w.pending.names[name]; more {
		w.rouse()
	}
}
