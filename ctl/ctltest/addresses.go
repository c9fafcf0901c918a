package ctltest

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/rocast/rocast/ctl/address"
)

// Addresses is a ctl.Addresses that changes no interface and only counts the holders of each IP.
type Addresses struct {
	mu     sync.Mutex
	held   map[address.IfAddr]int
	refuse error
	// Box holds the addresses that the box itself has. While Run runs, only Give changes it.
	Box map[netip.Addr]bool
	// Claims holds the addresses of other hosts.
	Claims map[netip.Addr]address.Claim
	// Networks holds the subnets of every interface.
	Networks []netip.Prefix
	asked    int

	announced []netip.Addr
	deaf      error // answer to Announce
	sweeps    int
	swept     bool // Sweep was called while an IP was held
	changed   func([]address.Change)
	hears     chan struct{}
}

// NewAddresses returns the Addresses of a box that has no address. Its networks are 10.0.0.0/8 and
// the subnet of the loopback.
func NewAddresses() *Addresses {
	return &Addresses{
		held: map[address.IfAddr]int{}, hears: make(chan struct{}), Box: map[netip.Addr]bool{}, Claims: map[netip.Addr]address.Claim{},
		Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8")},
	}
}

// Refuse makes the next Hold fail with err.
func (a *Addresses) Refuse(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refuse = err
}

// String lists the held IPs, each with the number of its holders: "10.0.0.9@2 x1".
func (a *Addresses) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []string
	for a, holders := range a.held {
		list = append(list, fmt.Sprintf("%v@%d x%d", a.IP, a.IfIndex, holders))
	}
	slices.SortFunc(list, cmp.Compare[string])
	return strings.Join(list, " ")
}

// Asked returns the number of IPs that hosts were asked for.
func (a *Addresses) Asked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

// Hold and the methods below implement ctl.Addresses.
func (a *Addresses) Hold(p address.IfAddr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.refuse; err != nil {
		a.refuse = nil
		return err
	}
	a.held[p]++
	return nil
}

func (a *Addresses) Release(p address.IfAddr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held[p]--; a.held[p] <= 0 {
		delete(a.held, p)
	}
	return nil
}

func (a *Addresses) Announce(ip netip.Addr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.announced = append(a.announced, ip)
	return a.deaf
}

// Deaf makes each Announce fail with err.
func (a *Addresses) Deaf(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.deaf = err
}

// Announced returns the IPs that hosts were told of.
func (a *Addresses) Announced() []netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.announced)
}

func (a *Addresses) Local(ip netip.Addr) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.Box[ip], nil
}

// Hears returns a channel that is closed when Run hears of addresses.
func (a *Addresses) Hears() <-chan struct{} { return a.hears }

// Give adds an address to the box, or takes it away, as another program does.
func (a *Addresses) Give(ip netip.Addr, has bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.Box[ip] = has
	if a.changed != nil {
		a.changed([]address.Change{{IP: ip, Gone: !has}})
	}
}

func (a *Addresses) Subnets(int) ([]netip.Prefix, error) { return a.Networks, nil }

// Claimed does not ask the hosts for held IPs; the real implementation does not ask for them
// either.
func (a *Addresses) Claimed(_ context.Context, at []address.IfAddr, boxes ...[6]byte) (claim address.Claim, found bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(at) == 0 {
		return address.Claim{}, false
	}
	for held := range a.held {
		if held.IP == at[0].IP {
			return address.Claim{}, false
		}
	}
	a.asked++
	claim, found = a.Claims[at[0].IP]
	return claim, found && !slices.Contains(boxes, claim.MAC)
}

func (a *Addresses) Sweep() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.swept = len(a.held) > 0
	a.sweeps++
	return nil
}

// Swept returns the number of calls of Sweep, and whether any IP was held at the last call.
func (a *Addresses) Swept() (times int, held bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sweeps, a.swept
}

func (a *Addresses) Run(ctx context.Context, _ func(address.IfAddr, string), changed func([]address.Change), _ address.Rival) error {
	a.mu.Lock()
	a.changed = changed
	close(a.hears)
	a.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (a *Addresses) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.held)
	return nil
}
