package address

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/rtnl"
)

// IfAddr is an address on an interface.
type IfAddr struct {
	IfIndex int
	IP      netip.Addr
}

// Owner adds and removes the groups' IPs. Its methods may be called from any goroutine.
type Owner struct {
	kernel kernel
	events *rtnl.Events
	notes  notes
	strays []string

	watch watch

	mu     sync.Mutex
	held   map[IfAddr]*holding
	left   map[note]bool // addresses that an earlier run added and that are not held yet
	lost   map[IfAddr]struct{}
	rivals map[sighting]time.Time // when each was heard last
	free   map[IfAddr]time.Time   // when nobody answered for it; see freeFor
}

type holding struct {
	holders int
	note    note
	ours    bool      // the box did not have the address before
	asked   time.Time // when the hosts were asked for it last
	mac     [6]byte   // of the interface, as hosts know it; zero: nobody can hear the box there
}

// Open makes an Owner for the network namespace of the calling thread. The Owner stores its notes
// below dir.
func Open(dir string) (*Owner, error) {
	conn, err := rtnl.Open()
	if err != nil {
		return nil, err
	}
	events, err := rtnl.Subscribe(unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		conn.Close()
		return nil, err
	}
	o, err := newOwner(&netlinkKernel{conn}, dir)
	if err == nil {
		o.watch, err = openWatch()
	}
	if err != nil {
		events.Close()
		conn.Close()
		return nil, err
	}
	o.events = events
	return o, nil
}

func newOwner(k kernel, dir string) (*Owner, error) {
	notes, strays, err := openNotes(dir)
	if err != nil {
		return nil, err
	}
	o := &Owner{kernel: k, notes: notes, strays: strays, held: map[IfAddr]*holding{}, left: map[note]bool{}, lost: map[IfAddr]struct{}{}, rivals: map[sighting]time.Time{}, free: map[IfAddr]time.Time{}}
	if err := o.findLeftovers(); err != nil {
		return nil, err
	}
	return o, nil
}

// findLeftovers keeps the notes that the kernel confirms and deletes the others.
func (o *Owner) findLeftovers() error {
	noted, strays, err := o.notes.list()
	o.strays = append(o.strays, strays...)
	if err != nil || len(noted) == 0 {
		return err
	}
	marked, err := o.kernel.marked()
	if err != nil {
		return err
	}
	for _, n := range noted {
		if marked[n] {
			o.left[n] = true
		} else if err := o.notes.drop(n); err != nil {
			return err
		}
	}
	return nil
}

// Strays returns the paths of files below the Owner's directory that are no notes. The Owner
// ignores these files.
func (o *Owner) Strays() []string { return o.strays }

// Hold adds the IP to the interface unless it is already there. The IP stays until Release has been
// called as often as Hold.
func (o *Owner) Hold(p IfAddr) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if h := o.held[p]; h != nil {
		h.holders++
		return nil
	}
	name, err := o.kernel.name(p.IfIndex)
	if err != nil {
		return fmt.Errorf("own %v: look up the name of interface %d: %w", p.IP, p.IfIndex, err)
	}
	h := &holding{holders: 1, note: note{ip: p.IP, name: name}}
	if err := o.take(p, h); err != nil {
		return fmt.Errorf("own %v on %s: %w", p.IP, name, err)
	}
	h.mac, _ = o.kernel.asker(p.IfIndex)
	o.held[p] = h
	return nil
}

func (o *Owner) take(p IfAddr, h *holding) error {
	if o.left[h.note] {
		delete(o.left, h.note)
		h.ours = true
		return nil
	}
	if err := o.notes.put(h.note); err != nil {
		return err
	}
	err := o.kernel.add(p)
	if err == nil {
		h.ours = true
		return nil
	}
	if errors.Is(err, unix.EEXIST) {
		err = nil
	}
	return errors.Join(err, o.notes.drop(h.note))
}

// Release reverses one call of Hold.
func (o *Owner) Release(p IfAddr) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.held[p]
	if h == nil {
		return nil
	}
	if h.holders--; h.holders > 0 {
		return nil
	}
	delete(o.held, p)
	delete(o.lost, p)
	if !h.ours {
		return nil
	}
	return o.giveBack(p, h.note)
}

// giveBack removes an address. It is no error if the address, or the whole interface, is already
// gone.
func (o *Owner) giveBack(p IfAddr, n note) error {
	err := o.kernel.remove(p)
	if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove %v from %s: %w", n.ip, n.name, err)
	}
	return o.notes.drop(n)
}

// Sweep removes the addresses that an earlier run left behind and that are not held now.
func (o *Owner) Sweep() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var errs []error
	for n := range o.left {
		delete(o.left, n)
		ifIndex, err := o.kernel.index(n.name)
		if err == nil {
			err = o.giveBack(IfAddr{IfIndex: ifIndex, IP: n.ip}, n)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Local reports whether the box has the IP for a reason other than Hold.
func (o *Owner) Local(ip netip.Addr) (bool, error) {
	found, err := o.kernel.interfacesOf(ip)
	if err != nil {
		return false, fmt.Errorf("look up the interfaces that have %v: %w", ip, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range found {
		if h := o.held[p]; h == nil || !h.ours {
			return true, nil
		}
	}
	return false, nil
}

// Subnets returns the networks of an interface's addresses, without host addresses (/32, /128) and
// link-local addresses.
func (o *Owner) Subnets(ifIndex int) ([]netip.Prefix, error) {
	nets, err := o.kernel.subnets(ifIndex)
	if err != nil {
		return nil, fmt.Errorf("look up the addresses of interface %d: %w", ifIndex, err)
	}
	return nets, nil
}

// Close removes all held addresses. Run must have returned.
func (o *Owner) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var errs []error
	for p, h := range o.held {
		if h.ours {
			errs = append(errs, o.giveBack(p, h.note))
		}
	}
	clear(o.held)
	if o.events != nil {
		o.events.Close()
		o.watch.close() // again, if Run has returned
	}
	o.kernel.Close()
	return errors.Join(errs...)
}
