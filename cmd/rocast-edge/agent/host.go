package agent

import (
	"fmt"
	"io"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/rocast/rocast/bpf/edge"
	"github.com/rocast/rocast/ctl/rtnl"
	"github.com/rocast/rocast/roce"
)

// device is an interface where the program maps.
type device struct {
	name  string
	index int
	mac   roce.MAC // of the host's RDMA device
	joins int      // index of the interface at which addresses are joined
}

// host is what an agent needs of the machine it runs on.
type host interface {
	// towards returns the IP from which packets to a box leave.
	towards(box netip.AddrPort) (netip.Addr, error)
	// find returns the interface with an IP of this host.
	find(ip netip.Addr) (device, error)
	// behind returns this machine's port towards the boxes, for a host behind another port.
	behind(wire string, ip netip.Addr) (device, error)
	attach(at device) (mapper, error)
	detach(name string) error
	pinned() (names []string, err error)
	// join joins a multicast address at an interface until the result is closed.
	join(at device, to netip.Addr) (io.Closer, error)
}

// kernel is the host on which the process runs.
type kernel struct {
	pins  string
	modes []edge.Mode
}

func (k kernel) attach(at device) (mapper, error) { return edge.Attach(at.name, k.pins, k.modes) }
func (k kernel) detach(name string) error         { return edge.Detach(name, k.pins) }
func (k kernel) pinned() ([]string, error)        { return edge.Pinned(k.pins) }

func (k kernel) towards(box netip.AddrPort) (netip.Addr, error) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(box)) // sends nothing
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

func (k kernel) find(ip netip.Addr) (device, error) {
	all, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return device{}, fmt.Errorf("list the addresses of this host: %w", err)
	}
	for _, one := range all {
		if addr, ok := netip.AddrFromSlice(one.IP); !ok || addr.Unmap() != ip {
			continue
		}
		dev, err := netlink.LinkByIndex(one.LinkIndex)
		if err != nil {
			return device{}, fmt.Errorf("look at the interface with %v: %w", ip, err)
		}
		at := dev.Attrs()
		if len(at.HardwareAddr) != len(roce.MAC{}) || dev.Attrs().Flags&net.FlagLoopback != 0 {
			return device{}, fmt.Errorf("%v is at %s, which is no Ethernet interface", ip, at.Name)
		}
		return device{name: at.Name, index: at.Index, mac: roce.MAC(at.HardwareAddr), joins: at.Index}, nil
	}
	return device{}, fmt.Errorf("no interface of this host has the IP %v", ip)
}

func (k kernel) join(at device, to netip.Addr) (io.Closer, error) {
	joined, err := rtnl.Join(at.joins, to)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at.name, err)
	}
	return joined, nil
}
