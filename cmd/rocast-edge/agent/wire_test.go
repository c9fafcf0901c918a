package agent

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/roce"
)

// strand is a machine in the wire: its port wire leads to the boxes, and its port down to a host.
// Both are in bridge br0. Another bridge, br1, leads nowhere.
type strand struct {
	machine, host *netns.NS
	wire          netns.Link
	hostMAC       roce.MAC
	bridges       [2]int // their indices
}

const hostIP, hostIP6 = "10.99.0.2", "fd99::2"

func newStrand(t *testing.T) *strand {
	t.Helper()
	testlab.NeedRoot(t)
	s := &strand{machine: netns.New(t), host: netns.New(t)}
	boxes := netns.New(t)
	for _, ns := range []*netns.NS{s.machine, s.host} {
		testlab.Must(t, ns.Sysctl("net.ipv6.conf.default.disable_ipv6", "0"))
		testlab.Must(t, ns.Sysctl("net.ipv6.conf.default.accept_dad", "0")) // else nobody is asked for a second
	}
	s.wire, _ = netns.Veth(t, s.machine, "wire", boxes, "eth0", netns.VethOptions{})
	down, at := netns.Veth(t, s.machine, "down", s.host, "eth0", netns.VethOptions{})
	netns.Veth(t, s.machine, "loose", boxes, "eth1", netns.VethOptions{})
	netns.Veth(t, s.machine, "other", boxes, "eth2", netns.VethOptions{})
	s.hostMAC = roce.MAC(at.MAC)
	for i, name := range []string{"br0", "br1"} {
		s.machine.MustRun(t, "ip link add %s type bridge", name)
		s.machine.MustRun(t, "ip link set %s up", name)
		s.machine.MustRun(t, "ip address add 10.%d.0.254/24 dev %s", 99+i, name)
		testlab.Must(t, s.machine.Do(func() (err error) {
			s.bridges[i], err = indexOf(name)
			return err
		}))
	}
	s.machine.MustRun(t, "ip address add fd99::fe/64 dev br0 nodad")
	for port, bridge := range map[string]string{s.wire.Name: "br0", down.Name: "br0", "other": "br1"} {
		s.machine.MustRun(t, "ip link set dev %s master %s", port, bridge)
	}
	s.host.MustRun(t, "ip address add %s/24 dev eth0", hostIP)
	s.host.MustRun(t, "ip address add %s/64 dev eth0 nodad", hostIP6)
	return s
}

// behind asks the kernel of the machine.
func (s *strand) behind(t *testing.T, wire, ip string) (at device, err error) {
	t.Helper()
	testlab.Must(t, s.machine.Do(func() error {
		at, err = kernel{}.behind(wire, netip.MustParseAddr(ip))
		return nil
	}))
	return at, err
}

// The program belongs at the port towards the boxes, what it maps goes to the MAC of the host, and
// the bridge joins. Nobody has asked for that MAC before, and others are known. On a busy machine
// the host may answer too late the first time.
func TestTheKernelKnowsTheHostBehindAWire(t *testing.T) {
	s := newStrand(t)
	for i, stranger := range []string{"10.99.0.1", "10.99.0.3", "fd99::1", "fd99::3"} {
		s.machine.MustRun(t, "ip neighbour add %s lladdr 02:00:00:00:99:0%d dev br0", stranger, i)
	}
	for _, ip := range []string{hostIP, hostIP6} {
		var at device
		var err error
		testlab.Eventually(t, testlab.Patience, ip+" answers", func() bool {
			at, err = s.behind(t, "wire", ip)
			return err == nil
		}, func() string { return fmt.Sprint(err) })
		if want := (device{name: "wire", index: s.wire.Index, mac: s.hostMAC, joins: s.bridges[0]}); at != want {
			t.Errorf("%s: %+v, want %+v", ip, at, want)
		}
	}
}

// Each way in which the ports cannot work has its sentence.
func TestWiresThatCannotBe(t *testing.T) {
	s := newStrand(t)
	s.machine.MustRun(t, "ip route add 10.101.0.0/24 via %s", hostIP)
	for _, c := range []struct{ wire, ip, want string }{
		{"nosuch", hostIP, "look at nosuch, the port towards the boxes: "},
		{"loose", hostIP, fmt.Sprintf("loose is in no bridge; put it and the port to %s into one", hostIP)},
		{"wire", "10.102.0.1", "look for the way to 10.102.0.1: "},
		{"wire", "10.99.0.254", "10.99.0.254 is an IP of this machine, and --wire is for a host behind it"},
		{"wire", "10.101.0.5", "10.101.0.5 is behind the router 10.99.0.2; give the bridge an address of the host's network"},
		{"other", hostIP, fmt.Sprintf("the way to %s is br0, which is not the bridge that has other; ", hostIP)},
		{"wire", "10.99.0.77", "10.99.0.77 does not answer who asks for its MAC"},
	} {
		if at, err := s.behind(t, c.wire, c.ip); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s behind %s: %+v, %v, want %q", c.ip, c.wire, at, err, c.want)
		}
	}
}

// A MAC may be behind one port in one VLAN, and behind another one in another.
func TestTheVLANOfTheHostBehindAWire(t *testing.T) {
	mac := roce.MAC{2, 0, 0, 0, 0, 2}
	knows := func(bridge, port, vlan int, mac roce.MAC) netlink.Neigh {
		return netlink.Neigh{MasterIndex: bridge, LinkIndex: port, Vlan: vlan, HardwareAddr: mac[:]}
	}
	all := []netlink.Neigh{knows(8, 3, 5, mac), knows(9, 4, 0, roce.MAC{2, 9}), knows(9, 5, 1, mac), knows(9, 6, 7, mac), knows(10, 7, 0, mac)}
	for _, c := range []struct{ bridge, vlan, want int }{{9, 1, 5}, {9, 7, 6}, {9, 5, 0}, {8, 5, 3}, {10, 7, 7}, {10, 0, 7}, {11, 0, 0}} {
		if got := learned(all, c.bridge, c.vlan, mac); got != c.want {
			t.Errorf("in VLAN %d of bridge %d: behind port %d, want %d", c.vlan, c.bridge, got, c.want)
		}
	}
}

// A host that has its IP only when it is asked for its MAC is found as soon as it answers. On a
// busy machine it may come too late, so there are several tries.
func TestAHostThatAnswersLateIsBehindTheWire(t *testing.T) {
	s := newStrand(t)
	testlab.Must(t, s.machine.Sysctl("net.ipv4.neigh.br0.retrans_time_ms", "10"))
	var err error
	for try := range 20 {
		ip := fmt.Sprintf("10.99.0.%d", 100+try)
		asked := make(chan error, 1)
		go func() {
			asked <- s.machine.Do(func() error {
				_, err := kernel{}.behind("wire", netip.MustParseAddr(ip))
				return err
			})
		}()
		var known string
		testlab.Eventually(t, time.Minute, "the machine asks for the MAC of "+ip, func() bool {
			known = s.machine.MustRun(t, "ip neighbour show to %s", ip)
			return known != ""
		}, func() string { return known })
		s.host.MustRun(t, "ip address add %s/24 dev eth0", ip)
		if err = <-asked; err == nil {
			return
		}
	}
	t.Error(err)
}

func indexOf(name string) (int, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return 0, err
	}
	return link.Attrs().Index, nil
}
