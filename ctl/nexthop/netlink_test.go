package nexthop

import (
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/rocast/rocast/roce"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// What the kernel says is read from its own messages here, because not every kernel has VLANs,
// bridges that filter them, or routes through gateways of the other family.

var (
	someMAC = net.HardwareAddr{2, 0, 0, 0, 0, 9}
	running = uint32(unix.IFF_UP | unix.IFF_LOWER_UP)
)

func TestLinksAsTheKernelTellsThem(t *testing.T) {
	on, off := true, false
	attrs := func(change func(*netlink.LinkAttrs)) netlink.LinkAttrs {
		a := netlink.LinkAttrs{Index: 7, Name: "eth1", MTU: 1500, MasterIndex: 3, ParentIndex: 5, HardwareAddr: someMAC, RawFlags: running}
		if change != nil {
			change(&a)
		}
		return a
	}
	base := link{index: 7, name: "eth1", kind: "device", mac: MAC(someMAC), mtu: 1500, master: 3}
	with := func(change func(*link)) link {
		l := base
		change(&l)
		return l
	}
	for name, c := range map[string]struct {
		found netlink.Link
		want  link
	}{
		"a device": {&netlink.Device{LinkAttrs: attrs(nil)}, base},
		"down": {&netlink.Device{LinkAttrs: attrs(func(a *netlink.LinkAttrs) { a.RawFlags = unix.IFF_LOWER_UP })},
			with(func(l *link) { l.down = true })},
		"without a carrier": {&netlink.Device{LinkAttrs: attrs(func(a *netlink.LinkAttrs) { a.RawFlags = unix.IFF_UP })},
			with(func(l *link) { l.noCarrier = true })},
		"a bridge":                {&netlink.Bridge{LinkAttrs: attrs(nil)}, with(func(l *link) { l.kind = "bridge" })},
		"a bridge, not filtering": {&netlink.Bridge{LinkAttrs: attrs(nil), VlanFiltering: &off}, with(func(l *link) { l.kind = "bridge" })},
		"a bridge that filters": {&netlink.Bridge{LinkAttrs: attrs(nil), VlanFiltering: &on},
			with(func(l *link) { l.kind, l.vlanFiltering = "bridge", true })},
		"a VLAN device": {&netlink.Vlan{LinkAttrs: attrs(nil), VlanId: 100, VlanProtocol: netlink.VLAN_PROTOCOL_8021AD},
			with(func(l *link) { l.kind, l.parent, l.tag = "vlan", 5, tag{protocol: 0x88a8, vid: 100} })},
		"a VLAN device with an egress-qos-map": {
			&netlink.Vlan{LinkAttrs: attrs(nil), VlanId: 100, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q, EgressQosMap: map[uint32]uint32{0: 3}},
			with(func(l *link) {
				l.kind, l.parent = "vlan", 5
				l.tag = tag{protocol8021Q, 100, roce.NewTagPriority(map[uint32]uint32{0: 3})}
			})},
	} {
		if got, err := linkOf(c.found); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	tunnel := &netlink.Device{LinkAttrs: attrs(func(a *netlink.LinkAttrs) { a.HardwareAddr = nil })}
	if _, err := linkOf(tunnel); err == nil || err.Error() != "eth1 is not Ethernet" {
		t.Errorf("a tunnel: %v", err)
	}
}

func TestRoutesAsTheKernelTellsThem(t *testing.T) {
	gateway, gateway6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fe80::1")
	for name, c := range map[string]struct {
		found netlink.Route
		want  route
	}{
		"on the link":       {netlink.Route{LinkIndex: 7, Type: unix.RTN_UNICAST}, route{ifIndex: 7}},
		"local":             {netlink.Route{LinkIndex: 1, Type: unix.RTN_LOCAL}, route{ifIndex: 1, local: true}},
		"through a gateway": {netlink.Route{LinkIndex: 7, Gw: net.IPv4(10, 0, 0, 1)}, route{ifIndex: 7, gateway: gateway}},
		"through a gateway of the other family": {netlink.Route{LinkIndex: 7, Via: &netlink.Via{AddrFamily: unix.AF_INET6, Addr: gateway6.AsSlice()}},
			route{ifIndex: 7, gateway: gateway6}},
		"through nothing that is an address": {netlink.Route{LinkIndex: 7, Via: &netlink.Via{Addr: net.IP{1}}}, route{ifIndex: 7}},
	} {
		if got, err := routeOf([]netlink.Route{c.found}); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := routeOf(nil); err != unix.ENETUNREACH {
		t.Errorf("no route: %v", err)
	}
}

// Of several paths those without a gateway lead to no neighbour. The caller's list stays as it is.
func TestGatewaysAreASet(t *testing.T) {
	first, second := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	list := []netip.Addr{second, first, second}
	if got := GatewaysOf(list...); got != GatewaysOf(first, second) || list[0] != second || list[1] != first || list[2] != second {
		t.Errorf("%+v of %v", got, list)
	}
	got := gatewaysOf([]*netlink.NexthopInfo{{Gw: net.IPv4(10, 0, 0, 2)}, {LinkIndex: 7}, {Gw: net.IPv4(10, 0, 0, 1)}})
	if got != GatewaysOf(first, second) {
		t.Errorf("%+v", got)
	}
}

func TestVLANsAsTheKernelTellsThem(t *testing.T) {
	found := []*nl.BridgeVlanInfo{
		{Vid: 1, Flags: nl.BRIDGE_VLAN_INFO_PVID | nl.BRIDGE_VLAN_INFO_UNTAGGED}, {Vid: 2, Flags: nl.BRIDGE_VLAN_INFO_PVID},
		{Vid: 3, Flags: nl.BRIDGE_VLAN_INFO_UNTAGGED}, {Vid: 300},
	}
	want := []vlan{{1, true, true}, {2, true, false}, {3, false, true}, {300, false, false}}
	if got := vlansOf(found); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

func TestNeighboursAsTheKernelTellsThem(t *testing.T) {
	for state, want := range map[int]neighbourState{
		netlink.NUD_PERMANENT: fixed, netlink.NUD_NOARP: fixed,
		netlink.NUD_REACHABLE: usable, netlink.NUD_STALE: usable, netlink.NUD_DELAY: usable, netlink.NUD_PROBE: usable,
		netlink.NUD_FAILED: failed, netlink.NUD_INCOMPLETE: incomplete, netlink.NUD_NONE: absent,
	} {
		n := neighbourOf(&netlink.Neigh{State: state, HardwareAddr: someMAC})
		if n.state != want || (n.mac == MAC(someMAC)) != (want == fixed || want == usable) {
			t.Errorf("state %#x: %+v", state, n)
		}
		n = neighbourOf(&netlink.Neigh{State: state})
		if wanted := want; n.state != wanted && wanted != fixed && wanted != usable || (wanted == fixed || wanted == usable) && n.state != absent {
			t.Errorf("state %#x without a MAC: %+v", state, n)
		}
	}
}

func TestChangesAsTheKernelTellsThem(t *testing.T) {
	ip := netip.MustParseAddr("10.0.0.9")
	message := func(kind uint16, parts ...[]byte) syscall.NetlinkMessage {
		return syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: kind}, Data: slices.Concat(parts...)}
	}
	attr := func(kind int, value []byte) []byte { return nl.NewRtAttr(kind, value).Serialize() }
	neighbour := func(family int) []byte { m := newNdMsg(family, 7); return m.Serialize() }
	routeMessage := func(family uint8, bits uint8, flags uint32) []byte {
		m := nl.NewRtMsg()
		m.Family, m.Dst_len, m.Flags = family, bits, flags
		return m.Serialize()
	}
	linkMessage := nl.NewIfInfomsg(unix.AF_UNSPEC)
	linkMessage.Index = 7
	bySubject := func(s subject) []change { return []change{{subject: s}} }
	byRoute := func(prefix string) []change { return []change{{route: netip.MustParsePrefix(prefix)}} }
	all := []change{{all: true}}
	for name, c := range map[string]struct {
		message syscall.NetlinkMessage
		want    []change
	}{
		"a neighbour":              {message(unix.RTM_NEWNEIGH, neighbour(unix.AF_INET), attr(netlink.NDA_DST, ip.AsSlice())), bySubject(subject{addr: ip})},
		"a neighbour that went":    {message(unix.RTM_DELNEIGH, neighbour(unix.AF_INET), attr(netlink.NDA_DST, ip.AsSlice())), bySubject(subject{addr: ip})},
		"a neighbour without IP":   {message(unix.RTM_NEWNEIGH, neighbour(unix.AF_INET)), nil},
		"a damaged neighbour":      {message(unix.RTM_NEWNEIGH, neighbour(unix.AF_INET), []byte{200, 0, 1, 0}), nil},
		"half a neighbour":         {message(unix.RTM_NEWNEIGH, neighbour(unix.AF_INET)[:11]), nil},
		"an FDB entry":             {message(unix.RTM_NEWNEIGH, neighbour(unix.AF_BRIDGE), attr(netlink.NDA_LLADDR, someMAC)), bySubject(subject{mac: MAC(someMAC)})},
		"an FDB entry without MAC": {message(unix.RTM_NEWNEIGH, neighbour(unix.AF_BRIDGE)), nil},
		"a link":                   {message(unix.RTM_NEWLINK, linkMessage.Serialize()), bySubject(subject{link: 7})},
		"a link that went":         {message(unix.RTM_DELLINK, linkMessage.Serialize()), bySubject(subject{link: 7})},
		"half a link":              {message(unix.RTM_NEWLINK, linkMessage.Serialize()[:15]), nil},
		"a route":                  {message(unix.RTM_NEWROUTE, routeMessage(unix.AF_INET, 24, 0), attr(unix.RTA_DST, ip.AsSlice())), byRoute("10.0.0.0/24")},
		"a route that went":        {message(unix.RTM_DELROUTE, routeMessage(unix.AF_INET, 32, 0), attr(unix.RTA_DST, ip.AsSlice())), byRoute("10.0.0.9/32")},
		"a route with a gateway":   {message(unix.RTM_NEWROUTE, routeMessage(unix.AF_INET, 24, 0), attr(unix.RTA_DST, ip.AsSlice()), attr(unix.RTA_GATEWAY, []byte{10, 9, 9, 9})), byRoute("10.0.0.0/24")},
		"the default route":        {message(unix.RTM_NEWROUTE, routeMessage(unix.AF_INET, 0, 0)), byRoute("0.0.0.0/0")},
		"the IPv6 default route":   {message(unix.RTM_NEWROUTE, routeMessage(unix.AF_INET6, 0, 0)), byRoute("::/0")},
		"a cached route":           {message(unix.RTM_NEWROUTE, routeMessage(unix.AF_INET, 32, unix.RTM_F_CLONED), attr(unix.RTA_DST, ip.AsSlice())), nil},
		"half a route":             {message(unix.RTM_NEWROUTE, routeMessage(unix.AF_INET, 0, 0)[:11]), nil},
		"a damaged route":          {message(unix.RTM_NEWROUTE, routeMessage(unix.AF_INET, 0, 0), []byte{200, 0, 1, 0}), nil},
		"a route of 99 bits":       {message(unix.RTM_NEWROUTE, routeMessage(unix.AF_INET, 99, 0)), nil},
		"a rule":                   {message(unix.RTM_NEWRULE), all},
		"a rule that went":         {message(unix.RTM_DELRULE), all},
		"a nexthop object":         {message(unix.RTM_NEWNEXTHOP), all},
		"something else":           {message(unix.RTM_NEWADDR), nil},
	} {
		got := parseChanges([]syscall.NetlinkMessage{c.message})
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := parseChanges(nil); !slices.Equal(got, all) {
		t.Errorf("lost notifications: %+v", got)
	}
	for c, want := range map[change]bool{{all: true}: true, {subject: subject{link: 1}}: true, {subject: subject{addr: ip}}: false} {
		if c.isLinks() != want {
			t.Errorf("%+v concerns a link: %v", c, !want)
		}
	}
}
