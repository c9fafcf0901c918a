package ctl

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/refused"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// happened returns the events since it was called last, without their times.
func (w *world) happened() (lines []string) {
	lines, w.at = ctltest.Told(w.groups.Events, w.at)
	return lines
}

func (w *world) expectEvents(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, w.happened()); diff != "" {
		t.Error(diff)
	}
}

func TestAGroupsLifeIsTold(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.expectEvents(t, "group-created g1: ")
	without := g1[:strings.LastIndex(g1, "  - {ip: 10.77.0.3")]
	if _, err := w.Update(t.Context(), "g1", []byte(without)); err != nil {
		t.Fatal(err)
	}
	w.expectEvents(t, "group-updated g1: it has 2 members, and had 3", "member-left g1 10.77.0.3: the group was updated without it")
	if _, err := w.Update(t.Context(), "g1", []byte(g1)); err != nil {
		t.Fatal(err)
	}
	w.expectEvents(t, "group-updated g1: it has 3 members, and had 2")
	w.note(dataplane.Note{Group: w.groups.Named("g1").ID, Receiver: netip.MustParseAddr("10.77.0.3"), RemoteQPN: 1, What: feedback.NoteJoined, PSN: 1009})
	w.expectEvents(t, "member-joined g1 10.77.0.3: it takes part since the source's packet 1009 (PSN 1009)")
	if err := w.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	w.expectEvents(t, "group-removed g1: ")
	w.sw.Refuse(errors.New("no room"))
	if _, err := w.Create(t.Context(), []byte(g1)); err == nil {
		t.Error("it was created")
	}
	w.expectEvents(t)
}

func TestWhatHappensToMembersIsTold(t *testing.T) {
	w := newWorld(t)
	w.create(t, strings.Replace(strings.Replace(g1, "mtu:", "silent-after: 200ms\nmtu:", 1),
		"{ip: 10.77.0.3", "{role: both, sendPSN: 7, ip: 10.77.0.3", 1))
	w.happened()
	id := w.groups.Named("g1").ID
	tell := func(ip string, what feedback.Note, syndrome roce.Syndrome) {
		w.note(dataplane.Note{Group: id, Receiver: netip.MustParseAddr(ip), RemoteQPN: 1, What: what, PSN: 1007, Syndrome: syndrome})
	}
	const again = "; to let it join again, group update without it, then with it and the psn its QP expects"
	tell("10.77.0.2", feedback.NoteSilent, 0)
	tell("10.77.0.2", feedback.NoteRepairing, 0)
	tell("10.77.0.2", feedback.NoteFatal, roce.NAKRemoteAccess)
	w.expectEvents(t, "member-stalled g1 10.77.0.2: it has acknowledged nothing for 200ms, and others are further",
		"member-repairing g1 10.77.0.2: for a second it has got all its data by repair: its link loses packets, or it is slow",
		"member-refused g1 10.77.0.2: it has answered the source's packet 1007 with NAK remote access, which ends its QP; "+
			refused.Answered(roce.NAKRemoteAccess)+" (PSN 1007)")
	tell("10.77.0.2", feedback.NoteEdgeLost, 0)
	tell("10.77.0.2", feedback.NoteEdgeWorks, 0)
	w.expectEvents(t, "edge-lost g1 10.77.0.2: shared copies do not reach it, so it gets copies of its own; "+
		"rocast-edge status at 10.77.0.2 says what arrives there, docs/edge.md what a switch needs",
		"edge-works g1 10.77.0.2: shared copies reach it again")
	tell("10.77.0.2", feedback.NoteEvicted, 0)
	tell("10.77.0.2", feedback.NoteEvicted, 0) // a look has found it before
	tell("10.77.0.3", feedback.NoteSource, 0)
	w.expectEvents(t, "member-evicted g1 10.77.0.2: evicted: it lacks the source's PSN 1007 and what follows"+again+" (PSN 1007)",
		"source-switched g1 10.77.0.3: its packet 1007 was the first of its turn (PSN 1007)")
	tell("10.77.0.3", feedback.NoteJoined, 0) // it is no member that was joining
	w.expectEvents(t)
	w.sw.BeginTurn(id, true) // of the first source
	tell("10.77.0.3", feedback.NoteBehind, 0)
	w.expectEvents(t, "member-behind g1 10.77.0.3: behind: it lacks the source's PSN 1007, which the source no longer has"+again+" (PSN 1007)")
	id = 1 << 30 // a group that is gone
	tell("10.77.0.3", feedback.NoteFatal, roce.NAKRemoteAccess)
	w.expectEvents(t)
}

// A host that takes the group's IP is told of, once for each group that has it. The other boxes of
// a group may have it.
func TestAHostThatTakesTheGroupsIPIsTold(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.create(t, anotherGroup("g2", 2))
	w.create(t, strings.Replace(anotherGroup("g3", 3), "10.77.0.100", "10.77.0.101", 1))
	w.happened()
	w.logs.TakeAll()
	claim := address.Claim{MAC: [6]byte{2, 0, 0, 0, 0, 9}, Interface: "eth2"}
	w.network.AddressTaken(addr("10.77.0.100"), claim)
	const cause = ": another host uses its IP: 02:00:00:00:00:09 answers for it on eth2; give that host another address"
	w.expectEvents(t, "address-taken g1"+cause, "address-taken g2"+cause)
	if n := w.logs.Len(); n != 1 {
		t.Errorf("%d lines in the log", n)
	}
	w.network.AddressTaken(addr("10.77.0.102"), claim)
	w.expectEvents(t)
}

func TestTheOtherBoxesOfAGroupMayHaveItsIP(t *testing.T) {
	_, b1 := newFork(t)
	b1.happened()
	g := b1.groups.Named("g1")
	boxes := g.Plan.Boxes()
	if len(boxes) == 0 {
		t.Fatal("there is no other box")
	}
	b1.network.AddressTaken(g.File.IP, address.Claim{MAC: boxes[0], Interface: "eth1"})
	b1.expectEvents(t)
	b1.network.AddressTaken(g.File.IP, address.Claim{MAC: [6]byte{2, 9}, Interface: "eth1"})
	b1.expectEvents(t, "address-taken g1: another host uses its IP: 02:09:00:00:00:00 answers for it on eth1; give that host another address")
}

func TestPortsAndWaysAreTold(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.happened()
	w.network.Refresh()
	w.expectEvents(t)
	w.sw.SetPort(1, dataplane.PortGone, 0)
	w.network.Refresh()
	w.network.Refresh()
	reason := w.PortList().Ports[1].Reason
	w.expectEvents(t, "port-down eth2: "+reason,
		"member-unreachable g1 10.77.0.2: 10.77.0.2 is not behind a port")
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.2": ctltest.Hop(42, "eth2", 1500, 2)})
	w.sw.SetPort(1, dataplane.PortUp, 42)
	w.network.Refresh()
	w.expectEvents(t, "port-up eth2: ", "member-reachable g1 10.77.0.2: it is reached through eth2")
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.2": ctltest.Hop(42, "eth2", 1500, 9)}) // the host has another MAC
	w.network.HopsChanged([]netip.Addr{addr("10.77.0.2")})
	w.expectEvents(t, "route-changed g1 10.77.0.2: it is reached through eth2")
	w.sw.SetFallback(1, "its driver is odd")
	w.network.Refresh()
	w.network.Refresh()
	w.expectEvents(t, "port-generic eth2: its driver is odd")
	if notes := w.Status().Notes; len(notes) != 1 || notes[0] != "eth2 works in generic mode: its driver is odd" {
		t.Errorf("notes %q", notes)
	}
	w.sw.SetFallback(1, "")
	w.network.Refresh()
	w.expectEvents(t)
	w.sw.SetPort(1, dataplane.PortDown, 42)
	w.network.Refresh()
	w.expectEvents(t, "port-down eth2: its link is down")
	if got := w.Events(t.Context(), api.Cursor{}, "g1"); len(got.Events) != 4 || got.Cursor != w.at {
		t.Errorf("the events of g1: %+v", got)
	}
}

// The box above says that a box behind is down, and the box below who asks it.
func TestNeighboursAreTold(t *testing.T) {
	f := newFabric(t, 2, "b1 b2")
	f.box("b1").route(2, "b2")
	f.create(groupFile("10.2.0.1"))
	b1, b2 := f.box("b1"), f.box("b2")
	b1.expectEvents(t, "group-created g1: ")
	b2.expectEvents(t, "group-created g1 b1: box b1 asks for it; it was created on box b1")
	renew := func() {
		b1.due("g1")
		b1.Branches.Tend(t.Context(), b1.groups.Named("g1"))
	}
	f.cuts(func(string, string, string) (bool, bool) { return false, false })
	renew()
	renew()
	b1.expectEvents(t, "neighbour-down g1 b2: box b2: it does not answer (timeout)")
	f.cuts(nil)
	renew()
	renew()
	b1.expectEvents(t, "neighbour-up g1 b2: its part of the group is set up again")
	b2.expectEvents(t)
}
