package mft

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rocast/rocast/roce"
)

func addr(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

// testGroup has n receivers that answer to the group's QPN.
func testGroup(ip netip.Addr, qpn roce.QPN, n int) *Group {
	g := &Group{Name: "g", IP: ip, QPN: qpn, PathMTU: 1024, Source: Source{Leg: Leg{Dst: addr(1)}}}
	for i := range n {
		g.Paths = append(g.Paths, Path{Leg: Leg{Dst: addr(1000 - i), Port: PortID(i % 3)}, RemoteQPN: qpn})
	}
	return g
}

// Each addressing finds data and feedback by the fields on the wire, and no other frame. "none" is
// a frame to an address of the group that no group takes, "own" a frame that comes from such an
// address, and "" a frame for the kernel.
func TestAddressings(t *testing.T) {
	const qpn, remote, sourceQP, other = 7, 9, 17, 8
	group, source, receiver, second, stranger := addr(100), addr(1), addr(1000), addr(999), addr(55)
	for _, tt := range []struct {
		addressing Addressing
		src, dst   netip.Addr
		qpn        roce.QPN
		found      string
	}{
		{ByGroupIP, source, group, qpn, "group"},
		{ByGroupIP, receiver, group, remote, "group"},
		{ByGroupIP, stranger, group, qpn, "group"}, // the core counts it
		{ByGroupIP, source, group, other, "none"},
		{ByGroupIP, source, stranger, qpn, ""},
		{ByGroupIP, group, source, sourceQP, "own"},
		{ByGroupIP, group, stranger, other, "own"},

		{ByVirtualQPN, source, receiver, qpn, "group"},
		{ByVirtualQPN, source, stranger, qpn, ""}, // another host
		{ByVirtualQPN, source, second, qpn, ""},   // another receiver's address
		{ByVirtualQPN, source, receiver, other, ""},
		{ByVirtualQPN, stranger, receiver, qpn, ""},
		{ByVirtualQPN, receiver, source, remote, "group"},
		{ByVirtualQPN, second, source, remote, "group"},
		{ByVirtualQPN, stranger, source, remote, ""}, // it answers an ordinary QP of the source's host
		{ByVirtualQPN, receiver, source, qpn, ""},
		{ByVirtualQPN, receiver, stranger, remote, ""},
		{ByVirtualQPN, receiver, source, sourceQP, "group"}, // as if from the QP's peer: the core counts it
		{ByVirtualQPN, second, source, sourceQP, ""},

		{BySwitchIP, source, group, qpn, "group"},
		{BySwitchIP, receiver, group, remote, "group"},
		{BySwitchIP, source, group, other, ""},
		{BySwitchIP, group, source, sourceQP, "own"},
	} {
		g := testGroup(group, qpn, 2)
		g.Addressing, g.Source.DestQPN = tt.addressing, sourceQP
		if tt.addressing == ByVirtualQPN {
			g.IP = receiver
		}
		for i := range g.Paths {
			g.Paths[i].RemoteQPN = remote
		}
		table, err := new(Table).With(g)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if id, ok := table.Lookup(tt.src, tt.dst, tt.qpn); ok && id == NoGroup {
			got = "none"
		} else if ok {
			got = "group"
		} else if _, own := table.Find(Key{Src: tt.src, Match: MatchSrc}); own {
			got = "own"
		}
		if got != tt.found {
			t.Errorf("%v: %v -> %v QPN %d finds %q, want %q", tt.addressing, tt.src, tt.dst, tt.qpn, got, tt.found)
		}
	}
}

// virtual is a virtual-qpn group whose receivers answer to its QPN.
func virtual(source, at netip.Addr, qpn roce.QPN, receivers ...netip.Addr) *Group {
	g := &Group{Addressing: ByVirtualQPN, IP: at, QPN: qpn, Source: Source{Leg: Leg{Dst: source, DestQPN: qpn + 100}}}
	for _, r := range receivers {
		g.Paths = append(g.Paths, Path{Leg: Leg{Dst: r}, RemoteQPN: qpn})
	}
	return g
}

// A host may be in several virtual-qpn groups, and each frame finds its own group. A group that
// would take frames of another is refused with one sentence.
func TestVirtualQPNGroupsShareHosts(t *testing.T) {
	a, b, c, d := addr(1), addr(2), addr(3), addr(4)
	table := new(Table)
	groups := []*Group{virtual(a, b, 7, b, c), virtual(d, b, 7, b, c), virtual(a, b, 8, b, c), virtual(b, a, 9, a, c)}
	for _, g := range groups {
		next, err := table.With(g)
		if err != nil {
			t.Fatal(err)
		}
		table = next
	}
	for i, tt := range []struct {
		src, dst netip.Addr
		qpn      roce.QPN
		group    int
	}{
		{a, b, 7, 0}, {d, b, 7, 1}, {a, b, 8, 2}, {b, a, 9, 3},
		{b, a, 7, 0}, {c, a, 7, 0}, {b, d, 7, 1}, {c, d, 7, 1}, {c, a, 8, 2}, {a, b, 9, 3}, {c, b, 9, 3},
	} {
		if id, ok := table.Lookup(tt.src, tt.dst, tt.qpn); !ok || id != groups[tt.group].ID {
			t.Errorf("frame %d finds group %d, %v", i, id, ok)
		}
	}
	_, err := table.With(virtual(a, c, 7, c, d))
	if want := "QPN 7 from 10.0.0.3 to 10.0.0.1 is taken by another group"; !errors.Is(err, ErrTaken) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	for _, g := range groups {
		table = table.Without(g.ID)
	}
	if n := keyCount(table); n != 0 {
		t.Errorf("%d keys outlive their groups", n)
	}
}

func keyCount(t *Table) int {
	n := 0
	for i := range t.keys {
		n += len(t.keys[i])
	}
	return n
}

// The keys for feedback come before the key for data: see Keys.
func TestDataIsTheLastToBeFound(t *testing.T) {
	for _, addressing := range []Addressing{ByGroupIP, ByVirtualQPN, BySwitchIP} {
		g := testGroup(addr(1000), 7, 3)
		g.Addressing = addressing
		for i := range g.Paths {
			g.Paths[i].RemoteQPN = roce.QPN(20 + i)
		}
		g.fillIn()
		keys := g.Keys()
		data := slices.IndexFunc(keys, func(k Key) bool { return k.QPN == g.QPN })
		for i, k := range keys {
			if k.QPN >= 20 && i > data {
				t.Errorf("%v: %v stands behind the data's", addressing, k)
			}
		}
		if addressing != ByVirtualQPN && keys[0] != (Key{Src: g.IP, Match: MatchSrc}) {
			t.Errorf("%v: first is %+v", addressing, keys[0])
		}
	}
}

// Groups are added and removed in any order. Every published table keeps its contents, and no key
// outlives its group.
func TestTableAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := new(Table)
		living := map[GroupID]*Group{}
		seen := map[GroupID]bool{}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				g := testGroup(addr(rapid.IntRange(1, 3).Draw(t, "ip")), roce.QPN(rapid.IntRange(1, 3).Draw(t, "qpn")), 2)
				before := table.Len()
				next, err := table.With(g)
				taken := false
				for _, other := range living {
					taken = taken || other.IP == g.IP && other.QPN == g.QPN
				}
				if taken != errors.Is(err, ErrTaken) || table.Len() != before {
					t.Fatalf("taken %v, error %v, length %d -> %d", taken, err, before, table.Len())
				}
				if err != nil {
					return
				}
				if seen[g.ID] {
					t.Fatalf("ID %#x was given out before", g.ID)
				}
				seen[g.ID] = true
				living[g.ID] = g
				table = next
			},
			"remove": func(t *rapid.T) {
				if len(living) == 0 {
					return
				}
				var ids []GroupID
				for g := range table.All {
					ids = append(ids, g.ID)
				}
				id := rapid.SampledFrom(ids).Draw(t, "id")
				old := table
				table = table.Without(id)
				if old.Group(id) == nil || table.Group(id) != nil {
					t.Fatal("the published table changed, or the new one did not")
				}
				delete(living, id)
			},
			"replace": func(t *rapid.T) {
				for id, g := range living {
					moved := testGroup(g.IP, g.QPN, 3)
					next, err := table.Replace(id, moved)
					if err != nil {
						t.Fatal(err)
					}
					living[id], table = moved, next
					return
				}
			},
			"": func(t *rapid.T) {
				if table.Len() != len(living) {
					t.Fatalf("length %d, want %d", table.Len(), len(living))
				}
				keys := keyCount(table)
				ips := map[netip.Addr]bool{}
				for id, g := range living {
					ips[g.IP] = true
					if table.Group(id) != g {
						t.Fatalf("group %#x is not found by its ID", id)
					}
					if got, _ := table.Lookup(addr(9), g.IP, g.QPN); got != id {
						t.Fatalf("group %#x is not found by its key", id)
					}
				}
				if want := len(living) + 2*len(ips); keys != want {
					t.Fatalf("%d keys for %d groups on %d IPs", keys, len(living), len(ips))
				}
			},
		})
	})
}

func TestBadGroupsAreRefused(t *testing.T) {
	for _, tt := range []struct {
		want string
		edit func(*Group)
	}{
		{"at least one receiver", func(g *Group) { g.Paths = nil }},
		{"more than the 1024", func(g *Group) { g.Paths = make([]Path, MaxPaths+1) }},
		{"cannot be told apart", func(g *Group) { g.Paths[1].Dst = g.Paths[0].Dst }},
		{"cannot be told apart", func(g *Group) { g.Paths[1].Dst = g.Paths[2].Dst }},
		{"data cannot be told apart", func(g *Group) {
			g.Paths = append(g.Paths, Path{Leg: Leg{Dst: addr(1000)}, RemoteQPN: 9, Sends: true})
			g.Paths[0].Sends = true
		}},
		{"only the source may send", func(g *Group) { g.Addressing, g.Paths[1].Sends = ByVirtualQPN, true }},
		{"mixes IPv4 and IPv6", func(g *Group) { g.Paths[1].Dst = netip.MustParseAddr("fd00::1") }},
		{"mixes IPv4 and IPv6", func(g *Group) { g.Paths[1].Src = netip.MustParseAddr("fd00::1") }},
		{"mixes IPv4 and IPv6", func(g *Group) { g.Source.Src = netip.MustParseAddr("fd00::1") }},
		{"mixes IPv4 and IPv6", func(g *Group) { g.Source.Dst = netip.MustParseAddr("fd00::1") }},
		{"one region for each of the 2 ranges", func(g *Group) {
			g.Memory = twoRanges
			for i := range g.Paths {
				g.Paths[i].Regions = MustMemory(twoRanges.Range(0)).At(same)
			}
		}},
		{"one region for each of the 2 ranges", func(g *Group) { g.Memory = twoRanges }},
		{"one region for each of the 0 ranges", func(g *Group) { g.Paths[2].Regions = twoRanges.At(same) }},
	} {
		g := testGroup(addr(1), 1, 3)
		tt.edit(g)
		if _, err := new(Table).With(g); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("error %v, want %q", err, tt.want)
		}
	}
}

// A group may have as many paths as the bound says, all IPv6, and regions for some of its receivers
// only.
func TestGoodGroupsAreTaken(t *testing.T) {
	for name, edit := range map[string]func(*Group){
		"as many paths as there may be": func(g *Group) { g.Paths = testGroup(addr(1), 1, MaxPaths).Paths },
		"a receiver and a sender on one host": func(g *Group) {
			g.Paths[1].Dst, g.Paths[1].RemoteQPN, g.Paths[1].Sends = g.Paths[0].Dst, 9, true
		},
		"virtual-qpn, and the receivers' peer is the source's QP itself": func(g *Group) {
			g.Addressing, g.IP, g.Source.DestQPN = ByVirtualQPN, g.Paths[0].Dst, g.Paths[0].RemoteQPN
		},
		"IPv6": func(g *Group) {
			for i, l := range g.Legs() {
				l.Dst = netip.AddrFrom16([16]byte{0xFD, 15: byte(i)})
				l.Src = l.Dst
			}
		},
		"memory": func(g *Group) {
			g.Memory = twoRanges
			for i := range g.Paths {
				g.Paths[i].Regions = twoRanges.At(same)
			}
		},
	} {
		g := testGroup(addr(1), 1, 3)
		edit(g)
		if _, err := new(Table).With(g); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// One change copies little memory, because the keys spread over the shards, even if they differ in
// only one field.
func TestKeysSpreadOverShards(t *testing.T) {
	const n = 20 * keyShards
	for name, key := range map[string]func(i int) Key{
		"destination":      func(i int) Key { return Key{Dst: addr(i), QPN: 7, Match: MatchDstQPN} },
		"QPN":              func(i int) Key { return Key{Dst: addr(1), QPN: roce.QPN(i), Match: MatchDstQPN} },
		"source of a pair": func(i int) Key { return Key{Src: addr(i), Dst: addr(1), QPN: 7, Match: MatchPairQPN} },
		"own addresses":    func(i int) Key { return Key{Src: addr(i), Match: MatchSrc} },
		"IPv6": func(i int) Key {
			return Key{Dst: netip.AddrFrom16([16]byte{0xFD, 14: byte(i >> 8), 15: byte(i)}), QPN: 7, Match: MatchDstQPN}
		},
	} {
		var load [keyShards]int
		for i := range n {
			e := key(i).entry()
			load[e.shard()]++
		}
		if most := slices.Max(load[:]); most > 5*n/keyShards {
			t.Errorf("by %s, a shard has %d of %d keys", name, most, n)
		}
	}
}

// Paths are found by what their feedback carries. Two QPs on one host are distinguished by their
// remote QPNs.
func TestFindPath(t *testing.T) {
	g := testGroup(addr(100), 1, 40)
	g.Paths = append(g.Paths, Path{Leg: Leg{Dst: addr(1000)}, RemoteQPN: 2})
	if _, err := new(Table).With(g); err != nil {
		t.Fatal(err)
	}
	for i, p := range g.Paths {
		if got := g.FindPath(p.Dst, p.RemoteQPN); got != i {
			t.Errorf("path %d is found as %d", i, got)
		}
	}
	if g.FindPath(addr(1000), 3) != -1 || g.FindMember(addr(1000)) < 0 || g.FindMember(addr(3)) != -1 {
		t.Error("strangers and wrong QPNs are not told apart")
	}
	ranks := map[string]bool{}
	for _, p := range g.Paths {
		key := fmt.Sprint(p.Port, p.Rank)
		if ranks[key] || int(p.Rank) >= len(g.Paths) {
			t.Errorf("two paths at port %d have rank %d", p.Port, p.Rank)
		}
		ranks[key] = true
	}
}

// An ID whose slot is above all slots in use names no group, even if it is the first of the next
// page.
func TestIDsBehindTheTable(t *testing.T) {
	table := new(Table)
	if table.Group(0) != nil {
		t.Error("the empty table has a group")
	}
	for i := range pageGroups {
		next, err := table.With(testGroup(addr(i), 1, 1))
		if err != nil {
			t.Fatal(err)
		}
		table = next
	}
	for _, id := range []GroupID{pageGroups, pageGroups + 1, MaxGroups - 1, NoGroup} {
		if table.Group(id) != nil {
			t.Errorf("ID %#x names a group", id)
		}
	}
	if g := table.Group(pageGroups - 1); g == nil || g.IP != addr(pageGroups-1) {
		t.Errorf("the last group is %+v", g)
	}
}

// A loop over the groups may end early.
func TestALoopOverTheGroupsEnds(t *testing.T) {
	table := new(Table)
	for i := range 3 {
		next, err := table.With(testGroup(addr(i), 1, 1))
		if err != nil {
			t.Fatal(err)
		}
		table = next
	}
	var seen []netip.Addr
	for g := range table.Without(0).All {
		seen = append(seen, g.IP)
		if len(seen) == 1 {
			break
		}
	}
	if len(seen) != 1 || seen[0] != addr(1) {
		t.Errorf("%v", seen)
	}
}

// withGroup returns a table that also has g.
func withGroup(t *testing.T, table *Table, g *Group) *Table {
	t.Helper()
	next, err := table.With(g)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// A slot is used again under another ID, and the old ID names nothing any more.
func TestSlotsAreUsedAgain(t *testing.T) {
	first := testGroup(addr(1), 1, 1)
	table := withGroup(t, new(Table), first)
	removed := table.Without(first.ID)
	next := testGroup(addr(2), 1, 1)
	table = withGroup(t, removed, next)
	if next.ID == first.ID || next.ID.Slot() != first.ID.Slot() {
		t.Errorf("ID %#x follows %#x", next.ID, first.ID)
	}
	if table.Group(first.ID) != nil || table.Group(next.ID) != next {
		t.Error("the old ID names a group")
	}
	if got := table.Without(first.ID); got != table {
		t.Error("removing a group that is not there makes another table")
	}
}

// Tables that were derived from one table do not share what they change.
func TestTablesDoNotShareFreedSlots(t *testing.T) {
	table := new(Table)
	var ids []GroupID
	for i := range 4 {
		g := testGroup(addr(i), 1, 1)
		table = withGroup(t, table, g)
		ids = append(ids, g.ID)
	}
	base := table.Without(ids[0]).Without(ids[1]) // two slots are free
	side := withGroup(t, base, testGroup(addr(10), 1, 1)).Without(ids[2])
	g := testGroup(addr(11), 1, 1)
	withGroup(t, base, g)
	if g.ID.Slot() != ids[1].Slot() {
		t.Errorf("the group got slot %d, want %d, which is free in its table", g.ID.Slot(), ids[1].Slot())
	}
	if side.Len() != 2 {
		t.Errorf("%d groups", side.Len())
	}
}

// A version that is refused leaves the table as it was.
func TestBadVersionsAreRefused(t *testing.T) {
	g, other := testGroup(addr(1), 1, 2), testGroup(addr(1), 2, 2)
	table := withGroup(t, withGroup(t, new(Table), g), other)
	for name, c := range map[string]struct {
		id   GroupID
		next *Group
		want string
	}{
		"of a group that is not there": {g.ID + MaxGroups, testGroup(addr(1), 1, 2), "group 1048576 is gone"},
		"without receivers":            {g.ID, testGroup(addr(1), 1, 0), "a group needs at least one receiver"},
		"with another group's QPN":     {g.ID, testGroup(addr(1), 2, 2), "10.0.0.1 with QPN 2 is taken by another group"},
	} {
		if next, err := table.Replace(c.id, c.next); err == nil || err.Error() != c.want || next != nil {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	if id, ok := table.Lookup(addr(9), addr(1), 1); !ok || id != g.ID || table.Group(id) != g {
		t.Error("the group is not what it was")
	}
}

// A member is found by its host, and a sender among the paths of that host.
func TestFindSenderAndMember(t *testing.T) {
	g := testGroup(addr(100), 1, 3)
	for i, sends := range []bool{false, true, false} {
		g.Paths = append(g.Paths, Path{Leg: Leg{Dst: addr(500)}, RemoteQPN: roce.QPN(5 + i), Sends: sends})
	}
	withGroup(t, new(Table), g)
	if i := g.FindSender(addr(500)); i < 0 || g.Paths[i].RemoteQPN != 6 {
		t.Errorf("the sender is found at %d", i)
	}
	if i := g.FindMember(addr(500)); i < 0 || g.Paths[i].Dst != addr(500) {
		t.Errorf("the member is found at %d", i)
	}
	for _, ip := range []netip.Addr{addr(0), addr(499), addr(501), addr(998), addr(1000), addr(1001)} {
		if i := g.FindSender(ip); i != -1 {
			t.Errorf("%v may send, at %d", ip, i)
		}
	}
	for _, ip := range []netip.Addr{addr(0), addr(499), addr(501), addr(1001)} {
		if i := g.FindMember(ip); i != -1 {
			t.Errorf("%v is a member, at %d", ip, i)
		}
	}
}
