package ctl

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/refused"
	"github.com/rocast/rocast/ctl/view"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// runner plays seconds of group g1: its source has sent up to sent, and its receivers have
// acknowledged up to two and three.
type runner struct {
	*world
	now time.Time
}

func newRunner(t *testing.T, keys string) *runner {
	t.Helper()
	r := &runner{world: newWorld(t), now: time.Unix(1000, 0)}
	r.create(t, strings.Replace(g1, "mtu:", "repair: local\n"+keys+"mtu:", 1))
	r.happened()
	return r
}

func (r *runner) second(t *testing.T, sent, merged, two, three roce.PSN) api.Group {
	t.Helper()
	r.now = r.now.Add(time.Second)
	r.sw.Progress("g1", sent, merged, map[string]roce.PSN{"10.77.0.2": two, "10.77.0.3": three})
	r.watch.Look("g1", r.now)
	return r.group(t)
}

// A group that has lost a receiver is not ready: an operator reads which one, and why.
func TestAGroupNamesAReceiverInTrouble(t *testing.T) {
	for _, c := range []struct {
		what     feedback.Note
		syndrome roce.Syndrome
		want     string
	}{
		{feedback.NoteEvicted, 0, "evicted: it lacks the source's PSN 1501 and what follows"},
		{feedback.NoteBehind, 0, "behind: it lacks the source's PSN 1501, which the source no longer has"},
		{feedback.NoteFatal, roce.NAKRemoteAccess, "it has answered the source's packet 1501 with " + roce.NAKRemoteAccess.String() + ", which ends its QP; " +
			refused.Answered(roce.NAKRemoteAccess)},
		{feedback.NoteSilent, 0, "it has stalled: it acknowledges nothing, and others are further"},
		{feedback.NoteRepairing, 0, ""},
	} {
		r := newRunner(t, "")
		tell := func(ip string) api.GroupSummary {
			r.note(dataplane.Note{Group: r.groups.Named("g1").ID, Receiver: addr(ip), RemoteQPN: 1, What: c.what, PSN: 1501, Syndrome: c.syndrome})
			return r.Groups().Groups[0]
		}
		check := func(g api.GroupSummary, want string) {
			t.Helper()
			state := api.Degraded
			if c.want == "" {
				state, want = api.Ready, ""
			}
			if g.State != state || g.Reason != want || !g.ClearToSend || g.GoesOn != (c.want != "") {
				t.Errorf("%v: %+v, want %q", c.what, g, want)
			}
		}
		check(tell("10.77.0.3"), "10.77.0.3: "+c.want)
		check(tell("10.77.0.2"), "10.77.0.2: "+c.want+"; and 1 more")
		check(r.group(t).GroupSummary, "10.77.0.2: "+c.want+"; and 1 more")

		r.edit("g1", func(g *groups.Group) { g.TreeProblem = "a box is missing" }) // that comes first
		if g := r.group(t); g.State != api.Degraded || g.Reason != "a box is missing" || g.GoesOn {
			t.Errorf("%v: %+v", c.what, g.GroupSummary)
		}

		// Without the receiver the group is whole.
		r = newRunner(t, "")
		tell("10.77.0.3")
		text := strings.Replace(g1, "mtu:", "repair: local\nmtu:", 1)
		if _, err := r.Update(t.Context(), "g1", []byte(text[:strings.LastIndex(text, "  - {ip: 10.77.0.3")])); err != nil {
			t.Fatal(err)
		}
		if g := r.group(t); g.State != api.Ready || g.Reason != "" {
			t.Errorf("%v, after an update: %+v", c.what, g.GroupSummary)
		}
	}
}

// A stall ends, and the group is ready again. A group whose progress is not looked at does not know
// that, and does not call it a stall.
func TestAStallEnds(t *testing.T) {
	for keys, want := range map[string]string{"": api.Degraded, "degraded-after: 0\n": api.Ready} {
		r := newRunner(t, "ack: quorum 1\n"+keys)
		r.second(t, 2000, 2000, 1500, 2000)
		r.note(dataplane.Note{Group: r.groups.Named("g1").ID, Receiver: addr("10.77.0.2"), RemoteQPN: 1, What: feedback.NoteSilent, PSN: 1501})
		if g := r.second(t, 2000, 2000, 1500, 2000); g.State != want {
			t.Errorf("%q: %+v", keys, g.GroupSummary)
		}
		if g := r.second(t, 2000, 2000, 1600, 2000); g.State != api.Ready {
			t.Errorf("%q, when it acknowledges again: %+v", keys, g.GroupSummary)
		}
	}
}

// A receiver that is only behind the others has not stalled yet.
func TestAReceiverThatLagsHasNotStalled(t *testing.T) {
	r := newRunner(t, "ack: quorum 1\n")
	r.second(t, 2000, 2000, 1500, 2000)
	r.note(dataplane.Note{Group: r.groups.Named("g1").ID, Receiver: addr("10.77.0.3"), RemoteQPN: 1, What: feedback.NoteSilent, PSN: 2001})
	if g := r.group(t); g.Reason != "10.77.0.3: it has stalled: it acknowledges nothing, and others are further" {
		t.Errorf("%+v", g.GroupSummary)
	}
}

// A receiver that ended its QP in an earlier life of the group is not held against the next.
func TestARefusalEndsWithTheGroup(t *testing.T) {
	r := newRunner(t, "")
	g := r.groups.Named("g1")
	r.note(dataplane.Note{Group: g.ID, Receiver: addr("10.77.0.2"), RemoteQPN: 1, What: feedback.NoteFatal, PSN: 1501})
	g.ID++
	if why := view.Trouble(&g.Version); why != "" {
		t.Error(why)
	}
	g.Found.Refusals.Add(g.ID, g.File.Receivers[1].ID(), "x")
	if why := view.Trouble(&g.Version); why != "10.77.0.3: x" {
		t.Error(why)
	}
	g.ID--
}

// A box behind is named, and not the end of its link.
func TestABoxInTroubleIsNamed(t *testing.T) {
	_, b1 := newFork(t)
	g := b1.groups.Named("g1")
	end := g.Links[0].Member(g.Wanted)
	g.Links[0].Later = []groups.Later{{ID: g.Links[0].Members[0], Out: true}} // says no more than the box's own trouble
	b1.note(dataplane.Note{Group: g.ID, Receiver: end.IP, RemoteQPN: end.RemoteQPN, What: feedback.NoteEvicted, PSN: 7})
	if s := b1.Groups().Groups[0]; s.State != api.Degraded || s.Reason != "box b2: evicted: it lacks the source's PSN 7 and what follows" {
		t.Errorf("%+v", s)
	}
}

// The root names a receiver that another box has put out, once it has heard of it.
func TestAReceiverInTroubleBehindABoxIsNamed(t *testing.T) {
	f := newTree(t)
	f.create(strings.Replace(groupFile("10.1.0.2", "10.3.0.1", "10.3.0.2"), "mtu:", "silent-after: 1s\nevict: true\nmtu:", 1))
	b3 := f.box("b3")
	b3.note(dataplane.Note{Group: b3.groups.Named("g1").ID, Receiver: addr("10.3.0.1"), RemoteQPN: 1, What: feedback.NoteEvicted, PSN: 1007})
	f.renewAll()
	for _, c := range []struct{ box, want string }{
		{"b1", "10.3.0.1: it takes no part any more; group show at box b2 says why"},
		{"b2", "10.3.0.1: it takes no part any more; group show at box b3 says why"},
		{"b3", "10.3.0.1: evicted: it lacks the source's PSN 1007 and what follows"},
	} {
		if s := f.box(c.box).Groups().Groups[0]; s.State != api.Degraded || s.Reason != c.want || !s.GoesOn {
			t.Errorf("%s: %+v", c.box, s)
		}
	}
}

// A receiver whose data comes by repair alone, or which repair cannot help, is named after the time
// after which a group is degraded. One that is repaired now and then is not.
func TestAReceiverThatNeedsRepairForLongIsNamed(t *testing.T) {
	r := newRunner(t, "degraded-after: 2s\n")
	look := func(two feedback.PathSnapshot) api.GroupSummary {
		r.now = r.now.Add(time.Second)
		r.sw.Carry("g1", 2000)
		r.sw.Merge(r.groups.Named("g1").ID, 2000)
		two.Part, two.Acked = feedback.PartActive, 2000
		r.sw.Repair("10.77.0.2", two, 0)
		r.sw.Repair("10.77.0.3", feedback.PathSnapshot{Part: feedback.PartActive, Acked: 2000}, 0)
		r.watch.Look("g1", r.now)
		return r.Groups().Groups[0]
	}
	repaired, direct, unmended := feedback.PathSnapshot{Repairing: true}, feedback.PathSnapshot{}, feedback.PathSnapshot{Repairing: true, Unmended: true}
	const slow, alone = "10.77.0.2: it gets its data by repair alone: its link loses packets, or it is slow", "10.77.0.2: repair has fallen back on the source, which has to send packet 2001 again"
	for i, c := range []struct {
		two  feedback.PathSnapshot
		want string
	}{
		{repaired, ""}, {repaired, ""}, {direct, ""}, {repaired, ""}, {repaired, ""}, {repaired, slow}, {repaired, slow},
		{unmended, slow}, {unmended, slow}, {unmended, alone}, {repaired, slow}, {direct, ""},
	} {
		if s := look(c.two); s.Reason != c.want || (s.State == api.Degraded) != (c.want != "") || !s.ClearToSend {
			t.Errorf("second %d: %+v, want %q", i, s, c.want)
		}
	}
	r.expectEvents(t, "degraded g1: "+slow, "restored g1: no member is in trouble any more")
	for range 9 {
		r.sw.Part(r.groups.Named("g1").ID, "10.77.0.2", feedback.PartGone) // what it needed does not matter any more
		if s := look(direct); s.State != api.Ready {
			t.Errorf("%+v", s)
		}
	}
}

// A host that the kernel has asked in vain may still get its frames: the group is clear to send,
// and not ready.
func TestAHostThatDoesNotAnswerIsNamed(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.happened()
	set := func(silent bool) api.GroupSummary {
		hop := ctltest.Hop(2, "eth2", 1500, 2)
		if hop.Silent = silent; silent {
			hop.Reason = "10.77.0.2 does not answer on eth2"
		}
		w.hops.Set(map[string]nexthop.Hop{"10.77.0.2": hop})
		w.network.HopsChanged([]netip.Addr{addr("10.77.0.2")})
		w.watch.Look("g1", time.Unix(1, 0))
		return w.Groups().Groups[0]
	}
	const want = "10.77.0.2: its host does not answer when the box asks for its MAC"
	for range 2 {
		if s := set(true); s.State != api.Degraded || s.Reason != want || !s.ClearToSend || !s.GoesOn {
			t.Errorf("%+v", s)
		}
	}
	w.expectEvents(t, "member-unreachable g1 10.77.0.2: 10.77.0.2 does not answer on eth2", "degraded g1: "+want)
	if s := set(false); s.State != api.Ready {
		t.Errorf("%+v", s)
	}
	w.expectEvents(t, "member-reachable g1 10.77.0.2: it is reached through eth2", "restored g1: no member is in trouble any more")
}

// One function says what state a group is in: the list, the group, the status and its problems
// agree.
func TestEveryViewOfAGroupSaysTheSame(t *testing.T) {
	r := newRunner(t, "")
	r.note(dataplane.Note{Group: r.groups.Named("g1").ID, Receiver: addr("10.77.0.2"), RemoteQPN: 1, What: feedback.NoteEvicted, PSN: 7})
	list, one, status := r.Groups().Groups[0], r.group(t).GroupSummary, r.Status()
	if len(status.Problems) != 1 || status.Groups[api.Degraded] != 1 || status.Groups[api.Ready] != 0 {
		t.Fatalf("%+v", status)
	}
	if p := status.Problems[0]; list != one || p.State != list.State || p.Reason != list.Reason || p.Blocks || !strings.HasPrefix(p.Reason, "10.77.0.2: evicted") {
		t.Errorf("%+v, %+v, %+v", list, one, p)
	}
}

// A cause comes before what is only seen of another member.
func TestACauseIsNamedFirst(t *testing.T) {
	r := newRunner(t, "ack: quorum 1\n")
	r.second(t, 2000, 2000, 1500, 2000)
	g := r.groups.Named("g1")
	for ip, what := range map[string]feedback.Note{"10.77.0.2": feedback.NoteSilent, "10.77.0.3": feedback.NoteEvicted} {
		r.note(dataplane.Note{Group: g.ID, Receiver: addr(ip), RemoteQPN: 1, What: what, PSN: 1501})
	}
	if why := view.Trouble(&g.Version); why != "10.77.0.3: evicted: it lacks the source's PSN 1501 and what follows; and 1 more" {
		t.Error(why)
	}
}

// What is known to keep a box behind from getting on is a cause too, and named as the box says it.
func TestABoxBehindNamesTheCauseOfAStandstill(t *testing.T) {
	_, b1 := newFork(t)
	g := b1.groups.Named("g1")
	end := g.Links[0].Member(g.Wanted)
	g.Links[0].Absent = []api.Absent{{Box: "b2", Member: "10.2.0.1", Reason: "eth1 has no carrier"}, {Box: "b2", Reason: "x"}}
	if who, why := view.HeldUpBy(&g.Version); why != "" {
		t.Errorf("nothing waits for %v: %s", who, why)
	}
	g.Found.AtFloor = map[groupfile.ID]bool{end.ID(): true}
	if who, why := view.HeldUpBy(&g.Version); who != end.ID() || why != "10.2.0.1 at box b2: eth1 has no carrier; and 1 more" {
		t.Errorf("%v: %s", who, why)
	}
}
