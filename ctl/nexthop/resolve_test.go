package nexthop

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/rocast/rocast/roce"
)

func newResolver(k kernel) *resolver {
	return &resolver{kernel: k, ports: map[int]bool{eth1: true, eth2: true, eth3: true}}
}

// describe returns a hop in the form of the tables below: port, MTU and header, or the reason.
func describe(h Hop) string {
	if !h.Known() {
		return h.Reason
	}
	text := fmt.Sprintf("%s %d %s", h.PortName, h.PortMTU, hex.EncodeToString(h.L2[:h.L2Bytes]))
	if h.Down {
		text += " but down: " + h.Reason
	} else if h.Reason != "" {
		text += " but " + h.Reason
	}
	return text
}

const (
	toHost  = "020000000022"
	fromBox = "020000000b"
)

func TestTheWayDown(t *testing.T) {
	for _, c := range []struct {
		name string
		to   netip.Addr
		set  func(*fakeKernel)
		want string
	}{
		{"on a port", onEth1, nil, "eth1 4200 " + toHost + fromBox + "01" + "0800"},
		{"IPv6", onIPv6, nil, "eth1 4200 " + toHost + fromBox + "01" + "86dd"},
		{"behind a gateway", farAway, nil, "eth1 4200 " + toHost + fromBox + "01" + "0800"},
		{"behind a bridge: the header is the bridge's", onBridge, nil, "eth2 1500 " + toHost + fromBox + "0a" + "0800"},
		{"on a VLAN", onVLAN, nil, "eth1 4200 " + toHost + fromBox + "01" + "81000064" + "0800"},
		{"on a VLAN in a VLAN: the lower device's tag is outside", onQinQ, nil, "eth1 4200 " + toHost + fromBox + "01" + "88a800c8" + "81000064" + "0800"},
		{"a VLAN above a bridge that does not filter", onBridgeVLAN, nil, "eth2 1500 " + toHost + fromBox + "0a" + "8100012c" + "0800"},
		{"a bridge that filters, untagged", onBridge, (*fakeKernel).filterVLANs, "eth2 1500 " + toHost + fromBox + "0a" + "0800"},
		{"a bridge that filters, tagged", onBridgeVLAN, (*fakeKernel).filterVLANs, "eth2 1500 " + toHost + fromBox + "0a" + "8100012c" + "0800"},
		{"a bridge that filters, whose PVID is not its first VLAN", onBridge, func(k *fakeKernel) {
			k.filterVLANs()
			slices.Reverse(k.memberOf[br0])
			slices.Reverse(k.memberOf[eth2])
		}, "eth2 1500 " + toHost + fromBox + "0a" + "0800"},
		{"a bridge port that is a VLAN device", onBridge, func(k *fakeKernel) { k.fdb["10 02:00:00:00:00:22 0"] = eth1v100 },
			"eth1 4200 " + toHost + fromBox + "0a" + "81000064" + "0800"},

		{"no route", netip.MustParseAddr("198.51.100.1"), nil, "no route to 198.51.100.1 (network is unreachable); add one with ip route"},
		{"the box itself", ownIP, nil, "10.1.0.1 is this box's own address; write the host's"},
		{"not a port of ours", onEth0, nil, "10.9.0.2 is reached through eth0, which is not a port of rocast, nor a bridge, bond or VLAN device on a port; see in rocast port ls whether eth0 could be opened, add it to ports: in the config, or correct the route"},
		{"a team", onEth0, func(k *fakeKernel) { k.set(eth0, func(l *link) { l.kind = "team" }) },
			"10.9.0.2 is reached through eth0, which is not a port of rocast, nor a bridge, bond or VLAN device on a port: " +
				"it is a team, and rocast does not know which of its ports is active; make it a bond in mode active-backup, 802.3ad, balance-xor"},
		{"a bridge port not of ours", onBridge, func(k *fakeKernel) { k.fdb["10 02:00:00:00:00:22 0"] = eth0 },
			"10.2.0.2 is reached through br0 and eth0, which is not a port of rocast, nor a bridge, bond or VLAN device on a port; see in rocast port ls whether eth0 could be opened, add it to ports: in the config, or correct the route"},
		{"no MAC yet", onEth1, func(k *fakeKernel) { clear(k.neighbours) }, "the kernel is asking for the MAC of 10.1.0.2 on eth1"},
		{"the gateway does not answer", farAway, func(k *fakeKernel) { k.neighbours["1 10.1.0.2"] = neighbour{state: failed} },
			"10.1.0.2 does not answer on eth1; is the host up, with this address?"},
		{"no carrier", onEth1, func(k *fakeKernel) { k.set(eth1, func(l *link) { l.noCarrier = true }) },
			"eth1 4200 " + toHost + fromBox + "01" + "0800" + " but down: eth1 has no carrier; is the cable plugged in, and the other end up?"},
		{"no carrier, and a doubt of the MAC", onEth1, func(k *fakeKernel) { k.set(eth1, func(l *link) { l.noCarrier = true }); clear(k.neighbours) },
			"eth1 has no carrier; is the cable plugged in, and the other end up?"},
		{"a bridge port that is down", onBridge, func(k *fakeKernel) { k.set(eth2, func(l *link) { l.down, l.noCarrier = true, true }) },
			"eth2 1500 " + toHost + fromBox + "0a" + "0800" + " but down: eth2 is down; set it up with ip link set eth2 up"},
		{"not in the FDB", onBridge, func(k *fakeKernel) { clear(k.fdb) }, "br0 does not know the port of 02:00:00:00:00:22 (10.2.0.2); it learns the port from the host's next frame"},
		{"the bridge's own MAC", onBridge, func(k *fakeKernel) { k.fdb["10 02:00:00:00:00:22 0"] = br0 }, "10.2.0.2 has the MAC 02:00:00:00:00:22, which is br0's own"},
		{"not in the VLAN", onBridgeVLAN, func(k *fakeKernel) { k.filterVLANs(); k.memberOf[eth2] = k.memberOf[eth2][:1] },
			"port eth2 of br0 is not in VLAN 300; add it with bridge vlan add dev eth2 vid 300"},
		{"a filtering bridge without PVID", onBridge, func(k *fakeKernel) { k.filterVLANs(); k.memberOf[br0] = nil },
			"bridge br0 filters VLANs and is in none itself without a tag; add it with bridge vlan add dev br0 vid N pvid untagged self"},
		{"three tags", onQinQ, func(k *fakeKernel) {
			k.links[14] = link{name: "eth1.200", kind: "vlan", parent: eth1v100, tag: tag{0x88a8, 200, 0}}
		}, "frames to it need more than two VLAN tags, and rocast writes at most two"},
		{"in circles", onVLAN, func(k *fakeKernel) {
			k.links[eth1v100] = link{name: "eth1.100", kind: "bridge"}
			k.fdb["11 02:00:00:00:00:22 0"], k.fdb["10 02:00:00:00:00:22 0"] = br0, eth1v100
		},
			"10.100.0.2 is reached through more than 8 interfaces, one below the other, from eth1.100 on"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newFakeKernel()
			if c.set != nil {
				c.set(k)
			}
			hop := newResolver(k).resolve(c.to, nil, false).Hop
			if got := describe(hop); got != c.want || hop.Own != (c.to == ownIP) {
				t.Errorf("\ngot  %s (own %v)\nwant %s", got, hop.Own, c.want)
			}
		})
	}
}

// withBond makes eth2 and eth3 the lower devices of bond0, by which onEth1 is reached then.
func (k *fakeKernel) withBond(mode string, carrying ...int) {
	k.links[bond0] = link{name: "bond0", mac: MAC{2, 0, 0, 0, 0xb, 20}, mtu: 1500, kind: "bond", mode: mode}
	for _, i := range []int{eth2, eth3} {
		k.set(i, func(l *link) { l.master, l.carries = bond0, slices.Contains(carrying, i) })
	}
	k.routes[onEth1] = route{ifIndex: bond0}
	k.neighbours[fmt.Sprint(bond0, " ", onEth1)] = neighbour{mac: hostMAC, state: usable}
}

// Frames leave a bond by a lower device by which the bond sends, and may come by each of them.
func TestTheWayThroughABond(t *testing.T) {
	const header = toHost + fromBox + "14" + "0800"
	for _, c := range []struct {
		name string
		set  func(*fakeKernel)
		want string
		by   Interfaces
	}{
		{"active-backup", func(k *fakeKernel) { k.withBond("active-backup", eth3) }, "eth3 1500 " + header, InterfacesOf(eth2, eth3)},
		{"the other one", func(k *fakeKernel) { k.withBond("active-backup", eth2) }, "eth2 1500 " + header, InterfacesOf(eth2, eth3)},
		{"one of two is not in the aggregate", func(k *fakeKernel) { k.withBond("802.3ad", eth2) }, "eth2 1500 " + header, InterfacesOf(eth2, eth3)},
		{"none is up", func(k *fakeKernel) { k.withBond("balance-xor") }, "eth2 1500 " + header + " but down: no lower device of bond0 is up", InterfacesOf(eth2, eth3)},
		{"the bond is down", func(k *fakeKernel) {
			k.withBond("balance-xor", eth2, eth3)
			k.neighbours[fmt.Sprint(bond0, " ", onEth1)] = neighbour{mac: hostMAC, state: fixed}
			k.set(bond0, func(l *link) { l.down = true })
		}, "eth2 1500 " + header + " but down: bond0 is down; set it up with ip link set bond0 up", InterfacesOf(eth2, eth3)},
		{"below a bridge", func(k *fakeKernel) {
			k.withBond("active-backup", eth3)
			k.set(bond0, func(l *link) { l.master = br0 })
			k.routes[onEth1] = route{ifIndex: br0}
			k.neighbours[fmt.Sprint(br0, " ", onEth1)] = neighbour{mac: hostMAC, state: usable}
			k.fdb[fmt.Sprint(br0, " ", hostMAC, " 0")] = bond0
		}, "eth3 1500 " + toHost + fromBox + "0a" + "0800", InterfacesOf(eth2, eth3)},
		{"below a VLAN device", func(k *fakeKernel) {
			k.withBond("active-backup", eth3)
			k.links[21] = link{name: "bond0.100", mac: MAC{2, 0, 0, 0, 0xb, 20}, kind: "vlan", parent: bond0, tag: tag{protocol8021Q, 100, 0}}
			k.routes[onEth1] = route{ifIndex: 21}
			k.neighbours[fmt.Sprint(21, " ", onEth1)] = neighbour{mac: hostMAC, state: usable}
		}, "eth3 1500 " + toHost + fromBox + "14" + "81000064" + "0800", InterfacesOf(eth2, eth3)},
		{"a lower device that is no port", func(k *fakeKernel) {
			k.withBond("balance-xor", eth2, eth3)
			k.set(eth0, func(l *link) { l.master, l.carries = bond0, true })
		}, "eth3 1500 " + header + " but frames may take eth0 of bond0, which is not a port of rocast; see in rocast port ls whether it could be opened, or add it to ports: in the config", InterfacesOf(eth2, eth3)},
		{"only that carries", func(k *fakeKernel) {
			k.withBond("active-backup")
			k.set(eth0, func(l *link) { l.master, l.carries = bond0, true })
		}, "10.1.0.2 is reached through bond0, which is not a port of rocast, nor a bridge, bond or VLAN device on a port; see in rocast port ls whether bond0 could be opened, add it to ports: in the config, or correct the route", Interfaces{}},
		{"without a lower device", func(k *fakeKernel) {
			k.withBond("active-backup")
			for _, i := range []int{eth2, eth3} {
				k.set(i, func(l *link) { l.master = 0 })
			}
		}, "10.1.0.2 is reached through bond0, which is not a port of rocast, nor a bridge, bond or VLAN device on a port; see in rocast port ls whether bond0 could be opened, add it to ports: in the config, or correct the route", Interfaces{}},
		{"a mode that sends a flow by several", func(k *fakeKernel) { k.withBond("balance-rr", eth2, eth3) },
			"10.1.0.2 is reached through bond0, which is not a port of rocast, nor a bridge, bond or VLAN device on a port: it is a bond in mode balance-rr, and rocast follows bonds in mode active-backup, 802.3ad, balance-xor; set one of these modes (ip link set bond0 type bond mode MODE, while the bond has no lower device)", Interfaces{}},
		{"the kernel does not answer", func(k *fakeKernel) {
			k.withBond("active-backup", eth2)
			k.broken = map[string]error{"lowers 20": errors.New("netlink broke")}
		}, "look up the lower devices of bond0: netlink broke", Interfaces{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newFakeKernel()
			c.set(k)
			hop := newResolver(k).resolve(onEth1, nil, false).Hop
			if got := describe(hop); got != c.want || hop.Uplinks != c.by {
				t.Errorf("\ngot  %s by %v\nwant %s by %v", got, hop.Uplinks, c.want, c.by)
			}
		})
	}
}

// Flows are spread over the lower devices that are up, and each keeps its own.
func TestABondSpreadsFlows(t *testing.T) {
	k := newFakeKernel()
	k.withBond("802.3ad", eth2, eth3)
	r, used := newResolver(k), map[string]int{}
	for i := range byte(32) {
		to := netip.AddrFrom4([4]byte{10, 1, 0, 100 + i})
		k.routes[to] = k.routes[onEth1]
		k.neighbours[fmt.Sprint(bond0, " ", to)] = neighbour{mac: hostMAC, state: usable}
		hop := r.resolve(to, nil, false).Hop
		if again := r.resolve(to, nil, false).Hop; again != hop {
			t.Errorf("%v: %+v, then %+v", to, hop, again)
		}
		used[hop.PortName]++
	}
	if used["eth2"] < 8 || used["eth3"] < 8 || used["eth2"]+used["eth3"] != 32 {
		t.Errorf("%v", used)
	}
}

// A change of a lower device is news for the hosts behind the bond.
func TestABondIsFollowed(t *testing.T) {
	k := newFakeKernel()
	k.withBond("active-backup", eth2)
	tracker := newTracker(k, []int{eth1, eth2, eth3})
	if hop := tracker.Track(onEth1); hop.PortName != "eth2" {
		t.Fatalf("%+v", hop)
	}
	for _, about := range []int{eth2, eth3, bond0} {
		next := eth2 + eth3 - tracker.Hop(onEth1).Port
		k.withBond("active-backup", next)
		if changed := tracker.update([]change{{subject: subject{link: about}}}); len(changed) != 1 || tracker.Hop(onEth1).Port != next {
			t.Errorf("news of %d: %v, %+v", about, changed, tracker.Hop(onEth1))
		}
	}
}

// A request that fails is neither taken for an answer nor for the lack of one: the hop says which
// request it was.
// Uplinks are the interfaces of a route's next hops that are ports, each once.
func TestUplinksArePorts(t *testing.T) {
	k := newFakeKernel()
	k.routes[farAway] = route{ifIndex: eth1, gateway: onEth1, through: InterfacesOf(br0, eth2, eth1, eth1v100, eth0, eth1)}
	r := resolver{kernel: k, ports: map[int]bool{eth1: true, eth2: true, eth3: true}}
	if hop := r.resolve(farAway, nil, false).Hop; hop.Uplinks != InterfacesOf(eth1, eth2) || !hop.Uplinks.Has(eth1) || hop.Uplinks.Has(eth3) {
		t.Errorf("hop %+v", hop)
	}
	if hop := r.resolve(onEth1, nil, false).Hop; hop.Uplinks != (Interfaces{}) {
		t.Errorf("hop %+v", hop)
	}
}

func TestAKernelThatDoesNotAnswerIsTold(t *testing.T) {
	for _, c := range []struct {
		request string
		to      netip.Addr
		set     func(*fakeKernel)
		want    string
	}{
		{"neighbour", onEth1, nil, "ask for the MAC of 10.1.0.2 on eth1: netlink broke"},
		{"solicit", onEth1, func(k *fakeKernel) { clear(k.neighbours) }, "ask for the MAC of 10.1.0.2 on eth1: netlink broke"},
		{"link 1", onEth1, nil, "the way to 10.1.0.2 leads through interface 1: netlink broke"},
		{"link 1", onVLAN, nil, "the way to 10.100.0.2 leads through interface 1: netlink broke"},
		{"link 2", onBridge, nil, "the way to 10.2.0.2 leads through interface 2: netlink broke"},
		{"link 2", onBridge, (*fakeKernel).filterVLANs, "the way to 10.2.0.2 leads through interface 2: netlink broke"},
		{"link 2", onBridge, func(k *fakeKernel) { k.filterVLANs(); delete(k.memberOf, eth2) },
			"the way to 10.2.0.2 leads through interface 2: netlink broke"},
		{"bridgePort", onBridge, nil, "look up 02:00:00:00:00:22 in the FDB of br0: netlink broke"},
		{"bridgePort", onBridge, (*fakeKernel).filterVLANs, "look up 02:00:00:00:00:22 in the FDB of br0: netlink broke"},
		{"vlans 10", onBridge, (*fakeKernel).filterVLANs, "look up the VLANs of br0: netlink broke"},
		{"vlans 2", onBridge, (*fakeKernel).filterVLANs, "look up the VLANs of eth2: netlink broke"},
		{"probe", onBridge, func(k *fakeKernel) { clear(k.fdb) },
			"br0 does not know the port of 02:00:00:00:00:22 (10.2.0.2); the request to the host failed (netlink broke); it learns the port from the host's next frame"},
	} {
		k := newFakeKernel()
		if c.set != nil {
			c.set(k)
		}
		k.broken = map[string]error{c.request: errors.New("netlink broke")}
		if got := describe(newResolver(k).resolve(c.to, nil, false).Hop); got != c.want {
			t.Errorf("%s to %v:\ngot  %s\nwant %s", c.request, c.to, got, c.want)
		}
	}
}

// A hop has the priorities of the VLAN devices on its way, also behind a bridge that filters VLANs.
func TestTheMapsOfVLANDevices(t *testing.T) {
	qos, other := roce.NewTagPriority(map[uint32]uint32{0: 3}), roce.NewTagPriority(map[uint32]uint32{0: 4})
	for _, c := range []struct {
		name string
		to   netip.Addr
		set  func(k *fakeKernel)
		want roce.TagPriority
	}{
		{"no map", onVLAN, func(*fakeKernel) {}, 0},
		{"a map", onVLAN, func(k *fakeKernel) { k.set(eth1v100, func(l *link) { l.tag.priority = qos }) }, qos},
		{"of the outer tag", onQinQ, func(k *fakeKernel) { k.set(14, func(l *link) { l.tag.priority = qos }) }, qos},
		{"of the inner tag", onQinQ, func(k *fakeKernel) { k.set(eth1v200v100, func(l *link) { l.tag.priority = qos }) }, roce.TagPriority(0).Around(qos)},
		{"of both tags", onQinQ, func(k *fakeKernel) {
			k.set(eth1v200v100, func(l *link) { l.tag.priority = other })
			k.set(14, func(l *link) { l.tag.priority = qos })
		}, qos.Around(other)},
		{"above a bridge", onBridgeVLAN, func(k *fakeKernel) {
			k.filterVLANs()
			k.set(br0v300, func(l *link) { l.tag.priority = qos })
		}, qos},
	} {
		k := newFakeKernel()
		c.set(k)
		if hop := newResolver(k).resolve(c.to, nil, false); !hop.Known() || hop.Priority != c.want {
			t.Errorf("%s: %+v, want the priority %#x", c.name, hop.Hop, c.want)
		}
	}
}

// A group's IP must not be added to an interface that leads to no port of rocast. So a hop names
// the interface of a waiting member only if it leads to a port.
func TestAHopNamesNoInterfaceThatIsNotOurs(t *testing.T) {
	k := newFakeKernel()
	clear(k.neighbours)
	r := newResolver(k)
	if hop := r.resolve(onBridge, nil, false); hop.Interface != br0 {
		t.Errorf("waiting behind br0: %+v", hop.Hop)
	}
	if hop := r.resolve(onEth0, nil, false); hop.Interface != 0 || len(k.solicited) != 1 {
		t.Errorf("through eth0: %+v, asked %v", hop.Hop, k.solicited)
	}
	k.set(eth1v100, func(l *link) { l.parent = eth0 })
	if hop := r.resolve(onVLAN, nil, false); hop.Interface != 0 || len(k.solicited) != 1 {
		t.Errorf("on a VLAN of eth0: %+v, asked %v", hop.Hop, k.solicited)
	}
}

func TestTheKernelIsAskedForWhatItDoesNotKnow(t *testing.T) {
	k := newFakeKernel()
	r := newResolver(k)
	clear(k.neighbours)
	r.resolve(farAway, nil, false)
	if got := strings.Join(k.solicited, ","); got != "1 10.1.0.2" {
		t.Errorf("absent: solicited %q, want the gateway", got)
	}
	k.solicited, k.neighbours["1 10.1.0.2"] = nil, neighbour{state: incomplete}
	r.resolve(farAway, nil, true)
	if k.solicited != nil {
		t.Errorf("incomplete: solicited %v again", k.solicited)
	}
	k.neighbours["1 10.1.0.2"] = neighbour{state: failed}
	if r.resolve(farAway, nil, false); k.solicited != nil {
		t.Errorf("failed: solicited %v at the notification itself, which would never end", k.solicited)
	}
	if r.resolve(farAway, nil, true); len(k.solicited) != 1 {
		t.Errorf("failed: solicited %v, want one at the keep-alive's turn", k.solicited)
	}
}

// Resolve waits for the answers that are still to come.
func TestAnAnswerIsAwaitedIfTheKernelWasAsked(t *testing.T) {
	for _, c := range []struct {
		neighbour neighbour
		insist    bool
		want      bool
	}{
		{neighbour{state: absent}, false, true},
		{neighbour{state: incomplete}, false, true},
		{neighbour{state: incomplete}, true, true},
		{neighbour{state: failed}, false, false},
		{neighbour{state: failed}, true, true},
		{neighbour{hostMAC, usable}, true, false},
	} {
		k := newFakeKernel()
		k.neighbours["1 10.1.0.2"] = c.neighbour
		if got := newResolver(k).resolve(onEth1, nil, c.insist).asked; got != c.want {
			t.Errorf("state %d, insist %v: asked %v", c.neighbour.state, c.insist, got)
		}
	}
}

// The kernel does not see the frames that rocast carries, so its entries age while traffic flows.
func TestAKnownHopOutlivesEntriesThatGrewOld(t *testing.T) {
	k := newFakeKernel()
	r := newResolver(k)
	first := r.resolve(onBridge, nil, false)
	header := "eth2 1500 " + toHost + fromBox + "0a" + "0800"

	clear(k.fdb)
	second := r.resolve(onBridge, first, false)
	if got, want := describe(second.Hop), header+" but br0 no longer knows the port of 02:00:00:00:00:22 (10.2.0.2)"; got != want {
		t.Errorf("FDB entry aged\ngot  %s\nwant %s", got, want)
	}
	clear(k.neighbours)
	third := r.resolve(onBridge, second, false)
	if got, want := describe(third.Hop), header+" but the kernel is asking for the MAC of 10.2.0.2 on br0; it was last at 02:00:00:00:00:22"; got != want {
		t.Errorf("neighbour entry collected\ngot  %s\nwant %s", got, want)
	}

	k.neighbours["10 10.2.0.2"] = neighbour{mac: otherMAC, state: usable}
	if got := r.resolve(onBridge, third, false); got.Known() {
		t.Errorf("another MAC, not learned yet: %s", describe(got.Hop))
	}
	k.neighbours["10 10.2.0.2"] = neighbour{mac: hostMAC, state: usable}
	left := k.links[eth2]
	left.master = 0
	k.links[eth2] = left
	if got := r.resolve(onBridge, third, false); got.Known() {
		t.Errorf("the port left the bridge: %s", describe(got.Hop))
	}
	k.routes[onBridge] = route{ifIndex: eth1}
	if got := r.resolve(onBridge, third, false); got.Known() {
		t.Errorf("the route moved to an interface whose host is unknown: %s", describe(got.Hop))
	}
}

// The kernel does not ask a neighbour that is REACHABLE, and a bridge learns only from answers.
func TestABridgeThatForgotAHostHearsItAnswer(t *testing.T) {
	k := newFakeKernel()
	r := newResolver(k)
	first := r.resolve(onBridge, nil, false)
	if k.probed != nil {
		t.Fatalf("probed %v, which is known", k.probed)
	}
	clear(k.fdb)
	second := r.resolve(onBridge, first, false)
	if got := strings.Join(k.probed, ","); got != "10 10.2.0.2" || !second.asked {
		t.Errorf("probed %q, asked %v", got, second.asked)
	}
	third := r.resolve(onBridge, second, true) // the probe itself causes this notification
	if len(k.probed) != 1 || !third.owed {
		t.Errorf("probed %v at once again, or owes none: %v", k.probed, third.owed)
	}
	third.probed = third.probed.Add(-probeEvery)
	if fourth := r.resolve(onBridge, third, false); len(k.probed) != 2 || fourth.owed {
		t.Errorf("probed %v, want one more a while later; owes another: %v", k.probed, fourth.owed)
	}

	k.probed, k.neighbours["10 10.2.0.2"] = nil, neighbour{mac: hostMAC, state: fixed}
	if hop := r.resolve(onBridge, nil, true); k.probed != nil || hop.asked {
		t.Errorf("the administrator's entry: probed %v, asked %v", k.probed, hop.asked)
	}
	k.neighbours["10 10.2.0.2"] = neighbour{state: failed}
	if r.resolve(onBridge, third, true); k.probed != nil {
		t.Errorf("a neighbour without a MAC: probed %v", k.probed)
	}
}

// A bridge port is detached and attached again. The hop is then the old one, even if the kernel has
// forgotten the host.
func TestAnInterruptedWayIsKnownAgainAtOnce(t *testing.T) {
	k := newFakeKernel()
	tracker := newTracker(k, []int{eth1, eth2, eth3})
	known := tracker.Track(onBridge)
	attached := k.links[eth2]
	detached := attached
	detached.master = 0
	clear(k.fdb)
	k.links[eth2] = detached
	eth2Changed := []change{{subject: subject{link: eth2}}}
	if tracker.update(eth2Changed); tracker.Hop(onBridge).Known() {
		t.Fatal("known without a port")
	}
	k.neighbours["10 10.2.0.2"] = neighbour{state: failed}
	for range 3 {
		tracker.update([]change{{subject: subject{addr: onBridge}}})
	}
	k.links[eth2] = attached
	tracker.update(eth2Changed)
	again := tracker.Hop(onBridge)
	if !again.Silent {
		t.Error("the host does not answer")
	}
	if again.Reason, again.Silent = "", false; again != known {
		t.Errorf("again %s, was %s", describe(tracker.Hop(onBridge)), describe(known))
	}
}

// A host that does not answer is silent until it does, also while the kernel asks it again.
func TestASilentHostIsSilentUntilItAnswers(t *testing.T) {
	k := newFakeKernel()
	tracker := newTracker(k, []int{eth1, eth2, eth3})
	known := tracker.Track(onBridge)
	for _, c := range []struct {
		state neighbourState
		want  bool
	}{{incomplete, false}, {failed, true}, {incomplete, true}, {absent, true}, {usable, false}, {incomplete, false}} {
		k.neighbours["10 10.2.0.2"] = neighbour{state: c.state, mac: MAC(known.L2[:6])}
		tracker.update([]change{{subject: subject{addr: onBridge}}})
		if hop := tracker.Hop(onBridge); !hop.Known() || hop.Silent != c.want {
			t.Errorf("state %v: %s, silent %v", c.state, describe(hop), hop.Silent)
		}
	}
	k.neighbours["10 10.2.0.2"] = neighbour{state: failed}
	k.set(10, func(l *link) { l.noCarrier = true })
	tracker.update([]change{{subject: subject{addr: onBridge}}, {subject: subject{link: 10}}})
	if hop := tracker.Hop(onBridge); hop.Silent {
		t.Errorf("without a carrier no host can answer: %s", describe(hop))
	}
}

// A host that is off stays one that does not answer while the kernel asks it again: else each try
// would be news for the log, the events and the hook.
func TestAHostThatIsOffIsNewsOnce(t *testing.T) {
	k := newFakeKernel()
	clear(k.neighbours)
	tracker := newTracker(k, []int{eth1, eth2, eth3})
	tracker.Track(onEth1)
	const asking, off = "the kernel is asking for the MAC of 10.1.0.2 on eth1", "10.1.0.2 does not answer on eth1; is the host up, with this address?"
	for i, c := range []struct {
		state neighbourState
		want  string
	}{{incomplete, asking}, {failed, off}, {incomplete, off}, {absent, off}, {failed, off}, {usable, ""}, {incomplete, asking}} {
		for at := range k.neighbours {
			delete(k.neighbours, at)
		}
		k.neighbours[fmt.Sprintf("%d 10.1.0.2", eth1)] = neighbour{state: c.state, mac: MAC{2, 0, 0, 0, 0, 0x12}}
		tracker.update([]change{{subject: subject{addr: onEth1}}})
		if got, _, _ := strings.Cut(tracker.Hop(onEth1).Reason, "; it was last at"); got != c.want {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
	}
}
