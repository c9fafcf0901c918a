package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

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
	only  netip.Addr          // the address that cannot be joined; not valid: none can
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
		if r.fails != nil && (!r.only.IsValid() || r.only == to) {
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

// secondGroup is the file of another group with the same source host.
func secondGroup(receivers ...string) string {
	return strings.NewReplacer("name: g1", "name: g2", "10.1.0.100", "10.1.0.101", "qpn: 17", "qpn: 18").Replace(groupFile(receivers...))
}

// copies is what b1 shows of the copies of a group for a box.
func (r *racks) copies(group string, n int) string {
	r.t.Helper()
	g, err := r.box("b1").Group(group)
	testlab.Must(r.t, err)
	for _, m := range g.Members {
		if m.IP == linkIP(n).String() {
			return m.Copies
		}
	}
	return "no member"
}

// A mapping that fails concerns nobody but its group: the box shares the copies of its other groups
// as before, also those that begin afterwards. The box above says who has copies of its own, and
// why.
func TestAMappingThatFailsIsLeftOutAlone(t *testing.T) {
	r := newRackFabric(t)
	_, err := r.box("b1").Create(t.Context(), []byte(groupFile("10.2.0.1", "10.3.0.1", "10.4.0.1")))
	testlab.Must(t, err)
	r.load("b2", "b3", "b4")
	share := r.members("at first", "b2", "b3", "b4")
	_, err = r.box("b1").Create(t.Context(), []byte(secondGroup("10.2.0.2", "10.4.0.2")))
	testlab.Must(t, err)
	for range 2 {
		for _, name := range []string{"b2", "b4"} {
			answer, err := caller{r.box(name)}.AskEdge(t.Context(), "b1", api.EdgeQuestion{Protocol: api.EdgeProtocol})
			testlab.Must(t, err)
			for _, m := range answer.Mappings {
				if m.Group == "g2" {
					r.only = m.To
				}
			}
		}
	}
	if !r.only.IsValid() || r.only == share.Dst {
		t.Fatalf("copies of g2 go to %v, those of g1 to %v", r.only, share.Dst)
	}
	r.load("b2", "b3", "b4")
	r.members("with two groups", "b2", "b3", "b4")
	r.edge("b4") // b4 is started anew, and one address cannot be joined any more
	r.fails = errors.New("no buffer\x1b space")
	r.box("b1").happened()
	round := func(want error) {
		t.Helper()
		for range 2 {
			if err := r.asks["b4"].Round(t.Context()); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
			testlab.Must(t, r.asks["b2"].Round(t.Context()))
		}
	}
	round(r.fails)
	r.members("when g2 fails at b4", "b2", "b3", "b4")
	const why = "box b4 cannot map its copies: no buffer  space"
	if a, b := r.copies("g1", 4), r.copies("g2", 4); a != "shared" || b != "own: "+why {
		t.Errorf("copies of g1: %q, of g2: %q", a, b)
	}
	if m := r.box("b4").published("g2").Mappings; len(m) != 0 {
		t.Errorf("b4 maps %v, which the box above has not confirmed", m)
	}
	r.box("b1").watch.Look("g1", time.Now())
	r.box("b1").watch.Look("g2", time.Now())
	r.box("b1").watch.Look("g2", time.Now())
	r.box("b1").expectEvents(t, "edge-fails g2 10.9.0.4: "+why)
	if notes := r.box("b1").statusAt(time.Now()).Notes; !slices.Equal(notes, []string{"group g2: " + why}) {
		t.Errorf("the status has the notes %q", notes)
	}
	for _, copies := range []string{"own", "auto"} {
		_, err = r.box("b1").Update(t.Context(), "g1", []byte(groupFile("10.2.0.1", "10.3.0.1", "10.4.0.1")+"copies: "+copies+"\n"))
		testlab.Must(t, err)
	}
	round(r.fails)
	r.load("b3")
	if next := r.members("in the next generation of g1", "b2", "b3", "b4"); next.DestQPN == share.DestQPN {
		t.Error("it is the same generation")
	}
	r.fails = nil
	round(nil)
	if got := r.copies("g2", 4); got != "shared" {
		t.Errorf("when it can be joined: %s", got)
	}
	r.box("b1").watch.Look("g2", time.Now())
	if notes := r.box("b1").statusAt(time.Now()).Notes; len(notes) != 0 {
		t.Errorf("the status has the notes %q", notes)
	}
}

// What the data path refuses is tried again, and the group can change in between: it is published
// without the mapping then.
func TestAMappingThatCannotBePublishedIsLeftOut(t *testing.T) {
	r := newRackFabric(t)
	_, err := r.box("b1").Create(t.Context(), []byte(groupFile("10.2.0.1", "10.3.0.1")))
	testlab.Must(t, err)
	r.load("b2", "b3")
	share := r.members("at first", "b2", "b3")
	to := r.box("b2").published("g1").Source
	good := api.EdgeMapping{
		Group: "g1", From: to.Dst, To: share.Dst, LegQPN: uint32(share.DestQPN), Host: to.Src, QPN: uint32(to.RemoteQPN),
	}
	more := good
	more.LegQPN++
	full := errors.New("the classifier is full")
	for range 2 {
		r.box("b2").sw.Refuse(full)
		failed := groups.MapFrom(r.box("b2").groups, "b1", []api.EdgeMapping{good, more})
		if len(failed) != 1 || !errors.Is(failed[more.LegQPN], full) {
			t.Errorf("%v", failed)
		}
		r.maps("when one is refused", "b2", &share)
		_, err = r.box("b2").Group("g1")
		testlab.Must(t, err)
		r.box("b2").watch.Look("g1", time.Now())
		r.maps("after a look at the group", "b2", &share)
	}
	if failed := groups.MapFrom(r.box("b2").groups, "b1", []api.EdgeMapping{good, more}); len(failed) != 0 {
		t.Errorf("%v", failed)
	}
	if m := r.box("b2").published("g1").Mappings; len(m) != 2 {
		t.Errorf("b2 maps %v", m)
	}
	for _, list := range [][]api.EdgeMapping{nil, {good, more}} {
		if failed := groups.MapFrom(r.box("b2").groups, "b1", list); len(failed) != 0 || len(r.box("b2").published("g1").Mappings) != len(list) {
			t.Errorf("of %d mappings b2 has %v, %v", len(list), r.box("b2").published("g1").Mappings, failed)
		}
	}
}

// A group that cannot change keeps no other group from what is shared with it.
func TestAGroupThatCannotChangeFailsNoOther(t *testing.T) {
	r := newRackFabric(t)
	_, err := r.box("b1").Create(t.Context(), []byte(groupFile("10.2.0.1", "10.3.0.1")))
	testlab.Must(t, err)
	r.load("b2", "b3")
	_, err = r.box("b1").Create(t.Context(), []byte(secondGroup("10.2.0.2", "10.3.0.2")))
	testlab.Must(t, err)
	share := r.members("at first", "b2", "b3")
	to := r.box("b2").published("g2").Source
	other := api.EdgeMapping{Group: "g2", From: to.Dst, To: share.Dst, LegQPN: uint32(share.DestQPN) + 1, Host: to.Src, QPN: uint32(to.RemoteQPN)}
	r.box("b2").sw.Stick("g1") // whose mapping is to go
	if failed := groups.MapFrom(r.box("b2").groups, "b1", []api.EdgeMapping{other}); len(failed) != 0 {
		t.Errorf("%v", failed)
	}
	if m := r.box("b2").published("g2").Mappings; len(m) != 1 {
		t.Errorf("g2 has the mappings %v", m)
	}
}

// older is a box above of an older release: it knows of no part of an answer.
type older struct{ above.Asker }

func (o older) AskEdge(ctx context.Context, box string, q api.EdgeQuestion) (api.EdgeAnswer, error) {
	q.Part = nil
	return o.Asker.AskEdge(ctx, box, q)
}

// A box above of an older release does not hear of an answer as loaded that is not.
func TestAMappingThatFailsBelowAnOlderBox(t *testing.T) {
	r := newRackFabric(t)
	_, err := r.box("b1").Create(t.Context(), []byte(groupFile("10.2.0.1", "10.3.0.1", "10.4.0.1")))
	testlab.Must(t, err)
	r.load("b2", "b3", "b4")
	r.members("at first", "b2", "b3", "b4")
	r.edge("b4")
	r.asks["b4"].Boxes = older{r.asks["b4"].Boxes}
	r.fails = errors.New("no buffer space")
	for range 3 {
		if err := r.asks["b4"].Round(t.Context()); !errors.Is(err, r.fails) {
			t.Errorf("%v", err)
		}
	}
	r.members("when b4 cannot join", "b2", "b3")
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

// What no leg of a box above can be is refused before it is kept: with such a mapping no version of
// the group could be published any more, for whatever reason it changes. The others of the answer
// are had.
func TestAMappingOfNoSharedLegIsRefused(t *testing.T) {
	r := newRackFabric(t)
	_, err := r.box("b1").Create(t.Context(), []byte(groupFile("10.2.0.1", "10.3.0.1")))
	testlab.Must(t, err)
	r.load("b2", "b3")
	share := r.members("at first", "b2", "b3")
	to := r.box("b2").published("g1").Source
	good := api.EdgeMapping{
		Group: "g1", From: to.Dst, To: share.Dst, LegQPN: uint32(share.DestQPN), Host: to.Src, QPN: uint32(to.RemoteQPN),
	}
	for want, edit := range map[string]func(*api.EdgeMapping){
		"no shared leg is to 10.9.0.9 with QPN 4500":                func(m *api.EdgeMapping) { m.To = linkIP(9) },
		"no shared leg is to ff15::1 with QPN 4500":                 func(m *api.EdgeMapping) { m.To = netip.MustParseAddr("ff15::1") },
		"no shared leg is to " + share.Dst.String() + " with QPN 0": func(m *api.EdgeMapping) { m.LegQPN = 0 },
		"no shared leg is to " + share.Dst.String() + " with QPN 16777216": func(m *api.EdgeMapping) {
			m.LegQPN = 1 << 24
		},
		"the mapping moves memory, which no link does": func(m *api.EdgeMapping) {
			m.Regions = []api.EdgeRegion{{RKey: 7, ToRKey: 7}, {RKey: 7, ToRKey: 7, AddVA: 4096}}
		},
		fmt.Sprintf("another mapping has QPN %d too", share.DestQPN): func(m *api.EdgeMapping) { m.LegQPN, m.AddPSN = good.LegQPN, 8 },
	} {
		bad := good
		bad.LegQPN = 4500
		edit(&bad)
		list := []api.EdgeMapping{bad, good}
		if bad.LegQPN == good.LegQPN {
			list = []api.EdgeMapping{good, bad}
		}
		failed := groups.MapFrom(r.box("b2").groups, "b1", list)
		if err := failed[bad.LegQPN]; len(failed) != 1 || err == nil || err.Error() != want {
			t.Errorf("%v, want %s", failed, want)
		}
		r.maps("when it is refused", "b2", &share)
	}
	_, err = r.box("b1").Update(t.Context(), "g1", []byte(groupFile("10.2.0.1", "10.2.0.2", "10.3.0.1")))
	testlab.Must(t, err)
	if n := len(r.box("b2").published("g1").Paths); n != 2 {
		t.Errorf("the next version has %d receivers", n)
	}
}
