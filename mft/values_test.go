package mft

import (
	"fmt"
	"testing"
)

// Generations wrap around without ever giving an ID that means no group.
func TestGenerationsGoRound(t *testing.T) {
	for _, tt := range []struct{ id, next GroupID }{
		{3, 3 + MaxGroups}, {0xFFD<<20 | 3, 0xFFE<<20 | 3}, {0xFFE<<20 | 3, 3}, {0xFFE<<20 | (MaxGroups - 1), MaxGroups - 1},
	} {
		if got := tt.id.next(); got != tt.next || got.Slot() != tt.id.Slot() {
			t.Errorf("behind ID %#x comes %#x, want %#x", tt.id, got, tt.next)
		}
	}
}

func TestAddressingNames(t *testing.T) {
	for _, a := range []Addressing{ByGroupIP, ByVirtualQPN, BySwitchIP} {
		if got, err := ParseAddressing(a.String()); err != nil || got != a {
			t.Errorf("%v is read as %v, %v", a, got, err)
		}
	}
	const want = `addressing "ip" is not one of ["group-ip" "virtual-qpn" "switch-ip"]`
	if _, err := ParseAddressing("ip"); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestEngineNames(t *testing.T) {
	for _, e := range []Engine{EngineAuto, EngineAFXDP} {
		if got, err := ParseEngine(e.String()); err != nil || got != e {
			t.Errorf("%v is read as %v, %v", e, got, err)
		}
	}
	if got, err := ParseEngine("xdp"); err == nil {
		t.Errorf("xdp is read as %v", got)
	}
}

// A member is found by its IP, for any QPN of its feedback.
func TestMembersAreFoundByAddress(t *testing.T) {
	g := testGroup(addr(100), 0, 3)
	g.Paths[1].Sends = true
	if _, err := new(Table).With(g); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ host, member, sender int }{{998, 0, -1}, {999, 1, 1}, {1000, 2, -1}, {997, -1, -1}, {1001, -1, -1}} {
		if got := g.FindMember(addr(c.host)); got != c.member {
			t.Errorf("the member at host %d is path %d, want %d", c.host, got, c.member)
		}
		if got := g.FindSender(addr(c.host)); got != c.sender {
			t.Errorf("the sender at host %d is path %d, want %d", c.host, got, c.sender)
		}
	}
}

func TestKeysAsSentencesNameThem(t *testing.T) {
	for want, k := range map[string]Key{
		"10.0.0.2 with QPN 7":             {Dst: addr(2), QPN: 7, Match: MatchDstQPN},
		"QPN 7 from 10.0.0.1 to 10.0.0.2": {Src: addr(1), Dst: addr(2), QPN: 7, Match: MatchPairQPN},
	} {
		if got := fmt.Sprint(k); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// The tags of a leg are those of its Ethernet header, without tags that carry only a priority.
func TestVLANsOfALeg(t *testing.T) {
	for _, tt := range []struct {
		name string
		l2   []byte
		want VLANs
	}{
		{"no header", nil, VLANs{}},
		{"untagged", header(), VLANs{}},
		{"a tag", header(0x8100_2007), VLANs{0x8100_0007}},
		{"the largest ID", header(0x8100_FFFF), VLANs{0x8100_0FFF}},
		{"two", header(0x88A8_0009, 0x8100_0007), VLANs{0x88A8_0009, 0x8100_0007}},
		{"a priority alone", header(0x8100_E000), VLANs{}},
		{"a priority alone, then a tag", header(0x8100_E000, 0x8100_0007), VLANs{0x8100_0007}},
	} {
		l := Leg{L2Bytes: uint8(len(tt.l2))}
		copy(l.L2[:], tt.l2)
		if got := l.VLANs(); got != tt.want {
			t.Errorf("%s: %#x, want %#x", tt.name, got, tt.want)
		}
	}
	three := header(0x88A8_0009, 0x8100_0007, 0x8100_0005)
	if got, want := VLANsOf(three), (VLANs{0x88A8_0009, 0x8100_0007}); got != want {
		t.Errorf("of three tags: %#x, want %#x", got, want)
	}
}

// header is an Ethernet header with these tags.
func header(tags ...uint32) []byte {
	b := make([]byte, 12)
	for _, tag := range tags {
		b = append(b, byte(tag>>24), byte(tag>>16), byte(tag>>8), byte(tag))
	}
	return append(b, 0x08, 0x00)
}

// The distance of a path's PSNs from the source's is that of their first PSNs, also across the
// wrap.
func TestDeltaPSN(t *testing.T) {
	g := &Group{Source: Source{FirstPSN: 0xFFFFFE}, Paths: []Path{{FirstPSN: 3}, {FirstPSN: 0xFFFFF0}}}
	if a, b := g.DeltaPSN(0), g.DeltaPSN(1); a != 5 || b != -14 {
		t.Errorf("%d, %d", a, b)
	}
}

// The source is found among the paths if it may send again. A mere receiver on the same host is
// another member.
func TestTheSourcesOwnPath(t *testing.T) {
	for _, tt := range []struct {
		name  string
		edit  func(*Group)
		wants int
	}{
		{"it only sends", func(*Group) {}, -1},
		{"it may send again", func(g *Group) { g.Paths[1].Dst, g.Paths[1].Sends = g.Source.Dst, true }, 0}, // the lowest address
		{"a receiver on its host", func(g *Group) { g.Paths[1].Dst = g.Source.Dst }, -1},
		{"another member that may send", func(g *Group) { g.Paths[1].Sends = true }, -1},
	} {
		g := testGroup(addr(100), 1, 3)
		tt.edit(g)
		if _, err := new(Table).With(g); err != nil {
			t.Fatal(err)
		}
		if g.Source.Path != tt.wants {
			t.Errorf("%s: path %d, want %d", tt.name, g.Source.Path, tt.wants)
		}
	}
}
