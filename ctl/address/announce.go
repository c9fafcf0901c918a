package address

import (
	"encoding/binary"
	"errors"
	"net/netip"
)

// Announce tells the hosts at the interfaces where the Owner holds an IP that the box has it. A
// host may remember the MAC of another box, which had the IP for a group and has it no longer: what
// the host sends would go there until it asks anew, which takes Linux half a minute. The
// announcements are those of RFC 5227, 2.3, and RFC 4861, 7.2.6. Hosts that do not know the IP
// learn nothing.
func (o *Owner) Announce(ip netip.Addr) error {
	o.mu.Lock()
	var held []IfAddr
	for p := range o.held {
		if p.IP == ip {
			held = append(held, p)
		}
	}
	o.mu.Unlock()
	var errs []error
	for _, p := range held {
		errs = append(errs, o.kernel.announce(p))
	}
	return errors.Join(errs...)
}

// announce does nothing where no host hears it.
func (k *netlinkKernel) announce(p IfAddr) error {
	mac, err := k.asker(p.IfIndex)
	if errors.Is(err, errNobody) {
		return nil
	}
	if err != nil {
		return err
	}
	q := &packets{to: toHosts(p, [4]byte{3: 1})} // all nodes
	if p.IP.Is4() {
		q.request = arpRequestOf(mac, p.IP, p.IP)
	} else {
		q.request = advertisement(mac, p.IP)
	}
	if q.socket, err = packetSocket(q.to); err != nil {
		return err
	}
	defer q.close()
	return q.put()
}

// advertisement returns an unsolicited neighbour advertisement to all nodes.
func advertisement(mac [macBytes]byte, ip netip.Addr) []byte {
	const (
		override      = 1 << 29
		targetLinkMAC = 2 // option
		optionBytes   = 8
	)
	b := icmpPacket(ip, netip.IPv6LinkLocalAllNodes(), neighbourAdvertisement, ip)
	binary.BigEndian.PutUint32(b[ipv6Bytes+4:], override)
	b = append(append(b, targetLinkMAC, optionBytes/8), mac[:]...)
	return finish(b)
}
