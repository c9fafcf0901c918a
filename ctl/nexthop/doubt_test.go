package nexthop

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"
)

func TestADoubtedNeighbourIsAskedByBroadcastOnceASecond(t *testing.T) {
	k := newFakeKernel()
	tracker := newTracker(k, []int{eth1, eth2, eth3})
	for _, addr := range []netip.Addr{onEth1, farAway, onBridge} {
		tracker.Track(addr)
	}
	start := time.Unix(1000, 0)
	expect := func(after time.Duration, want ...string) {
		t.Helper()
		for _, addr := range []netip.Addr{onEth1, farAway, onBridge, onVLAN} { // onVLAN is not tracked
			tracker.doubt(addr, start.Add(after))
		}
		if !slices.Equal(k.forgotten, want) || !slices.Equal(k.solicited, want) {
			t.Errorf("after %v: forgotten %v, asked for %v, want %v", after, k.forgotten, k.solicited, want)
		}
		k.forgotten, k.solicited = nil, nil
	}
	expect(0, "1 10.1.0.2", "10 10.2.0.2") // farAway's gateway is the first
	expect(doubtEvery - 1)
	expect(doubtEvery, "1 10.1.0.2", "10 10.2.0.2")
	if hop := tracker.Hop(onEth1); !hop.Known() {
		t.Errorf("what is known is out of use: %s", describe(hop))
	}
}

func TestWhoIsNotAskedInDoubt(t *testing.T) {
	const key = "1 10.1.0.2"
	for name, c := range map[string]struct {
		set              func(*fakeKernel)
		forgotten, asked bool
	}{
		"usable":          {func(k *fakeKernel) {}, true, true},
		"failed":          {func(k *fakeKernel) { k.neighbours[key] = neighbour{state: failed} }, false, true},
		"absent":          {func(k *fakeKernel) { k.neighbours[key] = neighbour{} }, false, true},
		"being asked for": {func(k *fakeKernel) { k.neighbours[key] = neighbour{state: incomplete} }, false, false},
		"written":         {func(k *fakeKernel) { k.neighbours[key] = neighbour{hostMAC, fixed} }, false, false},
		"not readable":    {func(k *fakeKernel) { k.broken = map[string]error{"neighbour": errors.New("busy")} }, false, false},
		"not forgotten":   {func(k *fakeKernel) { k.broken = map[string]error{"forget": errors.New("busy")} }, true, false},
	} {
		k := newFakeKernel()
		tracker := newTracker(k, []int{eth1})
		tracker.Track(onEth1)
		c.set(k)
		k.solicited = nil
		tracker.Doubt(onEth1)
		if (k.forgotten != nil) != c.forgotten || (k.solicited != nil) != c.asked {
			t.Errorf("%s: forgotten %v, asked for %v", name, k.forgotten, k.solicited)
		}
	}
	for name, set := range map[string]func(*fakeKernel){
		"without a route":   func(k *fakeKernel) { delete(k.routes, onEth1) },
		"without a carrier": func(k *fakeKernel) { k.set(eth1, func(l *link) { l.noCarrier = true }) },
	} {
		k := newFakeKernel()
		set(k)
		tracker := newTracker(k, []int{eth1})
		tracker.Track(onEth1)
		k.solicited = nil
		tracker.Doubt(onEth1)
		if k.forgotten != nil || k.solicited != nil {
			t.Errorf("%s: forgotten %v, asked for %v", name, k.forgotten, k.solicited)
		}
	}
}

// A switch that goes takes many hosts with it: the box does not flood what is left.
func TestDoubtsOfASecondAreBounded(t *testing.T) {
	k := newFakeKernel()
	tracker := newTracker(k, []int{eth1})
	start := time.Unix(1000, 0)
	for i := range maxAsks + 10 {
		addr := netip.AddrFrom4([4]byte{10, 1, 1, byte(i)})
		k.routes[addr] = route{ifIndex: eth1}
		k.neighbours[fmt.Sprint(eth1, " ", addr)] = neighbour{hostMAC, usable}
		tracker.Track(addr)
		tracker.doubt(addr, start)
	}
	if len(k.forgotten) != maxAsks {
		t.Errorf("%d are asked for at once", len(k.forgotten))
	}
}

// A host gets another MAC and tells nobody. The kernel would hold the old one for usable for a long
// time.
func TestAMACThatChangedInSilenceIsFound(t *testing.T) {
	b := newBox(t)
	if err := b.host.AddAddress("10.2.0.2/24"); err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddr("10.2.0.2")
	b.Track(addr)
	b.until(t, addr, "known", func(h Hop) bool { return h.Known() && h.Reason == "" })
	run(t, b.host.NS, "ip", "link", "set", "p0", "address", otherMAC.String())
	b.Doubt(addr)
	b.until(t, addr, "at its MAC", func(h Hop) bool { return h.Known() && h.Reason == "" && MAC(h.L2[:6]) == otherMAC })
}

// What somebody else has written into the kernel's table stays there.
func TestAWrittenMACIsNotForgottenInDoubt(t *testing.T) {
	ns, k, ifIndex := newKernel(t)
	tracker := newTracker(k, []int{ifIndex})
	for ip, how := range map[string][]string{
		"10.3.0.2": {"nud", "permanent"}, "10.3.0.3": {"nud", "reachable", "extern_learn"}, "10.3.0.4": {"nud", "noarp"},
	} {
		addr := netip.MustParseAddr(ip)
		run(t, ns, "ip", append([]string{"neigh", "add", ip, "lladdr", hostMAC.String(), "dev", "br0"}, how...)...)
		tracker.Track(addr)
		tracker.Doubt(addr)
		if n, err := k.neighbour(ifIndex, addr); err != nil || n != (neighbour{hostMAC, fixed}) {
			t.Errorf("%v: %+v, %v", how, n, err)
		}
	}
}

func TestForgettingANeighbour(t *testing.T) {
	ns, k, ifIndex := newKernel(t)
	ip := netip.MustParseAddr("10.3.0.2")
	if err := k.forget(ifIndex, ip); err != nil {
		t.Errorf("there is none: %v", err)
	}
	run(t, ns, "ip", "neigh", "add", "10.3.0.2", "lladdr", hostMAC.String(), "dev", "br0", "nud", "reachable")
	if err := k.forget(ifIndex, ip); err != nil {
		t.Error(err)
	}
	if n, err := k.neighbour(ifIndex, ip); err != nil || n.state == usable {
		t.Errorf("%+v, %v", n, err)
	}
	if err := k.forget(99, ip); err == nil {
		t.Error("no error tells that there is no such interface")
	}
}
