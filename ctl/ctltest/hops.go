package ctltest

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/rocast/rocast/ctl/nexthop"
)

// Hops is a ctl.NextHops that knows only the hops that Set gives it.
type Hops struct {
	mu       sync.Mutex
	hops     map[netip.Addr]nexthop.Hop
	tracked  map[netip.Addr]int
	changed  func([]netip.Addr)
	running  chan struct{}
	links    chan struct{}
	ports    []int // nil: any
	resolved int
	doubted  []netip.Addr
	// Meanwhile is called during the next Resolve.
	Meanwhile func()
}

// NewHops returns Hops that know no host.
func NewHops() *Hops {
	return &Hops{hops: map[netip.Addr]nexthop.Hop{}, tracked: map[netip.Addr]int{}, running: make(chan struct{}), links: make(chan struct{})}
}

// Hop returns a hop through the port with an ifindex. The interface of the hop is the port itself.
func Hop(ifIndex int, name string, mtu int, host byte) nexthop.Hop {
	h := nexthop.Hop{Port: ifIndex, PortName: name, PortMTU: mtu, Interface: ifIndex, L2Bytes: 14}
	copy(h.L2[:], []byte{2, 0, 0, 0, 0, host, 2, 0, 0, 0, 0xb, byte(ifIndex), 8, 0})
	return h
}

// SetG1 lets the hosts of G1 be at the ports eth1, eth2 and eth3.
func (h *Hops) SetG1() {
	hops := map[string]nexthop.Hop{}
	for i := 1; i <= 3; i++ {
		hops[fmt.Sprint("10.77.0.", i)] = Hop(i, fmt.Sprint("eth", i), 1500, byte(i))
	}
	h.Set(hops)
}

// Set changes the next hops of the given hosts, and reports the change to the running Run.
func (h *Hops) Set(hops map[string]nexthop.Hop) {
	h.mu.Lock()
	var addrs []netip.Addr
	for text, hop := range hops {
		addr := netip.MustParseAddr(text)
		addrs = append(addrs, addr)
		h.hops[addr] = hop
	}
	changed := h.changed
	h.mu.Unlock()
	if changed != nil {
		changed(addrs)
	}
}

// CopyFrom takes over the next hops that other has.
func (h *Hops) CopyFrom(other *Hops) {
	hops := map[string]nexthop.Hop{}
	other.mu.Lock()
	for addr, hop := range other.hops {
		hops[addr.String()] = hop
	}
	other.mu.Unlock()
	h.Set(hops)
}

// Tracked returns the number of tracked addresses.
func (h *Hops) Tracked() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.tracked)
}

// Running returns a channel that is closed when Run has been called. From then on Run receives the
// changes of Set.
func (h *Hops) Running() <-chan struct{} { return h.running }

// Track and the methods below implement ctl.NextHops.
func (h *Hops) Track(addr netip.Addr) nexthop.Hop {
	h.mu.Lock()
	h.tracked[addr]++
	h.mu.Unlock()
	return h.Hop(addr)
}

func (h *Hops) Untrack(addr netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tracked[addr]--; h.tracked[addr] == 0 {
		delete(h.tracked, addr)
	}
}

func (h *Hops) Hop(addr netip.Addr) nexthop.Hop {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hop(addr)
}

func (h *Hops) hop(addr netip.Addr) nexthop.Hop {
	hop, known := h.hops[addr]
	switch {
	case known && (hop.Port == 0 || h.ports == nil || slices.Contains(h.ports, hop.Port)):
		return hop
	case known:
		return nexthop.Hop{Reason: fmt.Sprintf("%v is not behind a port", addr)}
	}
	return nexthop.Hop{Reason: fmt.Sprintf("no route to %v", addr)}
}

func (h *Hops) SetPorts(ifIndexes []int) (changed []netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := map[netip.Addr]nexthop.Hop{}
	for addr := range h.hops {
		was[addr] = h.hop(addr)
	}
	h.ports = slices.Clone(ifIndexes)
	for addr := range h.hops {
		if h.hop(addr) != was[addr] {
			changed = append(changed, addr)
		}
	}
	return changed
}

func (h *Hops) Links() <-chan struct{} { return h.links }

// LinksChange reports a change of the links to the goroutine that waits for one.
func (h *Hops) LinksChange() { h.links <- struct{}{} }

// Resolve returns immediately, because Hops asks no host. It counts its calls and calls Meanwhile.
func (h *Hops) Resolve(context.Context, []netip.Addr) {
	h.mu.Lock()
	h.resolved++
	meanwhile := h.Meanwhile
	h.Meanwhile = nil
	h.mu.Unlock()
	if meanwhile != nil {
		meanwhile()
	}
}

// Doubt records the address for Doubted.
func (h *Hops) Doubt(addr netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.doubted = append(h.doubted, addr)
}

// Doubted returns the addresses that were doubted since the last call, in order.
func (h *Hops) Doubted() []netip.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	doubted := h.doubted
	h.doubted = nil
	return doubted
}

// Resolved returns the number of calls of Resolve.
func (h *Hops) Resolved() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.resolved
}

func (h *Hops) Run(ctx context.Context, changed func([]netip.Addr)) error {
	h.mu.Lock()
	h.changed = changed
	h.mu.Unlock()
	close(h.running)
	<-ctx.Done()
	return nil
}
