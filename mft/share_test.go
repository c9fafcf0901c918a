package mft

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/rocast/rocast/roce"
)

var toAll = netip.MustParseAddr("239.77.0.1")

// sharingGroup has five receivers. Those at ports 0 and 1 share a leg each: 996, 997, 999, 1000 are
// at ports 1, 0, 1, 0; 998 is at port 2.
func sharingGroup() *Group {
	g := testGroup(addr(100), 7, 5)
	for i := range g.Paths {
		p := &g.Paths[i]
		copy(p.L2[:], header())
		p.L2Bytes = 14
	}
	member := func(host int) QP { return QP{addr(host), 7} }
	g.Shares = []Share{
		g.Paths[0].Shared(toAll, 901, []QP{member(1000), member(997)}),
		g.Paths[1].Shared(toAll, 902, []QP{member(999), member(996)}),
	}
	return g
}

// One copy leaves by each share, one for each receiver that has none, and none for the source.
func TestCopiesOfAGroup(t *testing.T) {
	g := sharingGroup()
	if n := g.Copies(); n != 7 {
		t.Errorf("%d copies before the shares are known, want 7", n)
	}
	if _, err := new(Table).With(g); err != nil {
		t.Fatal(err)
	}
	if n := g.Copies(); n != 3 {
		t.Errorf("%d copies, want 3", n)
	}
	alone := &g.Paths[g.FindMember(addr(998))]
	if alone.Sends = true; g.Copies() != 3 {
		t.Errorf("%d copies where a receiver may be the source, want 3", g.Copies())
	}
	if g.Source.Dst = alone.Dst; g.Copies() != 2 {
		t.Errorf("%d copies where a receiver is the source, want 2", g.Copies())
	}
}

// The data path finds the share of each path, and makes a share's copy by an edit of its own: to
// the multicast address and MAC, with the generation as dest QPN, and with the memory as the source
// has it.
func TestSharesAreReadyForTheDataPath(t *testing.T) {
	g := sharingGroup()
	g.Shares[0].Others = []QP{{addr(998), 7}}
	g.Memory = MustMemory(VirtualRegion{VA: 0x1000, Length: 0x1000, RKey: 5})
	for i := range g.Paths {
		g.Paths[i].Regions = g.Memory.At(func(VirtualRegion) Region { return Region{VA: uint64(i) << 20, RKey: 77} })
	}
	if _, err := new(Table).With(g); err != nil {
		t.Fatal(err)
	}
	for host, want := range map[int]int{996: 1, 997: 0, 998: -1, 999: 1, 1000: 0} {
		path := g.FindMember(addr(host))
		if got := g.ShareOf(path); got != want {
			t.Errorf("host %d has share %d, want %d", host, got, want)
		}
		if host == 998 {
			want = 0 // it has not confirmed
		}
		if got := g.MappedBy(path); got != want {
			t.Errorf("the edge of host %d may map share %d, want %d", host, got, want)
		}
	}
	edits := g.Edits(-1)
	for k, port := range []PortID{0, 1} {
		p := g.SharePath(k)
		if p.Port != port || p.Rank != 2 || p.Src != addr(100) || p.Dst != toAll {
			t.Errorf("share %d: %+v", k, p)
		}
		if r := p.Regions.Region(g.Memory, 0); r != (Region{VA: 0x1000, Length: 0x1000, RKey: 5}) {
			t.Errorf("share %d maps the memory to %+v", k, r)
		}
		want := roce.NewEdit(g.Flow(-1), roce.Flow{Src: addr(100), Dst: toAll, DestQPN: roce.QPN(901 + k)}, p.L2[:14])
		if edits.Shares[k] != want {
			t.Errorf("share %d: edit %+v, want %+v", k, edits.Shares[k], want)
		}
		if got := [6]byte(p.L2[:]); got != [6]byte{0x01, 0x00, 0x5e, 77, 0, 1} {
			t.Errorf("share %d: copies go to %x", k, got)
		}
	}
	if g = testGroup(addr(100), 7, 2); g.ShareOf(0) != -1 || g.MappedBy(0) != -1 {
		t.Error("a path of a group without shares has one")
	}
}

// 32 IPv4 addresses have one MAC address, and so do those of IPv6 that end alike.
func TestMulticastMACs(t *testing.T) {
	for ip, want := range map[string][6]byte{
		"239.205.0.1":       {0x01, 0x00, 0x5e, 77, 0, 1},
		"239.77.2.3":        {0x01, 0x00, 0x5e, 77, 2, 3},
		"ff15::4d00:a1b2:3": {0x33, 0x33, 0xa1, 0xb2, 0, 3},
	} {
		if got := multicastMAC(netip.MustParseAddr(ip)); got != want {
			t.Errorf("%s: %x, want %x", ip, got, want)
		}
	}
}

// What the data path relies on is checked when the group enters the table.
func TestSharesThatCannotWork(t *testing.T) {
	for _, tt := range []struct {
		edit func(*Group)
		want string
	}{
		{func(g *Group) { g.Shares[0].Members = g.Shares[0].Members[:1] }, "has 1 members"},
		{func(g *Group) { g.Shares[0].Dst = addr(5) }, "not passed on by the box"},
		{func(g *Group) { g.Shares[0].Dst = netip.MustParseAddr("ff15::1") }, "of its own family"},
		{func(g *Group) { g.Shares[0].Port = NoPort }, "no port"},
		{func(g *Group) { g.Shares[0].DestQPN = 0 }, "no QPN"},
		{func(g *Group) { g.Shares[1].DestQPN = 901 }, "two shares"},
		{func(g *Group) { g.Shares[0].Members[0].RemoteQPN++ }, "does not have"},
		{func(g *Group) { g.Shares[1].Members[0] = g.Shares[0].Members[0] }, "in two shares"},
		{func(g *Group) { g.Shares[1].Others = []QP{g.Shares[0].Members[0]} }, "in two shares"},
		{func(g *Group) { g.Shares[1].Others = []QP{{addr(1), 1}} }, "does not have"},
		{func(g *Group) { g.Paths[0].Box, g.Paths[0].Sends = BoxBelow, true }, "it is a box that may send"},
		{func(g *Group) { g.Paths[0].Multipath = true }, "several next hops"},
		{func(g *Group) { g.Paths[0].Port = 3 }, "another port or VLAN"},
		{func(g *Group) { copy(g.Paths[0].L2[:], header(0x8100_0005)); g.Paths[0].L2Bytes = 18 }, "another port or VLAN"},
		{func(g *Group) { g.Paths[0].Src = addr(99) }, "its peer is"},
		{func(g *Group) {
			var ranges []VirtualRegion
			for i := range uint64(5) {
				ranges = append(ranges, VirtualRegion{VA: i << 20, Length: 1, RKey: 1})
			}
			g.Memory = MustMemory(ranges...)
			for i := range g.Paths {
				g.Paths[i].Regions = g.Memory.At(func(VirtualRegion) Region { return Region{} })
			}
		}, "no more than 4 memory regions"},
		{func(g *Group) { g.Shares = make([]Share, MaxShares+1) }, "65 shares"},
	} {
		g := sharingGroup()
		tt.edit(g)
		if _, err := new(Table).With(g); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want an error with %q", err, tt.want)
		}
	}
}
