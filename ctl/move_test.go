package ctl

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/branches"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// goes moves host 10.n.0.1, as the boxes' routes have it, to box at: by the given way from b1.
func (f *fabric) goes(host string, way ...string) {
	for i, name := range way {
		b := f.box(name)
		hop := f.box("b1").hops.Hop(addr("10.1.0.2"))
		if i+1 < len(way) {
			hop = b.hops.Hop(linkIP(f.box(way[i+1]).n))
			hop.Gateways = nexthop.GatewaysOf(linkIP(f.box(way[i+1]).n))
		}
		b.hops.Set(map[string]nexthop.Hop{host: hop})
		b.network.HopsChanged([]netip.Addr{addr(host)})
	}
	f.tendAll(time.Now())
}

// joins tells a box that a receiver of its group has got its first packet.
func (b *box) joins(ip string, psn roce.PSN) {
	g := b.groups.Named("g1")
	for i := range g.File.Receivers {
		if m := &g.File.Receivers[i]; m.IP == addr(ip) {
			b.note(dataplane.Note{Group: g.ID, What: feedback.NoteJoined, Receiver: m.IP, RemoteQPN: m.RemoteQPN, PSN: psn})
			return
		}
	}
	b.f.t.Fatalf("%s has no member at %s", b.name, ip)
}

// asks sends the last request for a branch again, for another version of the link.
func (f *fabric) asks(file *groupfile.File, l *groups.Link) {
	f.t.Helper()
	b := f.asked
	b.Version, b.Link, b.Yours, b.Begun, b.Later = l.Version, l.Local, &l.Remote, l.Begun, nil
	b.File = string(file.BranchText(l.MembersIn(file)))
	for _, m := range l.Later {
		b.Later = append(b.Later, m.Message())
	}
	if _, err := f.box(l.Box).Branches.PutBranch(f.t.Context(), "b1", "g1", b); err != nil {
		f.t.Fatal(err)
	}
}

// renewAll renews all links, from the last box to the first.
func (f *fabric) renewAll() {
	for i := range f.boxes {
		b := f.boxes[len(f.boxes)-1-i]
		if g := b.groups.Named("g1"); g != nil {
			b.due("g1")
			b.Branches.Tend(f.t.Context(), g)
		}
	}
}

// expects checks that a host gets the PSNs that its QP expects, whatever boxes are on the way.
// first is the source's PSN with which it expects the psn of its file.
func (f *fabric) expects(ip string, first roce.PSN) {
	f.t.Helper()
	ahead := first.Sub(1000) // the source's first PSN
	b := f.box("b1")
	for {
		g := b.published("g1")
		var next *box
		for i := range g.Paths {
			p := &g.Paths[i]
			switch l := groups.LinkOf(b.groups.Named("g1").Links, idOf(ip)); {
			case p.Dst == addr(ip):
				a := addr(ip).As4()
				if want := roce.PSN(10*int(a[1]) + int(a[3])); g.Source.FirstPSN.Add(ahead).Add(g.DeltaPSN(i)) != want {
					f.t.Errorf("at %s, the source's PSN %d is %d for %s, want %d", b.name, first, g.Source.FirstPSN.Add(ahead).Add(g.DeltaPSN(i)), ip, want)
				}
				return
			case l != nil && p.Dst == addr(l.Remote.IP):
				next = f.box(l.Box)
				ahead = g.Source.FirstPSN.Add(ahead).Add(g.DeltaPSN(i)).Sub(next.published("g1").Source.FirstPSN)
			}
		}
		if next == nil {
			f.t.Fatalf("%s has no way to %s: %s", b.name, ip, f.shape())
		}
		b = next
	}
}

// A running member moves behind a link that the group has: the box there and this one begin again,
// with another queue pair for the link. It also moves on, and back, and to this box.
func TestAMemberMovesBehindARunningLink(t *testing.T) {
	f, b1, b2 := newLeaves(t, groupFile("10.1.0.2", "10.2.0.1", "10.3.0.1", "10.3.0.2"))
	before := *b2.groups.Named("g1").Branch
	f.goes("10.3.0.1", "b1", "b2")
	f.check("b1: 10.1.0.2 b2 b3 | b2: 10.2.0.1 10.3.0.1 | b3: 10.3.0.2")
	f.expects("10.3.0.1", 1000)
	f.expects("10.2.0.1", 1000)
	after := b2.groups.Named("g1").Branch
	if after.Link.QPN == before.Link.QPN || after.Own.QPN == before.Own.QPN {
		t.Errorf("the link has the queue pairs %+v and %+v, as before", after.Link, after.Own)
	}
	if !b1.published("g1").Restored || !b2.published("g1").Restored || f.box("b3").published("g1").Restored {
		t.Error("not both boxes begin again, or b3 does")
	}
	if g, _ := b1.Group("g1"); g.State != api.Ready {
		t.Errorf("%+v", g.GroupSummary)
	}
	for _, name := range []string{"b2", "b1"} {
		f.box(name).restart(false, false)
		f.renewAll()
		f.check("b1: 10.1.0.2 b2 b3 | b2: 10.2.0.1 10.3.0.1 | b3: 10.3.0.2")
		f.expects("10.3.0.1", 1000)
	}
	f.goes("10.3.0.1", "b1")
	f.check("b1: 10.1.0.2 10.3.0.1 b2 b3 | b2: 10.2.0.1 | b3: 10.3.0.2")
	f.expects("10.3.0.1", 1000)
	f.goes("10.3.0.1", "b1", "b3")
	f.check("b1: 10.1.0.2 b2 b3 | b2: 10.2.0.1 | b3: 10.3.0.1 10.3.0.2")
	f.expects("10.3.0.1", 1000)
	if err := b1.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	f.nothingLeft()
}

// When a group begins again because a member moves, what the data path knew of the others is kept,
// though its notes were dropped. It is stored before the group begins again, or the member stays.
func TestAMoveKeepsWhatIsKnownOfTheOthers(t *testing.T) {
	f, b1, b2 := twoBoxes(t)
	f.create(groupFile("10.1.0.2", "10.1.0.3", "10.2.0.1", "10.2.0.2"))
	b1.sw.Carry("g1", 1005)
	b1.update(t, groupFile("10.1.0.2", "10.1.0.3", "10.2.0.1", "10.2.0.2", "10.1.0.4"))
	b1.happens(feedback.NoteEvicted, "10.1.0.3", 1, 1003)
	b1.happens(feedback.NoteJoined, "10.1.0.4", 1, 1004)
	before, again := b1.published("g1"), b1.noState(t)
	f.goes("10.2.0.1", "b1")
	if b1.published("g1") != before || b1.groups.Named("g1").TreeProblem == "" {
		t.Errorf("it has moved, though that could not be stored: %q", b1.groups.Named("g1").TreeProblem)
	}
	f.check("b1: 10.1.0.2 10.1.0.3 10.1.0.4 b2 | b2: 10.2.0.1 10.2.0.2")
	again()
	f.tendAll(time.Now())
	for range 2 {
		if p := b1.published("g1"); p.FindPath(addr("10.1.0.3"), 1) >= 0 || p.FindPath(addr("10.2.0.1"), 1) < 0 {
			t.Error("who was evicted takes part again, or the member has not moved")
		}
		f.expects("10.1.0.4", 1004)
		f.expects("10.2.0.1", 1000)
		b1.restart(false, false)
		f.renewAll()
	}
	if b2.published("g1").FindPath(addr("10.2.0.1"), 1) >= 0 {
		t.Error("the member is at both boxes")
	}
}

// Members that joined later keep their PSNs wherever they move: behind a link that was there,
// behind one that joined later itself, over two boxes, and to the root.
func TestAMemberThatJoinedLaterMoves(t *testing.T) {
	f := newFabric(t, 4, "b1 b2", "b1 b3", "b3 b4")
	b1, b2, b3, b4 := f.box("b1"), f.box("b2"), f.box("b3"), f.box("b4")
	b1.route(2, "b2")
	b1.route(3, "b3")
	b1.route(4, "b3")
	b3.route(4, "b4")
	f.create(groupFile("10.1.0.2", "10.2.0.1"))
	b1.sw.Carry("g1", 1005)
	b1.update(t, groupFile("10.1.0.2", "10.2.0.1", "10.2.0.2", "10.3.0.1", "10.4.0.1"))
	f.check("b1: 10.1.0.2 b2 b3 | b2: 10.2.0.1 10.2.0.2 | b3: 10.3.0.1 b4 | b4: 10.4.0.1")
	b2.joins("10.2.0.2", 1008) // a box with the source's own PSNs
	b1.joins("10.9.0.3", 1008) // b3's group begins with that packet
	b3.sw.Carry("g1", 1003)
	b1.update(t, groupFile("10.1.0.2", "10.2.0.1", "10.2.0.2", "10.3.0.1", "10.4.0.1", "10.4.0.2"))
	b4.joins("10.4.0.2", b4.published("g1").Source.FirstPSN.Add(12)) // 1020 at the source
	f.renewAll()
	late := map[string]roce.PSN{"10.2.0.1": 1000, "10.2.0.2": 1008, "10.3.0.1": 1008, "10.4.0.1": 1008}
	all := func(want string) {
		t.Helper()
		f.check2(want)
		for ip, first := range late {
			f.expects(ip, first)
		}
	}
	f.goes("10.2.0.2", "b1", "b3")
	all("b1: 10.1.0.2 b2 b3 | b2: 10.2.0.1 | b3: 10.2.0.2 10.3.0.1 b4 | b4: 10.4.0.1 10.4.0.2")
	f.goes("10.2.0.2", "b1", "b3", "b4")
	all("b1: 10.1.0.2 b2 b3 | b2: 10.2.0.1 | b3: 10.3.0.1 b4 | b4: 10.2.0.2 10.4.0.1 10.4.0.2")
	f.goes("10.4.0.2", "b1")
	late["10.4.0.2"] = 1020
	all("b1: 10.1.0.2 10.4.0.2 b2 b3 | b2: 10.2.0.1 | b3: 10.3.0.1 b4 | b4: 10.2.0.2 10.4.0.1")
	f.goes("10.4.0.1", "b1", "b2")
	all("b1: 10.1.0.2 10.4.0.2 b2 b3 | b2: 10.2.0.1 10.4.0.1 | b3: 10.3.0.1 b4 | b4: 10.2.0.2")
	f.goes("10.2.0.1", "b1", "b3", "b4")
	all("b1: 10.1.0.2 10.4.0.2 b2 b3 | b2: 10.4.0.1 | b3: 10.3.0.1 b4 | b4: 10.2.0.1 10.2.0.2")
	// A box that has lost its state gets the PSNs from the box above.
	f.renewAll()
	b4.restart(false, true)
	b4.hops.CopyFrom(b3.hops)
	for _, ip := range []string{"10.2.0.1", "10.2.0.2"} {
		b4.hops.Set(map[string]nexthop.Hop{ip: b1.hops.Hop(addr("10.1.0.2"))})
	}
	f.renewAll()
	f.check2("b1: 10.1.0.2 10.4.0.2 b2 b3 | b2: 10.4.0.1 | b3: 10.3.0.1 b4 | b4: 10.2.0.1 10.2.0.2")
	f.expects("10.2.0.1", 1000)
	f.expects("10.2.0.2", 1008)
}

// A receiver that was evicted stays out wherever it moves, and one that is still joining stays
// where it is.
func TestWhoMovesWithoutAPlace(t *testing.T) {
	f := newFabric(t, 3, "b1 b2", "b1 b3")
	b1, b2, b3 := f.box("b1"), f.box("b2"), f.box("b3")
	b1.route(2, "b2")
	b1.route(3, "b3")
	text := func(receivers ...string) string { return evicting(groupFile(receivers...)) }
	f.create(text("10.1.0.2", "10.2.0.1", "10.3.0.1", "10.3.0.2"))
	b1.sw.Carry("g1", 1005)
	b3.sw.Carry("g1", 1005)
	b1.update(t, text("10.1.0.2", "10.2.0.1", "10.3.0.1", "10.3.0.2", "10.3.0.3"))
	g := b3.groups.Named("g1")
	b3.note(dataplane.Note{Group: g.ID, What: feedback.NoteEvicted, Receiver: addr("10.3.0.1"), RemoteQPN: 1, PSN: 1002})
	f.goes("10.3.0.1", "b1", "b2")
	f.check("b1: 10.1.0.2 b2 b3 | b2: 10.2.0.1 | b3: 10.3.0.2 10.3.0.3")
	if s := b2.groups.Named("g1").Past.Standing(idOf("10.3.0.1")); s != chronicle.Lost {
		t.Errorf("the evicted receiver is %q", s)
	}
	f.goes("10.3.0.3", "b1", "b2")
	f.check("b1: 10.1.0.2 b2 b3 | b2: 10.2.0.1 | b3: 10.3.0.2 10.3.0.3")
	if g, _ := b1.Group("g1"); g.State != api.Degraded || !strings.Contains(g.Reason, "10.3.0.3 stays where it was: it is joining") {
		t.Errorf("%+v", g.GroupSummary)
	}
	b3.joins("10.3.0.3", 1010)
	f.renewAll()
	f.tendAll(time.Now())
	f.check("b1: 10.1.0.2 b2 b3 | b2: 10.2.0.1 10.3.0.3 | b3: 10.3.0.2")
	f.expects("10.3.0.3", 1010)
	if g, _ := b1.Group("g1"); g.State == api.Degraded && !g.GoesOn { // of the evicted one
		t.Errorf("%+v", g.GroupSummary)
	}
	// The evicted one comes to the root, and is still out.
	f.goes("10.3.0.1", "b1")
	if s := b1.groups.Named("g1").Past.Standing(idOf("10.3.0.1")); s != chronicle.Lost {
		t.Errorf("the evicted receiver is %q", s)
	}
}

// evicting has a box go on without receivers that are silent.
func evicting(text string) string {
	return strings.Replace(text, "mtu:", "silent-after: 1s\nevict: true\nmtu:", 1)
}

// A receiver that its old box evicts while other boxes prepare for the move stays out: the source
// no longer has what it lacks. So it does if only the data path of the old box knows of it, or if
// another member comes to the old box meanwhile.
func TestAMemberThatIsEvictedWhileItMovesStaysOut(t *testing.T) {
	for name, swaps := range map[string]bool{"it moves": false, "another one takes its place": true} {
		f, b1, b2 := newLeaves(t, evicting(groupFile("10.1.0.2", "10.2.0.1", "10.2.0.2", "10.3.0.1", "10.3.0.2")))
		b3 := f.box("b3")
		b3.sw.Carry("g1", 1005)
		moves := false
		f.cuts(func(_, to, method string) (bool, bool) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if to == "b3" && f.asked.Hear && moves { // b2 and b3 have answered who comes
				b3.happens(feedback.NoteEvicted, "10.3.0.1", 1, 1002)
			}
			moves = moves || to == "b2" && method == "PUT" && !f.asked.Hear
			return true, true
		})
		if swaps {
			hop := b1.hops.Hop(addr("10.1.0.2"))
			b3.hops.Set(map[string]nexthop.Hop{"10.2.0.2": hop})
			hop.Gateways = nexthop.GatewaysOf(linkIP(3))
			b1.hops.Set(map[string]nexthop.Hop{"10.2.0.2": hop})
		}
		f.goes("10.3.0.1", "b1", "b2")
		t.Log(name)
		if g, _ := b1.Group("g1"); g.State != api.Degraded || !strings.Contains(g.Reason, "10.3.0.1 has gone out of the group while other boxes prepared for the move") {
			t.Errorf("%+v", g.GroupSummary)
		}
		for range 2 {
			f.tendAll(time.Now())
		}
		if s := b2.groups.Named("g1").Past.Standing(idOf("10.3.0.1")); s != chronicle.Lost {
			t.Errorf("the evicted receiver is %q", s)
		}
		if g, _ := b1.Group("g1"); g.State == api.Degraded && !g.GoesOn || !b1.groups.Named("g1").MembershipOf(idOf("10.3.0.1")).Out {
			t.Errorf("%+v", g.GroupSummary)
		}
	}
}

// The same if this box has gone on without the link to which the member moves, or without a member
// of its own.
func TestALinkThatIsEvictedWhileAMemberComes(t *testing.T) {
	f, b1, b2 := newLeaves(t, evicting(groupFile("10.1.0.2", "10.1.0.3", "10.2.0.1", "10.3.0.1")))
	out := ""
	f.cuts(func(_, to, method string) (bool, bool) {
		if to == "b2" && method == "PUT" && out != "" {
			l := groups.LinkTo(b1.groups.Named("g1").Links, "b2")
			m := l.Member(b1.groups.Named("g1").Wanted)
			if out != "b2" {
				m.IP, m.RemoteQPN = addr(out), 1
			}
			b1.happens(feedback.NoteEvicted, m.IP.String(), m.RemoteQPN, 1002)
			out = ""
		}
		return true, true
	})
	out = "10.1.0.3"
	f.goes("10.1.0.3", "b1", "b2")
	if g, _ := b1.Group("g1"); !strings.Contains(g.Reason, "10.1.0.3 has gone out of the group") {
		t.Errorf("%+v", g.GroupSummary)
	}
	f.tendAll(time.Now())
	if s := b2.groups.Named("g1").Past.Standing(idOf("10.1.0.3")); s != chronicle.Lost {
		t.Errorf("the evicted receiver is %q", s)
	}
	out = "b2"
	f.goes("10.1.0.2", "b1", "b2")
	if g, _ := b1.Group("g1"); !strings.Contains(g.Reason, "10.9.0.2 has gone out of the group") {
		t.Errorf("%+v", g.GroupSummary)
	}
	f.check("b1: 10.1.0.2 b2 b3 | b2: 10.2.0.1 | b3: 10.3.0.1")
	f.tendAll(time.Now())
	if g, _ := b1.Group("g1"); !strings.Contains(g.Reason, "box b2 takes no part in the group any more") {
		t.Errorf("%+v", g.GroupSummary)
	}
}

// Who is evicted two levels below stays out, too: boxes between ask before they answer. They answer
// in time if one behind them does not.
func TestAMemberThatIsEvictedFarBelowStaysOut(t *testing.T) {
	for _, answers := range []bool{true, false} {
		f, b1, _, b3 := threeBoxes(t)
		f.create(evicting(groupFile("10.1.0.2", "10.2.0.1", "10.3.0.1", "10.3.0.2")))
		b1.sw.Carry("g1", 1005)
		b3.happens(feedback.NoteEvicted, "10.3.0.1", 1, 1002)
		f.cuts(func(_, to, _ string) (bool, bool) { return answers || to != "b3", true })
		f.goes("10.3.0.1", "b1")
		if out := b1.groups.Named("g1").MembershipOf(idOf("10.3.0.1")).Out; out != answers {
			t.Errorf("b3 answers: %v, and the receiver is out: %v", answers, out)
		}
		if l := groups.LinkTo(b1.groups.Named("g1").Links, "b2"); l.Problem != "" {
			t.Errorf("b2 did not answer: %s", l.Problem)
		}
	}
}

// A move to a box that refuses, or whose answer is lost, leaves the group with its old links.
func TestAMoveBehindARunningLinkFails(t *testing.T) {
	for name, fail := range map[string]func(f *fabric){
		"the request is lost": func(f *fabric) { f.cuts(func(_, to, _ string) (bool, bool) { return to != "b2", true }) },
		"the answer is lost":  func(f *fabric) { f.cuts(func(_, to, _ string) (bool, bool) { return true, to != "b2" }) },
		"b2 refuses":          func(f *fabric) { f.box("b2").sw.Refuse(errors.New("the classifier is full")) },
		"b1 cannot publish it": func(f *fabric) {
			f.box("b1").sw.Refuse(errors.New("the classifier is full"))
		},
	} {
		f, b1, _ := newLeaves(t, groupFile("10.1.0.2", "10.2.0.1", "10.3.0.1"))
		local := groups.LinkTo(b1.groups.Named("g1").Links, "b2").Local
		fail(f)
		f.goes("10.3.0.1", "b1", "b2")
		f.cuts(nil)
		b1.due("g1")
		f.goes("10.3.0.1", "b1", "b3")
		t.Log(name)
		f.check("b1: 10.1.0.2 b2 b3 | b2: 10.2.0.1 | b3: 10.3.0.1")
		if got := groups.LinkTo(b1.groups.Named("g1").Links, "b2").Local; got != local {
			t.Errorf("%s: the end of the link is %+v, was %+v", name, got, local)
		}
		f.goes("10.3.0.1", "b1", "b2")
		f.check("b1: 10.1.0.2 b2 | b2: 10.2.0.1 10.3.0.1")
		f.expects("10.3.0.1", 1000)
	}
}

// A box that carries the group and is told of a member that runs, on the same link, must not take
// it for one that joins: the box begins its branch again.
func TestAMemberThatRunsDoesNotJoin(t *testing.T) {
	f, b1, b2 := twoBoxes(t)
	f.create(groupFile("10.1.0.2", "10.2.0.1"))
	b2.sw.Carry("g1", 1005)
	file, err := groupfile.Parse([]byte(groupFile("10.1.0.2", "10.2.0.1", "10.2.0.2")))
	if err != nil {
		t.Fatal(err)
	}
	l := *b1.groups.Named("g1").Links[0]
	since := roce.PSN(1003)
	l.Members, l.Later, l.Version = append(l.Members, idOf("10.2.0.2")), []groups.Later{{ID: idOf("10.2.0.2"), Since: &since}}, l.Version+1
	f.asks(file, &l)
	if past := b2.groups.Named("g1").Past; past.Standing(idOf("10.2.0.2")) != chronicle.Joined || past.Since(idOf("10.2.0.2")) != 1003 {
		t.Errorf("%+v", past)
	}
	if !b2.published("g1").Restored {
		t.Error("it did not begin again")
	}
	// Nor does one that comes with another queue pair of the link, and of which nobody knows since
	// when it takes part.
	if file, err = groupfile.Parse([]byte(groupFile("10.1.0.2", "10.2.0.1", "10.2.0.2", "10.2.0.3"))); err != nil {
		t.Fatal(err)
	}
	l.Members, l.Local.QPN, l.Version = append(l.Members, idOf("10.2.0.3")), l.Local.QPN+1, l.Version+1
	f.asks(file, &l)
	past := b2.groups.Named("g1").Past
	if a, b := past.Standing(idOf("10.2.0.2")), past.Standing(idOf("10.2.0.3")); a != chronicle.Joined || b != chronicle.Lost {
		t.Errorf("%s, %s", a, b)
	}
}

// One that is joining at a box that does not answer does not hold up the move, and is lost.
func TestAJoiningMemberOfADeadBoxMoves(t *testing.T) {
	f, b1, b2 := newLeaves(t, groupFile("10.1.0.2", "10.2.0.1", "10.3.0.1"))
	b1.update(t, groupFile("10.1.0.2", "10.2.0.1", "10.3.0.1", "10.3.0.2"))
	f.cuts(func(_, to, _ string) (bool, bool) { return to != "b3", true })
	f.renewAll()
	f.goes("10.3.0.2", "b1", "b2")
	if s := b2.groups.Named("g1").Past.Standing(idOf("10.3.0.2")); s != chronicle.Lost {
		t.Errorf("it is %q", s)
	}
}

// A link that is joining itself cannot take a member that runs before it has joined.
func TestAMemberMovesBehindALinkThatJoins(t *testing.T) {
	f, b1, b2 := newLeaves(t, groupFile("10.1.0.2", "10.3.0.1", "10.3.0.2"))
	b1.update(t, groupFile("10.1.0.2", "10.3.0.1", "10.3.0.2", "10.2.0.1"))
	f.goes("10.3.0.1", "b1", "b2")
	f.check("b1: 10.1.0.2 b2 b3 | b2: 10.2.0.1 | b3: 10.3.0.1 10.3.0.2")
	if g, _ := b1.Group("g1"); !strings.Contains(g.Reason, "box b2, behind which members are now, takes part only from the source's next message on") {
		t.Errorf("%+v", g.GroupSummary)
	}
	b1.joins("10.9.0.2", 1010)
	b2.sw.Carry("g1", 1003)
	f.tendAll(time.Now())
	f.check2("b1: 10.1.0.2 b2 b3 | b2: 10.2.0.1 10.3.0.1 | b3: 10.3.0.2")
	f.expects("10.3.0.1", 1000)
	f.expects("10.2.0.1", 1010)
	// What the answer to a move says of others is not forgotten.
	b1.update(t, groupFile("10.1.0.2", "10.3.0.1", "10.3.0.2", "10.2.0.1", "10.2.0.2"))
	b2.joins("10.2.0.2", b2.published("g1").Source.FirstPSN.Add(5))
	f.goes("10.3.0.2", "b1", "b2")
	if at := b1.groups.Named("g1").MembershipOf(idOf("10.2.0.2")); !at.Known || at.Since != 1015 {
		t.Errorf("%+v", at)
	}
}

// Members behind a link that joined later take part since then, and the root knows it.
func TestAMemberBehindALateLinkMovesToTheRoot(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.1.0.2", "10.3.0.1"))
	b1, b2 := f.box("b1"), f.box("b2")
	b1.sw.Carry("g1", 1005)
	b2.sw.Carry("g1", 1005)
	b1.update(t, groupFile("10.1.0.2", "10.3.0.1", "10.4.0.1"))
	b2.joins("10.9.0.4", 1012)
	f.renewAll()
	f.goes("10.4.0.1", "b1")
	f.check("b1: 10.1.0.2 10.4.0.1 b2 | b2: b3 | b3: 10.3.0.1")
	f.expects("10.4.0.1", 1012)
}

// Where a member behind a link may become the source, the link's other end is a receiver as well.
func TestAMemberMovesBehindALinkThatMaySend(t *testing.T) {
	f, b1, b2 := newLeaves(t, strings.Replace(groupFile("10.1.0.2", "10.2.0.1", "10.3.0.1", "10.3.0.2"), "psn: 21,", "psn: 21, role: both, sendPSN: 7,", 1))
	b1.edit("g1", func(g *groups.Group) { // a long turn is stored again; the routes change after that
		g.Past.Renew(&mft.Turn{First: mft.Sender{NextPSN: g.File.Source.FirstPSN.Add(1 << 20), Messages: 9}})
	})
	f.goes("10.3.0.1", "b1", "b2")
	f.check("b1: 10.1.0.2 b2 b3 | b2: 10.2.0.1 10.3.0.1 b1 | b3: 10.3.0.2")
	published := b1.groups.Named("g1").Published
	for i := range published.Paths {
		p := &published.Paths[i]
		if m := published.Turn.Member(p.QP()); m == nil || m.Expects.Sub(p.FirstPSN) != 1<<20 {
			t.Errorf("%v begins at %d and is restored as %+v", p.QP(), p.FirstPSN, m)
		}
	}
	g := b2.groups.Named("g1")
	if id := g.File.Source.ID(); g.Source != id || g.Past.Standing(id) != "" {
		t.Errorf("the source is %v (%q), and the upper box is %v", g.Source, g.Past.Standing(id), id)
	}
}

// Links have addresses of the group's family.
func TestAGroupAndANeighbourOfAnotherFamily(t *testing.T) {
	f, b1, b2 := twoBoxes(t)
	b1.Branches.Neighbours[0].Address, b1.Branches.Neighbours[0].Local = addr("fd00::2"), addr("fd00::1")
	b2.Branches.Neighbours[0].Address, b2.Branches.Neighbours[0].Local = addr("fd00::1"), addr("fd00::2")
	b1.Branches.Neighbours[0].Behind = []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}
	f.refused(groupFile("10.1.0.2", "10.2.0.1"), "ip is 10.1.0.100 and members are behind neighbour b2, whose address is fd00::2; "+
		"the links of a group are of its family")
	f.nothingLeft()
}

// A quorum may have gone on without the member that moves.
func TestAMemberThatAQuorumLeftBehindStays(t *testing.T) {
	f, b1, _ := newLeaves(t, strings.Replace(groupFile("10.1.0.2", "10.2.0.1", "10.3.0.1"), "mtu:", "ack: quorum 2\nmtu:", 1))
	b1.sw.Merge(b1.groups.Named("g1").ID, 1003)
	f.goes("10.3.0.1", "b1", "b2")
	f.check("b1: 10.1.0.2 b2 b3 | b2: 10.2.0.1 | b3: 10.3.0.1")
	if g, _ := b1.Group("g1"); g.State != api.Degraded || !strings.Contains(g.Reason, "10.3.0.1 may lack packets that the quorum did not wait for") {
		t.Errorf("%+v", g.GroupSummary)
	}
	b1.sw.Merge(b1.groups.Named("g1").ID, 999)
	f.tendAll(time.Now())
	f.check("b1: 10.1.0.2 b2 | b2: 10.2.0.1 10.3.0.1")
	if w := groups.LinkTo(b1.groups.Named("g1").Links, "b2").Weight; w != 2 {
		t.Errorf("the link counts %d receivers", w)
	}
}

// Nor may it go behind a new link together with a member that has more: the link counts as a whole.
// Those that were behind one link before have the same for this box, and may.
func TestMembersThatAQuorumLeftBehindMoveOnlyTogether(t *testing.T) {
	f := newFabric(t, 4, "b1 b2", "b1 b3", "b1 b4")
	b1 := f.box("b1")
	for i, box := range []string{"b2", "b3", "b4"} {
		b1.route(i+2, box)
	}
	f.createMerging(strings.Replace(groupFile("10.1.0.2", "10.2.0.1", "10.3.0.1", "10.3.0.2"), "mtu:", "ack: quorum 2\nmtu:", 1))
	b1.sw.Carry("g1", 1005)
	b1.sw.Merge(b1.groups.Named("g1").ID, 1003)
	leads := func(host, box string) {
		hop := b1.hops.Hop(addr("10.1.0.2"))
		f.box(box).hops.Set(map[string]nexthop.Hop{host: hop})
		hop.Gateways = nexthop.GatewaysOf(linkIP(f.box(box).n))
		b1.hops.Set(map[string]nexthop.Hop{host: hop})
		b1.network.HopsChanged([]netip.Addr{addr(host)})
	}
	leads("10.2.0.1", "b4")
	leads("10.3.0.1", "b4")
	f.tendAll(time.Now())
	f.check("b1: 10.1.0.2 b2 b3 | b2: 10.2.0.1 | b3: 10.3.0.1 10.3.0.2")
	if g, _ := b1.Group("g1"); g.State != api.Degraded || !strings.Contains(g.Reason, "may lack packets that the quorum did not wait for") {
		t.Errorf("%+v", g.GroupSummary)
	}
	leads("10.2.0.1", "b2")
	leads("10.3.0.2", "b4")
	f.tendAll(time.Now())
	f.check("b1: 10.1.0.2 b2 b4 | b2: 10.2.0.1 | b4: 10.3.0.1 10.3.0.2")
}

// The quorum may also go on without the member while the other box prepares for it.
func TestAMemberThatAQuorumLeavesBehindMeanwhileStays(t *testing.T) {
	f, b1, _ := newLeaves(t, strings.Replace(groupFile("10.1.0.2", "10.2.0.1", "10.3.0.1"), "mtu:", "ack: quorum 2\non-fatal: fail\nmtu:", 1))
	b1.sw.Merge(b1.groups.Named("g1").ID, 999)
	f.cuts(func(_, to, _ string) (bool, bool) {
		if to == "b2" { // only the move asks it: there is no evicted receiver to ask for
			b1.sw.Merge(b1.groups.Named("g1").ID, 1003)
		}
		return true, true
	})
	f.goes("10.3.0.1", "b1", "b2")
	f.check("b1: 10.1.0.2 b2 b3 | b2: 10.2.0.1 | b3: 10.3.0.1")
	if g, _ := b1.Group("g1"); g.State != api.Degraded || !strings.Contains(g.Reason, "10.3.0.1 may lack packets that the quorum did not wait for") {
		t.Errorf("%+v", g.GroupSummary)
	}
}

// A box that takes a whole group over knows the PSNs of the receivers behind other boxes.
func TestTheWholeGroupIsDescribedToOthers(t *testing.T) {
	f, b1, b2 := twoBoxes(t)
	f.create(groupFile("10.1.0.2", "10.2.0.1"))
	b1.sw.Carry("g1", 1005)
	b1.update(t, groupFile("10.1.0.2", "10.2.0.1", "10.2.0.2", "10.2.0.3"))
	every := func(pause time.Duration) bool {
		asked := b1.groups.Named("g1").Links[0].Asked
		return len(b1.Branches.Due(asked.Add(pause))) == 0 && len(b1.Branches.Due(asked.Add(pause+1))) == 1
	}
	if !every(2 * time.Second) {
		t.Error("the box where receivers are joining is asked like others")
	}
	b2.joins("10.2.0.2", 1010)
	b2.joins("10.2.0.3", 1010)
	f.renewAll()
	if !every(branches.DefaultLease / 3) {
		t.Error("the box where all have joined is not asked like others")
	}
	b1.restart(false, false) // it has stored what it has heard
	all := b1.groups.Named("g1").Everywhere()
	for _, c := range []struct {
		ip   string
		want chronicle.Standing
	}{{"10.1.0.2", ""}, {"10.2.0.1", ""}, {"10.2.0.2", chronicle.Joined}, {"10.2.0.3", chronicle.Joined}} {
		if got := all.Standing(idOf(c.ip)); got != c.want {
			t.Errorf("%s is %q, want %q", c.ip, got, c.want)
		}
	}
	if got := all.Since(groupfile.ID{IP: addr("10.2.0.2"), RemoteQPN: 1}); got != 1010 {
		t.Errorf("since %d", got)
	}
}

// A group has failed at a restart when the box below answers with another end of its link. What is
// done with it then touches no other group: its ID in the data path is nobody's, or another's.
func TestAFailedGroupGetsAnotherEndOfALink(t *testing.T) {
	f := newTree(t)
	b2, b3 := f.box("b2"), f.box("b3")
	f.create(strings.Replace(groupFile("10.1.0.2", "10.2.0.1", "10.3.0.1"), "mtu: 1024\n", "mtu: 1024\nrepair: local\n", 1))
	other := strings.NewReplacer("name: g1", "name: a", "10.1.0.100", "10.2.0.100", "{ip: 10.1.0.1, qpn: 17", "{ip: 10.2.0.3, qpn: 17",
		"mtu: 1024\n", "mtu: 1024\nrepair: off\n").Replace(groupFile("10.2.0.2"))
	b2.create(t, other)
	b2.small = true // no memory to retain packets: g1 fails
	b2.restart(true, false)
	if g := b2.groups.Named("g1"); g.Published != nil || g.ID != b2.groups.Named("a").ID {
		t.Fatalf("g1 has ID %d: the test shows nothing", g.ID)
	}
	for range 2 { // the first one sets the link up again
		b3.edit("g1", func(g *groups.Group) { g.Branch.Own.QPN++ })
		b2.due("g1")
		b2.Branches.Tend(t.Context(), b2.groups.Named("g1"))
	}
	if b2.published("a") == nil {
		t.Error("the other group is out of the data path")
	}
}
