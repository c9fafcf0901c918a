package nexthop

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

func TestAChangeIsToldForTheAddressesItConcerns(t *testing.T) {
	for _, c := range []struct {
		name   string
		set    func(*fakeKernel)
		change change
		want   []netip.Addr
	}{
		{"the gateway's MAC", func(k *fakeKernel) { k.neighbours["1 10.1.0.2"] = neighbour{otherMAC, usable} },
			change{subject: subject{addr: onEth1}}, []netip.Addr{onEth1, farAway}},
		{"the same MAC, confirmed", nil, change{subject: subject{addr: onEth1}}, nil},
		{"the MAC of another host", nil, change{subject: subject{addr: netip.MustParseAddr("10.1.0.77")}}, nil},
		{"the host moved to another bridge port", func(k *fakeKernel) { k.fdb["10 02:00:00:00:00:22 0"] = eth3 },
			change{subject: subject{mac: hostMAC}}, []netip.Addr{onBridge}},
		{"a port's MTU", func(k *fakeKernel) { k.links[eth2] = link{name: "eth2", mtu: 9000, master: br0} },
			change{subject: subject{link: eth2}}, []netip.Addr{onBridge}},
		{"a route to it", func(k *fakeKernel) { k.routes[onBridge] = route{ifIndex: eth1, gateway: onEth1} },
			change{route: netip.MustParsePrefix("10.2.0.0/16")}, []netip.Addr{onBridge}},
		{"a route to elsewhere", nil, change{route: netip.MustParsePrefix("203.0.113.0/24")}, nil},
		{"notifications were lost", func(k *fakeKernel) { clear(k.routes) }, change{all: true}, []netip.Addr{onEth1, onBridge, farAway}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newFakeKernel()
			tracker := newTracker(k, []int{eth1, eth2, eth3})
			for _, addr := range []netip.Addr{onEth1, onBridge, farAway} {
				if hop := tracker.Track(addr); !hop.Known() {
					t.Fatal(hop.Reason)
				}
			}
			if c.set != nil {
				c.set(k)
			}
			if got := tracker.update([]change{c.change}); !slices.Equal(got, c.want) {
				t.Errorf("told %v, want %v", got, c.want)
			}
		})
	}
}

// Those who are told of changes go through the addresses in one order, so that logs of boxes can be
// compared.
func TestChangedAddressesAreToldInOrder(t *testing.T) {
	k := newFakeKernel()
	tracker := newTracker(k, []int{eth1, eth2, eth3})
	for addr := range 20 {
		ip := netip.AddrFrom4([4]byte{10, 9, 0, byte(addr)})
		k.routes[ip] = route{ifIndex: eth1, gateway: onEth1}
		tracker.Track(ip)
	}
	clear(k.routes)
	got := tracker.update([]change{{all: true}})
	if len(got) != 20 || !slices.IsSortedFunc(got, netip.Addr.Compare) {
		t.Errorf("told %v", got)
	}
}

// A box whose routing daemon changes its routes all the time has no work with the others.
func TestOnlyTheAddressesOfARouteAreLookedUpAgain(t *testing.T) {
	k := newFakeKernel()
	tracker := newTracker(k, []int{eth1, eth2, eth3})
	for _, addr := range []netip.Addr{onEth1, onBridge, farAway} {
		tracker.Track(addr)
	}
	for prefix, want := range map[string]int{"203.0.113.0/24": 0, "10.2.0.0/16": 1, "10.1.0.0/24": 2, "0.0.0.0/0": 3} {
		k.asked = 0
		tracker.update([]change{{route: netip.MustParsePrefix(prefix)}})
		if k.asked != want {
			t.Errorf("a route to %s: %d addresses are looked up again, want %d", prefix, k.asked, want)
		}
	}
}

func TestUntrackedAddressesLeaveNothing(t *testing.T) {
	k := newFakeKernel()
	tracker := newTracker(k, []int{eth1})
	for range 2 {
		tracker.Track(onEth1)
		tracker.Track(farAway)
	}
	tracker.Untrack(onEth1)
	if hop := tracker.Hop(onEth1); !hop.Known() {
		t.Errorf("untracked with one holder left: %s", hop.Reason)
	}
	tracker.Untrack(onEth1)
	k.routes[farAway] = route{ifIndex: eth2}
	tracker.update([]change{{all: true}}) // what the way led through before is forgotten as well
	tracker.Untrack(farAway)
	tracker.Untrack(farAway)
	tracker.Untrack(farAway) // one call too many
	if hop := tracker.Hop(farAway); hop.Known() || hop.Reason != "192.0.2.7 is not tracked" {
		t.Errorf("untracked: %s", describe(hop))
	}
	if len(tracker.targets) != 0 || len(tracker.bySubject) != 0 {
		t.Errorf("left %v, %v", tracker.targets, tracker.bySubject)
	}
}

// Two addresses behind one gateway depend on its MAC: one that goes leaves the other's followed.
func TestAnUntrackedAddressLeavesTheOthersFollowed(t *testing.T) {
	k := newFakeKernel()
	tracker := newTracker(k, []int{eth1})
	tracker.Track(onEth1)
	tracker.Track(farAway)
	tracker.Untrack(onEth1)
	k.neighbours["1 10.1.0.2"] = neighbour{otherMAC, usable}
	if got := tracker.update([]change{{subject: subject{addr: onEth1}}}); !slices.Equal(got, []netip.Addr{farAway}) {
		t.Errorf("told %v", got)
	}
}

func TestKeepAliveAsksForAllWithinARoundAndBounded(t *testing.T) {
	k := newFakeKernel()
	tracker := newTracker(k, []int{eth1})
	const targets = 300
	for i := range targets {
		addr := netip.AddrFrom4([4]byte{10, 1, byte(1 + i/256), byte(i)})
		k.routes[addr] = route{ifIndex: eth1}
		k.neighbours[fmt.Sprint(eth1, " ", addr)] = neighbour{hostMAC, usable}
		tracker.Track(addr)
	}
	k.solicited = nil
	for n := range askKnownEvery {
		before := len(k.solicited)
		tracker.keepAlive(n)
		if asks := len(k.solicited) - before; asks > maxAsks || asks != targets/askKnownEvery {
			t.Fatalf("second %d: %d asks", n, asks)
		}
	}
	slices.Sort(k.solicited)
	if distinct := len(slices.Compact(k.solicited)); distinct != targets {
		t.Errorf("asked for %d of %d", distinct, targets)
	}
}

// A box with many hosts that are off does not flood their network with requests.
func TestKeepAliveBoundsTheRequestsOfASecond(t *testing.T) {
	k := newFakeKernel()
	tracker := newTracker(k, []int{eth1})
	for i := range askUnknownEvery * (maxAsks + 10) {
		addr := netip.AddrFrom4([4]byte{10, 1, byte(1 + i/256), byte(i)})
		k.routes[addr] = route{ifIndex: eth1}
		k.neighbours[fmt.Sprint(eth1, " ", addr)] = neighbour{state: failed}
		tracker.Track(addr)
	}
	for n := range askUnknownEvery {
		k.solicited = nil
		if tracker.keepAlive(n); len(k.solicited) != maxAsks {
			t.Errorf("second %d: %d asks", n, len(k.solicited))
		}
	}
}

// A hop that may be wrong is looked at again as soon as an unknown one.
func TestKeepAliveLooksAgainAtADoubtfulHop(t *testing.T) {
	k := newFakeKernel()
	tracker := newTracker(k, []int{eth1})
	tracker.Track(onEth1)
	here := k.neighbours["1 10.1.0.2"]
	clear(k.neighbours)
	tracker.update([]change{{all: true}})
	if hop := tracker.Hop(onEth1); !hop.Known() || hop.Reason == "" {
		t.Fatalf("without a neighbour entry: %s", describe(hop))
	}
	k.neighbours["1 10.1.0.2"] = here
	var told []netip.Addr
	for n := range askUnknownEvery {
		told = append(told, tracker.keepAlive(1+n)...)
	}
	if !slices.Equal(told, []netip.Addr{onEth1}) || tracker.Hop(onEth1).Reason != "" {
		t.Errorf("told %v, hop %s", told, describe(tracker.Hop(onEth1)))
	}
}

func TestKeepAliveFindsAHostThatCameUpSilently(t *testing.T) {
	k := newFakeKernel()
	here := k.neighbours["1 10.1.0.2"]
	k.neighbours["1 10.1.0.2"] = neighbour{state: failed}
	tracker := newTracker(k, []int{eth1})
	if hop := tracker.Track(onEth1); hop.Known() {
		t.Fatal("known before it answered")
	}
	k.neighbours["1 10.1.0.2"] = here
	var told []netip.Addr
	for n := range askUnknownEvery {
		told = append(told, tracker.keepAlive(n)...)
	}
	if !slices.Equal(told, []netip.Addr{onEth1}) || !tracker.Hop(onEth1).Known() {
		t.Errorf("told %v, hop %s", told, describe(tracker.Hop(onEth1)))
	}
}

// After a change of links or routes a host that does not answer is asked again each second for a
// while, and not only every five seconds: its cable may have moved to this box, and a QP does not
// wait for long. The requests of a second stay bounded, and those for known hosts come first.
func TestKeepAliveHurriesAfterAChangeOfTheWay(t *testing.T) {
	asked := func(c change) (asks []int) {
		k := newFakeKernel()
		k.neighbours["1 10.1.0.2"] = neighbour{state: failed}
		tracker := newTracker(k, []int{eth1})
		tracker.Track(onEth1)
		tracker.hurry = 0 // new ports are a change as well
		tracker.update([]change{c})
		for n := range hurryFor + askUnknownEvery {
			k.solicited = nil
			tracker.keepAlive(n)
			asks = append(asks, len(k.solicited))
		}
		return asks
	}
	seldom := []int{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0}
	often := []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0}
	for name, c := range map[string]struct {
		change
		want []int
	}{
		"neighbour": {change{subject: subject{addr: onEth1}}, seldom},
		"FDB":       {change{subject: subject{mac: hostMAC}}, seldom},
		"link":      {change{subject: subject{link: eth3}}, often},
		"route":     {change{route: netip.PrefixFrom(onEth1, 32)}, often},
		"all":       {change{all: true}, often},
	} {
		if got := asked(c.change); !slices.Equal(got, c.want) {
			t.Errorf("%s: asked %v times, want %v", name, got, c.want)
		}
	}

	k := newFakeKernel()
	tracker := newTracker(k, []int{eth1})
	tracker.Track(onEth1) // known; its turn is that of second 0
	for i := range 10 * maxAsks {
		addr := netip.AddrFrom4([4]byte{10, 1, byte(1 + i/256), byte(i)})
		k.routes[addr] = route{ifIndex: eth1}
		k.neighbours[fmt.Sprint(eth1, " ", addr)] = neighbour{state: failed}
		if i%askUnknownEvery != 0 { // else it would be its turn too
			tracker.nextPhase = askUnknownEvery*i + 1
			tracker.Track(addr)
		}
	}
	tracker.update([]change{{all: true}})
	k.solicited = nil
	if tracker.keepAlive(0); len(k.solicited) != maxAsks || !slices.Contains(k.solicited, "1 10.1.0.2") {
		t.Errorf("%d asks, for the known host: %v", len(k.solicited), slices.Contains(k.solicited, "1 10.1.0.2"))
	}
}

// A notification that a host does not answer leads to no new request: that would never end.
func TestANotificationAsksNoHostThatDoesNotAnswer(t *testing.T) {
	k := newFakeKernel()
	tracker := newTracker(k, []int{eth1})
	k.neighbours["1 10.1.0.2"] = neighbour{state: failed}
	if tracker.Track(onEth1); len(k.solicited) != 1 {
		t.Errorf("at first solicited %v, want one: the host may be up by now", k.solicited)
	}
	k.solicited = nil
	tracker.update([]change{{subject: subject{addr: onEth1}}})
	if k.solicited != nil {
		t.Errorf("solicited %v", k.solicited)
	}
}

// A host that moves to another port is followed even while the kernel asks for its MAC.
func TestADoubtfulHopIsFollowed(t *testing.T) {
	k := newFakeKernel()
	tracker := newTracker(k, []int{eth2, eth3})
	tracker.Track(onBridge)
	clear(k.neighbours)
	tracker.update([]change{{all: true}})
	k.fdb["10 02:00:00:00:00:22 0"] = eth3
	if got := tracker.update([]change{{subject: subject{mac: hostMAC}}}); !slices.Equal(got, []netip.Addr{onBridge}) {
		t.Errorf("told %v, hop %s", got, describe(tracker.Hop(onBridge)))
	}
}

// A probe that was held back is sent within a second, so that the bridge soon knows the port.
func TestKeepAliveSendsAProbeThatIsOwed(t *testing.T) {
	k := newFakeKernel()
	tracker := newTracker(k, []int{eth2})
	tracker.Track(onBridge)
	clear(k.fdb)
	for range 2 {
		tracker.update([]change{{subject: subject{mac: hostMAC}}})
	}
	x := tracker.targets[onBridge]
	if len(k.probed) != 1 || !x.owed {
		t.Fatalf("probed %v, owed %v", k.probed, x.owed)
	}
	x.probed = x.probed.Add(-probeEvery)
	if tracker.keepAlive(1); len(k.probed) != 2 {
		t.Errorf("probed %v", k.probed)
	}
}

// A port that comes back is another interface. The hosts that were reached through the old
// interface are resolved again.
func TestThePortsAreThoseOfNow(t *testing.T) {
	k := newFakeKernel()
	tracker := newTracker(k, []int{eth1, eth2})
	for _, addr := range []netip.Addr{onEth1, onBridge, farAway} {
		tracker.Track(addr)
	}
	if got := tracker.SetPorts([]int{eth2, eth1}); got != nil {
		t.Errorf("the same ports change %v", got)
	}
	if got := tracker.SetPorts([]int{eth2}); !slices.Equal(got, []netip.Addr{onEth1, farAway}) || tracker.Hop(onEth1).Known() {
		t.Errorf("without eth1 told %v, and %s", got, describe(tracker.Hop(onEth1)))
	}
	const again = 21
	k.links[again] = k.links[eth1]
	k.routes[onEth1] = route{ifIndex: again}
	k.neighbours["21 10.1.0.2"] = neighbour{hostMAC, usable}
	if got := tracker.SetPorts([]int{eth2, again}); !slices.Equal(got, []netip.Addr{onEth1}) || tracker.Hop(onEth1).Port != again {
		t.Errorf("with eth1 again told %v, and %s", got, describe(tracker.Hop(onEth1)))
	}
}

func TestLinksAreToldOnceForManyChanges(t *testing.T) {
	tracker := newTracker(newFakeKernel(), nil)
	tracker.notifyLinks([]change{{subject: subject{addr: onEth1}}, {subject: subject{mac: hostMAC}}})
	if len(tracker.Links()) != 0 {
		t.Error("a neighbour is taken for a link")
	}
	for _, c := range []change{{subject: subject{link: eth1}}, {all: true}} {
		tracker.notifyLinks([]change{c})
		tracker.notifyLinks([]change{c})
		if len(tracker.Links()) != 1 {
			t.Errorf("%+v: told %d times", c, len(tracker.Links()))
		}
		<-tracker.Links()
	}
}
