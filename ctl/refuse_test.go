package ctl

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/nexthop"
)

func TestWhatNoHostCanHave(t *testing.T) {
	for _, c := range []struct{ ip, subnet, want string }{
		{"10.0.0.1", "10.0.0.0/24", ""},
		{"10.0.0.254", "10.0.0.0/24", ""},
		{"10.0.0.0", "10.0.0.0/24", "is the address of the subnet 10.0.0.0/24 itself"},
		{"10.0.0.255", "10.0.0.0/24", "is the broadcast address of 10.0.0.0/24"},
		{"10.0.0.255", "10.0.0.0/23", ""},
		{"10.0.1.255", "10.0.0.0/23", "is the broadcast address of 10.0.0.0/23"},
		{"10.0.0.4", "10.0.0.4/30", "is the address of the subnet 10.0.0.4/30 itself"},
		{"10.0.0.7", "10.0.0.4/30", "is the broadcast address of 10.0.0.4/30"},
		{"10.0.0.4", "10.0.0.4/31", ""},
		{"10.0.0.5", "10.0.0.4/31", ""},
		{"10.0.1.0", "10.0.0.0/24", ""}, // outside the subnet
		{"fd00::1", "fd00::/64", ""},
		{"fd00::", "fd00::/64", "is the address of the subnet fd00::/64 itself"},
		{"fd00::ffff:ffff:ffff:ffff", "fd00::/64", ""}, // IPv6 has no broadcast
		{"fd00::", "fd00::/127", ""},
	} {
		got := ""
		if err := refuseNoHost(netip.MustParseAddr(c.ip), []netip.Prefix{netip.MustParsePrefix(c.subnet)}); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s in %s: got %q, want %q", c.ip, c.subnet, got, c.want)
		}
	}
}

// If the box's interfaces have no address of the group's family, the subnet of the hosts is
// unknown.
func TestABoxWithoutAddressesTakesAnyIP(t *testing.T) {
	w := newWorld(t)
	inSubnet("fd00::/64")(w)
	w.create(t, strings.Replace(g1, "10.77.0.100", "10.99.0.100", 1))
}

func TestAGroupThatIsNotSetUpWaitsForNobody(t *testing.T) {
	w := newWorld(t)
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.3": {Reason: "the kernel is asking"}})
	w.create(t, g1)
	g := w.groups.Named("g1")
	if n := g.Waiting(); n != 1 {
		t.Errorf("waits for %d members", n)
	}
	if err := w.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	if n := g.Waiting(); n != 0 {
		t.Errorf("ended, it waits for %d members", n)
	}
}

// In one network with another box of the group, that box answers for the group's IP.
func TestAnotherBoxOfTheGroupMayHaveItsIP(t *testing.T) {
	w := newWorld(t)
	w.addresses.Box[addr("10.9.0.1")] = true
	w.addresses.Claims[addr("10.77.0.100")] = address.Claim{MAC: [6]byte{2, 0, 0, 0, 0, 2}, Interface: "br0"} // that of 10.77.0.2
	w.create(t, strings.Replace(g1, "psn: 5", "psn: 5, remoteIP: 10.9.0.1", 1))
}

// With virtual-qpn the source's packets have the address of a receiver. If both are behind one
// port, as on a stick, the box would never see the packets: the group would be ready, and its data
// would reach that receiver's host alone.
func TestVirtualQPNNeedsTheBoxOnTheWay(t *testing.T) {
	for receiver, want := range map[string]string{
		"10.77.0.2": "ip 10.77.0.2 and the source 10.77.0.1 are both behind port eth1, so the source's packets would not come by this " +
			"box; write the ip of a receiver behind another port, or use addressing: group-ip",
		"10.77.0.3": "<nil>",
	} {
		w := newWorld(t)
		w.hops.Set(map[string]nexthop.Hop{"10.77.0.1": ctltest.Hop(1, "eth1", 1500, 1), "10.77.0.2": ctltest.Hop(1, "eth1", 1500, 2)})
		_, err := w.Create(t.Context(), []byte("addressing: virtual-qpn\n"+strings.Replace(g1, "10.77.0.100", receiver, 1)))
		if got := fmt.Sprint(err); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s", receiver, got)
		}
	}
}
