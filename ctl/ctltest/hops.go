package ctltest

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/rocast/rocast/ctl/nexthop"
)

// Hops is a ctl.NextHops that knows what it is told.
type Hops struct {
	mu      sync.Mutex
	hops    map[netip.Addr]nexthop.Hop
	tracked map[netip.Addr]int
	changed func([]netip.Addr)
	running chan struct{}
	links   chan struct{}
	ports   []int // nil: any
	settled int
	// Meanwhile is what happens while the next Settle waits.
	Meanwhile func()
}

// NewHops returns Hops that know no host.
func NewHops() *Hops {
	return &Hops{hops: map[netip.Addr]nexthop.Hop{}, tracked: map[netip.Addr]int{}, running: make(chan struct{}), links: make(chan struct{})}
}

// Hop is a hop through the port with an ifindex, on the port itself.
func Hop(ifIndex int, name string, mtu int, host byte) nexthop.Hop {
	h := nexthop.Hop{Port: ifIndex, PortName: name, PortMTU: mtu, Interface: ifIndex, L2Bytes: 14}
	copy(h.L2[:], []byte{2, 0, 0, 0, 0, host, 2, 0, 0, 0, 0xb, byte(ifIndex), 8, 0})
	return h
}

// Set says how hosts are reached from now on, and tells whoever runs.
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

// Tracked counts the addresses somebody tracks.
func (h *Hops) Tracked() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.tracked)
}

// Running is closed once Run has been called: from then on Set is heard.
func (h *Hops) Running() <-chan struct{} { return h.running }

// Track is part of ctl.NextHops, as is what follows.
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

// LinksChange makes whoever waits look at the links.
func (h *Hops) LinksChange() { h.links <- struct{}{} }

// Settle returns at once: what is not known is not asked for. It counts, and calls Meanwhile.
func (h *Hops) Settle(context.Context, []netip.Addr) {
	h.mu.Lock()
	h.settled++
	meanwhile := h.Meanwhile
	h.Meanwhile = nil
	h.mu.Unlock()
	if meanwhile != nil {
		meanwhile()
	}
}

// Settled counts the calls of Settle.
func (h *Hops) Settled() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.settled
}

func (h *Hops) Run(ctx context.Context, changed func([]netip.Addr)) error {
	h.mu.Lock()
	h.changed = changed
	h.mu.Unlock()
	close(h.running)
	<-ctx.Done()
	return nil
}
