package plan

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/ports"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
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

// Other boxes of the group may have its IP too. They are known by the MACs of their members, as far
// as the way there is known.
func TestBoxesAreTheMembersWithAPeerOfTheirOwn(t *testing.T) {
	hops := map[netip.Addr]nexthop.Hop{hostA: ctltest.Hop(3, "eth1", 1500, 1), hostB: ctltest.Hop(3, "eth1", 1500, 2)}
	far := netip.MustParseAddr("10.77.0.3")
	f := &groupfile.File{PathMTU: 1024, IP: group, Source: groupfile.Member{IP: hostA, Role: groupfile.Source}}
	for _, addr := range []netip.Addr{hostA, hostB, far} {
		f.Receivers = append(f.Receivers, groupfile.Member{IP: addr, RemoteIP: group.Next()})
	}
	f.Receivers[0].RemoteIP = netip.Addr{}
	p := Make(f, ports.New([]dataplane.PortInfo{eth1}), func(addr netip.Addr) nexthop.Hop { return hops[addr] })
	if got := p.Boxes(); !slices.Equal(got, [][6]byte{{2, 0, 0, 0, 0, 2}}) {
		t.Errorf("%x", got)
	}
}

// A receiver's place of each range is found whether the group has few ranges or many.
func TestThePlaceOfEachRange(t *testing.T) {
	for _, ranges := range []int{15, 16, 40} {
		f, m := &groupfile.File{}, &groupfile.Member{}
		for i := range ranges {
			f.Memory = append(f.Memory, mft.VirtualRegion{VA: uint64(i) << 20, Length: 4096, RKey: 7})
			m.Regions = append(m.Regions, mft.Region{VA: uint64(100+i) << 20, RKey: uint32(i)})
		}
		kept := whereKept(f, m)
		for i, v := range f.Memory {
			if got := kept(v); got != m.Regions[i] {
				t.Errorf("%d ranges: range %d is at %+v, want %+v", ranges, i, got, m.Regions[i])
			}
		}
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
		if l := p.Source; l.Resolved() != c.want || l.Unfit == c.want || l.Waits() == c.want || (l.Reason == "") != c.want {
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

var (
	hostC = netip.MustParseAddr("10.77.0.3")
	eth2  = dataplane.PortInfo{ID: 8, Name: "eth2", IfIndex: 4, State: dataplane.PortUp, MTU: 1500}
)

// three is a group of a source and two receivers.
func three() *groupfile.File {
	return &groupfile.File{
		Name: "g1", PathMTU: 1024, IP: group, QPN: 5,
		Source: groupfile.Member{IP: hostA, QPN: 17, FirstPSN: 1000, Role: groupfile.Source},
		Receivers: []groupfile.Member{
			{IP: hostC, QPN: 19, FirstPSN: 7, RemoteQPN: 5, Role: groupfile.Both, SendPSN: 9, Regions: []mft.Region{{VA: 1, Length: 2, RKey: 3}}},
			{IP: hostB, QPN: 18, FirstPSN: 6, RemoteQPN: 6, Regions: []mft.Region{{VA: 4, Length: 2, RKey: 5}}},
		},
		Memory: []mft.VirtualRegion{{VA: 8, Length: 2, RKey: 9}},
	}
}

// ways reaches host C by eth2, and the others by eth1, whose interfaces have the indexes 1 and 2.
func ways(addr netip.Addr) nexthop.Hop {
	hop := ctltest.Hop(3, "eth1", 1500, addr.As4()[3])
	hop.Interface = 1
	if addr == hostC {
		hop = ctltest.Hop(4, "eth2", 1500, 3)
		hop.Interface = 2
	}
	return hop
}

func planOf(f *groupfile.File) Plan {
	return Make(f, ports.New([]dataplane.PortInfo{eth1, eth2}), ways)
}

func TestWhatIsPublishedOfAGroup(t *testing.T) {
	f := three()
	p := planOf(f)
	for addressing, src := range map[mft.Addressing]netip.Addr{mft.ByGroupIP: group, mft.ByVirtualQPN: hostA} {
		f.Addressing = addressing
		p = planOf(f)
		leg := func(port mft.PortID, hop nexthop.Hop, src, dst netip.Addr, qpn roce.QPN) mft.Leg {
			return mft.Leg{Port: port, L2: hop.L2, L2Bytes: hop.L2Bytes, DestQPN: qpn, Src: src, Dst: dst}
		}
		memory := mft.MustMemory(f.Memory...)
		at := func(va uint64, rkey uint32) mft.Regions {
			return memory.At(func(mft.VirtualRegion) mft.Region { return mft.Region{VA: va, RKey: rkey} })
		}
		want := &mft.Group{
			Name: "g1", Addressing: addressing, IP: group, QPN: 5, PathMTU: 1024, Restored: true, Memory: memory,
			Source: mft.Source{Leg: leg(7, ways(hostA), group, hostA, 17), FirstPSN: 1000},
			Paths: []mft.Path{
				{Leg: leg(8, ways(hostC), src, hostC, 19), RemoteQPN: 5, FirstPSN: 7, Sends: true, SendPSN: 9, Regions: at(1, 3)},
				{Leg: leg(7, ways(hostB), src, hostB, 18), RemoteQPN: 6, FirstPSN: 6, Regions: at(4, 5)},
			},
		}
		if got, err := p.Group(f, nil, &chronicle.Chronicle{}, true, nil); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v: %v\ngot  %+v\nwant %+v", addressing, err, got, want)
		}
	}
	past, err := chronicle.Read([]byte(`{"receivers": [{"ip": "10.77.0.3", "remoteQPN": 5, "standing": "evicted"}]}`), f, true)
	if err != nil {
		t.Fatal(err)
	}
	// A member that is out, and may still be the source, has a path that takes no part. Another one
	// has none, unless it is published or nobody else is.
	out := []mft.Part{{QP: mft.QP{IP: hostC, RemoteQPN: 5}, Part: feedback.PartGone}}
	both, _ := p.Group(f, nil, &past, false, nil)
	if len(both.Paths) != 2 || !slices.Equal(both.Parts, out) || both.Restored {
		t.Errorf("beside a sender that is out: %+v", both)
	}
	f.Receivers[slices.IndexFunc(f.Receivers, func(m groupfile.Member) bool { return m.IP == hostC })].Role = groupfile.Receiver
	if g, _ := p.Group(f, nil, &past, false, nil); len(g.Paths) != 1 || g.Paths[0].Dst != hostB || g.Parts != nil {
		t.Errorf("beside a receiver that is out: %+v", g)
	}
	slices.Reverse(both.Paths) // as they are published
	if g, _ := p.Group(f, nil, &past, false, both); len(g.Paths) != 2 || !slices.Equal(g.Parts, out) {
		t.Errorf("beside one that is out and published: %+v", g)
	}
	past.Out(groupfile.ID{IP: hostB, RemoteQPN: 6}, chronicle.Behind, 7)
	if g, _ := p.Group(f, nil, &past, false, nil); len(g.Paths) != 2 || len(g.Parts) != 2 {
		t.Errorf("all are out: %+v", g)
	}
}

// The VLANs of members behind a VLAN device with an egress-qos-map are in the group once each, and
// a change of a map changes the plan.
func TestTheMapsOfVLANDevicesArePublished(t *testing.T) {
	qos := roce.NewTagPriority(map[uint32]uint32{0: 3})
	way := func(p roce.TagPriority) func(netip.Addr) nexthop.Hop {
		return func(addr netip.Addr) nexthop.Hop {
			hop := ways(addr)
			if addr != hostC {
				hop.L2Bytes, hop.Priority = uint8(copy(hop.L2[:], roce.AppendVLAN(nil, roce.MAC{2, 1}, roce.MAC{2, 2}, 5, 0x0800))), p
			}
			return hop
		}
	}
	f, open := three(), ports.New([]dataplane.PortInfo{eth1, eth2})
	p, other := Make(f, open, way(qos)), Make(f, open, way(0))
	want := []mft.Tagged{{Port: 7, VLANs: mft.VLANs{0x8100_0005}, Priority: qos}}
	if g, err := p.Group(f, nil, &chronicle.Chronicle{}, false, nil); err != nil || !slices.Equal(g.Tagged, want) {
		t.Errorf("%v, %v, want %v", err, g.Tagged, want)
	}
	if g, err := other.Group(f, nil, &chronicle.Chronicle{}, false, nil); err != nil || g.Tagged != nil {
		t.Errorf("without a map: %v, %v", err, g.Tagged)
	}
	if p.SameLegs(&other) || !p.SameLegs(&p) {
		t.Error("another map is the same plan")
	}
}

// A member with role both has two legs and is one member.
func TestMembersAreYieldedOnce(t *testing.T) {
	members := func(p Plan, most int) (addrs []netip.Addr) {
		for l := range p.Members() {
			if addrs = append(addrs, l.Member.IP); len(addrs) == most {
				break
			}
		}
		return addrs
	}
	f := three()
	p := planOf(f)
	both := three()
	both.Source = both.Receivers[0]
	for _, c := range []struct {
		plan Plan
		most int
		want []netip.Addr
	}{
		{p, 9, []netip.Addr{hostA, hostC, hostB}}, {p, 1, []netip.Addr{hostA}}, {p, 2, []netip.Addr{hostA, hostC}},
		{planOf(both), 9, []netip.Addr{hostC, hostB}}, {Plan{}, 9, nil},
	} {
		if got := members(c.plan, c.most); !slices.Equal(got, c.want) {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
	if got := Targets(f.Members()); !slices.Equal(got, []netip.Addr{hostA, hostB, hostC}) {
		t.Errorf("targets %v", got)
	}
}

func TestTheGroupsIPIsOnEveryInterfaceThatReachesAMember(t *testing.T) {
	f := three()
	p := planOf(f)
	want := map[address.IfAddr]bool{{IfIndex: 1, IP: group}: true, {IfIndex: 2, IP: group}: true}
	if got := p.IfAddrs(f); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	failed := Failed(f)
	if got := failed.IfAddrs(f); len(got) != 0 {
		t.Errorf("of a group that failed: %v", got)
	}
	if l := failed.Source; l.Resolved() || l.Reason != "the group failed" || l.Unfit {
		t.Errorf("of a group that failed: %+v", l)
	}
	f.Addressing = mft.BySwitchIP
	if got := p.IfAddrs(f); len(got) != 0 {
		t.Errorf("of a group that has no IP of its own: %v", got)
	}
}

// A member with a peer of its own is reached from that address, and the group's IP is not needed
// where it is.
func TestALinkHasTheBoxsAddress(t *testing.T) {
	f := three()
	upper, lower := netip.MustParseAddr("10.9.0.2"), netip.MustParseAddr("10.9.1.2")
	f.Source.RemoteIP, f.Source.RemoteQPN = upper, 501
	f.Receivers[0].RemoteIP, f.Receivers[0].Behind = lower, 3
	p := planOf(f)
	g, _ := p.Group(f, nil, &chronicle.Chronicle{}, false, nil)
	if s := g.Source; s.Src != upper || s.Dst != hostA || s.RemoteQPN != 501 || s.DestQPN != 17 {
		t.Errorf("source %+v", s)
	}
	if c := g.Paths[0]; c.Src != lower || c.Receivers != 3 || c.RemoteQPN != 5 {
		t.Errorf("receiver behind a box %+v", c)
	}
	if b := g.Paths[1]; b.Src != group || b.Receivers != 0 {
		t.Errorf("receiver on a host %+v", b)
	}
	want := map[address.IfAddr]bool{{IfIndex: 1, IP: group}: true} // of host B alone
	if got := p.IfAddrs(f); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	f.Receivers[1].RemoteIP = lower
	p = planOf(f)
	if got := p.IfAddrs(f); len(got) != 0 {
		t.Errorf("no member has the group's IP as its peer, and it is at %v", got)
	}
}

// Of the next hops of a route, only those are uplinks that are open ports, and only for the member
// that the route leads to.
func TestUplinksAreTheOpenPortsOfAllNextHops(t *testing.T) {
	shut := dataplane.PortInfo{ID: 9, Name: "eth3", IfIndex: 5, State: dataplane.PortGone}
	for _, spread := range []netip.Addr{hostA, hostB} {
		p := Make(three(), ports.New([]dataplane.PortInfo{eth1, eth2, shut}), func(addr netip.Addr) nexthop.Hop {
			hop := ways(addr)
			if addr == spread {
				hop.Uplinks = nexthop.InterfacesOf(4, 3, 5, 77)
			}
			return hop
		})
		g, err := p.Group(three(), nil, &chronicle.Chronicle{}, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		if want := mft.Ports(0).With(7).With(8); g.Uplinks != want {
			t.Errorf("uplinks %b, want %b", g.Uplinks, want)
		}
		for _, l := range g.Legs() {
			if l.Multipath != (l.Dst == spread) {
				t.Errorf("%v has several next hops: %v", l.Dst, l.Multipath)
			}
		}
		if none := planOf(three()); p.SameLegs(&none) {
			t.Error("plans with other uplinks are the same")
		}
	}
}

func TestPlansWithTheSameLegs(t *testing.T) {
	p, same, source, receiver := planOf(three()), planOf(three()), planOf(three()), planOf(three())
	uplinks := planOf(three())
	uplinks.Receivers[1].Uplinks = 1
	if p.SameLegs(&uplinks) {
		t.Error("a new port among the next hops is no change")
	}
	same.Source.Reason = "a reason is no way"
	source.Source.L2[0]++
	receiver.Receivers[1].L2[0]++
	if !p.SameLegs(&same) || p.SameLegs(&source) || p.SameLegs(&receiver) {
		t.Error("legs are taken for others")
	}
}
