package ctl

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/goodput"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
)

// The totals of a group, and of each receiver how far it is behind. How old that is, control knows
// from where the source was before.
func TestTrafficOfAGroup(t *testing.T) {
	r := newRunner(t, "degraded-after: 2s\n")
	sent := func(packets uint64) dataplane.Traffic {
		return dataplane.Traffic{Packets: packets - 3, Bytes: 1000 * packets, Copies: 2*packets + 1, CopyBytes: 2000 * packets, Sent: packets}
	}
	r.sw.Traffic("g1", sent(500))
	r.second(t, 1500, 1400, 1500, 1500)
	r.sw.Traffic("g1", sent(1500))
	r.sw.Count("resent")
	r.sw.Count("wrong-vlan")
	r.sw.Count("stale") // was no drop
	r.sw.Answer("10.77.0.2", dataplane.Receiver{Acknowledged: 1250, NAKs: 1, RNRs: 2, CNPs: 3})
	r.second(t, 2500, 1400, 2250, 2500)
	for range 5 {
		r.second(t, 2500, 1400, 2250, 2500)
	}
	r.sw.Repair("10.77.0.2", feedback.PathSnapshot{Part: feedback.PartActive, Acked: 2250, Repaired: 4}, 0)
	got, ok := r.trafficOf("g1", r.now.Add(time.Second))
	want := api.GroupTraffic{
		Name: "g1", State: api.Degraded, Reason: got.Reason, Carrier: api.CarrierAFXDP,
		Packets: 1497, Bytes: 1500000, Copies: 3001, CopyBytes: 3000000, Resent: 1, Drops: api.Counters{"wrong-vlan": 1},
		Events: map[api.EventKind]uint64{api.GroupCreated: 1, api.MemberStalled: 1, api.GroupDegraded: 1},
		Receivers: []api.ReceiverTraffic{
			{
				IP: "10.77.0.2", RemoteQPN: 1, Port: "eth2", State: api.Ready, Trouble: api.TroubleStalled,
				Reason: "it has stalled: it acknowledges nothing, and others are further", Acknowledged: 1250,
				Lag: 250, LagSeconds: got.Receivers[0].LagSeconds, NAKs: 1, RNRs: 2, CNPs: 3, Repaired: 4,
			},
			{IP: "10.77.0.3", RemoteQPN: 1, Port: "eth3", State: api.Ready},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Error(diff)
	}
	// A quarter of what was sent in one second is missing; since then six seconds have passed.
	if lag := got.Receivers[0].LagSeconds; lag < 6.24 || lag > 6.25 || !strings.Contains(got.Reason, "10.77.0.2") {
		t.Errorf("it is %v s behind; %s", lag, got.Reason)
	}
}

// Every reason for which a receiver does not get on has a word.
func TestTrafficNamesTheTrouble(t *testing.T) {
	word := func(w *world) string {
		t.Helper()
		got, err := w.GroupTraffic("g1")
		if err != nil {
			t.Fatal(err)
		}
		if r := got.Groups[0].Receivers[1]; r.Trouble != "" || r.Reason != "" {
			t.Errorf("%+v", r)
		}
		r := got.Groups[0].Receivers[0]
		if (r.Trouble == "") != (r.Reason == "") {
			t.Errorf("%+v", r)
		}
		return r.Trouble
	}
	for what, want := range map[feedback.Note]string{
		feedback.NoteEvicted: api.TroubleEvicted, feedback.NoteBehind: api.TroubleBehind, feedback.NoteFatal: api.TroubleRefused,
		feedback.NoteSilent: api.TroubleStalled, feedback.NoteRepairing: "",
	} {
		r := newRunner(t, "")
		r.note(dataplane.Note{Group: r.groups.Named("g1").ID, Receiver: addr("10.77.0.2"), RemoteQPN: 1, What: what, PSN: 1501})
		if got := word(r.world); got != want {
			t.Errorf("%v: %q, want %q", what, got, want)
		}
	}
	w := newWorld(t)
	w.create(t, strings.Replace(g1, "qpn: 18,", "qpn: 18, confirm: true,", 1))
	if got := word(w); got != api.TroubleUnconfirmed {
		t.Errorf("%q", got)
	}
	w = newWorld(t)
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.2": {Interface: 2, Reason: "the kernel is asking for its MAC"}})
	w.create(t, g1)
	if got := word(w); got != api.TroubleUnreachable {
		t.Errorf("%q", got)
	}
	if why := w.Traffic().Groups[0].Reason; why != "10.77.0.2: the kernel is asking for its MAC" {
		t.Errorf("the group waits: %q", why)
	}
}

// Only a receiver that takes part is behind, and not by more than was sent.
func TestLag(t *testing.T) {
	r := newRunner(t, "")
	r.sw.Traffic("g1", dataplane.Traffic{Sent: 300})
	r.sw.Carry("g1", 2000)
	r.watch.Look("g1", time.Now()) // knows where the source was
	for part, want := range map[feedback.Part]uint64{feedback.PartActive: 300, feedback.PartJoining: 0, feedback.PartGone: 0, feedback.PartBehind: 0} {
		r.sw.Repair("10.77.0.2", feedback.PathSnapshot{Part: part, Acked: 1000}, 0)
		if got := r.Traffic().Groups[0].Receivers[0]; got.Lag != want || got.LagSeconds > 0 != (want > 0) {
			t.Errorf("%v: %+v", part, got)
		}
	}
	r.sw.Repair("10.77.0.2", feedback.PathSnapshot{Part: feedback.PartActive, Acked: 1000}, 0)
	r.edit("g1", func(g *groups.Group) { g.Source = g.File.Receivers[0].ID() })
	if got := r.Traffic().Groups[0].Receivers[0]; got.Lag != 0 {
		t.Errorf("the source is behind itself: %+v", got)
	}
	// What was sent as another group of the data path says nothing.
	before := groups.Findings{In: 1, History: goodput.History{}.With(r.now, 100)}
	if age := before.Since(r.now.Add(time.Second), 2, 200).Age(r.now.Add(2*time.Second), 150); age != time.Second {
		t.Errorf("%v", age)
	}
}

// Of more groups than an answer has, those that are not ready are there first.
func TestTrafficOfManyGroups(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and one thread does everything; it runs without -short")
	}
	w := newWorld(t)
	for i := range api.MaxTraffic + 3 {
		w.create(t, anotherGroup(fmt.Sprintf("a%03d", i), 2+i))
	}
	w.create(t, g1)
	w.edit("g1", func(g *groups.Group) { g.TreeProblem = "a box is missing" })
	got := w.Traffic()
	if len(got.Groups) != api.MaxTraffic || got.More != 4 || got.Groups[0].Name != "g1" || got.Groups[1].Name != "a000" ||
		got.Groups[api.MaxTraffic-1].Name != "a254" || time.Since(got.At) > time.Minute {
		t.Errorf("%d groups and %d more, from %s to %s", len(got.Groups), got.More, got.Groups[0].Name, got.Groups[len(got.Groups)-1].Name)
	}
	if _, err := w.GroupTraffic("g2"); err == nil || err.Error() != groups.NoGroup("g2").Error() {
		t.Error(err)
	}
}

// A group that could not be restored has no traffic, and says why it failed.
func TestTrafficOfAGroupThatFailed(t *testing.T) {
	w := newWorld(t)
	if err := w.Store.Put("g1", []byte("name: g1\n")); err != nil {
		t.Fatal(err)
	}
	w = w.restart(t, true)
	got := w.Traffic()
	if len(got.Groups) != 1 || got.Groups[0].State != api.Failed || got.Groups[0].Reason == "" || got.Groups[0].Receivers == nil {
		t.Errorf("%+v", got)
	}
}

// The events of a group are counted while it exists.
func TestEventsOfAGroupAreCounted(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	if err := w.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	w.groups.Events.Add(api.Event{Kind: api.MemberStalled, Group: "g1"}) // late
	if counts := w.groups.Events.Counts("g1"); counts != nil {
		t.Errorf("events of a removed group: %v", counts)
	}
	w.create(t, g1)
	if diff := cmp.Diff(map[api.EventKind]uint64{api.GroupCreated: 1}, w.Traffic().Groups[0].Events); diff != "" {
		t.Error(diff)
	}
}
