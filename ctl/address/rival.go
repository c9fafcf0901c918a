package address

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Rival is called with an IP that the Owner holds and with another host that uses that IP.
type Rival func(ip netip.Addr, c Claim)

// A host that takes an address tells nobody as a rule, so the hosts are asked again and again. They
// are asked by turns: each address once a minute, or less often if there are very many.
const (
	askRivalsEvery = time.Second
	askRivalsAfter = time.Minute // for the same address
	askRivalsMost  = 8           // questions at a time
	// A rival that was not heard for rivalGone is reported again when it is heard.
	rivalGone = 3 * askRivalsAfter
	rivalsMax = 1024
)

// sighting is a host that was heard to use an address.
type sighting struct {
	ip  netip.Addr
	mac [macBytes]byte
}

// watch receives the ARP and ND packets of hosts on all interfaces.
type watch struct{ arp, nd *os.File }

func openWatch() (w watch, err error) {
	if w.arp, err = packetSocket(&unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ARP)}); err != nil {
		return w, err
	}
	if w.nd, err = packetSocket(&unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_IPV6)}); err != nil {
		w.arp.Close()
	}
	return w, err
}

func (w watch) close() { w.arp.Close(); w.nd.Close() }

// follow calls heard with each address that a host claims, until close is called.
func (w watch) follow(socket *os.File, heard func(ip netip.Addr, mac [macBytes]byte, ifIndex int)) error {
	packet := make([]byte, ipv6Bytes+icmpBytes)
	for {
		n, from, err := receive(socket, packet)
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil && !errors.Is(err, unix.ENETDOWN) {
			return err
		}
		link, ok := from.(*unix.SockaddrLinklayer)
		if ip, claims := claimed(packet[:n], socket == w.arp); ok && claims && link.Halen == macBytes {
			heard(ip, [macBytes]byte(link.Addr[:macBytes]), link.Ifindex)
		}
	}
}

// claimed returns the address that the sender of a packet says it has.
func claimed(b []byte, isARP bool) (ip netip.Addr, ok bool) {
	if isARP {
		if len(b) < arpBytes {
			return ip, false
		}
		ip = netip.AddrFrom4([4]byte(b[arpSender:]))
		return ip, isARPReply(b, ip)
	}
	if len(b) < ipv6Bytes+icmpBytes {
		return ip, false
	}
	ip = netip.AddrFrom16([16]byte(b[ipv6Bytes+icmpTarget:]))
	return ip, isAdvertisement(b, ip)
}

// put asks the hosts on an interface with the MAC from for an address.
func (w watch) put(p IfAddr, from [macBytes]byte) error {
	q := newPackets(p, from)
	if q.socket = w.arp; !p.IP.Is4() {
		q.socket = w.nd
	}
	return q.put()
}

// followRivals asks for the held addresses by turns, and tells of those that other hosts use, until
// ctx is done.
func (o *Owner) followRivals(ctx context.Context, notify Rival) error {
	heard := func(ip netip.Addr, mac [macBytes]byte, ifIndex int) {
		if c, news := o.rival(time.Now(), ip, mac, ifIndex); news {
			notify(ip, c)
		}
	}
	failed := make(chan error, 2)
	for _, socket := range []*os.File{o.watch.arp, o.watch.nd} {
		go func() { failed <- o.watch.follow(socket, heard) }()
	}
	defer func() { <-failed; <-failed }()
	defer o.watch.close()
	ticker := time.NewTicker(askRivalsEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		for _, p := range o.askNext(time.Now()) {
			if mac, err := o.kernel.asker(p.IfIndex); err == nil {
				_ = o.watch.put(p, mac) // an interface that is down is asked in its next turn
			}
		}
	}
}

// askNext returns the addresses that are due at the time now.
func (o *Owner) askNext(now time.Time) (due []IfAddr) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p, h := range o.held {
		if h.ours && now.Sub(h.asked) >= askRivalsAfter && len(due) < askRivalsMost {
			h.asked = now
			due = append(due, p)
		}
	}
	return due
}

// rival handles the claim of a host to an address, which is then not free. It reports whether the
// claim is news: the Owner has added the address on that interface, the host is not the box itself,
// and the host was not heard to claim it within rivalGone.
func (o *Owner) rival(now time.Time, ip netip.Addr, mac [macBytes]byte, ifIndex int) (c Claim, news bool) {
	p := IfAddr{IfIndex: ifIndex, IP: ip}
	o.mu.Lock()
	delete(o.free, p)
	h := o.held[p]
	o.mu.Unlock()
	if h == nil || !h.ours {
		return c, false
	}
	if own, err := o.kernel.macs(); err != nil || slices.Contains(own, mac) {
		return c, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s := sighting{ip, mac}
	last, known := o.rivals[s]
	if !known && len(o.rivals) >= rivalsMax {
		clear(o.rivals)
	}
	o.rivals[s] = now
	return Claim{MAC: mac, Interface: h.note.name}, !known || now.Sub(last) >= rivalGone
}
