package bed

import (
	"errors"
	"net/netip"

	"github.com/rocast/rocast/internal/testlab/netns"
)

// AddStick adds a machine with one port, eth1, to the bed's switch, where its other end has the
// name. The caller closes it.
func (b *Bed) AddStick(name string, ip netip.Addr) (*netns.NS, netns.Link, error) {
	ns, err := b.Create()
	if err != nil {
		return nil, netns.Link{}, err
	}
	port, _, err := netns.CreateVeth(ns, "eth1", b.Box, name, netns.VethOptions{MTU: b.MTU})
	if err == nil {
		err = port.AddAddress(b.in(ip))
	}
	for _, command := range [][]string{
		{"ip", "link", "set", name, "master", Bridge},
		{"ethtool", "-K", name, "gro", "on"}, // so that it takes what XDP redirects to it
	} {
		if err == nil {
			_, err = b.Box.Exec(command[0], command[1:]...)
		}
	}
	if err != nil {
		return nil, port, errors.Join(err, ns.Close())
	}
	return ns, port, nil
}

// The interface of a virtual router, as keepalived makes one with use_vmac.
const (
	virtualMAC  = "00:00:5e:00:01:33"
	virtualName = "vrrp51"
)

// RouteVirtually makes the interface of a virtual router at the port of a stick. It is down: the
// stick stands by.
func RouteVirtually(stick *netns.NS) error {
	return errors.Join(
		stick.Sysctl("net.ipv4.conf.eth1.arp_ignore", "1"), // the router's address has the virtual MAC only
		exec(stick, "link", "add", "link", "eth1", "name", virtualName, "address", virtualMAC, "type", "macvlan", "mode", "private"),
		stick.Sysctl("net.ipv4.conf."+virtualName+".arp_notify", "1"), // say so to the switch when it comes up
	)
}

// Hold gives the address and the MAC of the virtual router to a stick.
func Hold(stick *netns.NS, router netip.Addr) error {
	return errors.Join(
		exec(stick, "address", "add", alone(router), "dev", virtualName, "nodad"),
		exec(stick, "link", "set", virtualName, "up"),
	)
}

// Drop takes them away.
func Drop(stick *netns.NS, router netip.Addr) error {
	return errors.Join(
		exec(stick, "address", "del", alone(router), "dev", virtualName),
		exec(stick, "link", "set", virtualName, "down"),
	)
}

func exec(in *netns.NS, args ...string) error {
	_, err := in.Exec("ip", args...)
	return err
}

func alone(ip netip.Addr) string { return netip.PrefixFrom(ip, ip.BitLen()).String() }
