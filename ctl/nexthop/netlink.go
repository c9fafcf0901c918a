package nexthop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/rtnl"
	"github.com/rocast/rocast/roce"
)

// netlinkKernel implements kernel with netlink requests.
type netlinkKernel struct {
	*rtnl.Conn
}

// route asks for the way that the kernel takes, and where that leads to a gateway also for the
// route itself, which may have more of them.
func (k *netlinkKernel) route(to netip.Addr) (route, error) {
	found, err := k.RouteGet(to.AsSlice())
	if err != nil {
		return route{}, err
	}
	r, err := routeOf(found)
	if err != nil || !r.gateway.IsValid() {
		return r, err
	}
	r.gateways = GatewaysOf(r.gateway)
	found, err = k.RouteGetWithOptions(to.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if err == nil && len(found) > 0 && len(found[0].MultiPath) > 0 {
		r.gateways = gatewaysOf(found[0].MultiPath)
		var through []int
		for _, p := range found[0].MultiPath {
			through = append(through, p.LinkIndex)
		}
		r.through = InterfacesOf(through...)
	}
	return r, nil // the way itself is known, also where the kernel does not tell the route (before 5.0)
}

func gatewaysOf(paths []*netlink.NexthopInfo) Gateways {
	var addrs []netip.Addr
	for _, p := range paths {
		if gateway := gatewayOf(p.Gw, p.Via); gateway.IsValid() {
			addrs = append(addrs, gateway)
		}
	}
	return GatewaysOf(addrs...)
}

func gatewayOf(gw net.IP, via netlink.Destination) netip.Addr {
	gateway, _ := netip.AddrFromSlice(gw)
	if via, ok := via.(*netlink.Via); ok { // an IPv4 route through an IPv6 gateway
		gateway, _ = netip.AddrFromSlice(via.Addr)
	}
	return gateway.Unmap()
}

func routeOf(found []netlink.Route) (route, error) {
	if len(found) == 0 {
		return route{}, unix.ENETUNREACH
	}
	r := route{ifIndex: found[0].LinkIndex, local: found[0].Type == unix.RTN_LOCAL}
	r.gateway = gatewayOf(found[0].Gw, found[0].Via)
	source, _ := netip.AddrFromSlice(found[0].Src)
	r.source = source.Unmap()
	return r, nil
}

func (k *netlinkKernel) link(ifIndex int) (link, error) {
	found, err := k.LinkByIndex(ifIndex)
	if err != nil {
		return link{}, err
	}
	return linkOf(found)
}

func linkOf(found netlink.Link) (link, error) {
	attrs := found.Attrs()
	l := link{index: attrs.Index, name: attrs.Name, kind: found.Type(), mtu: attrs.MTU, master: attrs.MasterIndex}
	l.down = attrs.RawFlags&unix.IFF_UP == 0
	l.noCarrier = attrs.RawFlags&unix.IFF_LOWER_UP == 0
	if len(attrs.HardwareAddr) != macBytes {
		return link{}, fmt.Errorf("%s is not Ethernet", attrs.Name)
	}
	l.mac = MAC(attrs.HardwareAddr)
	switch typed := found.(type) {
	case *netlink.Bridge:
		l.vlanFiltering = typed.VlanFiltering != nil && *typed.VlanFiltering
	case *netlink.Bond:
		l.mode = typed.Mode.String()
	case *netlink.Vlan:
		l.parent = attrs.ParentIndex
		l.tag = tag{protocol: uint16(typed.VlanProtocol), vid: uint16(typed.VlanId), priority: roce.NewTagPriority(typed.EgressQosMap)}
	}
	if lower, is := attrs.Slave.(*netlink.BondSlave); is {
		l.carries = lower.State == netlink.BondStateActive && lower.MiiStatus == netlink.BondLinkUp
	}
	return l, nil
}

func (k *netlinkKernel) lowers(bond int) (lowers []link, err error) {
	answers, err := k.Request(unix.RTM_GETLINK, unix.NLM_F_DUMP, unix.RTM_NEWLINK, nl.NewIfInfomsg(unix.AF_UNSPEC),
		nl.NewRtAttr(unix.IFLA_MASTER, nl.Uint32Attr(uint32(bond))))
	if err != nil {
		return nil, err
	}
	for _, answer := range answers {
		found, err := netlink.LinkDeserialize(nil, answer)
		if err != nil {
			return nil, err
		}
		if found.Attrs().MasterIndex != bond { // a kernel may not filter
			continue
		}
		l, err := linkOf(found)
		if err != nil {
			return nil, err
		}
		lowers = append(lowers, l)
	}
	slices.SortFunc(lowers, func(a, b link) int { return a.index - b.index })
	return lowers, nil
}

func (k *netlinkKernel) vlans(ifIndex int) ([]vlan, error) {
	all, err := k.BridgeVlanList()
	return vlansOf(all[int32(ifIndex)]), err
}

func vlansOf(found []*nl.BridgeVlanInfo) (vlans []vlan) {
	for _, info := range found {
		vlans = append(vlans, vlan{vid: info.Vid, pvid: info.PortVID(), untagged: info.EngressUntag()})
	}
	return vlans
}

func (k *netlinkKernel) solicit(ifIndex int, ip netip.Addr) error {
	return k.NeighSet(&netlink.Neigh{LinkIndex: ifIndex, IP: ip.AsSlice(), Flags: netlink.NTF_USE})
}

// probe sets the state NUD_PROBE: the kernel then sends requests for some seconds and removes the
// entry if no answer comes.
func (k *netlinkKernel) probe(ifIndex int, ip netip.Addr) error {
	which := newNdMsg(family(ip), ifIndex)
	binary.NativeEndian.PutUint16(which[8:], netlink.NUD_PROBE)
	_, err := k.Request(unix.RTM_NEWNEIGH, unix.NLM_F_REPLACE|unix.NLM_F_ACK, 0, which, nl.NewRtAttr(netlink.NDA_DST, ip.AsSlice()))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) { // the entry is gone; a notification follows
		return nil
	}
	return err
}

func (k *netlinkKernel) forget(ifIndex int, ip netip.Addr) error {
	err := k.NeighDel(&netlink.Neigh{LinkIndex: ifIndex, IP: ip.AsSlice()})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

func family(ip netip.Addr) int {
	if ip.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

func (k *netlinkKernel) neighbour(ifIndex int, ip netip.Addr) (neighbour, error) {
	entry, err := k.getNeigh(newNdMsg(family(ip), ifIndex), nl.NewRtAttr(netlink.NDA_DST, ip.AsSlice()))
	if errors.Is(err, unix.ENOENT) {
		return neighbour{}, nil
	}
	if err != nil {
		return neighbour{}, err
	}
	return neighbourOf(entry), nil
}

func neighbourOf(entry *netlink.Neigh) neighbour {
	const written = netlink.NUD_PERMANENT | netlink.NUD_NOARP
	const answered = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE
	// A routing daemon has learned such an entry elsewhere; EVPN does, where hosts answer no ARP.
	learned := entry.Flags&netlink.NTF_EXT_LEARNED != 0 && entry.State&answered != 0
	switch {
	case (entry.State&written != 0 || learned) && len(entry.HardwareAddr) == macBytes:
		return neighbour{mac: MAC(entry.HardwareAddr), state: fixed}
	case entry.State&answered != 0 && len(entry.HardwareAddr) == macBytes:
		return neighbour{mac: MAC(entry.HardwareAddr), state: usable}
	case entry.State&netlink.NUD_FAILED != 0:
		return neighbour{state: failed}
	case entry.State&netlink.NUD_INCOMPLETE != 0:
		return neighbour{state: incomplete}
	}
	return neighbour{}
}

func (k *netlinkKernel) bridgePort(bridge int, mac MAC, vid uint16) (ifIndex int, err error) {
	attrs := []*nl.RtAttr{
		nl.NewRtAttr(netlink.NDA_LLADDR, net.HardwareAddr(mac[:])),
		nl.NewRtAttr(netlink.NDA_MASTER, nl.Uint32Attr(uint32(bridge))),
	}
	if vid != 0 {
		attrs = append(attrs, nl.NewRtAttr(netlink.NDA_VLAN, nl.Uint16Attr(vid)))
	}
	entry, err := k.getNeigh(newNdMsg(unix.AF_BRIDGE, 0), attrs...)
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return entry.LinkIndex, nil
}

// getNeigh reads one entry of a neighbour table or an FDB (kernel >= 5.0). The library can only
// list all entries.
func (k *netlinkKernel) getNeigh(which ndMsg, attrs ...*nl.RtAttr) (*netlink.Neigh, error) {
	parts := []nl.NetlinkRequestData{which}
	for _, attr := range attrs {
		parts = append(parts, attr)
	}
	answers, err := k.Request(unix.RTM_GETNEIGH, 0, unix.RTM_NEWNEIGH, parts...)
	if err != nil {
		return nil, err
	}
	if len(answers) == 0 {
		return nil, unix.ENOENT
	}
	return netlink.NeighDeserialize(answers[0])
}

// ndMsg is struct ndmsg as bytes. The kernel refuses a message whose padding is not zero, and a Go
// struct does not guarantee zero padding.
type ndMsg [unix.SizeofNdMsg]byte

func newNdMsg(family, ifIndex int) (m ndMsg) {
	m[0] = byte(family)
	binary.NativeEndian.PutUint32(m[4:], uint32(ifIndex))
	return m
}

func (m ndMsg) Len() int          { return len(m) }
func (m ndMsg) Serialize() []byte { return m[:] }
