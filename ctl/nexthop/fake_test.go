package nexthop

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// fakeKernel has the answers of a kernel. It records the requests to solicit, to probe and to
// forget.
type fakeKernel struct {
	routes     map[netip.Addr]route
	neighbours map[string]neighbour // "ifindex ip"
	links      map[int]link
	fdb        map[string]int // "bridge mac vid"
	memberOf   map[int][]vlan
	solicited  []string
	probed     []string
	forgotten  []string
	asked      int              // requests for a route
	broken     map[string]error // what "route", "link 2" and the like return instead of an answer
}

func (k *fakeKernel) route(to netip.Addr) (route, error) {
	k.asked++
	if r, ok := k.routes[to]; ok {
		return r, nil
	}
	return route{}, errors.New("network is unreachable")
}

func (k *fakeKernel) neighbour(ifIndex int, ip netip.Addr) (neighbour, error) {
	return k.neighbours[fmt.Sprint(ifIndex, " ", ip)], k.broken["neighbour"]
}

func (k *fakeKernel) solicit(ifIndex int, ip netip.Addr) error {
	k.solicited = append(k.solicited, fmt.Sprint(ifIndex, " ", ip))
	return k.broken["solicit"]
}

func (k *fakeKernel) probe(ifIndex int, ip netip.Addr) error {
	k.probed = append(k.probed, fmt.Sprint(ifIndex, " ", ip))
	return k.broken["probe"]
}

func (k *fakeKernel) forget(ifIndex int, ip netip.Addr) error {
	k.forgotten = append(k.forgotten, fmt.Sprint(ifIndex, " ", ip))
	return k.broken["forget"]
}

func (k *fakeKernel) link(ifIndex int) (link, error) {
	if err := k.broken[fmt.Sprint("link ", ifIndex)]; err != nil {
		return link{}, err
	}
	if l, ok := k.links[ifIndex]; ok {
		l.index = ifIndex
		return l, nil
	}
	return link{}, errors.New("no such device")
}

func (k *fakeKernel) lowers(bond int) (lowers []link, err error) {
	for _, i := range slices.Sorted(maps.Keys(k.links)) {
		if l := k.links[i]; l.master == bond {
			l.index = i
			lowers = append(lowers, l)
		}
	}
	return lowers, k.broken[fmt.Sprint("lowers ", bond)]
}

func (k *fakeKernel) bridgePort(bridge int, mac MAC, vid uint16) (int, error) {
	return k.fdb[fmt.Sprint(bridge, " ", mac, " ", vid)], k.broken["bridgePort"]
}

func (k *fakeKernel) vlans(ifIndex int) ([]vlan, error) {
	return k.memberOf[ifIndex], k.broken[fmt.Sprint("vlans ", ifIndex)]
}

// The box of the tests: eth1, eth2 and eth3 are rocast's ports; eth2 and eth3 are ports of bridge
// br0.
const (
	eth0, eth1, eth2, eth3, br0     = 9, 1, 2, 3, 10
	eth1v100, eth1v200v100, br0v300 = 11, 12, 13
	bond0                           = 20
)

var (
	onEth1, onEth0    = netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("10.9.0.2")
	farAway           = netip.MustParseAddr("192.0.2.7") // through the gateway 10.1.0.2
	onBridge          = netip.MustParseAddr("10.2.0.2")
	onVLAN, onQinQ    = netip.MustParseAddr("10.100.0.2"), netip.MustParseAddr("10.200.0.2")
	onBridgeVLAN      = netip.MustParseAddr("10.30.0.2")
	onIPv6            = netip.MustParseAddr("fd00:1::2")
	ownIP             = netip.MustParseAddr("10.1.0.1")
	hostMAC, otherMAC = MAC{2, 0, 0, 0, 0, 0x22}, MAC{2, 0, 0, 0, 0, 0x33}
)

func newFakeKernel() *fakeKernel {
	mac := func(last byte) MAC { return MAC{2, 0, 0, 0, 0xb, last} }
	here := neighbour{mac: hostMAC, state: usable}
	return &fakeKernel{
		links: map[int]link{
			eth0:         {name: "eth0", mac: mac(9), mtu: 1500},
			eth1:         {name: "eth1", mac: mac(1), mtu: 4200},
			eth2:         {name: "eth2", mac: mac(2), mtu: 1500, master: br0},
			eth3:         {name: "eth3", mac: mac(3), mtu: 1500, master: br0},
			br0:          {name: "br0", mac: mac(10), mtu: 1500, kind: "bridge"},
			eth1v100:     {name: "eth1.100", mac: mac(1), kind: "vlan", parent: eth1, tag: tag{protocol8021Q, 100, 0}},
			eth1v200v100: {name: "eth1.200.100", mac: mac(1), kind: "vlan", parent: 14, tag: tag{protocol8021Q, 100, 0}},
			14:           {name: "eth1.200", mac: mac(1), kind: "vlan", parent: eth1, tag: tag{0x88a8, 200, 0}},
			br0v300:      {name: "br0.300", mac: mac(10), kind: "vlan", parent: br0, tag: tag{protocol8021Q, 300, 0}},
		},
		routes: map[netip.Addr]route{
			onEth1: {ifIndex: eth1}, onEth0: {ifIndex: eth0}, onBridge: {ifIndex: br0}, onVLAN: {ifIndex: eth1v100},
			onQinQ: {ifIndex: eth1v200v100}, onBridgeVLAN: {ifIndex: br0v300}, onIPv6: {ifIndex: eth1},
			farAway: {ifIndex: eth1, gateway: onEth1}, ownIP: {ifIndex: 99, local: true},
		},
		neighbours: map[string]neighbour{
			"1 10.1.0.2": here, "9 10.9.0.2": here, "10 10.2.0.2": here, "11 10.100.0.2": here, "12 10.200.0.2": here,
			"13 10.30.0.2": here, "1 fd00:1::2": here,
		},
		fdb:      map[string]int{fmt.Sprint(br0, " ", hostMAC, " 0"): eth2},
		memberOf: map[int][]vlan{},
	}
}

// filterVLANs makes br0 filter: its own frames are in VLAN 1; eth2 sends VLAN 1 untagged and VLAN
// 300 tagged.
func (k *fakeKernel) filterVLANs() {
	bridge := k.links[br0]
	bridge.vlanFiltering = true
	k.links[br0] = bridge
	k.memberOf[br0] = []vlan{{vid: 1, pvid: true, untagged: true}, {vid: 300}}
	k.memberOf[eth2] = []vlan{{vid: 1, pvid: true, untagged: true}, {vid: 300}}
	k.fdb = map[string]int{fmt.Sprint(br0, " ", hostMAC, " 1"): eth2, fmt.Sprint(br0, " ", hostMAC, " 300"): eth2}
}

func (k *fakeKernel) set(ifIndex int, change func(*link)) {
	l := k.links[ifIndex]
	change(&l)
	k.links[ifIndex] = l
}
