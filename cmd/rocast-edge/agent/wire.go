package agent

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/roce"
)

const (
	// answersWithin is how long a host may take to say its MAC, and lookEvery between two looks
	// whether it has.
	answersWithin, lookEvery = 200 * time.Millisecond, 10 * time.Millisecond
)

func (k kernel) behind(wire string, ip netip.Addr) (device, error) {
	dev, err := netlink.LinkByName(wire)
	if err != nil {
		return device{}, fmt.Errorf("look at %s, the port towards the boxes: %w", wire, err)
	}
	// The program only changes the frame. A bridge has to carry it to the host.
	if dev.Attrs().MasterIndex == 0 {
		return device{}, fmt.Errorf("%s is in no bridge; put it and the port to %v into one", wire, ip)
	}
	routes, err := netlink.RouteGet(ip.AsSlice())
	if err != nil || len(routes) == 0 {
		return device{}, fmt.Errorf("look for the way to %v: %w", ip, err)
	}
	way := routes[0]
	switch {
	case way.Type == unix.RTN_LOCAL:
		return device{}, fmt.Errorf("%v is an IP of this machine, and --wire is for a host behind it", ip)
	case way.Gw != nil:
		return device{}, fmt.Errorf("%v is behind the router %v; give the bridge an address of the host's network", ip, way.Gw)
	}
	by, err := netlink.LinkByIndex(way.LinkIndex)
	if err != nil {
		return device{}, fmt.Errorf("look at the interface to %v: %w", ip, err)
	}
	// It may be a VLAN device of the bridge.
	if bridge := dev.Attrs().MasterIndex; bridge != way.LinkIndex && bridge != by.Attrs().ParentIndex {
		return device{}, fmt.Errorf("the way to %v is %s, which is not the bridge that has %s; put the ports to the boxes and to the host "+
			"into one bridge, and give that an address of the host's network", ip, by.Attrs().Name, wire)
	}
	mac, err := macOf(way.LinkIndex, ip)
	if err != nil {
		return device{}, err
	}
	port, err := portOf(dev.Attrs().MasterIndex, by, mac)
	if err != nil || port == dev.Attrs().Index {
		return device{}, cmp.Or(err, fmt.Errorf("%v is behind %s itself; --wire names the bridge's other port, towards the boxes", ip, wire))
	}
	// The bridge joins: only it hears the questions of the switch, which come by its port.
	return device{name: wire, index: dev.Attrs().Index, mac: mac, joins: way.LinkIndex}, nil
}

// portOf returns the index of the port behind which a bridge has learned a MAC; 0: of none. by is
// the bridge, or a VLAN device of it. A MAC may be behind different ports in different VLANs.
func portOf(bridge int, by netlink.Link, mac roce.MAC) (ifindex int, err error) {
	vlan := 0
	if tagged, is := by.(*netlink.Vlan); is {
		vlan = tagged.VlanId
	} else {
		all, err := netlink.BridgeVlanList() // empty, unless bridges know VLANs
		if err != nil {
			return 0, fmt.Errorf("look in which VLAN the bridge itself is: %w", err)
		}
		for _, v := range all[int32(bridge)] {
			if v.PortVID() {
				vlan = int(v.Vid)
			}
		}
	}
	all, err := netlink.NeighList(0, unix.AF_BRIDGE)
	if err != nil {
		return 0, fmt.Errorf("look behind which port of the bridge the host is: %w", err)
	}
	return learned(all, bridge, vlan, mac), nil
}

// learned is portOf for what bridges have learned. A bridge that knows no VLANs has learned nothing
// of one, also where devices at it tag frames.
func learned(all []netlink.Neigh, bridge, vlan int, mac roce.MAC) (ifindex int) {
	for _, one := range all {
		if one.MasterIndex == bridge && (one.Vlan == vlan || one.Vlan == 0) && bytes.Equal(one.HardwareAddr, mac[:]) {
			return one.LinkIndex
		}
	}
	return 0
}

// macOf returns the MAC of a neighbour. Each look makes the kernel ask for it, if that is due.
func macOf(ifindex int, ip netip.Addr) (roce.MAC, error) {
	const known = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE | netlink.NUD_PERMANENT
	family := unix.AF_INET
	if ip.Is6() {
		family = unix.AF_INET6
	}
	for range answersWithin / lookEvery {
		if err := netlink.NeighSet(&netlink.Neigh{LinkIndex: ifindex, IP: ip.AsSlice(), Flags: netlink.NTF_USE}); err != nil {
			return roce.MAC{}, fmt.Errorf("ask for the MAC of %v: %w", ip, err)
		}
		all, err := netlink.NeighList(ifindex, family)
		if err != nil {
			return roce.MAC{}, fmt.Errorf("look for the MAC of %v: %w", ip, err)
		}
		for _, one := range all {
			if addr, _ := netip.AddrFromSlice(one.IP); addr.Unmap() == ip && one.State&known != 0 && len(one.HardwareAddr) == len(roce.MAC{}) {
				return roce.MAC(one.HardwareAddr), nil
			}
		}
		time.Sleep(lookEvery)
	}
	return roce.MAC{}, fmt.Errorf("%v does not answer who asks for its MAC", ip)
}
