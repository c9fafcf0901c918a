package address

import (
	"strings"
	"testing"

	"github.com/rocast/rocast/internal/testlab/netns"
)

// routesOf returns the IPv4 routes of all tables, as the ip command prints them.
func routesOf(t *testing.T, ns *netns.NS) string {
	t.Helper()
	output, err := ns.Exec("ip", "-4", "-details", "route", "show", "table", "all")
	must(t, err)
	return output
}

// The hosts behind an interface that has no address are reached all the same when the group's IP
// has come and gone.
func TestRoutesOutliveTheLastAddressOfTheirInterface(t *testing.T) {
	for _, c := range []struct {
		with    string // an address of the interface, besides the group's IP
		objects bool   // some routes name nexthop objects, which the kernel removes with the carrier
	}{{}, {objects: true}, {with: "10.88.0.1/24"}} {
		box, host := netns.New(t), netns.New(t)
		port, _ := netns.Veth(t, box, "eth1", host, "p0", netns.VethOptions{})
		other, _ := netns.Veth(t, box, "eth2", host, "p1", netns.VethOptions{})
		must(t, other.AddAddress("10.66.0.1/24"))
		if c.with != "" {
			must(t, port.AddAddress(c.with))
		}
		ip := func(args ...string) {
			t.Helper()
			_, err := box.Exec("ip", args...)
			must(t, err)
		}
		ip("route", "add", "10.99.0.0/16", "via", "192.0.2.1", "dev", "eth1", "onlink", "metric", "50", "proto", "static", "mtu", "1400", "advmss", "1300")
		ip("route", "add", "10.77.0.0/24", "dev", "eth1", "src", "10.66.0.1")
		ip("route", "add", "10.98.0.0/16", "via", "10.77.0.7", "table", "100")
		ip("route", "add", "10.97.0.0/16", "via", "10.66.0.7")
		ip("route", "add", "10.95.0.0/16", "nexthop", "via", "10.77.0.7", "dev", "eth1", "nexthop", "via", "10.77.0.8", "dev", "eth1", "weight", "2")
		for _, destination := range []string{"10.94.0.0/16", "10.93.0.0/16"} { // the kernel stores the next hops of both once
			ip("route", "add", destination, "nexthop", "via", "10.77.0.7", "dev", "eth1", "nexthop", "via", "10.66.0.7", "dev", "eth2")
		}
		if c.objects {
			ip("nexthop", "add", "id", "7", "dev", "eth1")
			ip("nexthop", "add", "id", "8", "via", "10.66.0.7", "dev", "eth2")
			ip("nexthop", "add", "id", "9", "group", "7/8")
			ip("route", "add", "10.92.0.0/16", "nhid", "7")
			ip("route", "add", "10.91.0.0/16", "nhid", "9")
		}
		before := routesOf(t, box)
		o := openIn(t, box, t.TempDir())
		p := IfAddr{IfIndex: port.Index, IP: group}
		must(t, o.Hold(p))
		ip("route", "add", "10.96.0.0/16", "dev", "eth1", "src", group.String()) // goes with the address
		held := routesOf(t, box)
		k := o.kernel.(*netlinkKernel)
		routes, err := k.lostWith(p)
		must(t, err)
		must(t, k.putBack(routes)) // none has gone yet
		if after := routesOf(t, box); after != held {
			t.Errorf("with %+v before\n%sand after none has gone\n%s", c, held, after)
		}
		if !c.objects {
			_, err = host.Exec("ip", "link", "set", "p0", "down") // the kernel marks the routes
			must(t, err)
		}
		must(t, o.Release(p))
		if after := strings.ReplaceAll(routesOf(t, box), "linkdown ", ""); after != before {
			t.Errorf("with %+v before\n%sand after\n%s", c, before, after)
		}
		must(t, o.Close())
	}
}
