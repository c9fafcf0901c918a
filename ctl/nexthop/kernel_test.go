package nexthop

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/rtnl"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// A box with a bridge over two ports and a third port without one, and a host behind each:
//
//	host p0  ─ eth2 ┐
//	                br0 10.2.0.1/24
//	spare p0 ─ eth3 ┘
//	plain p0 ─ eth1
type box struct {
	*netns.NS
	*Tracker
	eth1, eth2, eth3 netns.Link
	host, spare      netns.Link
	plain            netns.Link
	changed          chan []netip.Addr
}

func newBox(t *testing.T) *box {
	b := &box{NS: netns.New(t), changed: make(chan []netip.Addr, 64)}
	host, spare, plain := netns.New(t), netns.New(t), netns.New(t)
	b.eth1, b.plain = netns.Veth(t, b.NS, "eth1", plain, "p0", netns.VethOptions{})
	b.eth2, b.host = netns.Veth(t, b.NS, "eth2", host, "p0", netns.VethOptions{})
	b.eth3, b.spare = netns.Veth(t, b.NS, "eth3", spare, "p0", netns.VethOptions{})
	b.ip(t, "link", "add", "br0", "type", "bridge", "ageing_time", "100000")
	b.ip(t, "link", "set", "eth2", "master", "br0")
	b.ip(t, "link", "set", "eth3", "master", "br0")
	b.ip(t, "link", "set", "br0", "up")
	b.ip(t, "addr", "add", "10.2.0.1/24", "dev", "br0")

	if err := b.Do(func() (err error) {
		b.Tracker, err = Open([]int{b.eth1.Index, b.eth2.Index, b.eth3.Index})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- b.Run(ctx, func(addrs []netip.Addr) {
			if len(addrs) == 0 {
				t.Error("a change of no address is told")
			}
			b.changed <- addrs
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		b.Close()
	})
	return b
}

// Close shadows the Close methods of both embedded types: netns.New closes the namespace.
func (b *box) Close() { b.Tracker.Close() }

func (b *box) ip(t *testing.T, args ...string) { t.Helper(); run(t, b.NS, "ip", args...) }

func run(t *testing.T, ns *netns.NS, name string, args ...string) {
	t.Helper()
	if _, err := ns.Exec(name, args...); err != nil {
		t.Fatal(err)
	}
}

// until handles notifications until the hop to addr is the wanted one.
func (b *box) until(t *testing.T, addr netip.Addr, what string, wanted func(Hop) bool) Hop {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		if hop := b.Hop(addr); wanted(hop) {
			return hop
		}
		select {
		case <-b.changed:
		case <-deadline:
			t.Fatalf("%v: never %s; it is %s", addr, what, describe(b.Hop(addr)))
		}
	}
}

func (b *box) mac(t *testing.T, name string) MAC {
	t.Helper()
	l, err := b.Netlink().LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return MAC(l.Attrs().HardwareAddr)
}

func TestTheKernelsHopBehindABridgeIsFollowed(t *testing.T) {
	b := newBox(t)
	addr := netip.MustParseAddr("10.2.0.2")
	if hop := b.Track(addr); hop.Known() || hop.Interface == 0 {
		t.Fatalf("before the host has its address: %s", describe(hop))
	}
	if err := b.host.AddAddress("10.2.0.2/24"); err != nil {
		t.Fatal(err)
	}
	hop := b.until(t, addr, "known", Hop.Known)
	if hop.PortName != "eth2" || hop.L2Bytes != 14 || MAC(hop.L2[:6]) != MAC(b.host.MAC) || MAC(hop.L2[6:12]) != b.mac(t, "br0") {
		t.Errorf("hop %+v", hop)
	}

	// The host moves to the other port with its MAC, and sends a frame there.
	run(t, b.host.NS, "ip", "link", "set", "p0", "down")
	run(t, b.spare.NS, "ip", "link", "set", "p0", "down", "address", b.host.MAC.String())
	run(t, b.spare.NS, "ip", "link", "set", "p0", "up")
	if err := b.spare.AddAddress("10.2.0.2/24"); err != nil {
		t.Fatal(err)
	}
	run(t, b.spare.NS, "ping", "-c1", "-W5", "10.2.0.1")
	b.until(t, addr, "on eth3", func(h Hop) bool { return h.PortName == "eth3" })

	b.ip(t, "link", "set", "eth3", "mtu", "9000")
	b.until(t, addr, "at MTU 9000", func(h Hop) bool { return h.PortMTU == 9000 })
	b.ip(t, "link", "set", "br0", "down")
	b.until(t, addr, "without a route", func(h Hop) bool { return h.Interface == 0 && !h.Known() })
}

// addVLAN puts a VLAN device with an address above dev.
func addVLAN(t *testing.T, ns *netns.NS, dev, vid, cidr string) {
	t.Helper()
	if output, err := ns.Exec("ip", "link", "add", "link", dev, "name", dev+"."+vid, "type", "vlan", "id", vid); err != nil {
		t.Skipf("needs VLAN devices (CONFIG_VLAN_8021Q): %v: %s", err, output)
	}
	run(t, ns, "ip", "link", "set", dev+"."+vid, "up")
	run(t, ns, "ip", "addr", "add", cidr, "dev", dev+"."+vid)
}

func TestAVLANDeviceTagsTheHeader(t *testing.T) {
	b := newBox(t)
	addVLAN(t, b.NS, "eth1", "100", "10.100.0.1/24")
	addVLAN(t, b.plain.NS, "p0", "100", "10.100.0.2/24")
	addr := netip.MustParseAddr("10.100.0.2")
	b.Track(addr)
	hop := b.until(t, addr, "known", Hop.Known)
	if hop.PortName != "eth1" || hop.L2Bytes != 18 || string(hop.L2[12:18]) != "\x81\x00\x00\x64\x08\x00" {
		t.Errorf("hop %s", describe(hop))
	}
}

func TestABridgeThatFiltersVLANsTagsAsThePortDoes(t *testing.T) {
	b := newBox(t)
	if _, err := b.Exec("ip", "link", "set", "br0", "type", "bridge", "vlan_filtering", "1"); err != nil {
		t.Skipf("needs bridges that filter VLANs (CONFIG_BRIDGE_VLAN_FILTERING): %v", err)
	}
	run(t, b.NS, "bridge", "vlan", "add", "dev", "br0", "vid", "300", "self")
	run(t, b.NS, "bridge", "vlan", "add", "dev", "eth2", "vid", "300")
	addVLAN(t, b.NS, "br0", "300", "10.30.0.1/24")
	addVLAN(t, b.host.NS, "p0", "300", "10.30.0.2/24")

	addr := netip.MustParseAddr("10.30.0.2")
	b.Track(addr)
	hop := b.until(t, addr, "known", Hop.Known)
	if hop.PortName != "eth2" || string(hop.L2[12:hop.L2Bytes]) != "\x81\x00\x01\x2c\x08\x00" {
		t.Errorf("tagged: %s", describe(hop))
	}
	run(t, b.NS, "bridge", "vlan", "add", "dev", "eth2", "vid", "300", "untagged")
	b.until(t, addr, "untagged", func(h Hop) bool { return h.L2Bytes == 14 })
	run(t, b.NS, "bridge", "vlan", "del", "dev", "eth2", "vid", "300")
	b.until(t, addr, "outside the VLAN", func(h Hop) bool { return !h.Known() })
}

func TestIPv6NeighboursAreFound(t *testing.T) {
	b := newBox(t)
	for _, side := range []struct {
		ns        *netns.NS
		dev, addr string
	}{{b.NS, "br0", "fd00::1/64"}, {b.host.NS, "p0", "fd00::2/64"}} {
		if err := side.ns.Sysctl("net.ipv6.conf."+side.dev+".disable_ipv6", "0"); err != nil {
			t.Skipf("needs IPv6: %v", err)
		}
		run(t, side.ns, "ip", "addr", "add", side.addr, "dev", side.dev, "nodad")
	}
	addr := netip.MustParseAddr("fd00::2")
	b.Track(addr)
	hop := b.until(t, addr, "known", Hop.Known)
	if hop.PortName != "eth2" || string(hop.L2[12:14]) != "\x86\xdd" || MAC(hop.L2[:6]) != MAC(b.host.MAC) {
		t.Errorf("hop %s", describe(hop))
	}
}

func TestTheWayThroughAGatewayIsTheGateways(t *testing.T) {
	b := newBox(t)
	if err := b.host.AddAddress("10.2.0.2/24"); err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddr("192.0.2.9")
	if hop := b.Track(addr); hop.Known() {
		t.Fatal("known without a route")
	}
	b.ip(t, "route", "add", "192.0.2.0/24", "via", "10.2.0.2")
	hop := b.until(t, addr, "known", Hop.Known)
	if MAC(hop.L2[:6]) != MAC(b.host.MAC) {
		t.Errorf("hop %s", describe(hop))
	}
	if err := b.Netlink().RouteDel(&netlink.Route{Dst: &net.IPNet{IP: net.IPv4(192, 0, 2, 0).To4(), Mask: net.CIDRMask(24, 32)}}); err != nil {
		t.Fatal(err)
	}
	b.until(t, addr, "without a route again", func(h Hop) bool { return !h.Known() })
}

// A route may have several next hops of equal cost. The kernel has chosen one of them, and the set
// has them all, however the route is written.
func TestARouteMayHaveSeveralGateways(t *testing.T) {
	b := newBox(t)
	for _, a := range []string{"10.2.0.2/24", "10.2.0.3/24"} {
		if err := b.host.AddAddress(a); err != nil {
			t.Fatal(err)
		}
	}
	first, second := netip.MustParseAddr("10.2.0.2"), netip.MustParseAddr("10.2.0.3")
	addr := netip.MustParseAddr("192.0.2.9")
	b.Track(addr)
	b.ip(t, "route", "add", "192.0.2.0/24", "nexthop", "via", "10.2.0.3", "nexthop", "via", "10.2.0.2")
	hop := b.until(t, addr, "known by both", func(h Hop) bool { return h.Known() && h.Gateways == GatewaysOf(first, second) })
	if !hop.Gateways.Has(first) || !hop.Gateways.Has(second) || hop.Gateways.Has(addr) || hop.Gateways.Has(netip.Addr{}) || !hop.Source.IsValid() {
		t.Errorf("hop %+v", hop)
	}
	b.ip(t, "route", "replace", "192.0.2.0/24", "via", "10.2.0.3")
	b.until(t, addr, "known by the second", func(h Hop) bool { return h.Gateways == GatewaysOf(second) })
	b.ip(t, "nexthop", "add", "id", "1", "via", "10.2.0.2", "dev", "br0")
	b.ip(t, "nexthop", "add", "id", "2", "via", "10.2.0.3", "dev", "br0")
	b.ip(t, "nexthop", "add", "id", "3", "group", "1/2")
	b.ip(t, "route", "replace", "192.0.2.0/24", "nhid", "3")
	b.until(t, addr, "known by a nexthop group", func(h Hop) bool { return h.Gateways == GatewaysOf(first, second) })
	b.ip(t, "nexthop", "replace", "id", "3", "group", "1")
	b.until(t, addr, "known by the rest of the group", func(h Hop) bool { return h.Gateways == GatewaysOf(first) })
	if here := b.Track(first); here.Gateways != (Gateways{}) || here.Source != hop.Source {
		t.Errorf("on the link: %+v", here)
	}
}

// The interfaces of all next hops are read from the kernel, whichever of them it has chosen.
func TestTheUplinksOfARoute(t *testing.T) {
	b := newBox(t)
	b.ip(t, "addr", "add", "10.1.0.1/24", "dev", "eth1")
	b.ip(t, "link", "set", "eth3", "nomaster")
	b.ip(t, "addr", "add", "10.3.0.1/24", "dev", "eth3")
	for host, cidr := range map[*netns.Link]string{&b.plain: "10.1.0.2/24", &b.spare: "10.3.0.2/24"} {
		if err := host.AddAddress(cidr); err != nil {
			t.Fatal(err)
		}
	}
	both := InterfacesOf(b.eth1.Index, b.eth3.Index)
	addr := netip.MustParseAddr("192.0.2.9")
	b.Track(addr)
	b.ip(t, "route", "add", "192.0.2.0/24", "nexthop", "via", "10.1.0.2", "nexthop", "via", "10.3.0.2")
	b.until(t, addr, "known by two ports", func(h Hop) bool { return h.Known() && h.Uplinks == both })
	b.SetPorts([]int{b.eth1.Index, b.eth2.Index})
	b.until(t, addr, "known by one port", func(h Hop) bool { return h.Uplinks != both })
	b.SetPorts([]int{b.eth1.Index, b.eth2.Index, b.eth3.Index})
	b.until(t, addr, "known by two ports again", func(h Hop) bool { return h.Known() && h.Uplinks == both })
	b.ip(t, "route", "replace", "192.0.2.0/24", "via", "10.1.0.2")
	b.until(t, addr, "known by one route", func(h Hop) bool { return h.Known() && h.Uplinks == (Interfaces{}) })
}

func TestSettleReturnsWhenTheKernelHasAnswered(t *testing.T) {
	b := newBox(t)
	if err := b.host.AddAddress("10.2.0.2/24"); err != nil {
		t.Fatal(err)
	}
	here, gone := netip.MustParseAddr("10.2.0.2"), netip.MustParseAddr("10.2.0.77")
	b.Track(here)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	b.Resolve(ctx, []netip.Addr{here})
	if hop := b.Hop(here); !hop.Known() || ctx.Err() != nil {
		t.Errorf("settled at %s, %v", describe(hop), ctx.Err())
	}
	b.Track(gone)
	brief, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	b.Resolve(brief, []netip.Addr{here, gone})
	if brief.Err() == nil {
		t.Errorf("settled without an answer: %s", describe(b.Hop(gone)))
	}
}

// untilLearned waits until eth2's FDB has the host. The host sends nothing by itself, so it has to
// be asked. The kernel repeats a request each second; the keep-alive alone would take up to a
// minute.
func (b *box) untilLearned(t *testing.T) {
	t.Helper()
	news, err := b.subscribe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	learned := false
	look := func([]syscall.NetlinkMessage) {
		entries, err := b.Exec("bridge", "fdb", "show", "dev", "eth2")
		if err != nil {
			t.Error(err)
		}
		if learned = strings.Contains(entries, b.host.MAC.String()+" master br0"); learned {
			cancel()
		}
	}
	look(nil)
	if err := news.Run(ctx, look); err != nil {
		t.Fatal(err)
	}
	if !learned {
		t.Fatalf("not learned again; the hop is %s", describe(b.Hop(netip.MustParseAddr("10.2.0.2"))))
	}
}

// subscribe receives the notifications that the tracker receives.
func (b *box) subscribe() (news *rtnl.Events, err error) {
	err = b.Do(func() error { news, err = subscribe(); return err })
	return news, err
}

func TestABridgeThatForgotAHostLearnsItAgainSoon(t *testing.T) {
	b := newBox(t)
	if err := b.host.AddAddress("10.2.0.2/24"); err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddr("10.2.0.2")
	b.Track(addr)
	known := func(h Hop) bool { return h.Known() && h.Reason == "" }
	b.until(t, addr, "known", known)

	run(t, b.NS, "bridge", "fdb", "del", b.host.MAC.String(), "dev", "eth2", "master")
	b.untilLearned(t)
	b.until(t, addr, "known after its entry was deleted", known)

	b.ip(t, "link", "set", "eth2", "nomaster")
	b.until(t, addr, "unknown without its port", func(h Hop) bool { return !h.Known() })
	b.ip(t, "link", "set", "eth2", "master", "br0")
	b.until(t, addr, "known through the port that is back", Hop.Known)
	b.untilLearned(t)
	b.until(t, addr, "known beyond doubt", known)
}

func TestAPortWithoutACarrierIsKnownAndDown(t *testing.T) {
	b := newBox(t)
	b.ip(t, "addr", "add", "10.1.0.1/24", "dev", "eth1")
	for _, c := range []struct {
		host netns.Link
		ip   string
	}{{b.plain, "10.1.0.2"}, {b.host, "10.2.0.2"}} {
		if err := c.host.AddAddress(c.ip + "/24"); err != nil {
			t.Fatal(err)
		}
		addr := netip.MustParseAddr(c.ip)
		b.Track(addr)
		whole := b.until(t, addr, "known", func(h Hop) bool { return h.Known() && h.Reason == "" })
		run(t, c.host.NS, "ip", "link", "set", "p0", "down")
		down := b.until(t, addr, "down", func(h Hop) bool { return h.Down })
		if want := whole.PortName + " has no carrier; is the cable plugged in, and the other end up?"; down.Reason != want || !down.Known() {
			t.Errorf("%s, want %s", describe(down), want)
		}
		run(t, c.host.NS, "ip", "link", "set", "p0", "up")
		again := b.until(t, addr, "through", func(h Hop) bool { return h.Known() && !h.Down })
		if again.Reason = ""; again != whole {
			t.Errorf("again %+v, was %+v", again, whole)
		}
	}
}

// Links reports every change of a link, even of a link that no hop uses: control keeps its ports up
// to date by it.
func TestALinkThatComesIsTold(t *testing.T) {
	b := newBox(t)
	b.ip(t, "link", "add", "br9", "type", "bridge")
	select {
	case <-b.Links():
	case <-time.After(20 * time.Second):
		t.Error("never")
	}
}

// newKernel is the kernel of a new namespace, in which the bridge br0 has the address 10.3.0.1/24.
func newKernel(t *testing.T) (ns *netns.NS, k *netlinkKernel, ifIndex int) {
	t.Helper()
	ns = netns.New(t)
	run(t, ns, "ip", "link", "add", "br0", "type", "bridge")
	run(t, ns, "ip", "link", "set", "br0", "up")
	run(t, ns, "ip", "addr", "add", "10.3.0.1/24", "dev", "br0")
	if err := ns.Do(func() error {
		conn, err := rtnl.Open()
		k = &netlinkKernel{conn}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	l, err := ns.Netlink().LinkByName("br0")
	if err != nil {
		t.Fatal(err)
	}
	return ns, k, l.Attrs().Index
}

// A probe keeps a neighbour usable, and is no error if the neighbour has gone meanwhile.
func TestAProbeAsksAUsableNeighbour(t *testing.T) {
	ns, k, ifIndex := newKernel(t)
	ip := netip.MustParseAddr("10.3.0.2")
	if err := k.probe(ifIndex, ip); err != nil {
		t.Errorf("a neighbour that has gone: %v", err)
	}
	if n, err := k.neighbour(ifIndex, ip); err != nil || n.state != absent {
		t.Errorf("a neighbour that has gone is made: %+v, %v", n, err)
	}
	run(t, ns, "ip", "neigh", "add", "10.3.0.2", "lladdr", hostMAC.String(), "dev", "br0", "nud", "reachable")
	if err := k.probe(ifIndex, ip); err != nil {
		t.Error(err)
	}
	if n, err := k.neighbour(ifIndex, ip); err != nil || n != (neighbour{hostMAC, usable}) {
		t.Errorf("it is %+v, %v", n, err)
	}
	if entries, err := ns.Exec("ip", "neigh", "show", "10.3.0.2"); err != nil || !strings.Contains(entries, "PROBE") {
		t.Errorf("it is not probed: %s, %v", entries, err)
	}
}

// A request that fails is not taken for an answer, nor for the lack of one.
func TestWhatTheKernelRefusesIsTold(t *testing.T) {
	const noSuchLink = 99
	ns, k, br0 := newKernel(t)
	if port, err := k.bridgePort(br0, hostMAC, 0); port != 0 || err != nil {
		t.Errorf("a MAC that the bridge has not learned: port %d, %v", port, err)
	}
	ip := netip.MustParseAddr("10.3.0.2")
	_, linkErr := k.link(noSuchLink)
	_, neighbourErr := k.neighbour(noSuchLink, ip)
	_, portErr := k.bridgePort(noSuchLink, hostMAC, 0)
	for request, err := range map[string]error{
		"link": linkErr, "neighbour": neighbourErr, "bridgePort": portErr,
		"solicit": k.solicit(noSuchLink, ip), "probe": k.probe(noSuchLink, ip),
	} {
		if err == nil {
			t.Errorf("%s: no error tells that there is no such interface", request)
		}
	}
	run(t, ns, "ip", "route", "add", "prohibit", "198.51.100.0/24")
	if _, err := k.route(netip.MustParseAddr("198.51.100.1")); !errors.Is(err, unix.EACCES) {
		t.Errorf("a prohibited route: %v", err)
	}
}

// Run looks at unknown hosts by itself: no notification tells that a host has come up.
func TestAHostThatCameUpSilentlyIsTold(t *testing.T) {
	k := newFakeKernel()
	here := k.neighbours["1 10.1.0.2"]
	k.neighbours["1 10.1.0.2"] = neighbour{state: failed}
	tracker := newTracker(k, []int{eth1})
	if err := netns.New(t).Do(func() (err error) { tracker.events, err = subscribe(); return err }); err != nil {
		t.Fatal(err)
	}
	tracker.Track(onEth1)
	k.neighbours["1 10.1.0.2"] = here
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	var told []netip.Addr
	if err := tracker.Run(ctx, func(addrs []netip.Addr) { told = addrs; stop() }); err != nil {
		t.Error(err)
	}
	if len(told) != 1 || told[0] != onEth1 {
		t.Errorf("told %v", told)
	}
}

// A daemon that has no files left says so, and a Tracker that could not be opened holds none.
func TestATrackerLeavesNoFileOpen(t *testing.T) {
	before := testlab.OpenFiles(t)
	var usual unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &usual); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &usual)
	failed := 0
	for limit := uint64(3); ; limit++ {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: usual.Max}); err != nil {
			t.Fatal(err)
		}
		tracker, err := Open(nil)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &usual); err != nil {
			t.Fatal(err)
		}
		if err == nil {
			if len(before.Since(t)) == 0 {
				t.Error("an open Tracker has no file")
			}
			tracker.Close()
		} else {
			failed++
		}
		if opened := before.Since(t); len(opened) > 0 {
			t.Fatalf("with room for %d files (%v): %q stay open", limit, err, opened)
		}
		if err == nil {
			break
		}
	}
	if failed == 0 {
		t.Error("it never failed")
	}
}
