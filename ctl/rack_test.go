package ctl

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/above"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/neighbour"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/mft"
)

// racks is a fabric in which b1 reaches the hosts of b2, b3 and b4 through them, by one port.
type racks struct {
	*fabric
	t     *testing.T
	asks  map[string]*above.Above
	joins map[string][]string // by box: the addresses that it has joined
	fails error               // of the next join
}

func newRackFabric(t *testing.T) *racks {
	t.Helper()
	r := &racks{fabric: newFabric(t, 4, "b1 b2", "b1 b3", "b1 b4"), t: t, asks: map[string]*above.Above{}, joins: map[string][]string{}}
	root := r.box("b1")
	root.edges = sharedAddresses
	root.restart(true, true)
	for n, name := range map[int]string{2: "b2", 3: "b3", 4: "b4"} {
		root.route(n, name)
		r.edge(name)
	}
	return r
}

// edge makes a box an edge of b1, which has loaded nothing yet.
func (r *racks) edge(name string) {
	b := r.box(name)
	o := b.edge()
	o.Boxes = caller{b}
	o.Join = func(ifindex int, to netip.Addr) (io.Closer, error) {
		if r.fails != nil {
			return nil, r.fails
		}
		at := fmt.Sprint(to, " at ", ifindex)
		r.joins[name] = append(r.joins[name], at)
		return closer(func() { r.joins[name] = slices.DeleteFunc(r.joins[name], func(j string) bool { return j == at }) }), nil
	}
	r.asks[name] = above.New(o, neighbour.Config{Name: "b1", Address: linkIP(1), Edge: true})
}

type closer func()

func (c closer) Close() error { c(); return nil }

// load lets boxes ask and load, often enough to confirm.
func (r *racks) load(names ...string) {
	r.t.Helper()
	for range 3 {
		for _, name := range names {
			testlab.Must(r.t, r.asks[name].Round(r.t.Context()))
		}
	}
}

// members checks which boxes share at b1, and returns the share.
func (r *racks) members(when string, want ...string) (share mft.Share) {
	r.t.Helper()
	var got []string
	for _, s := range r.box("b1").published("g1").Shares {
		share = s
		for _, m := range s.Members {
			got = append(got, r.who(m.IP))
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		r.t.Errorf("%s: %v share, want %v", when, got, want)
	}
	return share
}

// maps checks that a box maps what b1 shares, or nothing.
func (r *racks) maps(when, name string, share *mft.Share) {
	r.t.Helper()
	var want []mft.Mapping
	var joined []string
	if share != nil {
		want, joined = []mft.Mapping{{To: share.Dst, QPN: share.DestQPN}}, []string{fmt.Sprint(share.Dst, " at 3")}
	}
	if got := r.box(name).published("g1").Mappings; !slices.Equal(got, want) || !slices.Equal(r.joins[name], joined) {
		r.t.Errorf("%s: %s maps %v and has joined %q, want %v and %q", when, name, got, r.joins[name], want, joined)
	}
}

// Boxes below share a copy as soon as two of them have confirmed. One that does not ask, as one of
// an older release, gets copies of its own.
func TestBoxesBelowShareALeg(t *testing.T) {
	r := newRackFabric(t)
	_, err := r.box("b1").Create(t.Context(), []byte(groupFile("10.2.0.1", "10.2.0.2", "10.3.0.1", "10.4.0.1")))
	testlab.Must(t, err)
	r.members("before anybody has asked")
	r.load("b2")
	r.members("with one box")
	r.load("b2", "b3")
	share := r.members("with two boxes", "b2", "b3")
	r.maps("with two boxes", "b2", &share)
	r.maps("with two boxes", "b3", &share)
	r.maps("with two boxes", "b4", nil)
	g, err := r.box("b1").Group("g1")
	testlab.Must(t, err)
	for _, m := range g.Members {
		if m.IP == linkIP(4).String() && m.Copies != "own: its box has not asked for what several boxes share" {
			t.Errorf("%+v", m)
		}
	}
	r.load("b4", "b3", "b2")
	if again := r.members("with three boxes", "b2", "b3", "b4"); again.DestQPN != share.DestQPN {
		t.Error("a box that comes to it ended the generation")
	}
	r.maps("with three boxes", "b4", &share)

	// A box that is restarted gets copies of its own until it has loaded the same mapping again.
	r.box("b3").restart(false, false)
	r.joins["b3"] = nil
	r.edge("b3")
	testlab.Must(t, r.asks["b3"].Round(t.Context()))
	r.members("when b3 has forgotten", "b2", "b4")
	r.load("b3")
	r.maps("when b3 is back", "b3", &share)
	if again := r.members("when b3 is back", "b2", "b3", "b4"); again.DestQPN != share.DestQPN {
		t.Error("a restart below ended the generation")
	}

	// The group tells when it is to share no more, and the boxes forget.
	text := groupFile("10.2.0.1", "10.2.0.2", "10.3.0.1", "10.4.0.1") + "copies: own\n"
	_, err = r.box("b1").Update(t.Context(), "g1", []byte(text))
	testlab.Must(t, err)
	r.load("b2", "b3", "b4")
	r.members("with copies: own")
	for _, name := range []string{"b2", "b3", "b4"} {
		r.maps("with copies: own", name, nil)
	}
}

// A program at the IP of a box, which has no certificate, does not learn what is for the box, and
// does not confirm it in its place.
func TestWhoAsksForABoxHasItsCertificate(t *testing.T) {
	r := newRackFabric(t)
	_, err := r.box("b1").Create(t.Context(), []byte(groupFile("10.2.0.1", "10.3.0.1")))
	testlab.Must(t, err)
	var have uint64
	for range 2 {
		r.load("b3")
		answer, err := r.box("b1").AskEdge(t.Context(), linkIP(2), api.EdgeQuestion{Protocol: api.EdgeProtocol, Have: have})
		if want := "10.9.0.2 is box b2, which asks at api: of this box"; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v, %v, want %s", answer, err, want)
		}
		have = answer.Number
	}
	r.members("when b2 has not asked")
}

// What a box cannot join it does not confirm, and it tries again.
func TestABoxThatCannotJoinDoesNotShare(t *testing.T) {
	r := newRackFabric(t)
	_, err := r.box("b1").Create(t.Context(), []byte(groupFile("10.2.0.1", "10.3.0.1", "10.4.0.1")))
	testlab.Must(t, err)
	r.load("b2", "b3")
	r.members("with two boxes", "b2", "b3")
	r.fails = errors.New("no buffer space")
	for range 3 {
		if err := r.asks["b4"].Round(t.Context()); !errors.Is(err, r.fails) {
			t.Errorf("%v", err)
		}
	}
	r.members("when b4 cannot join", "b2", "b3")
	r.fails = nil
	r.load("b4")
	r.members("when it can", "b2", "b3", "b4")
}

// Where a member behind a box may send, or a box passes frames on, nothing is shared.
func TestTreesThatShareNothing(t *testing.T) {
	for want, edit := range map[string]func(string) string{
		"other boxes carry a part of the group, and a member of it may send": func(s string) string {
			return s + "  - {ip: 10.4.0.2, qpn: 99, psn: 9, sendPSN: 77, role: both, regions: [{va: 0, length: 4096, rkey: 7}]}\n"
		},
		"a box passes a part of the group on": func(s string) string { return s + "ack: quorum 2\n" },
	} {
		r := newRackFabric(t)
		_, err := r.box("b1").Create(t.Context(), []byte(edit(groupFile("10.2.0.1", "10.3.0.1"))))
		testlab.Must(t, err)
		r.load("b2", "b3")
		r.members(want)
		if g, err := r.box("b1").Group("g1"); err != nil || g.CopiesOwn != want {
			t.Errorf("%v, %q, want %q", err, g.CopiesOwn, want)
		}
	}
}

// A mapping that moves memory is none of a link.
func TestAMappingThatMovesMemoryIsRefused(t *testing.T) {
	r := newRackFabric(t)
	err := errors.Join(testMapFrom(r.box("b2"), api.EdgeRegion{RKey: 7, ToRKey: 7}), testMapFrom(r.box("b2"), api.EdgeRegion{RKey: 7, ToRKey: 7, AddVA: 4096}))
	if want := "box b1 gives a mapping of group g1 that moves memory, which no link does"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// What no leg of a box above can be is refused before it is kept: with such a mapping no version of
// the group could be published any more, for whatever reason it changes.
func TestAMappingOfNoSharedLegIsRefused(t *testing.T) {
	r := newRackFabric(t)
	_, err := r.box("b1").Create(t.Context(), []byte(groupFile("10.2.0.1", "10.3.0.1")))
	testlab.Must(t, err)
	r.load("b2", "b3")
	share := r.members("at first", "b2", "b3")
	to := r.box("b2").published("g1").Source
	for _, edit := range []func(*api.EdgeMapping){
		func(m *api.EdgeMapping) { m.To = linkIP(9) },
		func(m *api.EdgeMapping) { m.To = netip.MustParseAddr("ff15::1") },
		func(m *api.EdgeMapping) { m.LegQPN = 0 },
		func(m *api.EdgeMapping) { m.LegQPN = 1 << 24 },
	} {
		m := api.EdgeMapping{
			Group: "g1", From: to.Dst, To: share.Dst, LegQPN: uint32(share.DestQPN), Host: to.Src, QPN: uint32(to.RemoteQPN),
		}
		edit(&m)
		err := groups.MapFrom(r.box("b2").groups, "b1", []api.EdgeMapping{m})
		if err == nil || !strings.Contains(err.Error(), "box b1 gives a mapping of group g1 that is of no shared leg: to ") {
			t.Errorf("%v", err)
		}
		r.maps("when it is refused", "b2", &share)
	}
	_, err = r.box("b1").Update(t.Context(), "g1", []byte(groupFile("10.2.0.1", "10.2.0.2", "10.3.0.1")))
	testlab.Must(t, err)
	if n := len(r.box("b2").published("g1").Paths); n != 2 {
		t.Errorf("the next version has %d receivers", n)
	}
}

func testMapFrom(b *box, region api.EdgeRegion) error {
	return groups.MapFrom(b.groups, "b1", []api.EdgeMapping{{
		Group: "g1", From: linkIP(1), To: netip.MustParseAddr("239.77.0.1"), LegQPN: 7, Regions: []api.EdgeRegion{region},
	}})
}
