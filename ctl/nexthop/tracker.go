package nexthop

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rocast/rocast/ctl/rtnl"
)

// Tracker finds the hops to the tracked addresses and follows their changes. Its methods may be
// called from any goroutine.
type Tracker struct {
	resolver
	events *rtnl.Events
	links  chan struct{}
	close  func()

	mu        sync.Mutex
	targets   map[netip.Addr]*target
	bySubject map[subject]map[netip.Addr]struct{}
	doubts    map[doubted]time.Time // of the last second
	nextPhase int                   // position of the next target in the keep-alive round
	hurry     int                   // seconds for which unknown hops are asked for each second; see hurryFor
	resolved  chan struct{}         // closed at the next change of a finding
}

type target struct {
	*finding
	holders int
	phase   int
}

// Open makes a Tracker for the network namespace of the calling thread. ports are the ifindexes of
// rocast's ports; SetPorts replaces them.
func Open(ports []int) (*Tracker, error) {
	conn, err := rtnl.Open()
	if err != nil {
		return nil, err
	}
	events, err := subscribe()
	if err != nil {
		conn.Close()
		return nil, err
	}
	t := newTracker(&netlinkKernel{conn}, ports)
	t.events = events
	t.close = func() { events.Close(); conn.Close() }
	return t, nil
}

func newTracker(k kernel, ports []int) *Tracker {
	t := &Tracker{
		resolver:  resolver{kernel: k, ports: map[int]bool{}},
		targets:   map[netip.Addr]*target{},
		bySubject: map[subject]map[netip.Addr]struct{}{},
		doubts:    map[doubted]time.Time{},
		resolved:  make(chan struct{}),
		links:     make(chan struct{}, 1),
	}
	t.SetPorts(ports)
	return t
}

// SetPorts sets the interfaces that are rocast's ports now. An interface that was deleted and
// created again is a different port. SetPorts returns the addresses whose next hop changed.
func (t *Tracker) SetPorts(ifIndexes []int) (changed []netip.Addr) {
	ports := map[int]bool{}
	for _, ifIndex := range ifIndexes {
		ports[ifIndex] = true
	}
	t.mu.Lock()
	same := maps.Equal(t.ports, ports)
	t.ports = ports
	t.mu.Unlock()
	if same {
		return nil
	}
	return t.update([]change{{all: true}})
}

// Links delivers a value after Run has seen link changes. One value may stand for many changes.
func (t *Tracker) Links() <-chan struct{} { return t.links }

// Close releases the resources of Open. Run must have returned.
func (t *Tracker) Close() { t.close() }

// Track returns the hop to an address and follows the address until Untrack has been called as
// often as Track.
func (t *Tracker) Track(addr netip.Addr) Hop {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.targets[addr]
	if x == nil {
		x = &target{finding: &finding{}, phase: t.nextPhase}
		t.nextPhase++
		t.targets[addr] = x
		t.resolveAgain(addr, x, true)
	}
	x.holders++
	return x.Hop
}

// Untrack reverses one call of Track.
func (t *Tracker) Untrack(addr netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.targets[addr]
	if x == nil {
		return
	}
	if x.holders--; x.holders == 0 {
		t.forget(addr, x.finding)
		delete(t.targets, addr)
	}
}

// Hop returns the hop to a tracked address.
func (t *Tracker) Hop(addr netip.Addr) Hop {
	t.mu.Lock()
	defer t.mu.Unlock()
	if x := t.targets[addr]; x != nil {
		return x.Hop
	}
	return Hop{Reason: addr.String() + " is not tracked"}
}

// Resolve waits until the kernel has answered for all tracked addresses in addrs, or ctx is done.
// Run must be running. A host that is up answers within milliseconds.
func (t *Tracker) Resolve(ctx context.Context, addrs []netip.Addr) {
	for {
		t.mu.Lock()
		resolved := t.resolved
		asking := slices.ContainsFunc(addrs, func(addr netip.Addr) bool { x := t.targets[addr]; return x != nil && x.asked })
		t.mu.Unlock()
		if !asking {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-resolved:
		}
	}
}

// Run follows kernel notifications until ctx is done. It calls changed with the addresses whose
// next hop changed; changed may call the Tracker.
func (t *Tracker) Run(ctx context.Context, changed func([]netip.Addr)) error {
	notify := func(addrs []netip.Addr) {
		if len(addrs) > 0 {
			changed(addrs)
		}
	}
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error {
		return t.events.Run(ctx, func(m []syscall.NetlinkMessage) {
			changes := parseChanges(m)
			t.notifyLinks(changes)
			notify(t.update(changes))
		})
	})
	tasks.Go(func() error {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
				notify(t.keepAlive(n))
			}
		}
	})
	return tasks.Wait()
}

func (t *Tracker) notifyLinks(changes []change) {
	if !slices.ContainsFunc(changes, change.isLinks) {
		return
	}
	select {
	case t.links <- struct{}{}:
	default: // the reader has not received the last value yet, and will see this change too
	}
}

// update resolves the addresses affected by the changes again, and returns those whose next hop
// changed.
func (t *Tracker) update(changes []change) (changed []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.ContainsFunc(changes, change.isWay) {
		t.hurry = hurryFor
	}
	for addr := range t.concerned(changes) {
		if t.resolveAgain(addr, t.targets[addr], false) {
			changed = append(changed, addr)
		}
	}
	slices.SortFunc(changed, netip.Addr.Compare)
	return changed
}

func (t *Tracker) concerned(changes []change) map[netip.Addr]struct{} {
	addrs := map[netip.Addr]struct{}{}
	for _, c := range changes {
		for addr := range t.bySubject[c.subject] {
			addrs[addr] = struct{}{}
		}
		if !c.all && !c.route.IsValid() {
			continue
		}
		for addr, x := range t.targets {
			if c.all || c.route.Contains(addr) || c.route.Contains(x.next) {
				addrs[addr] = struct{}{}
			}
		}
	}
	return addrs
}

// resolveAgain resolves a target again and reports whether its hop changed.
func (t *Tracker) resolveAgain(addr netip.Addr, x *target, insist bool) (changed bool) {
	was := x.finding
	x.finding = t.resolve(addr, was, insist)
	t.forget(addr, was)
	for _, s := range x.subjects {
		if t.bySubject[s] == nil {
			t.bySubject[s] = map[netip.Addr]struct{}{}
		}
		t.bySubject[s][addr] = struct{}{}
	}
	if was.Hop == x.Hop {
		return false
	}
	close(t.resolved)
	t.resolved = make(chan struct{})
	return true
}

// forget removes a finding from the index.
func (t *Tracker) forget(addr netip.Addr, f *finding) {
	for _, s := range f.subjects {
		delete(t.bySubject[s], addr)
		if len(t.bySubject[s]) == 0 {
			delete(t.bySubject, s)
		}
	}
}
