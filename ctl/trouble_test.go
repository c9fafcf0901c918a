package ctl

import (
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// A group that has lost a receiver is not ready: an operator reads which one, and why.
func TestAGroupNamesAReceiverInTrouble(t *testing.T) {
	for _, c := range []struct {
		what     feedback.Note
		syndrome roce.Syndrome
		want     string
	}{
		{feedback.NoteEvicted, 0, "evicted: it lacks the source's PSN 1501 and what follows"},
		{feedback.NoteBehind, 0, "behind: it lacks the source's PSN 1501, which the source no longer has"},
		{feedback.NoteFatal, roce.NAKRemoteAccess, "it has answered the source's packet 1501 with " + roce.NAKRemoteAccess.String() + ", which ends its QP"},
		{feedback.NoteSilent, 0, "it has stalled: it acknowledges nothing, and others are further"},
		{feedback.NoteRepairing, 0, ""},
	} {
		r := newRunner(t, "")
		tell := func(ip string) api.GroupSummary {
			r.hear(dataplane.Note{Group: r.groups["g1"].id, Receiver: addr(ip), RemoteQPN: 1, What: c.what, PSN: 1501, Syndrome: c.syndrome})
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

		r.groups["g1"].treeProblem = "a box is missing" // that comes first
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
		r.hear(dataplane.Note{Group: r.groups["g1"].id, Receiver: addr("10.77.0.2"), RemoteQPN: 1, What: feedback.NoteSilent, PSN: 1501})
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
	r.hear(dataplane.Note{Group: r.groups["g1"].id, Receiver: addr("10.77.0.3"), RemoteQPN: 1, What: feedback.NoteSilent, PSN: 2001})
	if g := r.group(t); g.Reason != "10.77.0.3: it has stalled: it acknowledges nothing, and others are further" {
		t.Errorf("%+v", g.GroupSummary)
	}
}

// A receiver that ended its QP in an earlier life of the group is not held against the next.
func TestARefusalEndsWithTheGroup(t *testing.T) {
	r := newRunner(t, "")
	g := r.groups["g1"]
	r.hear(dataplane.Note{Group: g.id, Receiver: addr("10.77.0.2"), RemoteQPN: 1, What: feedback.NoteFatal, PSN: 1501})
	g.id++
	if why := g.trouble(); why != "" {
		t.Error(why)
	}
	g.pace.refusals.add(g.id, g.file.Receivers[1].ID(), "x")
	if why := g.trouble(); why != "10.77.0.3: x" {
		t.Error(why)
	}
	g.id--
}

// A box behind is named, and not the end of its link.
func TestABoxInTroubleIsNamed(t *testing.T) {
	_, b1 := newFork(t)
	g := b1.groups["g1"]
	end := g.links[0].member(g.wanted)
	g.links[0].Later = []later{{ID: g.links[0].Members[0], Out: true}} // says no more than the box's own trouble
	b1.hear(dataplane.Note{Group: g.id, Receiver: end.IP, RemoteQPN: end.RemoteQPN, What: feedback.NoteEvicted, PSN: 7})
	if s := b1.Groups().Groups[0]; s.State != api.Degraded || s.Reason != "box b2: evicted: it lacks the source's PSN 7 and what follows" {
		t.Errorf("%+v", s)
	}
}

// The root names a receiver that another box has put out, once it has heard of it.
func TestAReceiverInTroubleBehindABoxIsNamed(t *testing.T) {
	f := newTree(t)
	f.create(strings.Replace(groupFile("10.1.0.2", "10.3.0.1", "10.3.0.2"), "mtu:", "silent-after: 1s\nevict: true\nmtu:", 1))
	b3 := f.box("b3")
	b3.hear(dataplane.Note{Group: b3.groups["g1"].id, Receiver: addr("10.3.0.1"), RemoteQPN: 1, What: feedback.NoteEvicted, PSN: 1007})
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
