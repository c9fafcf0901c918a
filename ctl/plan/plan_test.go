package plan

import (
	"net/netip"
	"testing"

	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/ports"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/mft"
)

var (
	group = netip.MustParseAddr("10.77.0.100")
	hostA = netip.MustParseAddr("10.77.0.1")
	hostB = netip.MustParseAddr("10.77.0.2")
	eth1  = dataplane.PortInfo{ID: 7, Name: "eth1", IfIndex: 3, State: dataplane.PortUp, MTU: 1500}
)

// The next hop of a host is looked up only once, even if the kernel's answer changes.
func TestAPlanAsksForEveryHostOnce(t *testing.T) {
	asked := map[netip.Addr]int{}
	hop := func(addr netip.Addr) nexthop.Hop {
		asked[addr]++
		return ctltest.Hop(3, "eth1", 1500, byte(asked[addr]))
	}
	both := groupfile.Member{IP: hostA, Role: groupfile.Both}
	f := &groupfile.File{PathMTU: 1024, IP: group, Source: both, Receivers: []groupfile.Member{both, {IP: hostB}}}
	p := Make(f, ports.New([]dataplane.PortInfo{eth1}), hop)
	if asked[hostA] != 1 || asked[hostB] != 1 || p.Source.Leg != p.Receivers[0].Leg || p.Source.Port != 7 {
		t.Errorf("asked %v, legs %+v", asked, p)
	}
}

// The longest frames of a group have its path MTU and all headers. An MTU of exactly this length is
// enough.
func TestAPortCarriesTheLongestFrameOrIsUnfit(t *testing.T) {
	ipv4, ipv6 := group, netip.MustParseAddr("fd00::100")
	for _, c := range []struct {
		group       netip.Addr
		pathMTU     int
		mtu         int
		multiBuffer bool
		want        bool
	}{
		{ipv4, 1024, 1024 + 64, false, true}, // IPv4 20, UDP 8, BTH 12, RETH 16, ImmDt 4, ICRC 4
		{ipv4, 1024, 1024 + 63, false, false},
		{ipv6, 1024, 1024 + 84, false, true}, // IPv6 40
		{ipv6, 1024, 1024 + 83, false, false},
		{ipv4, 2048, 2048 + 64, false, true},
		{ipv4, 4096, 4096 + 64, false, false},
		{ipv4, 4096, 4096 + 64, true, true},
		{ipv4, 4096, 4096 + 63, true, false},
	} {
		port := eth1
		port.MultiBuffer = c.multiBuffer
		f := &groupfile.File{PathMTU: c.pathMTU, IP: c.group, Source: groupfile.Member{IP: hostA, Role: groupfile.Source}}
		p := Make(f, ports.New([]dataplane.PortInfo{port}), func(netip.Addr) nexthop.Hop { return ctltest.Hop(3, "eth1", c.mtu, 1) })
		if l := p.Source; l.Resolved() != c.want || l.Unfit == c.want || l.Waits() == c.want {
			t.Errorf("%+v: %+v", c, l)
		}
	}
}

// The kernel's name of an interface may differ from the config's, and a port may be closed although
// the kernel still has a route through it.
func TestAPortIsFoundByItsInterface(t *testing.T) {
	f := &groupfile.File{PathMTU: 1024, IP: group, Source: groupfile.Member{IP: hostA, Role: groupfile.Source}}
	renamed := func(netip.Addr) nexthop.Hop { return ctltest.Hop(3, "renamed", 1500, 1) }
	if p := Make(f, ports.New([]dataplane.PortInfo{eth1}), renamed); p.Source.Port != 7 {
		t.Errorf("renamed: %+v", p.Source)
	}
	gone := eth1
	gone.State = dataplane.PortGone
	other := dataplane.PortInfo{Name: "eth2", IfIndex: 4, State: dataplane.PortUp}
	want := "10.77.0.1 is reached through renamed, which is not an open port; rocast port ls says why"
	if p := Make(f, ports.New([]dataplane.PortInfo{gone, other}), renamed); p.Source.Port != mft.NoPort || p.Source.Reason != want {
		t.Errorf("gone: %+v", p.Source)
	}
}
