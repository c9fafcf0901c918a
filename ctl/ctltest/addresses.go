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

// Addresses is a ctl.Addresses that only counts.
type Addresses struct {
	mu     sync.Mutex
	held   map[address.Place]int
	refuse error
	// Box are the addresses the box has of its own.
	Box map[netip.Addr]bool
	// Claims are those of other hosts.
	Claims map[netip.Addr]address.Claim
	// Networks are the subnets of every interface.
	Networks []netip.Prefix
	asked    int
	sweeps   int
	swept    bool // with IPs held
}

// NewAddresses returns Addresses of a box that has none, in 10.0.0.0/8 and the loopback's subnet.
func NewAddresses() *Addresses {
	return &Addresses{
		held: map[address.Place]int{}, Box: map[netip.Addr]bool{}, Claims: map[netip.Addr]address.Claim{},
		Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8")},
	}
}

// Refuse makes the next Hold fail.
func (a *Addresses) Refuse(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refuse = err
}

// String lists what is held, with the number of holders: "10.0.0.9@2 x1".
func (a *Addresses) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []string
	for place, holders := range a.held {
		list = append(list, fmt.Sprintf("%v@%d x%d", place.IP, place.IfIndex, holders))
	}
	slices.SortFunc(list, cmp.Compare[string])
	return strings.Join(list, " ")
}

// Asked counts the IPs that hosts were asked for.
func (a *Addresses) Asked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

// Hold is part of ctl.Addresses, as is what follows.
func (a *Addresses) Hold(p address.Place) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.refuse; err != nil {
		a.refuse = nil
		return err
	}
	a.held[p]++
	return nil
}

func (a *Addresses) Release(p address.Place) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held[p]--; a.held[p] <= 0 {
		delete(a.held, p)
	}
	return nil
}

func (a *Addresses) Local(ip netip.Addr) (bool, error) { return a.Box[ip], nil }

func (a *Addresses) Subnets(int) ([]netip.Prefix, error) { return a.Networks, nil }

// Claimed asks nobody for what is held, as the real one.
func (a *Addresses) Claimed(_ context.Context, places []address.Place) (claim address.Claim, found bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(places) == 0 {
		return address.Claim{}, false
	}
	for held := range a.held {
		if held.IP == places[0].IP {
			return address.Claim{}, false
		}
	}
	a.asked++
	claim, found = a.Claims[places[0].IP]
	return claim, found
}

func (a *Addresses) Sweep() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.swept = len(a.held) > 0
	a.sweeps++
	return nil
}

// Swept says how often Sweep was called, and whether any IP was held when it was called last.
func (a *Addresses) Swept() (times int, held bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sweeps, a.swept
}

func (a *Addresses) Run(ctx context.Context, _ func(string)) error {
	<-ctx.Done()
	return nil
}

func (a *Addresses) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.held)
	return nil
}
