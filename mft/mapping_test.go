package mft

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/rocast/rocast/roce"
)

// mappingGroup is a group of a box whose box above shares its copies at two generations.
func mappingGroup() *Group {
	g := testGroup(addr(100), 7, 2)
	g.Source.Dst, g.Source.Src, g.Source.RemoteQPN = addr(51), addr(52), 501
	g.Mappings = []Mapping{{To: toAll, QPN: 901}, {To: toAll, QPN: 902, AddPSN: 3}}
	return g
}

// Shared copies are found by the addresses of both boxes and the QPN: another box may use the same
// address and QPN, also for a group that this box has too.
func TestSharedCopiesAreFound(t *testing.T) {
	g := mappingGroup()
	table, err := new(Table).With(g)
	if err != nil {
		t.Fatal(err)
	}
	other := mappingGroup()
	other.IP, other.Source.Dst, other.Source.Src = addr(101), addr(61), addr(62)
	other.QPN = 8
	for i := range other.Paths {
		other.Paths[i].Src = addr(101)
	}
	if table, err = table.With(other); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		from netip.Addr
		qpn  uint32
		want *Group
	}{{addr(51), 901, g}, {addr(51), 902, g}, {addr(61), 902, other}, {addr(51), 903, nil}, {addr(99), 901, nil}} {
		id, found := table.Find(Key{Src: tt.from, Dst: toAll, QPN: 0, Match: MatchDst})
		if found {
			t.Errorf("the multicast address is taken for the box's own: group %d", id)
		}
		if id, found = table.Lookup(tt.from, toAll, 0); found {
			t.Errorf("QPN 0 is of group %d", id)
		}
		switch id, found = table.Lookup(tt.from, toAll, roce.QPN(tt.qpn)); {
		case found != (tt.want != nil):
			t.Errorf("from %v with QPN %d: found %t", tt.from, tt.qpn, found)
		case found && id != tt.want.ID:
			t.Errorf("from %v with QPN %d: group %d, want %d", tt.from, tt.qpn, id, tt.want.ID)
		}
	}
	if table = table.Without(g.ID); slices.ContainsFunc(g.Keys(), func(k Key) bool { _, has := table.Find(k); return has && k.Src == addr(51) }) {
		t.Error("the keys of a group that is gone are there")
	}
}

func TestMappingsThatCannotWork(t *testing.T) {
	for _, tt := range []struct {
		edit func(*Group)
		want string
	}{
		{func(g *Group) { g.Mappings[0].To = addr(5) }, "a multicast address of the group's family"},
		{func(g *Group) { g.Mappings[0].To = netip.MustParseAddr("ff15::1") }, "a multicast address of the group's family"},
		{func(g *Group) { g.Mappings[0].QPN = 0 }, "a mapping has a QPN"},
		{func(g *Group) {
			g.Relay = &Relay{Shared: 5}
			for i := range g.Paths {
				g.Relay.Ends = append(g.Relay.Ends, RelayEnd{QP: g.Paths[i].QP(), QPN: roce.QPN(uint32(600 + i))})
			}
		}, "this box passes frames on"},
	} {
		g := mappingGroup()
		tt.edit(g)
		if _, err := new(Table).With(g); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want an error with %q", err, tt.want)
		}
	}
	if err := new(Block).Begin(mappingGroup(), -1, 0, 0, 0); err != ErrBlockMappings {
		t.Errorf("the kernel engine takes it: %v", err)
	}
}
