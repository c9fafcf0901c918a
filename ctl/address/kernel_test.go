package address

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
)

func openIn(t *testing.T, ns *netns.NS, dir string) *Owner {
	t.Helper()
	var o *Owner
	if err := ns.Do(func() (err error) { o, err = Open(dir); return err }); err != nil {
		t.Fatal(err)
	}
	return o
}

// shown returns the addresses of an interface as the ip command prints them.
func shown(t *testing.T, ns *netns.NS, name string) string {
	t.Helper()
	output, err := ns.Exec("ip", "-brief", "addr", "show", "dev", name)
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(output)
	return strings.Join(fields[2:], " ")
}

func TestTheKernelAnswersForTheGroupIP(t *testing.T) {
	box, host := netns.New(t), netns.New(t)
	port, far := netns.Veth(t, box, "eth1", host, "p0", netns.VethOptions{})
	must(t, port.AddAddress("10.77.0.254/24"))
	must(t, far.AddAddress("10.77.0.1/24"))
	o := openIn(t, box, t.TempDir())
	p := IfAddr{IfIndex: port.Index, IP: group}
	must(t, o.Hold(p))
	if output, err := host.Exec("ping", "-c1", "-W5", group.String()); err != nil {
		t.Errorf("%v: %s", err, output)
	}
	neigh, err := host.Netlink().NeighList(far.Index, netlink.FAMILY_V4)
	must(t, err)
	if len(neigh) != 1 || neigh[0].HardwareAddr.String() != port.MAC.String() {
		t.Errorf("the host's neighbours are %v, want %v at the port's %v", neigh, group, port.MAC)
	}
	if got, want := shown(t, box, "eth1"), "10.77.0.254/24 10.77.0.100/32"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if err := o.kernel.add(p); !errors.Is(err, unix.EEXIST) {
		t.Errorf("added twice: %v", err)
	}
	if details, err := box.Exec("ip", "addr", "show", "dev", "eth1"); err != nil || strings.Contains(details, "deprecated") {
		t.Errorf("%v: %s", err, details)
	}
	must(t, o.Release(p))
	if got, want := shown(t, box, "eth1"), "10.77.0.254/24"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	must(t, o.Close())
}

func TestAnInterfacesSubnetsAreThoseOfItsHosts(t *testing.T) {
	box := netns.New(t)
	port, other := netns.Veth(t, box, "eth1", box, "eth2", netns.VethOptions{})
	must(t, port.NS.Sysctl("net.ipv6.conf.eth1.disable_ipv6", "0"))
	for _, args := range []string{
		"10.77.0.254/24 dev eth1", "10.78.1.254/23 dev eth1", "10.79.0.1/32 dev eth1", "10.80.0.1 peer 10.81.0.1/30 dev eth1",
		"fd00::fe/64 dev eth1 nodad", "10.99.0.1/24 dev eth2",
	} {
		if _, err := box.Exec("ip", strings.Fields("addr add "+args)...); err != nil {
			t.Fatal(err)
		}
	}
	o := openIn(t, box, t.TempDir())
	must(t, o.Hold(IfAddr{port.Index, group}))
	nets, err := o.Subnets(port.Index)
	must(t, err)
	var got []string
	for _, n := range nets {
		got = append(got, n.String())
	}
	slices.Sort(got)
	if want := "10.77.0.0/24 10.78.0.0/23 10.81.0.0/30 fd00::/64"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if nets, err := o.Subnets(other.Index); err != nil || len(nets) != 1 {
		t.Errorf("eth2: %v, %v", nets, err)
	}
	must(t, o.Close())
}

func TestTheKernelConfirmsWhatIsOurs(t *testing.T) {
	box := netns.New(t)
	port, _ := netns.Veth(t, box, "eth1", box, "eth2", netns.VethOptions{})
	dir := t.TempDir()
	o := openIn(t, box, dir)
	must(t, o.Hold(IfAddr{port.Index, group}))
	must(t, port.AddAddress("10.77.0.101/32"))
	admins := IfAddr{port.Index, netip.MustParseAddr("10.77.0.101")}
	must(t, o.notes.put(note{admins.IP, "eth1"}))

	o = openIn(t, box, dir) // after a crash
	if local, err := o.Local(admins.IP); err != nil || !local {
		t.Errorf("the administrator's address: local %v, %v", local, err)
	}
	must(t, o.Sweep())
	if got, want := shown(t, box, "eth1"), "10.77.0.101/32"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	must(t, o.Close())
}

// After a crash the state directory was removed, and the notes with it. The address that is left
// must not prevent its group from being restored.
func TestAnAddressWithoutItsNoteIsNotTheBoxsOwn(t *testing.T) {
	box := netns.New(t)
	port, _ := netns.Veth(t, box, "eth1", box, "eth2", netns.VethOptions{})
	if err := box.Do(CheckMarks); err != nil {
		t.Skipf("needs addresses with marks: %v", err)
	}
	must(t, openIn(t, box, t.TempDir()).Hold(IfAddr{port.Index, group}))
	o := openIn(t, box, t.TempDir())
	if local, err := o.Local(group); err != nil || local {
		t.Errorf("local %v, %v", local, err)
	}
	must(t, o.Close())
}

// needIPv6 turns IPv6 on at interfaces, and skips the test where that is not possible.
func needIPv6(t *testing.T, at ...netns.Link) {
	t.Helper()
	for _, l := range at {
		if err := l.NS.Sysctl("net.ipv6.conf."+l.Name+".disable_ipv6", "0"); err != nil {
			t.Skipf("needs IPv6: %v", err)
		}
	}
}

// onIPv6 connects port eth1 of a box, which has the address fd00::fe, with a host that has fd00::1.
func onIPv6(t *testing.T) (box *netns.NS, port netns.Link, host *netns.NS) {
	t.Helper()
	box, host = netns.New(t), netns.New(t)
	port, far := netns.Veth(t, box, "eth1", host, "p0", netns.VethOptions{})
	needIPv6(t, port, far)
	for ns, args := range map[*netns.NS]string{box: "addr add fd00::fe/64 dev eth1 nodad", host: "addr add fd00::1/64 dev p0 nodad"} {
		if _, err := ns.Exec("ip", strings.Fields(args)...); err != nil {
			t.Fatal(err)
		}
	}
	return box, port, host
}

func TestIPv6IsOwnedAtOnceAndNeverChosenAsSource(t *testing.T) {
	box, port, host := onIPv6(t)
	ip := netip.MustParseAddr("fd00::2") // shares a longer prefix with the host's IP than the box's own, so the kernel would prefer it
	o := openIn(t, box, t.TempDir())
	must(t, o.Hold(IfAddr{port.Index, ip}))
	if output, err := host.Exec("ping", "-c1", "-W5", ip.String()); err != nil {
		t.Errorf("%v: %s", err, output)
	}
	if err := o.kernel.add(IfAddr{port.Index, ip}); !errors.Is(err, unix.EEXIST) {
		t.Errorf("added twice: %v", err)
	}
	route, err := box.Netlink().RouteGet(net.ParseIP("fd00::1"))
	must(t, err)
	if len(route) != 1 || route[0].Src.String() != "fd00::fe" {
		t.Errorf("the box would speak from %v", route)
	}
	must(t, o.Close())
	if got := shown(t, box, "eth1"); strings.Contains(got, ip.String()) {
		t.Errorf("left %s", got)
	}
}

func TestWhatOthersTakeOffIsPutBack(t *testing.T) {
	box := netns.New(t)
	port, _ := netns.Veth(t, box, "eth1", box, "eth2", netns.VethOptions{})
	o := openIn(t, box, t.TempDir())
	must(t, o.Hold(IfAddr{port.Index, group}))
	ctx, stop := context.WithCancel(context.Background())
	told, done := make(chan string, 1), make(chan error)
	changes := make(chan Change, 9)
	go func() {
		done <- o.Run(ctx, func(p IfAddr, name string) { told <- fmt.Sprintf("%v on %s", p.IP, name) }, func(all []Change) {
			for _, c := range all {
				changes <- c
			}
		}, nil)
	}()
	if _, err := box.Exec("ip", "addr", "flush", "dev", "eth1"); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-told:
		if want := "10.77.0.100 on eth1"; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	case <-time.After(20 * time.Second):
		t.Error("not put back")
	}
	foreign := netip.MustParseAddr("10.77.0.7")
	for _, do := range []string{"add", "del"} {
		if _, err := box.Exec("ip", "addr", do, foreign.String()+"/32", "dev", "eth1"); err != nil {
			t.Fatal(err)
		}
		if got, want := <-changes, (Change{foreign, do == "del"}); got != want {
			t.Errorf("told %v, want %v", got, want)
		}
	}
	if got, want := shown(t, box, "eth1"), "10.77.0.100/32"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	stop()
	must(t, <-done)
	must(t, o.Close())
	if got := shown(t, box, "eth1"); got != "" {
		t.Errorf("left %s", got)
	}
}

// A host that remembers another box's MAC for an IP hears that this box has it. An IP that the host
// does not know stays unknown to it, and one that the box has not is not announced.
func TestHostsHearWhoHasAnIP(t *testing.T) {
	box, host := netns.New(t), netns.New(t)
	port, far := netns.Veth(t, box, "eth1", host, "p0", netns.VethOptions{})
	needIPv6(t, port, far)
	for ns, addresses := range map[*netns.NS][]string{box: {"10.77.0.254/24", "fd00::fe/64"}, host: {"10.77.0.1/24", "fd00::1/64"}} {
		for _, a := range addresses {
			dev := map[*netns.NS]string{box: "eth1", host: "p0"}[ns]
			if _, err := ns.Exec("ip", "addr", "add", a, "dev", dev, "nodad"); err != nil {
				t.Fatal(err)
			}
		}
	}
	const others = "02:00:00:00:00:99"
	o := openIn(t, box, t.TempDir())
	defer o.Close()
	unknown, released := netip.MustParseAddr("10.77.0.101"), netip.MustParseAddr("10.77.0.102")
	ips := []netip.Addr{group, netip.MustParseAddr("fd00::2"), released}
	for _, ip := range append(ips, unknown) {
		must(t, o.Hold(IfAddr{port.Index, ip}))
	}
	must(t, o.Release(IfAddr{port.Index, released}))
	own := []netip.Addr{netip.MustParseAddr("10.77.0.254"), netip.MustParseAddr("fd00::fe")}
	for _, ip := range slices.Concat(ips, own) {
		if _, err := host.Exec("ip", "neigh", "replace", ip.String(), "lladdr", others, "dev", "p0", "nud", "reachable"); err != nil {
			t.Fatal(err)
		}
	}
	knows := func(ip netip.Addr) string {
		out, err := host.Exec("ip", "neigh", "show", ip.String(), "dev", "p0")
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	link, err := box.Netlink().LinkByName("eth1")
	must(t, err)
	ours := link.Attrs().HardwareAddr.String()
	must(t, box.Do(func() error { return errors.Join(o.Announce(released), o.Announce(unknown)) }))
	for _, ip := range ips[:2] {
		must(t, box.Do(func() error { return o.Announce(ip) }))
		testlab.Eventually(t, testlab.Patience, "the host knows the box's MAC for "+ip.String(), func() bool { return strings.Contains(knows(ip), ours) },
			func() string { return knows(ip) })
	}
	const moved = "02:00:00:00:00:55"
	if _, err := box.Exec("ip", "link", "set", "eth1", "address", moved); err != nil {
		t.Fatal(err)
	}
	must(t, box.Do(func() error { o.announceMoved(); return nil }))
	for _, ip := range slices.Concat(ips[:2], own) {
		testlab.Eventually(t, testlab.Patience, "the host knows the box's new MAC for "+ip.String(), func() bool { return strings.Contains(knows(ip), moved) },
			func() string { return knows(ip) })
	}
	if got := knows(released); !strings.Contains(got, others) {
		t.Errorf("of an IP that the box has no longer the host knows %s", got)
	}
	if got := knows(unknown); got != "" {
		t.Errorf("of an IP that it did not know the host knows %s", got)
	}
}
