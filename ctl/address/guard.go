package address

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Change is what another program has done to an address of the box.
type Change struct {
	IP   netip.Addr
	Gone bool // it was removed from an interface, else added
}

// Run adds the addresses again that other programs remove, until ctx is done. It then calls
// restored with the address and the name of its interface. It calls changed with what
// other programs have done to the addresses of the box; nil: notifications were lost.
//
// Where an interface on which the Owner holds an address gets another MAC, it tells the hosts
// there. Linux does so only where the sysctls arp_notify and ndisc_notify are 1; else hosts send to
// the old MAC for up to a minute.
//
// It calls rival with each other host that uses an address which the Owner has added, once until
// the host has not been heard for some minutes.
func (o *Owner) Run(ctx context.Context, restored func(p IfAddr, ifName string), changed func([]Change), rival Rival) error {
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return o.followRivals(ctx, rival) })
	tasks.Go(func() error {
		return o.events.Run(ctx, func(messages []syscall.NetlinkMessage) {
			if others := o.notice(messages); messages == nil || len(others) > 0 {
				changed(others)
			}
		})
	})
	tasks.Go(func() error {
		// Once a second: if another program keeps removing an address, the two must not loop fast.
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
				o.putBack(restored)
				o.announceMoved()
			}
		}
	})
	return tasks.Wait()
}

// notice records which of the Owner's addresses were removed, and returns what others have done
// to theirs. If notifications were lost, it records all addresses that the Owner added:
// adding an address that is still there does no harm.
func (o *Owner) notice(messages []syscall.NetlinkMessage) (others []Change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if messages == nil {
		for p, h := range o.held {
			if h.ours {
				o.lost[p] = struct{}{}
			}
		}
	}
	for _, m := range messages {
		a, ok := parse(m.Data)
		if !ok {
			continue
		}
		h := o.held[a.IfAddr]
		ours := h != nil && h.ours
		switch {
		case ours && m.Header.Type == unix.RTM_DELADDR:
			o.lost[a.IfAddr] = struct{}{}
		case !ours && a.proto != mark: // a marked one was released, or is about to be swept
			others = append(others, Change{a.IP, m.Header.Type == unix.RTM_DELADDR})
		}
	}
	return others
}

func (o *Owner) putBack(restored func(IfAddr, string)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p := range o.lost {
		// This fails while the interface is down or gone; the next tick tries again.
		switch err := o.kernel.add(p); {
		case err == nil:
			restored(p, o.held[p].note.name)
			delete(o.lost, p)
		case errors.Is(err, unix.EEXIST):
			delete(o.lost, p)
		}
	}
}

// announceMoved announces the addresses of interfaces that have another MAC than hosts know: the
// groups' and the box's own, from which it speaks to other boxes and to programs.
func (o *Owner) announceMoved() {
	o.mu.Lock()
	macs := map[int][6]byte{}
	moved := map[int]bool{}
	for p, h := range o.held {
		mac, known := macs[p.IfIndex]
		if !known {
			mac, _ = o.kernel.asker(p.IfIndex) // zero while nobody can hear it
			macs[p.IfIndex] = mac
		}
		if mac == h.mac || mac == ([6]byte{}) {
			continue
		}
		if h.mac != ([6]byte{}) {
			moved[p.IfIndex] = true
		}
		h.mac = mac
	}
	o.mu.Unlock()
	for ifIndex := range moved {
		all, _ := o.kernel.addresses(ifIndex)
		for _, p := range all {
			_ = o.kernel.announce(p) // a host that does not hear it asks anew within a minute
		}
	}
}
