package ctl

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/edges"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/roce"
)

// shareWorld is a world whose config has edges, and whose receivers are all behind eth2.
type shareWorld struct {
	*world
	t      *testing.T
	loaded map[string]uint64 // the number of the answer that the edge of a host has
}

var sharedAddresses = edges.Config{Addresses: []netip.Prefix{netip.MustParsePrefix("239.77.0.0/28")}}

func newShareWorld(t *testing.T) *shareWorld {
	t.Helper()
	return openShareWorld(t, t.TempDir())
}

func openShareWorld(t *testing.T, dir string) *shareWorld {
	t.Helper()
	sw := ctltest.NewStill("eth1", "eth2", "eth3") // nobody acknowledges, and nothing is repaired
	w := &shareWorld{world: openWorldSharing(t, dir, sw, ctltest.NewAddresses(), sharedAddresses), t: t, loaded: map[string]uint64{}}
	w.behindEth2()
	return w
}

func (w *shareWorld) behindEth2() {
	hops := map[string]nexthop.Hop{}
	for _, host := range []byte{2, 3, 4} {
		hops[fmt.Sprint("10.77.0.", host)] = ctltest.Hop(2, "eth2", 1500, host)
	}
	w.hops.Set(hops)
}

// three is the file of a group with three receivers.
const three = g1 + receiver4

// load lets the edges of hosts ask and load, until nothing new comes for any of them.
func (w *shareWorld) load(hosts ...string) {
	w.t.Helper()
	for again := true; again; {
		again = false
		for _, host := range hosts {
			a, err := w.AskEdge(w.t.Context(), addr(host), api.EdgeQuestion{Protocol: api.EdgeProtocol, Have: w.loaded[host], Attach: "tcx", Mapped: 3})
			testlab.Must(w.t, err)
			again = again || a.Number != w.loaded[host]
			w.loaded[host] = a.Number
		}
	}
}

// mappings are what the edge of a host is to have. It confirms what it has loaded.
func (w *shareWorld) mappings(host string) []api.EdgeMapping {
	w.t.Helper()
	a, err := w.AskEdge(w.t.Context(), addr(host), api.EdgeQuestion{Protocol: api.EdgeProtocol, Have: w.loaded[host]})
	testlab.Must(w.t, err)
	return a.Mappings
}

// members checks who shares in the data path, and returns the QPN of the leg.
func (w *shareWorld) members(when string, want ...string) (generation roce.QPN) {
	w.t.Helper()
	var got []string
	for _, s := range w.published(w.t).Shares {
		generation = s.DestQPN
		for _, m := range s.Members {
			got = append(got, m.IP.String())
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		w.t.Errorf("%s: %v share, want %v", when, got, want)
	}
	return generation
}

// copies is what is shown of the copies for a receiver.
func (w *shareWorld) copies(ip string) string { return w.part(w.t, ip).Copies }

// write lets a packet of the source arrive, and returns the dest QPNs of its copies that leave by
// eth2.
func (w *shareWorld) write(psn roce.PSN) (qpns []roce.QPN) {
	w.t.Helper()
	frame := ctltest.Packet{
		From: "10.77.0.1", To: "10.77.0.100", QPN: 1, PSN: psn,
		RETH: &roce.RETH{VA: 0x10000, RKey: 0xfeedbea7, DMABytes: 4}, Payload: []byte("data"),
	}.Frame()
	const headers = 14 + 20 + 8 // Ethernet, IPv4, UDP
	for _, sent := range w.sw.Arrive(0, frame)[1] {
		var bth roce.BTH
		_, err := bth.Decode(sent[headers:])
		testlab.Must(w.t, err)
		first, own := map[roce.QPN]roce.PSN{18: 5, 19: 7, 20: 9}[bth.DestQPN]
		if !own && bth.PSN == psn || own && bth.PSN == first.Add(psn.Sub(1000)) {
			qpns = append(qpns, bth.DestQPN)
		}
	}
	slices.Sort(qpns)
	return qpns
}

func (w *shareWorld) leaves(when string, psn roce.PSN, want ...roce.QPN) {
	w.t.Helper()
	if got := w.write(psn); !slices.Equal(got, want) {
		w.t.Errorf("%s: frames to the QPNs %v leave, want %v", when, got, want)
	}
}

// One frame leaves the box for all receivers whose edges have confirmed.
func TestReceiversShareALeg(t *testing.T) {
	w := newShareWorld(t)
	w.create(t, three)
	w.members("without edges")
	w.leaves("without edges", 1000, 18, 19, 20)
	w.load("10.77.0.2")
	w.members("with one edge")
	w.load("10.77.0.2", "10.77.0.3")
	generation := w.members("with two edges", "10.77.0.2", "10.77.0.3")
	w.leaves("with two edges", 1001, slices.Sorted(slices.Values([]roce.QPN{20, generation}))...)
	if got := w.copies("10.77.0.2") + ", " + w.copies("10.77.0.4"); got != "shared, own: no edge has asked for its host" {
		t.Error(got)
	}
	if got := w.part(t, "10.77.0.2").Edge + ", " + w.part(t, "10.77.0.4").Edge; got != "tcx: 3 mapped, 0 without mapping, 0 refused, " {
		t.Errorf("the edges: %s", got)
	}
	w.load("10.77.0.4")
	if w.members("with three edges", "10.77.0.2", "10.77.0.3", "10.77.0.4") != generation {
		t.Error("a receiver that comes to it ended the generation")
	}
	w.leaves("with three edges", 1002, generation)
	traffic, err := w.GroupTraffic("g1")
	testlab.Must(t, err)
	want := api.Share{IP: w.published(t).Shares[0].Dst.String(), QPN: uint32(generation), Members: 3, Working: 3, Packets: 2, Saved: 1 + 2}
	if got := traffic.Groups[0].Shares; !slices.Equal(got, []api.Share{want}) || !slices.Equal(got, w.group(t).Shares) {
		t.Errorf("shown: %+v, want %+v", got, want)
	}

	m := w.mappings("10.77.0.3")
	if len(m) != 1 || m[0].LegQPN != uint32(generation) || m[0].QPN != 19 || m[0].AddPSN != (7-1000)&0xFFFFFF ||
		m[0].Host != addr("10.77.0.3") || m[0].From != addr("10.77.0.100") || !m[0].To.IsMulticast() {
		t.Errorf("%+v", m)
	}
	region := api.EdgeRegion{VA: 0x10000, Length: 4096, RKey: 0xfeedbea7, AddVA: 0x7f1000000000 - 0x10000, ToRKey: 0xfeedbea9}
	if len(m) == 1 && (len(m[0].Regions) != 1 || m[0].Regions[0] != region) {
		t.Errorf("%+v, want %+v", m[0].Regions, region)
	}
}

// A receiver that is taken out ends the generation: its edge would map copies for it all the same.
func TestNothingIsSharedWithAReceiverThatIsOut(t *testing.T) {
	for what, takeOut := range map[string]func(*shareWorld){
		"it leaves":     func(w *shareWorld) { w.update(w.t, g1) },
		"it is evicted": func(w *shareWorld) { w.news(feedback.NoteEvicted, "10.77.0.4", 1, 1001) },
		"it is behind":  func(w *shareWorld) { w.news(feedback.NoteBehind, "10.77.0.4", 1, 1001) },
	} {
		t.Run(what, func(t *testing.T) {
			w := newShareWorld(t)
			w.create(t, three)
			w.load("10.77.0.2", "10.77.0.3", "10.77.0.4")
			w.leaves("at first", 1000, w.members("at first", "10.77.0.2", "10.77.0.3", "10.77.0.4"))
			before := w.members("at first", "10.77.0.2", "10.77.0.3", "10.77.0.4")
			takeOut(w)
			if slices.Contains(w.write(1001), before) {
				t.Error("a copy leaves by the generation of the receiver that is out")
			}
			w.load("10.77.0.2", "10.77.0.3", "10.77.0.4")
			if now := w.members("with the next generation", "10.77.0.2", "10.77.0.3"); now == before {
				t.Errorf("the next generation has the QPN %d too", now)
			}
			if m := w.mappings("10.77.0.4"); len(m) != 0 {
				t.Errorf("its edge has %+v", m)
			}
		})
	}
}

// A receiver that joins a running group shares when it has joined. Its mapping counts from the
// packet with which it did, and those of the others stay as they are.
func TestAReceiverThatJoinsShares(t *testing.T) {
	for _, noteLost := range []bool{false, true} {
		w := newShareWorld(t)
		w.create(t, g1)
		w.load("10.77.0.2", "10.77.0.3")
		before := w.members("at first", "10.77.0.2", "10.77.0.3")
		w.leaves("at first", 1000, before)
		w.update(t, three)
		w.load("10.77.0.2", "10.77.0.3", "10.77.0.4")
		w.members("one joins", "10.77.0.2", "10.77.0.3")
		if got := w.copies("10.77.0.4"); got != "own: it has not joined yet" || len(w.mappings("10.77.0.4")) != 0 {
			t.Errorf("%q, %+v", got, w.mappings("10.77.0.4"))
		}
		if noteLost {
			w.happens(feedback.NoteJoined, "10.77.0.4", 1, 1001)
			w.watch.Look("g1", time.Now())
		} else {
			w.news(feedback.NoteJoined, "10.77.0.4", 1, 1001)
		}
		if got := w.copies("10.77.0.4"); got != "own: its edge has not loaded the mapping yet" {
			t.Error(got)
		}
		w.load("10.77.0.2", "10.77.0.3", "10.77.0.4")
		if now := w.members("it has joined", "10.77.0.2", "10.77.0.3", "10.77.0.4"); now != before {
			t.Error("a receiver that joins ended the generation of others")
		}
		m, other := w.mappings("10.77.0.4"), w.mappings("10.77.0.3")
		if len(m) != 1 || m[0].AddPSN != (9-1001)&0xFFFFFF || len(other) != 1 || other[0].AddPSN != (7-1000)&0xFFFFFF {
			t.Errorf("%+v, %+v", m, other)
		}
	}
}

// A receiver may leave whose edge has its mapping, and has not confirmed that. It would map copies
// all the same.
func TestAReceiverLeavesBeforeItsEdgeHasConfirmed(t *testing.T) {
	w := newShareWorld(t)
	w.create(t, three)
	w.load("10.77.0.2", "10.77.0.3")
	before := w.members("at first", "10.77.0.2", "10.77.0.3")
	if m := w.mappings("10.77.0.4"); len(m) != 1 || m[0].LegQPN != uint32(before) {
		t.Fatalf("%+v", m)
	}
	w.members("it has not confirmed", "10.77.0.2", "10.77.0.3")
	w.news(feedback.NoteEvicted, "10.77.0.4", 1, 1001)
	if slices.Contains(w.write(1000), before) {
		t.Error("a copy leaves that its edge maps")
	}
	w.load("10.77.0.2", "10.77.0.3")
	if w.members("it is out", "10.77.0.2", "10.77.0.3") == before {
		t.Error("the generation is the former one")
	}
}

// After a restart of the box copies are their own until edges have confirmed the next generation,
// which has another QPN.
func TestSharesAfterARestart(t *testing.T) {
	for _, clean := range []bool{true, false} {
		w := newShareWorld(t)
		w.create(t, g1)
		w.load("10.77.0.2", "10.77.0.3")
		before := w.members("at first", "10.77.0.2", "10.77.0.3")
		w.sw.Carry("g1", 1000)
		if clean {
			testlab.Must(t, w.Close())
		}
		w.Store.Close()
		loaded := w.loaded
		w = openShareWorld(t, w.dir)
		w.run(t)
		w.behindEth2() // the world began with other ports
		w.loaded = loaded
		w.members("after a restart")
		w.load("10.77.0.2", "10.77.0.3")
		if now := w.members("with the next generation", "10.77.0.2", "10.77.0.3"); now == before || (now-before)%(1<<24) > 1000 {
			t.Errorf("the next generation has the QPN %d, and the one before had %d: it does not count on", now, before)
		}
	}
}

// An edge that says that it has nothing gets nothing that is shared.
func TestAnEdgeThatHasLostItsMappings(t *testing.T) {
	w := newShareWorld(t)
	w.create(t, three)
	w.load("10.77.0.2", "10.77.0.3", "10.77.0.4")
	w.loaded["10.77.0.4"] = 0
	w.mappings("10.77.0.4")
	w.members("without its mappings", "10.77.0.2", "10.77.0.3")
	w.load("10.77.0.4")
	w.members("with them again", "10.77.0.2", "10.77.0.3", "10.77.0.4")
}

// A question that waits does not confirm anew what the edge has lost meanwhile.
func TestAQuestionFromBeforeARestartOfAnEdgeConfirmsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newShareWorld(t)
		w.create(t, three)
		w.load("10.77.0.2", "10.77.0.3", "10.77.0.4")
		old := make(chan error, 1)
		go func() {
			_, err := w.AskEdge(t.Context(), addr("10.77.0.3"), api.EdgeQuestion{Protocol: api.EdgeProtocol, Have: w.loaded["10.77.0.3"], Wait: 3_600_000})
			old <- err
		}()
		synctest.Wait()
		if _, err := w.AskEdge(t.Context(), addr("10.77.0.3"), api.EdgeQuestion{Protocol: api.EdgeProtocol}); err != nil {
			t.Fatal(err)
		}
		w.members("after its restart", "10.77.0.2", "10.77.0.4")
		w.create(t, anotherGroup("g2", 2))
		if err := <-old; err != nil { // answered, because there are more mappings now
			t.Fatal(err)
		}
		w.members("when the old question is answered", "10.77.0.2", "10.77.0.4")
	})
}

// Another next hop is another way: its generation is another one too.
func TestAReceiverMovesToAnotherPort(t *testing.T) {
	w := newShareWorld(t)
	w.run(t)
	w.create(t, three)
	w.load("10.77.0.2", "10.77.0.3", "10.77.0.4")
	before := w.members("at first", "10.77.0.2", "10.77.0.3", "10.77.0.4")
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.4": ctltest.Hop(3, "eth3", 1500, 4)})
	if slices.Contains(w.write(1000), before) {
		t.Error("a copy leaves by the former generation")
	}
	w.load("10.77.0.2", "10.77.0.3", "10.77.0.4")
	w.members("one is behind another port", "10.77.0.2", "10.77.0.3")
	if got := w.copies("10.77.0.4"); got != "own: no other receiver behind eth3 has an edge" {
		t.Error(got)
	}
}

// No router passes copies to a multicast address on.
func TestAReceiverBehindARouterDoesNotShare(t *testing.T) {
	w := newShareWorld(t)
	hop := ctltest.Hop(2, "eth2", 1500, 9)
	hop.Gateways = nexthop.GatewaysOf(addr("10.77.0.9"))
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.4": hop})
	w.create(t, three)
	w.load("10.77.0.2", "10.77.0.3", "10.77.0.4")
	w.members("one is behind a router", "10.77.0.2", "10.77.0.3")
	if got := w.copies("10.77.0.4"); got != "own: it is behind a router, which passes no shared copies on" {
		t.Error(got)
	}
}

// A version that the data path refuses leaves nobody without data, and the next question of an
// edge lets the group share again.
func TestTheDataPathRefusesAShare(t *testing.T) {
	w := newShareWorld(t)
	w.create(t, three)
	w.load("10.77.0.2", "10.77.0.3", "10.77.0.4")
	before := w.members("at first", "10.77.0.2", "10.77.0.3", "10.77.0.4")
	w.sw.Refuse(errors.New("no memory"))
	if _, err := w.Update(t.Context(), "g1", []byte(g1)); err == nil {
		t.Fatal("the update was not refused")
	}
	w.load("10.77.0.2", "10.77.0.3", "10.77.0.4")
	if now := w.members("after that", "10.77.0.2", "10.77.0.3", "10.77.0.4"); now == before {
		t.Errorf("edges have lost the generation %d, and copies leave by it", now)
	}
}

// With a quorum receivers share too. One that is behind ends the generation.
func TestReceiversOfAQuorumShare(t *testing.T) {
	w := newShareWorld(t)
	g := w.create(t, strings.Replace(three, "mtu: 1024", "mtu: 1024\nack: quorum 1", 1))
	w.load("10.77.0.2", "10.77.0.3", "10.77.0.4")
	before := w.members("at first", "10.77.0.2", "10.77.0.3", "10.77.0.4")
	w.leaves("at first", 1000, before)
	w.news(feedback.NoteBehind, "10.77.0.4", 1, 1001)
	w.load("10.77.0.2", "10.77.0.3", "10.77.0.4")
	if w.members("one is behind", "10.77.0.2", "10.77.0.3") == before || g.CopiesOwn != "" {
		t.Errorf("the generation is the former one, or copies are own: %q", g.CopiesOwn)
	}
}

// Another source is another turn, with other constants and another QPN. The source has no mapping:
// its edge would map its own packets to it.
func TestASourceSwitchIsAnotherGeneration(t *testing.T) {
	for _, noteLost := range []bool{false, true} {
		w := newShareWorld(t)
		w.create(t, strings.ReplaceAll(three, "psn: 5", "psn: 5, sendPSN: 2000, role: both"))
		w.load("10.77.0.2", "10.77.0.3", "10.77.0.4")
		before := w.members("at first", "10.77.0.2", "10.77.0.3", "10.77.0.4")
		w.leaves("at first", 1000, before)
		if noteLost {
			w.happens(feedback.NoteSource, "10.77.0.2", 1, 2000)
			w.watch.Look("g1", time.Now())
		} else {
			w.news(feedback.NoteSource, "10.77.0.2", 1, 2000)
		}
		w.members("before an edge has confirmed")
		if got := w.copies("10.77.0.3"); got != "own: its edge has not loaded the mapping yet" {
			t.Error(got)
		}
		w.load("10.77.0.2", "10.77.0.3", "10.77.0.4")
		if w.members("one is the source", "10.77.0.3", "10.77.0.4") == before {
			t.Error("the generation is the former one")
		}
		if m := w.mappings("10.77.0.2"); len(m) != 0 {
			t.Errorf("the edge of the source has %+v", m)
		}
	}
}

// Groups that cannot share say why.
func TestGroupsWithCopiesOfTheirOwn(t *testing.T) {
	with := func(key string) string { return strings.Replace(three, "mtu: 1024", "mtu: 1024\n"+key, 1) }
	for text, want := range map[string]string{
		with("copies: own"): "its file says copies: own",
		with("repair: off"): "the group is without repair",
		strings.ReplaceAll(tableFile(nearReceivers...), "10.1.0.", "10.77.0."): "its memory is a table",
	} {
		t.Run(want, func(t *testing.T) {
			w := newShareWorld(t)
			g := w.create(t, text)
			w.load("10.77.0.2", "10.77.0.3", "10.77.0.4")
			if g.CopiesOwn != want || len(w.published(t).Shares) != 0 || len(w.mappings("10.77.0.2")) != 0 {
				t.Errorf("%q, %+v", g.CopiesOwn, w.published(t).Shares)
			}
		})
	}
}

// A running group may be told to share and not to share, and no packet goes astray: each is on its
// way to all receivers with the first copy after the change.
func TestARunningGroupIsToldWhetherToShare(t *testing.T) {
	own := strings.Replace(three, "mtu: 1024", "mtu: 1024\ncopies: own", 1)
	w := newShareWorld(t)
	w.create(t, three)
	w.load("10.77.0.2", "10.77.0.3", "10.77.0.4")
	before := w.members("at first", "10.77.0.2", "10.77.0.3", "10.77.0.4")
	w.leaves("at first", 1000, before)
	if g := w.update(t, own); g.CopiesOwn != "its file says copies: own" {
		t.Errorf("it has copies of its own because %q", g.CopiesOwn)
	}
	w.members("with copies: own")
	w.leaves("with copies: own", 1001, 18, 19, 20)
	w.load("10.77.0.2", "10.77.0.3", "10.77.0.4")
	if m := w.mappings("10.77.0.2"); len(m) != 0 {
		t.Errorf("an edge is still to map %+v", m)
	}
	w.leaves("when the edges have forgotten it", 1002, 18, 19, 20)
	w.update(t, three)
	w.leaves("with copies: auto, before the edges have loaded it", 1003, 18, 19, 20)
	w.load("10.77.0.2", "10.77.0.3", "10.77.0.4")
	now := w.members("with copies: auto", "10.77.0.2", "10.77.0.3", "10.77.0.4")
	if now == before {
		t.Errorf("the QPN is %d as before: an edge that was late would map copies of another generation", now)
	}
	w.leaves("with copies: auto", 1004, now)
}

// A group whose shared copies reach nobody is degraded, because its link has to carry each
// receiver's own copies then. As long as they reach one receiver it is not.
func TestALegWhoseEdgesAreAllDead(t *testing.T) {
	w := newShareWorld(t)
	w.create(t, three)
	w.load("10.77.0.2", "10.77.0.3", "10.77.0.4")
	to := w.published(t).Shares[0].Dst
	w.happened()
	w.sw.LoseEdge("10.77.0.2", true)
	w.sw.LoseEdge("10.77.0.3", true)
	w.watch.Look("g1", time.Now())
	if g := w.group(t); g.State != api.Ready {
		t.Errorf("it is %s although its copies reach a receiver: %s", g.State, g.Reason)
	}
	w.expectEvents(t)
	w.sw.LoseEdge("10.77.0.4", true)
	w.watch.Look("g1", time.Now())
	want := fmt.Sprintf("shared copies to %v reach none of their 3 receivers, so each gets its own, and the link of eth2 may not carry these; "+
		"docs/edge.md says what a switch needs", to)
	if g := w.group(t); g.State != api.Degraded || g.Reason != want || !g.GoesOn || !g.ClearToSend || g.Shares[0].Working != 0 {
		t.Errorf("%+v", g.GroupSummary)
	}
	w.expectEvents(t, "degraded g1: "+want)
	w.sw.LoseEdge("10.77.0.3", false)
	w.watch.Look("g1", time.Now())
	if g := w.group(t); g.State != api.Ready {
		t.Errorf("%+v", g.GroupSummary)
	}
	w.expectEvents(t, "restored g1: no member is in trouble any more")
}

// An edge that has stopped asking is shown, and is used on: its program maps without it.
func TestAnEdgeIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newShareWorld(t)
		w.create(t, three)
		w.load("10.77.0.2", "10.77.0.3", "10.77.0.4")
		generation := w.members("at first", "10.77.0.2", "10.77.0.3", "10.77.0.4")
		w.happened()
		began := time.Now()
		look := func(after time.Duration) api.Member {
			t.Helper()
			w.watch.Look("g1", began.Add(after))
			return w.part(t, "10.77.0.3")
		}
		if got := look(9 * time.Second).Edge; got != "tcx: 3 mapped, 0 without mapping, 0 refused" {
			t.Errorf("after 9 s: %s", got)
		}
		if notes := w.statusAt(began).Notes; len(notes) != 0 {
			t.Errorf("the status has the notes %q", notes)
		}
		w.expectEvents(t)
		got := look(20*time.Second + 900*time.Millisecond)
		if got.Edge != "tcx: 3 mapped, 0 without mapping, 0 refused; it has not asked for 20s" || got.Copies != "shared" {
			t.Errorf("after 20 s: %q, %q", got.Copies, got.Edge)
		}
		var want []string
		for _, host := range []string{"10.77.0.2", "10.77.0.3", "10.77.0.4"} {
			want = append(want, fmt.Sprintf("edge-silent g1 %s: the edge at %[1]s has not asked for 20s; what it maps is used as long as shared copies arrive; "+
				"rocast-edge status there says why", host))
		}
		events := w.happened()
		if slices.Sort(events); !slices.Equal(events, want) {
			t.Errorf("%q", events)
		}
		w.leaves("with silent edges", 1000, generation)
		s := w.statusAt(began)
		if want := "the edge at 10.77.0.2 has not asked for 20s, and 2 more edges are silent; what they map is used as long as shared copies arrive; " +
			"rocast-edge status there says why"; !slices.Equal(s.Notes, []string{want}) || !s.Healthy {
			t.Errorf("the status has the notes %q, %+v", s.Notes, s.Problems)
		}
		look(25 * time.Second)
		w.expectEvents(t) // that is no news
		w.load("10.77.0.2", "10.77.0.3", "10.77.0.4")
		look(time.Second)
		if got := w.part(t, "10.77.0.3").Edge; got != "tcx: 3 mapped, 0 without mapping, 0 refused" {
			t.Errorf("it asks again: %s", got)
		}
		events = w.happened()
		if slices.Sort(events); !slices.Equal(events, []string{"edge-asks g1 10.77.0.2: the edge at 10.77.0.2 asks again",
			"edge-asks g1 10.77.0.3: the edge at 10.77.0.3 asks again", "edge-asks g1 10.77.0.4: the edge at 10.77.0.4 asks again"}) {
			t.Errorf("%q", events)
		}
	})
}

// An edge waits for as long as its question says, and is not silent then.
func TestAnEdgeThatWaitsIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newShareWorld(t)
		w.create(t, three)
		w.load("10.77.0.2", "10.77.0.3", "10.77.0.4")
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // it is answered at once, and has said that it would wait
		_, err := w.AskEdge(ctx, addr("10.77.0.3"), api.EdgeQuestion{Protocol: api.EdgeProtocol, Have: w.loaded["10.77.0.3"], Wait: 30_000, Attach: "tcx"})
		testlab.Must(t, err)
		w.watch.Look("g1", time.Now().Add(39*time.Second))
		if got := w.part(t, "10.77.0.3").Edge; strings.Contains(got, "has not asked") {
			t.Error(got)
		}
		w.watch.Look("g1", time.Now().Add(41*time.Second))
		if got := w.part(t, "10.77.0.3").Edge; !strings.HasSuffix(got, "it has not asked for 41s") {
			t.Error(got)
		}
	})
}

// A question waits until its answer is another one than the edge has.
func TestAQuestionOfAnEdgeWaits(t *testing.T) {
	w := newShareWorld(t)
	w.load("10.77.0.2", "10.77.0.3")
	answers := make(chan api.EdgeAnswer)
	ask := func(ctx context.Context, ms int) {
		a, err := w.AskEdge(ctx, addr("10.77.0.2"), api.EdgeQuestion{Protocol: api.EdgeProtocol, Have: w.loaded["10.77.0.2"], Wait: ms})
		if err != nil {
			t.Error(err)
		}
		answers <- a
	}
	go ask(t.Context(), 3_600_000)
	w.create(t, g1)
	if a := <-answers; a.Number == w.loaded["10.77.0.2"] || len(a.Mappings) != 1 {
		t.Errorf("a mapping has come, and the answer is %+v", a)
	}
	w.load("10.77.0.2", "10.77.0.3")
	go ask(t.Context(), 1)
	if a := <-answers; a.Number != w.loaded["10.77.0.2"] {
		t.Errorf("its time is over, and the answer is %+v", a)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	go ask(ctx, 3_600_000)
	if a := <-answers; a.Number != w.loaded["10.77.0.2"] {
		t.Errorf("the edge has gone, and the answer is %+v", a)
	}
}

// A question of an edge that has left out a mapping waits too.
func TestAQuestionAboutAPartWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newShareWorld(t)
		w.load("10.77.0.2")
		began := time.Now()
		_, err := w.AskEdge(t.Context(), addr("10.77.0.2"), api.EdgeQuestion{
			Protocol: api.EdgeProtocol, Part: &api.EdgePart{Number: w.loaded["10.77.0.2"]}, Wait: 4000,
		})
		if waited := time.Since(began); err != nil || waited != 4*time.Second {
			t.Errorf("%v, after %v", err, waited)
		}
	})
}

// Questions that a box cannot answer are refused with what to do.
func TestQuestionsOfEdgesThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		w        *world
		protocol int
		want     string
	}{
		{newShareWorld(t).world, 2, "the edge speaks version 2 and this box version 1; install the same release of both"},
		{newWorld(t), 1, "this box shares no copies; edges: in its rocastd.yaml says by which addresses it may"},
	} {
		if _, err := c.w.AskEdge(t.Context(), addr("10.77.0.2"), api.EdgeQuestion{Protocol: c.protocol}); err == nil || err.Error() != c.want {
			t.Errorf("%v", err)
		}
	}
}

// A version that the data path refuses is not shown, and the next look tries again: the edges have
// been told already.
func TestAShareThatTheDataPathRefuses(t *testing.T) {
	refused := errors.New("the switch is busy")
	for what, change := range map[string]struct {
		change func(*shareWorld)
		shown  string // of the copies for 10.77.0.4 meanwhile
	}{
		"another edge asks": {func(w *shareWorld) { w.mappings("10.77.0.4") }, "own: no edge has asked for its host"},
		"the file changes": {func(w *shareWorld) {
			if _, err := w.Update(t.Context(), "g1", []byte("copies: own\n"+three)); err == nil || err.Error() != refused.Error() {
				t.Error(err)
			}
		}, "own: no edge has asked for its host"},
		"a next hop changes": {func(w *shareWorld) {
			w.hops.Set(map[string]nexthop.Hop{"10.77.0.2": ctltest.Hop(3, "eth3", 1500, 2)})
		}, "own: no edge has asked for its host"},
	} {
		t.Run(what, func(t *testing.T) {
			w := newShareWorld(t)
			w.run(t)
			w.create(t, three)
			w.load("10.77.0.2", "10.77.0.3")
			before := w.members("at first", "10.77.0.2", "10.77.0.3")
			w.sw.Refuse(refused)
			change.change(w)
			w.members("refused", "10.77.0.2", "10.77.0.3")
			if got := w.copies("10.77.0.2") + ", " + w.copies("10.77.0.4"); got != "shared, "+change.shown {
				t.Errorf("refused: %s", got)
			}
			w.watch.Look("g1", time.Now())
			if got := w.copies("10.77.0.4"); what == "another edge asks" && got != "own: its edge has not loaded the mapping yet" {
				t.Errorf("tried again: %s", got)
			}
			w.load("10.77.0.2", "10.77.0.3")
			w.watch.Look("g1", time.Now())
			after := w.members("tried again", "10.77.0.2", "10.77.0.3")
			if got := w.mappings("10.77.0.2"); len(got) != 1 || got[0].LegQPN != uint32(after) {
				t.Errorf("the leg has the QPN %d, and before %d; the edge has %+v", after, before, got)
			}
		})
	}
}

// The edge in front of a host asks for it from its own IP. Nobody else may, and the host itself may
// not any more.
func TestAnEdgeInTheWire(t *testing.T) {
	addresses := sharedAddresses
	addresses.Wires = []edges.Wire{{IP: addr("10.77.0.12"), Host: addr("10.77.0.2")}}
	sw := ctltest.NewStill("eth1", "eth2", "eth3")
	w := &shareWorld{world: openWorldSharing(t, t.TempDir(), sw, ctltest.NewAddresses(), addresses), t: t, loaded: map[string]uint64{}}
	w.behindEth2()
	w.create(t, three)
	w.load("10.77.0.3")
	ask := func(from, host string, have uint64) (api.EdgeAnswer, error) {
		q := api.EdgeQuestion{Protocol: api.EdgeProtocol, Have: have, Attach: "tcx"}
		if host != "" {
			q.Host = addr(host)
		}
		return w.AskEdge(t.Context(), addr(from), q)
	}
	for _, c := range []struct{ from, host, want string }{
		{"10.77.0.12", "10.77.0.3", "10.77.0.12 may not ask for 10.77.0.3; edges: wires: in this box's rocastd.yaml says which address asks for which host"},
		{"10.77.0.3", "10.77.0.4", "10.77.0.3 may not ask for 10.77.0.4; edges: wires: in this box's rocastd.yaml says which address asks for which host"},
		{"10.77.0.3", "10.77.0.2", "10.77.0.12 asks for 10.77.0.2, and 10.77.0.3 may not: so say edges: wires: in this box's rocastd.yaml"},
		{"10.77.0.2", "", "10.77.0.12 asks for 10.77.0.2, and 10.77.0.2 may not: so say edges: wires: in this box's rocastd.yaml"},
	} {
		if a, err := ask(c.from, c.host, 0); err == nil || err.Error() != c.want || len(a.Mappings) > 0 {
			t.Errorf("%s asks for %q: %+v, %v, want %q", c.from, c.host, a, err, c.want)
		}
	}
	w.members("when those were refused")
	a, err := ask("10.77.0.12", "10.77.0.2", 0)
	testlab.Must(t, err)
	if len(a.Mappings) != 1 || a.Mappings[0].Host != addr("10.77.0.2") {
		t.Fatalf("the edge in the wire is told %+v", a.Mappings)
	}
	_, err = ask("10.77.0.12", "10.77.0.2", a.Number)
	testlab.Must(t, err)
	w.load("10.77.0.3")
	w.members("with an edge in the wire", "10.77.0.2", "10.77.0.3")
	if got, want := w.part(t, "10.77.0.2").Edge, "tcx at 10.77.0.12: 0 mapped, 0 without mapping, 0 refused"; got != want {
		t.Errorf("the edge is shown as %q, want %q", got, want)
	}
	// Its own IP is a host as any other.
	if a, err := ask("10.77.0.12", "", 0); err != nil || len(a.Mappings) > 0 {
		t.Errorf("for itself it is told %+v, %v", a, err)
	}
}
