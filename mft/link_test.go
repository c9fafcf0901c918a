package mft

import (
	"slices"
	"testing"

	"github.com/rocast/rocast/roce"
)

// linkGroup has a source and a receiver that are other boxes, and a receiver on a host.
func linkGroup() *Group {
	g := testGroup(addr(100), 1, 1)
	g.Source.Src, g.Source.RemoteQPN = addr(51), 501
	g.Paths = append(g.Paths, Path{Leg: Leg{Dst: addr(3), Src: addr(52), DestQPN: 600, Receivers: 3}, RemoteQPN: 601, Sends: true})
	return g
}

// The frames of a member are found by the address and the QPN that its QP has as peer, and by no
// other pair. Other RoCE to an address of the box is the kernel's.
func TestEachMemberHasItsPeer(t *testing.T) {
	for _, addressing := range []Addressing{ByGroupIP, BySwitchIP} {
		g := linkGroup()
		g.Addressing = addressing
		table, err := new(Table).With(g)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			dst   int
			qpn   roce.QPN
			found string
		}{
			{51, 501, "group"}, {52, 601, "group"}, {100, 1, "group"},
			{51, 601, ""}, {52, 501, ""}, {51, 1, ""}, {52, 1, ""}, {52, 600, ""},
			{100, 501, map[Addressing]string{ByGroupIP: "none"}[addressing]},
		} {
			found := ""
			if id, ok := table.Lookup(addr(1), addr(c.dst), c.qpn); ok && id == NoGroup {
				found = "none"
			} else if ok {
				found = "group"
			}
			if found != c.found {
				t.Errorf("%v: %v with QPN %d finds %q, want %q", addressing, addr(c.dst), c.qpn, found, c.found)
			}
		}
		for _, own := range []int{51, 52, 100} {
			// Below a box whose own address is the group's, RDMA-CM comes from that address.
			isRoots := own == 100 && addressing == BySwitchIP
			if _, ok := table.Find(Key{Src: addr(own), Match: MatchSrc}); ok == isRoots {
				t.Errorf("%v: only the box may send from %v: %v", addressing, addr(own), ok)
			}
		}
		if table = table.Without(g.ID); len(slices.Concat(keysLeft(table)...)) != 0 {
			t.Errorf("%v: keys of a removed group: %v", addressing, keysLeft(table))
		}
	}
}

// The box with the source speaks for its own address, also where the group has receivers behind
// other boxes.
func TestTheRootSpeaksForItsAddress(t *testing.T) {
	g := linkGroup()
	g.Addressing, g.Source.Src, g.Source.RemoteQPN = BySwitchIP, roce.Flow{}.Src, 0
	table, err := new(Table).With(g)
	if err != nil {
		t.Fatal(err)
	}
	for _, own := range []int{52, 100} {
		if _, ok := table.Find(Key{Src: addr(own), Match: MatchSrc}); !ok {
			t.Errorf("any host may send from %v", addr(own))
		}
	}
}

func keysLeft(t *Table) (left [][]entry) {
	for _, shard := range t.keys {
		for e := range shard {
			left = append(left, []entry{e})
		}
	}
	return left
}

// Where every member is a box, the group's IP is nobody's peer: frames with it are the kernel's.
func TestAGroupOfBoxesDoesNotTakeItsIP(t *testing.T) {
	g := linkGroup()
	g.Paths = g.Paths[1:]
	table, err := new(Table).With(g)
	if err != nil {
		t.Fatal(err)
	}
	if id, ok := table.Lookup(addr(1), addr(100), 1); ok {
		t.Errorf("finds group %d", id)
	}
	if _, ok := table.Find(Key{Src: addr(100), Match: MatchSrc}); ok {
		t.Error("no host may send from an address that the box does not have")
	}
}

// Keys for data come last: as soon as data is taken, no answer to it may reach the source unmerged.
func TestTheKeyOfASourceOfItsOwnIsLast(t *testing.T) {
	g := linkGroup()
	g.fillIn()
	keys := g.Keys()
	if want := (Key{Dst: addr(51), QPN: 501, Match: MatchDstQPN}); keys[len(keys)-2] != want || keys[len(keys)-1].Match != MatchDst {
		t.Errorf("%v", keys)
	}
	if want := []Match{MatchSrc, MatchSrc, MatchSrc, MatchDstQPN, MatchDstQPN, MatchDstQPN, MatchDst}; !slices.EqualFunc(keys, want, func(k Key, m Match) bool { return k.Match == m }) {
		t.Errorf("%v", keys)
	}
}

// Packets of each member that sends come to its own peer: the edits and the block start from there.
func TestTheFlowOfEachSource(t *testing.T) {
	g := linkGroup()
	g.Source.L2Bytes, g.Paths[1].L2Bytes = 14, 14
	if _, err := new(Table).With(g); err != nil {
		t.Fatal(err)
	}
	link := g.FindPath(addr(3), 601)
	for source, want := range map[int]roce.Flow{
		-1:   {Src: addr(1), Dst: addr(51), DestQPN: 501},
		link: {Src: addr(3), Dst: addr(52), DestQPN: 601},
	} {
		edits, b := g.Edits(source), new(Block)
		if err := b.Begin(g, source, NoPort, 0xFFFF, 0); err != nil || edits.From != want || b.From != want {
			t.Errorf("source %d: edits %+v, block %+v, %v", source, edits.From, b.From, err)
		}
	}
}

// Only a member with several next hops is heard at ports besides the one to which it is sent.
func TestWhereAMemberIsHeard(t *testing.T) {
	g := &Group{Uplinks: Ports(0).With(2).With(63).With(64)}
	for _, c := range []struct {
		leg  Leg
		at   PortID
		want bool
	}{
		{Leg{Port: 1}, 1, true}, {Leg{Port: 1}, 2, false}, {Leg{Port: 64}, 64, true},
		{Leg{Port: 2, Multipath: true}, 2, true}, {Leg{Port: 2, Multipath: true}, 63, true},
		{Leg{Port: 2, Multipath: true}, 1, false}, {Leg{Port: 2, Multipath: true}, 0, false},
		{Leg{Port: 2, Multipath: true}, 64, false}, {Leg{Port: 2, Multipath: true}, NoPort, false},
	} {
		if got := g.Hears(&c.leg, c.at); got != c.want {
			t.Errorf("%+v is heard at port %d: %v, want %v", c.leg, c.at, got, c.want)
		}
	}
}

// The engine expects packets at the port of the last one, as long as the source is heard there.
func TestTheEngineWaitsWhereTheSourceSends(t *testing.T) {
	g := blockGroup(1, 1)
	g.Source.Port, g.Uplinks = 2, Ports(0).With(2).With(3)
	for _, c := range []struct {
		multipath  bool
		last, want PortID
	}{{true, 3, 3}, {true, 2, 2}, {true, 4, 2}, {true, NoPort, 2}, {false, 3, 2}} {
		g.Source.Multipath = c.multipath
		if b := new(Block); b.Begin(g, -1, c.last, 0xFFFF, 0) != nil || b.Ingress != c.want {
			t.Errorf("%+v: the block expects port %d", c, b.Ingress)
		}
	}
}

// What a group does not say about its members follows from its addressing.
func TestMembersHaveTheGroupsPeerByDefault(t *testing.T) {
	for addressing, receivers := range map[Addressing]int{ByGroupIP: 100, BySwitchIP: 100, ByVirtualQPN: 1} {
		g := testGroup(addr(100), 9, 2)
		g.Addressing = addressing
		if _, err := new(Table).With(g); err != nil {
			t.Fatal(err)
		}
		if s := g.Source; s.Src != addr(100) || s.RemoteQPN != 9 {
			t.Errorf("%v: source %+v", addressing, s)
		}
		for i, p := range g.Paths {
			if p.Src != addr(receivers) || g.Weight(i) != 1 {
				t.Errorf("%v: path %+v", addressing, p)
			}
		}
	}
	if g := linkGroup(); g.Weight(1) != 3 {
		t.Errorf("weight %d", g.Weight(1))
	}
}
