// Package bed builds a lab on one machine: hosts in network namespaces, each with a soft RDMA
// endpoint, around a box whose ports are in a bridge, as in a real lab.
//
//	host 1 ── eth1 ┐
//	host 2 ── eth2 ┼ br0 10.77.3.254/22, the box, where rocastd runs
//	host n ── ethn ┘
//
// It is for the demo and for tests, and does not look into frames.
package bed

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab/lossy"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// Options describe a bed.
type Options struct {
	Hosts  int
	MTU    int    // of all links, bytes; 0: 1500
	Queues int    // of the box's ports; 0: 1
	Seed   uint32 // of the losses
	// Net is the second byte of all addresses; 0: 77. Beds that are joined by routes have different
	// ones.
	Net byte
	// IPv6 gives everybody an IPv6 address instead of an IPv4 one: fd00:NET::, with the last two
	// bytes of the IPv4 address.
	IPv6 bool
	// Number tells beds apart that are in one network: their boxes and hosts have different
	// addresses.
	Number byte
	// LossPerMillion is how many RoCE packets of a million the link of each host loses, in each
	// direction.
	LossPerMillion int
	// NoRNIC leaves the hosts without a soft RDMA endpoint.
	NoRNIC bool
}

// Bed is a lab.
type Bed struct {
	Box   *netns.NS
	Hosts []*Host
	MTU   int // of all links, bytes
	net   byte
	host  byte // the last byte of the box's address
	ipv6  bool
}

// Host is one machine with an RDMA NIC.
type Host struct {
	NS   *netns.NS
	IP   netip.Addr
	End  netns.Link // the host's interface, eth0
	Port netns.Link // the box's end of the same link
	Loss *lossy.Link
	RNIC *endpoint.Endpoint // nil with NoRNIC
}

// Bridge is the box's bridge.
const Bridge = "br0"

// standardNet is Options.Net where it is 0.
const standardNet = 77

// HostIP is the address of host i, from 0, of a bed with the standard net.
func HostIP(i int) netip.Addr { return (&Bed{net: standardNet}).hostIP(i) }

func (b *Bed) hostIP(i int) netip.Addr { return b.address(byte((i+1)>>8), byte(i+1)) }

func (b *Bed) address(high, low byte) netip.Addr {
	if b.ipv6 {
		return netip.AddrFrom16([16]byte{0: 0xFD, 3: b.net, 14: high, 15: low})
	}
	return netip.AddrFrom4([4]byte{10, b.net, high, low})
}

// IP is the address of the box.
func (b *Bed) IP() netip.Addr { return b.address(3, b.host) }

// GroupIP is an address of the hosts' subnet that no host has.
func (b *Bed) GroupIP() netip.Addr { return b.address(3, 100) }

// Network is the hosts' subnet.
func (b *Bed) Network() netip.Prefix {
	if b.ipv6 {
		return netip.PrefixFrom(b.IP(), 64).Masked()
	}
	return netip.PrefixFrom(b.IP(), 22).Masked()
}

// in is an address with the length of its network, as the kernel is told.
func (b *Bed) in(addr netip.Addr) string { return netip.PrefixFrom(addr, b.Network().Bits()).String() }

// Create makes a namespace, with IPv6 if the bed has it.
func (b *Bed) Create() (*netns.NS, error) {
	n, err := netns.Create()
	if err != nil || !b.ipv6 {
		return n, err
	}
	return n, n.Sysctl("net.ipv6.conf.default.disable_ipv6", "0")
}

// New builds a bed. Close removes it.
func New(o Options) (*Bed, error) {
	b := &Bed{net: o.Net, host: 254 - o.Number, ipv6: o.IPv6}
	if b.net == 0 {
		b.net = standardNet
	}
	if err := b.build(o); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *Bed) build(o Options) (err error) {
	if o.MTU == 0 {
		o.MTU = 1500
	}
	b.MTU = o.MTU
	if b.Box, err = b.Create(); err != nil {
		return err
	}
	bridge, err := b.addBridge(o.MTU)
	if err != nil {
		return err
	}
	for i := range o.Hosts {
		h := &Host{IP: b.hostIP(i + 16*int(o.Number))}
		b.Hosts = append(b.Hosts, h)
		if h.NS, err = b.Create(); err != nil {
			return err
		}
		h.Port, h.End, err = netns.CreateVeth(b.Box, fmt.Sprintf("eth%d", i+1), h.NS, "eth0",
			netns.VethOptions{MTU: o.MTU, Queues: o.Queues})
		if err != nil {
			return err
		}
		if err := b.plug(h, bridge); err != nil {
			return err
		}
		// A veth takes frames that XDP redirects to it only if its far end has GRO or an XDP
		// program.
		if _, err := h.NS.Exec("ethtool", "-K", h.End.Name, "gro", "on"); err != nil {
			return err
		}
		if o.LossPerMillion > 0 {
			if h.Loss, err = lossy.Attach(h.End, o.Seed+uint32(i), o.LossPerMillion); err != nil {
				return err
			}
		}
		if o.NoRNIC {
			continue
		}
		err = h.NS.Do(func() (err error) {
			h.RNIC, err = endpoint.Open("eth0", h.IP)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *Bed) addBridge(mtu int) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = Bridge, mtu
	nl := b.Box.Netlink()
	if err := nl.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return nil, fmt.Errorf("create %s: %w", Bridge, err)
	}
	bridge, err := nl.LinkByName(Bridge)
	if err != nil {
		return nil, err
	}
	end := netns.Link{NS: b.Box, Index: bridge.Attrs().Index}
	return bridge, errors.Join(end.AddAddress(b.in(b.IP())), nl.LinkSetUp(bridge))
}

func (b *Bed) plug(h *Host, bridge netlink.Link) error {
	port, err := b.Box.Netlink().LinkByIndex(h.Port.Index)
	if err != nil {
		return err
	}
	return errors.Join(b.Box.Netlink().LinkSetMaster(port, bridge), h.End.AddAddress(b.in(h.IP)))
}

// Ports are the names of the box's ports.
func (b *Bed) Ports() (names []string) {
	for _, h := range b.Hosts {
		names = append(names, h.Port.Name)
	}
	return names
}

// Close removes the bed.
func (b *Bed) Close() error {
	var errs []error
	for _, h := range b.Hosts {
		if h.RNIC != nil {
			errs = append(errs, h.RNIC.Close())
		}
		if h.Loss != nil {
			errs = append(errs, h.Loss.Close())
		}
		if h.NS != nil {
			errs = append(errs, h.NS.Close())
		}
	}
	if b.Box != nil {
		errs = append(errs, b.Box.Close())
	}
	return errors.Join(errs...)
}
