package watch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/refused"
	"github.com/rocast/rocast/ctl/view"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

func TestADegradedGroupIsTold(t *testing.T) {
	r := newRunner(t, "degraded-below: 25%\ndegraded-after: 2s\n")
	if g := r.second(2000, 1990, 1990, 1990); g.Goodput != nil {
		t.Errorf("%+v", g.Goodput)
	}
	if g := r.second(3000, 2990, 2990, 2991); *g.Goodput != (api.Goodput{Now: 1000, Before: 1000}) {
		t.Errorf("%+v", g.Goodput)
	}
	r.second(3100, 3090, 3090, 3095)
	r.expectEvents(t)
	g := r.second(3200, 3190, 3190, 3195)
	const cause = "100 packets a second get on, and 1000 did before; the last is 10.77.0.2, which lacks the source's packet 3191"
	if g.State != api.Degraded || g.Reason != cause || !g.ClearToSend {
		t.Errorf("%+v", g.GroupSummary)
	}
	e := r.Groups.Events.After(r.at, "g1").Events
	if len(e) != 1 || e[0].Goodput == nil || *e[0].Goodput != (api.Goodput{Now: 100, Before: 1000}) || e[0].RemoteQPN != 1 {
		t.Errorf("%+v", e)
	}
	r.expectEvents(t, "degraded g1 10.77.0.2: "+cause)
	if g := r.second(3200, 3200, 3200, 3200); g.State != api.Ready {
		t.Errorf("%+v", g.GroupSummary)
	}
	r.expectEvents(t, "restored g1: its packets get on again")

	r.second(9200, 3200, 3200, 3200)
	r.second(9200, 3200, 3200, 3200)
	r.edit(func(g *groups.Group) { g.TreeProblem = "a box is missing" })
	r.second(9200, 3200, 3200, 3200)
	r.happened()
	r.second(9200, 9200, 9200, 9200) // it is degraded for another reason still
	r.expectEvents(t)
}

func TestAReceiverThatStallsAndReturnsIsTold(t *testing.T) {
	r := newRunner(t, "")
	for range 4 {
		r.second(2000, 1500, 1500, 1700)
	}
	r.second(2000, 1500, 1500, 1700)
	r.note(dataplane.Note{Group: r.Groups.Named("g1").ID, Receiver: addr("10.77.0.2"), RemoteQPN: 1, What: feedback.NoteSilent, PSN: 1501})
	r.expectEvents(t, "member-stalled g1 10.77.0.2: it has acknowledged nothing for 3s, and others are further",
		"degraded g1 10.77.0.2: packets wait, and none gets on; the last is 10.77.0.2, which lacks the source's packet 1501")
	r.second(2000, 1600, 1600, 1700)
	r.second(2000, 2000, 2000, 2000)
	r.expectEvents(t, "member-returned g1 10.77.0.2: it acknowledges again", "restored g1: its packets get on again")
}

// A quorum goes on without a receiver that has stalled.
func TestAReceiverThatIsNotWaitedForStalls(t *testing.T) {
	r := newRunner(t, "ack: quorum 1\n")
	for i := range roce.PSN(5) {
		r.second(2000+1000*i, 2000+1000*i, 1500, 2000+1000*i)
	}
	r.expectEvents(t, "member-stalled g1 10.77.0.2: it has acknowledged nothing for 3s, and others are further",
		"degraded g1: 10.77.0.2: it has stalled: it acknowledges nothing, and others are further")
	r.second(9000, 9000, 1501, 9000)
	r.expectEvents(t, "member-returned g1 10.77.0.2: it acknowledges again", "restored g1: no member is in trouble any more")
}

// The log has one line when a group begins to stand still, and one with its end, whatever else is
// told of the same receiver.
func TestAStandstillIsLoggedOnceWithItsEnd(t *testing.T) {
	r := newRunner(t, "")
	r.logs.TakeAll()
	r.second(2000, 1500, 1500, 2000)
	if got := r.logs.TakeAll(); len(got) != 0 {
		t.Errorf("%v", got)
	}
	for range 8 {
		r.second(2000, 1500, 1500, 2000)
	}
	want := map[string]any{"group": "g1", "member": "10.77.0.2", "remoteQPN": uint32(1), "qpn": uint32(18), "port": "eth2", "lacksPSN": uint32(1501), "for": time.Second}
	if got := r.logs.TakeAll(); len(got) != 1 || got[0].Level != zap.WarnLevel || !strings.HasPrefix(got[0].Message, "a group stands still") {
		t.Errorf("%v", got)
	} else if diff := cmp.Diff(want, got[0].ContextMap()); diff != "" {
		t.Error(diff)
	}
	r.second(2000, 1501, 1501, 2000)
	r.second(2000, 2000, 2000, 2000)
	if got := r.logs.TakeAll(); len(got) != 1 || got[0].Message != "a group gets on again" || got[0].ContextMap()["after"] != 9*time.Second {
		t.Errorf("%v", got)
	}
}

// The line says also why, if that is known: all receivers may be as far behind as the one whose QP
// has ended.
func TestAStandstillHasItsReason(t *testing.T) {
	r := newRunner(t, "")
	r.note(dataplane.Note{Group: r.Groups.Named("g1").ID, Receiver: addr("10.77.0.3"), RemoteQPN: 1, What: feedback.NoteFatal, PSN: 1501})
	r.logs.TakeAll()
	for range 2 {
		r.second(2000, 1500, 1500, 1500)
	}
	lines := r.logs.FilterMessageSnippet("a group stands still").All()
	if len(lines) != 1 || !strings.HasPrefix(fmt.Sprint(lines[0].ContextMap()["reason"]), "10.77.0.3: it has answered the source's packet 1501") {
		t.Errorf("%v", r.logs.All())
	}
}

// The member that sends acknowledges nothing, and is not waited for.
func TestTheSourceDoesNotStall(t *testing.T) {
	r := runGroup(t, strings.NewReplacer("mtu:", "repair: local\nmtu:", "ip: 10.77.0.2", "role: both, sendPSN: 9, ip: 10.77.0.2").Replace(ctltest.G1))
	r.second(2000, 1990, 1990, 1990)
	r.sw.Notify(dataplane.Note{Group: r.Groups.Named("g1").ID, Receiver: addr("10.77.0.2"), RemoteQPN: 1, What: feedback.NoteSource, PSN: 9})
	before := r.group().Goodput
	for i := range roce.PSN(6) {
		r.second(100100+i, 100090+i, 5, 100090+i)
	}
	if after := r.group().Goodput; before != nil || after == nil || after.Before > 2 {
		t.Errorf("the distance between two PSN spaces counts as goodput: %+v, then %+v", before, after)
	}
	r.expectEvents(t, "source-switched g1 10.77.0.2: its packet 9 was the first of its turn (PSN 9)")
}

// A group stood still, and everything of the next source got through before anybody looked.
func TestAShortTurnEndsADegradedGroup(t *testing.T) {
	r := runGroup(t, strings.NewReplacer("mtu:", "repair: local\nmtu:", "ip: 10.77.0.2", "role: both, sendPSN: 9, ip: 10.77.0.2").Replace(ctltest.G1))
	for range 5 {
		r.second(2000, 1500, 1500, 1500)
	}
	if g := r.group(); g.State != api.Degraded {
		t.Fatalf("%+v", g.GroupSummary)
	}
	r.happened()
	r.sw.Notify(dataplane.Note{Group: r.Groups.Named("g1").ID, Receiver: addr("10.77.0.2"), RemoteQPN: 1, What: feedback.NoteSource, PSN: 9})
	if g := r.second(49, 49, 5, 49); g.State != api.Ready {
		t.Errorf("%+v", g.GroupSummary)
	}
	r.expectEvents(t, "source-switched g1 10.77.0.2: its packet 9 was the first of its turn (PSN 9)", "restored g1: its packets get on again")
}

func TestAGroupThatIsNotWatched(t *testing.T) {
	r := newRunner(t, "degraded-after: 0\n")
	for range 9 {
		r.second(2000, 1500, 1500, 1700)
	}
	r.expectEvents(t)
	r.Look("g2", r.now) // it was removed meanwhile
}

func TestAGroupThatHasNotBegunIsNotDegraded(t *testing.T) {
	w := newWorld(t)
	w.create(t, ctltest.G1)
	w.happened()
	for i := range 9 {
		w.Look("g1", time.Unix(int64(i), 0))
	}
	w.expectEvents(t)
}

// FollowProgress looks at every group in turn, also at more than it looks at in one period.
func TestEveryGroupIsLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const last = 300 // and 256 are looked at in one period
		for i := range last {
			w.create(t, ctltest.AnotherGroup(fmt.Sprint("g", i), i+2))
		}
		for name, g := range w.Groups.All() {
			w.sw.Carry(name, 2000)
			w.sw.Merge(g.ID, 1500)
		}
		w.happened()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.FollowProgress(ctx) }()
		<-time.After(2 * time.Second)
		w.expectEvents(t)
		<-time.After(2 * time.Second)
		synctest.Wait()
		if got := w.happened(); len(got) != last {
			t.Errorf("%d groups are degraded, of %d", len(got), last)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// trio is a runner of a group with a third receiver, 10.77.0.4.
func newTrio(t *testing.T, keys string) *runner {
	t.Helper()
	r := &runner{world: newWorld(t), now: time.Unix(1000, 0)}
	r.hops.Set(map[string]nexthop.Hop{"10.77.0.4": ctltest.Hop(3, "eth3", 1500, 4)})
	fourth := "  - {ip: 10.77.0.4, qpn: 20, psn: 11, regions: [{va: 0x7d0000000000, length: 8192, rkey: 0x9abc}]}\n"
	r.create(t, strings.Replace(ctltest.G1, "mtu:", "repair: local\n"+keys+"mtu:", 1)+fourth)
	r.happened()
	return r
}

// paths plays a second of a group whose receivers are where the snapshots say.
func (r *runner) paths(sent, merged roce.PSN, paths map[string]feedback.PathSnapshot) api.Group {
	r.now = r.now.Add(time.Second)
	r.sw.Carry("g1", sent)
	r.sw.Merge(r.Groups.Named("g1").ID, merged)
	for ip, p := range paths {
		r.sw.Repair(ip, p, 0)
	}
	r.Look("g1", r.now)
	return r.group()
}

// A receiver whose QP has ended is the cause of a group that stands still, for as long as it does.
// No view blames one that waits for the source, as that one would do if the QP had not ended.
func TestTheCauseOfAStandstillStays(t *testing.T) {
	r := newTrio(t, "")
	cause := "10.77.0.3: it has answered the source's packet 1501 with NAK remote access, which ends its QP; " + refused.Answered(roce.NAKRemoteAccess)
	r.note(dataplane.Note{Group: r.Groups.Named("g1").ID, Receiver: addr("10.77.0.3"), RemoteQPN: 1, What: feedback.NoteFatal, PSN: 1501, Syndrome: roce.NAKRemoteAccess})
	r.sw.Traffic("g1", dataplane.Traffic{Sent: 1000})
	var g api.Group
	for range 9 {
		g = r.paths(2000, 1500, map[string]feedback.PathSnapshot{
			"10.77.0.2": {Part: feedback.PartActive, Acked: 1500},
			"10.77.0.3": {Part: feedback.PartDead, Acked: 1500},
			"10.77.0.4": {Part: feedback.PartActive, Acked: 2000},
		})
	}
	stands := cause + "; packets wait, and none gets on"
	status, top := r.status(r.now), r.traffic()
	for view, reason := range map[string]string{"group show": g.Reason, "group ls": r.summary().Reason, "status": status.Problems[0].Reason, "top": top.Reason} {
		if !strings.HasPrefix(reason, cause) {
			t.Errorf("%s: %s", view, reason)
		}
	}
	if g.State != api.Degraded || g.GoesOn || g.Reason != stands {
		t.Errorf("%+v", g.GroupSummary)
	}
	for i, want := range []string{"", api.TroubleRefused, ""} {
		if got := top.Receivers[i]; got.Trouble != want {
			t.Errorf("%+v, want trouble %q", got, want)
		}
	}
	if lag := top.Receivers[1].Lag; lag == 0 {
		t.Error("the receiver that holds the group up is not behind")
	}
	r.expectEvents(t, "member-refused g1 "+cause+" (PSN 1501)",
		"degraded g1: "+cause, "degraded g1 10.77.0.3: "+stands)
	lines := r.logs.FilterMessageSnippet("a group stands still").All()
	if len(lines) != 1 || lines[0].ContextMap()["member"] != "10.77.0.3" || lines[0].ContextMap()["reason"] != cause {
		t.Errorf("%v", lines)
	}
}

// A quorum goes on without a receiver whose QP has ended. If it gets on slowly, that has another
// reason, and the others may stall.
func TestAnEndedQPIsNotTheReasonOfAGroupThatGoesOn(t *testing.T) {
	r := newTrio(t, "ack: quorum 2\n")
	r.note(dataplane.Note{Group: r.Groups.Named("g1").ID, Receiver: addr("10.77.0.3"), RemoteQPN: 1, What: feedback.NoteFatal, PSN: 1501, Syndrome: roce.NAKRemoteAccess})
	var g api.Group
	for i := range roce.PSN(6) {
		g = r.paths(2000, 1600, map[string]feedback.PathSnapshot{
			"10.77.0.2": {Part: feedback.PartActive, Acked: 1600},
			"10.77.0.3": {Part: feedback.PartDead, Acked: 1500},
			"10.77.0.4": {Part: feedback.PartActive, Acked: 1900 + i},
		})
	}
	const want = "packets wait, and none gets on; the last is 10.77.0.2, which lacks the source's packet 1601"
	if g.Reason != want {
		t.Errorf("%+v", g.GroupSummary)
	}
	if kind, _ := view.TroubleOf(&r.Groups.Named("g1").Version, &r.Groups.Named("g1").Plan.Receivers[0]); kind != api.TroubleStalled {
		t.Errorf("10.77.0.2 is %q", kind)
	}
}

// Where all receivers lack the same packet, none is the last.
func TestReceiversAtTheSamePacketAreNotTheLast(t *testing.T) {
	r := newRunner(t, "")
	for range 5 {
		r.second(2000, 1500, 1500, 1500)
	}
	const want = "packets wait, and none gets on; no receiver has acknowledged the source's packet 1501"
	if g := r.group(); g.Reason != want {
		t.Errorf("%+v", g.GroupSummary)
	}
	r.expectEvents(t, "degraded g1: "+want)
	if lines := r.logs.FilterMessageSnippet("a group stands still").All(); len(lines) != 1 || lines[0].ContextMap()["member"] != nil || lines[0].ContextMap()["group"] != "g1" {
		t.Errorf("%v", lines)
	}
}

// What keeps a member's frames away comes before what the box sees of the members, also where the
// member is the source, or its host only does not say its MAC.
func TestAWayThatIsMissingIsTheCauseOfAStandstill(t *testing.T) {
	down := ctltest.Hop(2, "eth2", 1500, 2)
	down.Down, down.Reason = true, "eth2 has no carrier"
	silent := ctltest.Hop(2, "eth2", 1500, 2)
	silent.Silent, silent.Reason = true, "10.77.0.2 does not answer on eth2"
	small := ctltest.Hop(2, "eth2", 1000, 2)
	source := ctltest.Hop(1, "eth1", 1500, 1)
	source.Down, source.Reason = true, "eth1 has no carrier"
	for _, c := range []struct {
		ip, trouble string
		hop         nexthop.Hop
		want        string
		stalls      bool // 10.77.0.2 is further behind than the others because of itself
	}{
		{"10.77.0.2", api.TroubleUnreachable, down, "10.77.0.2: eth2 has no carrier", true},
		{"10.77.0.2", api.TroubleNoAnswer, silent, "10.77.0.2: its host does not answer when the box asks for its MAC", true},
		{"10.77.0.2", api.TroubleUnreachable, small, "10.77.0.2: 10.77.0.2 is reached through eth2, whose MTU 1000 cannot carry path MTU 1024; set it with ip link set eth2 mtu 1088", true},
		{"10.77.0.1", "", source, "10.77.0.1: eth1 has no carrier", false},
	} {
		r := newRunner(t, "")
		r.second(1500, 1500, 1500, 1500)
		r.reach(t, map[string]nexthop.Hop{c.ip: c.hop})
		r.happened()
		var g api.Group
		for range 6 {
			g = r.second(2000, 1500, 1500, 2000)
		}
		want := c.want + "; packets wait, and none gets on"
		if g.State != api.Degraded || g.Reason != want {
			t.Errorf("\ngot  %s %s\nwant %s", g.State, g.Reason, want)
		}
		if of := r.traffic(); of.Reason != want || of.Receivers[0].Trouble != c.trouble {
			t.Errorf("%+v", of)
		}
		told := []string{"degraded g1 " + c.ip + ": " + want}
		if c.stalls {
			told = []string{"member-stalled g1 10.77.0.2: it has acknowledged nothing for 3s, and others are further", told[0]}
		}
		if got := r.happened(); !slices.Equal(got[max(0, len(got)-len(told)):], told) {
			t.Errorf("got %q, want %q", got, told)
		}
	}
}

// A receiver in trouble that everybody has passed is not what a group waits for: with the cause
// known of one member and another one further behind, the latter is named.
func TestACauseHoldsUpOnlyWhatWaitsForIt(t *testing.T) {
	r := newRunner(t, "")
	hop := ctltest.Hop(3, "eth3", 1500, 3)
	hop.Silent, hop.Reason = true, "10.77.0.3 does not answer on eth3"
	r.reach(t, map[string]nexthop.Hop{"10.77.0.3": hop})
	for range 5 {
		r.second(2000, 1500, 1500, 1700)
	}
	if g := r.group(); g.Reason != "packets wait, and none gets on; the last is 10.77.0.2, which lacks the source's packet 1501" {
		t.Errorf("%+v", g.GroupSummary)
	}
}
