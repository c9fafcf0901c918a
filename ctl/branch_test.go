package ctl

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
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

func mftQPN(n uint32) roce.QPN { return roce.QPN(n) }

// newTree returns a root b1 over b2, which leads to b3 and b4, with all routes.
func newTree(t *testing.T) *fabric {
	f := newFabric(t, 4, "b1 b2", "b2 b3", "b2 b4")
	for n := 2; n <= 4; n++ {
		f.box("b1").route(n, "b2")
	}
	f.box("b2").route(1, "b1")
	f.box("b2").route(3, "b3")
	f.box("b2").route(4, "b4")
	return f
}

func (f *fabric) create(text string) api.Group {
	f.t.Helper()
	return f.box("b1").create(f.t, text)
}

func (f *fabric) refused(text string, want ...string) {
	f.t.Helper()
	_, err := f.box("b1").Create(f.t.Context(), []byte(text))
	if err == nil {
		f.t.Fatal("the group was created")
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			f.t.Errorf("%v\nlacks %q", err, w)
		}
	}
}

const wholeTree = "b1: 10.1.0.2 b2 | b2: 10.2.0.1 b3 b4 | b3: 10.3.0.1 10.3.0.2 | b4: 10.4.0.1"

var everywhere = []string{"10.1.0.2", "10.2.0.1", "10.3.0.1", "10.3.0.2", "10.4.0.1"}

func TestAGroupStandsAtAllBoxes(t *testing.T) {
	f := newTree(t)
	g := f.create(groupFile(everywhere...))
	f.check(wholeTree)
	if len(g.Notes) > 0 || g.State != api.Ready || g.MemberCount != 6 || len(g.Links) != 1 || g.Links[0].Box != "b2" || len(g.Links[0].Members) != 4 {
		t.Errorf("%+v", g)
	}
	// The group's IP is where hosts are, and not on the links.
	for name, want := range map[string]string{"b1": "10.1.0.100@1 x1 10.1.0.100@2 x1", "b2": "10.1.0.100@2 x1", "b3": "10.1.0.100@1 x1 10.1.0.100@2 x1", "b4": "10.1.0.100@2 x1"} {
		if got := f.box(name).addresses.String(); got != want {
			t.Errorf("%s has [%s], want [%s]", name, got, want)
		}
	}
	// VA and R_Key pass a link as they are, and every box has the source's PSNs on its links.
	published := f.box("b1").published("g1")
	path := published.Paths[1]
	if r := path.Regions.Region(published.Memory, 0); r != (mft.Region{VA: 0x10000, Length: 4096, RKey: 0x77}) || path.FirstPSN != 1000 {
		t.Errorf("%+v", path)
	}
	if b := f.box("b4").groups.Named("g1").Branch; b.Root != "b1" || strings.Join(b.Visited, " ") != "b1 b2" {
		t.Errorf("%+v", b)
	}
	if err := f.box("b1").Remove("g1"); err != nil {
		t.Fatal(err)
	}
	f.nothingLeft()
}

func TestALinkIsOneReceiverForAllBehindIt(t *testing.T) {
	f := newTree(t)
	f.createMerging(strings.Replace(groupFile(everywhere...), "mtu: 1024", "mtu: 1024\nack: quorum 3\nsilent-after: 100ms\nevict: true", 1))
	f.check(wholeTree)
	// The user is told what that means.
	if g, _ := f.box("b1").Group("g1"); len(g.Notes) != 1 || g.Notes[0] != "the quorum counts the 4 receivers behind box b2 all together: once each of them has a packet, and before that none of them" {
		t.Errorf("%q", g.Notes)
	}
	if p := f.box("b1").published("g1"); p.Policy.Ack != 3 || p.Paths[1].Receivers != 4 || !p.Policy.Evict {
		t.Errorf("%+v", p)
	}
	// A box behind acknowledges what all of its receivers have, and none leaves it alone. So it
	// hears with the next change.
	f.box("b1").update(t, strings.Replace(groupFile(append(everywhere, "10.4.0.2")...), "mtu: 1024", "mtu: 1024\nack: quorum 3\nsilent-after: 100ms\nevict: true", 1))
	for name, silent := range map[string]time.Duration{"b2": 50 * time.Millisecond, "b3": 25 * time.Millisecond} {
		p := f.box(name).published("g1").Policy
		if p.Ack != feedback.AckAll || p.OnFatal != feedback.FatalFail || p.Evict || p.SilentAfter != silent {
			t.Errorf("%s: %+v", name, p)
		}
	}
	// One that joins lacks what was acknowledged: the quorum does not count it.
	if got := f.box("b1").published("g1").Paths[1].Receivers; got != 4 {
		t.Errorf("the link counts as %d", got)
	}
}

func TestAnySubtreeMaySendWhereAMemberMay(t *testing.T) {
	f := newTree(t)
	text := strings.NewReplacer("role: source", "role: both, sendPSN: 1000, regions: {va: 0, length: 4096, rkey: 7}", "psn: 31,", "psn: 31, role: both, sendPSN: 300,").Replace(groupFile(everywhere...))
	f.create(text)
	b1, b2 := f.box("b1").published("g1"), f.box("b2").published("g1")
	if len(b1.Paths) != 3 || !b1.Paths[2].Sends || f.shape() != "b1: 10.1.0.1 10.1.0.2 b2 | b2: 10.2.0.1 b1 b3 b4 | b3: 10.3.0.1 10.3.0.2 b2 | b4: 10.4.0.1" {
		t.Fatal(f.shape())
	}
	up, down := b1.Paths[2], b2.Paths[1]
	if up.SendPSN != down.FirstPSN || up.FirstPSN != down.SendPSN || b2.Source.FirstPSN != up.FirstPSN || !down.Sends {
		t.Errorf("b1 has %+v\nb2 has %+v", up, down)
	}
	if b2.Paths[3].Sends || !b2.Paths[2].Sends {
		t.Error("the wrong subtree may send")
	}
	// A box does without any path but the one to the box above.
	for _, b := range f.boxes {
		for _, p := range b.published("g1").Paths {
			if above := p.Dst == linkIP(b.n-1) || b.n == 4 && p.Dst == linkIP(2); (p.Box == mft.BoxAbove) != above {
				t.Errorf("%s needs %v: %v", b.name, p.Dst, p.Box)
			}
		}
	}
}

// Whatever box fails, the error names it and the cause, and nothing stays anywhere.
func TestAFailingSubtreeLeavesNothingBehind(t *testing.T) {
	for _, failing := range []string{"b1", "b2", "b3", "b4"} {
		f := newTree(t)
		f.box(failing).sw.Refuse(errors.New("the classifier is full"))
		want := "the classifier is full"
		if failing != "b1" {
			want = "box " + failing + " refuses: " + want
		}
		if failing > "b2" {
			want = "box b2 refuses: group g1 could not be set up: " + want
		}
		f.refused(groupFile(everywhere...), want)
		f.nothingLeft()
		f.create(groupFile(everywhere...))
		f.check(wholeTree)
	}
}

func TestABoxThatDoesNotAnswerIsNamed(t *testing.T) {
	for _, dead := range []string{"b2", "b4"} {
		f := newTree(t)
		f.cuts(func(_, to, _ string) (bool, bool) { return to != dead, to != dead })
		f.refused(groupFile(everywhere...), "box "+dead+": it does not answer")
		f.nothingLeft()
	}
}

// An answer that is lost looks as if the box had failed: what it has made is taken back.
func TestALostAnswerLeavesNothingBehind(t *testing.T) {
	f := newTree(t)
	f.cuts(func(_, to, method string) (bool, bool) { return true, to != "b4" || method != "PUT" })
	f.refused(groupFile(everywhere...), "box b4: it does not answer")
	f.nothingLeft()
}

// If the withdrawal is lost too, the lease ends what stayed.
func TestALeaseEndsWhatCouldNotBeWithdrawn(t *testing.T) {
	f := newTree(t)
	f.cuts(func(_, to, method string) (bool, bool) { return to != "b4" || method == "PUT", to != "b4" })
	f.refused(groupFile(everywhere...), "box b4: it does not answer")
	if f.shape() != "b4: 10.4.0.1" {
		t.Fatal(f.shape())
	}
	b4 := f.box("b4")
	ends := b4.groups.Named("g1").Branch.Expires
	early, late := ends.Add(-time.Millisecond), ends.Add(time.Millisecond)
	if due := b4.Branches.Due(early); len(due) != 0 {
		t.Error("it ends early")
	}
	if due := b4.Branches.Due(late); len(due) != 1 {
		t.Error("it is not due")
	}
	b4.edit("g1", func(g *groups.Group) { g.Branch.Expires = time.Now().Add(-time.Millisecond) })
	b4.Branches.Tend(t.Context(), b4.groups.Named("g1"))
	f.nothingLeft()
}

// A branch that carries data stays although nobody renews it: only the requests do not arrive.
func TestABranchThatCarriesDataOutlivesItsLease(t *testing.T) {
	f := newTree(t)
	f.create(groupFile(everywhere...))
	b4 := f.box("b4")
	expire := func() bool {
		b4.edit("g1", func(g *groups.Group) { g.Branch.Expires = time.Now().Add(-time.Millisecond) })
		b4.Branches.Tend(t.Context(), b4.groups.Named("g1"))
		return b4.groups.Named("g1") == nil
	}
	for _, psn := range []roce.PSN{1005, 1009} {
		b4.sw.Carry("g1", psn)
		if expire() {
			t.Fatalf("it ended at PSN %d", psn)
		}
		if left := time.Until(b4.groups.Named("g1").Branch.Expires); left < branches.DefaultLease-time.Second {
			t.Errorf("its lease is %v", left)
		}
	}
	if !expire() {
		t.Error("it stays although no data came")
	}
}

func TestLeasesAreRenewedInTime(t *testing.T) {
	f := newTree(t)
	f.create(groupFile(everywhere...))
	b1, b2 := f.box("b1"), f.box("b2")
	now := b1.groups.Named("g1").Links[0].Asked
	if due := b1.Branches.Due(now.Add(branches.DefaultLease/3 - time.Millisecond)); len(due) != 0 {
		t.Error("renewed early")
	}
	if due := b1.Branches.Due(now.Add(branches.DefaultLease/3 + time.Millisecond)); len(due) != 1 {
		t.Error("not renewed")
	}
	b2.edit("g1", func(g *groups.Group) { g.Branch.Expires = now.Add(time.Second) })
	b1.edit("g1", func(g *groups.Group) { g.Links[0].Asked = now.Add(-branches.DefaultLease / 2) })
	f.tendAll(now)
	if left := time.Until(b2.groups.Named("g1").Branch.Expires); left < branches.DefaultLease-time.Second {
		t.Errorf("the lease has %v left", left)
	}
	f.check(wholeTree)
	// A box that does not answer is asked again soon, and group show says so meanwhile.
	f.cuts(func(_, to, _ string) (bool, bool) { return to != "b2", to != "b2" })
	b1.edit("g1", func(g *groups.Group) { g.Links[0].Asked = now.Add(-branches.DefaultLease / 2) })
	f.tendAll(now)
	if g, _ := b1.Group("g1"); g.State != api.Degraded || g.Reason != "box b2: it does not answer (timeout)" || g.Links[0].State != api.Degraded {
		t.Errorf("%+v", g.GroupSummary)
	}
	f.cuts(nil)
	f.tendAll(time.Now().Add(2*time.Second + time.Second))
	b1.edit("g1", func(g *groups.Group) { g.Links[0].Asked = now.Add(-time.Minute) })
	f.tendAll(time.Now())
	if g, _ := b1.Group("g1"); g.State != api.Ready || g.Reason != "" {
		t.Errorf("%+v", g.GroupSummary)
	}
}

// A plain router between hides the boxes from the routes, and the config says who is behind which
// one: the longest network counts, and several boxes may have the same.
func TestTheConfigSaysWhatIsBehindABox(t *testing.T) {
	f := newFabric(t, 3, "b1 b2", "b1 b3")
	networks := func(texts ...string) (list []netip.Prefix) {
		for _, text := range texts {
			list = append(list, netip.MustParsePrefix(text))
		}
		return list
	}
	b1 := f.box("b1")
	b1.Branches.Neighbours[0].Behind = networks("10.0.0.0/8", "10.3.0.0/24", "10.3.0.8/32")
	b1.Branches.Neighbours[1].Behind = networks("10.3.0.0/24", "10.3.0.0/16", "10.3.0.7/32")
	for ip, want := range map[string]string{"10.9.0.1": "b2", "10.3.1.1": "b3", "10.3.0.1": "b2 b3", "10.3.0.7": "b3", "10.3.0.8": "b2", "11.0.0.1": ""} {
		boxes, err := b1.Branches.Through(&groupfile.Member{IP: addr(ip)}, nil)
		if got := strings.Join(boxes, " "); got != want || err != nil {
			t.Errorf("%s is behind %q (%v), want %q", ip, got, err, want)
		}
	}
	b1.Branches.Neighbours[0].Behind = nil
	f.create(groupFile("10.1.0.2", "10.3.0.1"))
	f.check("b1: 10.1.0.2 b3 | b3: 10.3.0.1")
}

// What is missing behind the boxes is said at the root.
func TestTheRootSaysWhoIsWaitedFor(t *testing.T) {
	f := newTree(t)
	f.box("b4").hops.Set(map[string]nexthop.Hop{"10.4.0.1": {Interface: 1, Reason: "10.4.0.1 does not answer on eth1"}})
	g := f.create(groupFile(everywhere...))
	if g.State != api.Waiting || g.WaitingCount != 1 || g.Reason != "10.4.0.1 at box b4: 10.4.0.1 does not answer on eth1" {
		t.Errorf("%+v", g.GroupSummary)
	}
	f.box("b4").hops.Set(map[string]nexthop.Hop{"10.4.0.1": f.box("b4").hops.Hop(addr("10.4.0.2"))})
	f.box("b4").network.HopsChanged([]netip.Addr{addr("10.4.0.1")})
	for _, name := range []string{"b2", "b1"} {
		b := f.box(name)
		b.due("g1")
		b.Branches.Tend(t.Context(), b.groups.Named("g1"))
	}
	if g, _ := f.box("b1").Group("g1"); g.State != api.Ready || g.WaitingCount != 0 {
		t.Errorf("%+v", g.GroupSummary)
	}
}

// Requests may come twice, late, and in another order.
func TestOldRequestsChangeNothing(t *testing.T) {
	f := newTree(t)
	f.create(groupFile(everywhere...))
	before := f.sent
	for _, again := range before {
		if err := again(); err != nil {
			t.Error(err)
		}
	}
	f.check(wholeTree)
	f.box("b1").update(t, groupFile("10.1.0.2", "10.2.0.1", "10.3.0.1"))
	const smaller = "b1: 10.1.0.2 b2 | b2: 10.2.0.1 b3 | b3: 10.3.0.1"
	f.check(smaller)
	stale := func(want string) {
		t.Helper()
		for i, again := range before {
			if err := again(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("request %d: %v", i, err)
			}
		}
	}
	stale("is older than version")
	f.check(smaller)
	if err := f.box("b1").Remove("g1"); err != nil {
		t.Fatal(err)
	}
	stale("is older than version")
	f.nothingLeft()
}

// A withdrawal may overtake the request that it withdraws.
func TestAWithdrawalBeforeItsRequest(t *testing.T) {
	f := newTree(t)
	var late func() error
	f.cuts(func(_, to, method string) (bool, bool) { return to != "b4" || method != "PUT", true })
	f.refused(groupFile(everywhere...), "b4")
	f.cuts(nil)
	b2, b4 := f.box("b2"), f.box("b4")
	late = func() error {
		_, err := b4.Branches.PutBranch(t.Context(), "b2", "g1", api.Branch{
			Registration: api.Registration, Root: "b1", Epoch: 1, Visited: []string{"b1", "b2"}, Version: f.withdrawn["b4"], Lease: 60, Within: 1000,
			Link: api.LinkEnd{IP: "10.9.0.2", QPN: 900, PSN: 5}, File: "",
		})
		return err
	}
	if err := late(); err == nil || !strings.Contains(err.Error(), "is older than version") {
		t.Error(err)
	}
	_ = b2
	f.nothingLeft()
}

func TestAGroupHasOneRoot(t *testing.T) {
	f := newTree(t)
	f.box("b3").route(4, "b2")
	f.box("b3").create(t, strings.NewReplacer("10.1.0.1,", "10.3.0.1,", "qpn: 17", "qpn: 99").Replace(groupFile("10.3.0.2")))
	f.refused(groupFile("10.1.0.2", "10.3.0.1"), "group g1 was created at box b3 itself, and box b1 is the root of another group with that name; write another name")
	if got := f.shape(); got != "b3: 10.3.0.2" {
		t.Error(got)
	}
	if err := f.box("b3").Remove("g1"); err != nil {
		t.Fatal(err)
	}
	f.create(groupFile("10.1.0.2", "10.4.0.1"))
	_, err := f.box("b3").Create(t.Context(), []byte(strings.NewReplacer("10.1.0.1,", "10.3.0.1,", "qpn: 17", "qpn: 99").Replace(groupFile("10.3.0.2", "10.4.0.2"))))
	if want := "box b2 carries group g1 for the root b1, and box b3 is the root of another group with that name; write another name"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	for _, do := range []error{f.box("b2").Remove("g1"), func() error {
		_, err := f.box("b2").Update(t.Context(), "g1", []byte(groupFile("10.1.0.2")))
		return err
	}()} {
		if want := "group g1 was created on box b1, which asks this box for a part of it; change or remove it there"; do == nil || do.Error() != want {
			t.Errorf("\ngot  %v\nwant %s", do, want)
		}
	}
	f.check("b1: 10.1.0.2 b2 | b2: b4 | b4: 10.4.0.1")
}

// Two boxes that create the same group at the same time do not wait for each other.
func TestTwoRootsAtTheSameTime(t *testing.T) {
	f := newFabric(t, 2, "b1 b2")
	f.box("b1").route(2, "b2")
	f.box("b2").route(1, "b1")
	fromB2 := strings.NewReplacer("10.1.0.1,", "10.2.0.1,", "qpn: 17", "qpn: 99", "10.1.0.100", "10.2.0.100").Replace(groupFile("10.1.0.2"))
	unlock, _, err := f.box("b2").groups.Names.Lock(t.Context(), "g1", "")
	if err != nil {
		t.Fatal(err)
	}
	f.refused(groupFile("10.2.0.2"), "box b2 refuses: group g1 is being changed at box b2 itself; try again, or write another name")
	unlock()
	if _, err := f.box("b2").Create(t.Context(), []byte(fromB2)); err != nil {
		t.Error(err)
	}
}

func TestALoopIsRefused(t *testing.T) {
	f := newFabric(t, 3, "b1 b2", "b2 b3", "b3 b1")
	f.box("b1").route(8, "b2")
	f.box("b2").route(8, "b3")
	f.box("b3").route(8, "b1")
	f.refused(groupFile("10.1.0.2", "10.8.0.1"), "the way to 10.8.0.1 leads from box b3 back to box b1 (b1, b2, b3, b1); correct the routes")
	f.nothingLeft()
	_, err := f.box("b1").Branches.PutBranch(t.Context(), "b2", "g1", api.Branch{Registration: api.Registration, Root: "b1", Visited: []string{"b1", "b2"}})
	if want := "group g1 comes back to box b1, by b1, b2; correct the routes to its members"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Two ways that meet again at a box would send it each packet twice.
func TestTwoWaysDoNotMeet(t *testing.T) {
	f := newFabric(t, 4, "b1 b2", "b1 b3", "b2 b4", "b3 b4")
	b1 := f.box("b1")
	b1.route(4, "b2")
	hop := b1.hops.Hop(addr("10.4.0.2"))
	hop.Gateways = nexthop.GatewaysOf(linkIP(3))
	b1.hops.Set(map[string]nexthop.Hop{"10.4.0.2": hop})
	f.box("b2").route(4, "b4")
	f.box("b3").route(4, "b4")
	f.refused(groupFile("10.4.0.1", "10.4.0.2"), "two ways of group g1 meet at box b4", "correct the routes")
	f.nothingLeft()
	b1.route(4, "b2", "b3") // as ECMP has it
	f.create(groupFile("10.4.0.1", "10.4.0.2"))
	if len(b1.groups.Named("g1").Links) != 1 {
		t.Error(f.shape())
	}
}

func TestWhatABranchRefuses(t *testing.T) {
	f := newFabric(t, 2, "b1 b2")
	good := func() api.Branch {
		file := parsed(t, groupFile("10.2.0.1"))
		return api.Branch{
			Registration: api.Registration, Root: "b1", Epoch: 1, Visited: []string{"b1"}, Version: 7, Lease: 60, Within: 1000,
			Link: api.LinkEnd{IP: "10.9.0.1", QPN: 900, PSN: 5}, File: string(file.BranchText(file.Receivers)),
		}
	}
	for want, change := range map[string]func(*api.Branch) string{
		"box b9 is not a neighbour of box b2; add it to neighbours: in the config of b2":                                                                        func(*api.Branch) string { return "b9" },
		"box b1 registers with version 1 and box b2 with version 2; run the same version of rocast on both":                                                     func(b *api.Branch) string { b.Registration = 1; return "b1" },
		`the boxes on the way are ["b3"], which do not lead from b1 to b1`:                                                                                      func(b *api.Branch) string { b.Visited = []string{"b3"}; return "b1" },
		`the boxes on the way are [], which do not lead from b1 to b1`:                                                                                          func(b *api.Branch) string { b.Visited = nil; return "b1" },
		"box b1 says that its link address is 10.9.0.7, and neighbours: of box b2 says 10.9.0.1; correct one of them (local: sets the address that a box uses)": func(b *api.Branch) string { b.Link.IP = "10.9.0.7"; return "b1" },
		"QPN 1 and PSN 5 are no end of a link":                                                                                                                  func(b *api.Branch) string { b.Link.QPN = 1; return "b1" },
		"QPN 16777215 and PSN 5 are no end of a link":                                                                                                           func(b *api.Branch) string { b.Link.QPN = 1<<24 - 1; return "b1" },
		"QPN 900 and PSN 16777216 are no end of a link":                                                                                                         func(b *api.Branch) string { b.Link.PSN = 1 << 24; return "b1" },
		"lease is 0 and within is 1000; both must be at least 1":                                                                                                func(b *api.Branch) string { b.Lease = 0; return "b1" },
		"lease is 60 and within is 0; both must be at least 1":                                                                                                  func(b *api.Branch) string { b.Within = 0; return "b1" },
		"the file describes group g1":                                                                                                                           func(b *api.Branch) string { return "b1/g2" },
		"the group file is empty; write its keys":                                                                                                               func(b *api.Branch) string { b.File = ""; return "b1" },
	} {
		b := good()
		upper := change(&b)
		upper, name, special := strings.Cut(upper, "/")
		if !special {
			name = "g1"
		}
		_, err := f.box("b2").Branches.PutBranch(t.Context(), upper, name, b)
		if err == nil || err.Error() != want {
			t.Errorf("\ngot  %v\nwant %s", err, want)
		}
		if e := (*api.Error)(nil); b.File == "" && (!errors.As(err, &e) || e.Kind != api.BadFile) {
			t.Errorf("%s: kind %s", want, e.Kind)
		}
	}
	f.nothingLeft()
	if _, err := f.box("b2").Branches.PutBranch(t.Context(), "b1", "g1", good()); err != nil {
		t.Error(err)
	}
	if err := f.box("b2").Branches.DeleteBranch(t.Context(), "b3", "g1", 9); err == nil || err.Error() != "box b2 does not carry group g1 for box b3" {
		t.Error(err)
	}
	if err := f.box("b2").Branches.DeleteBranch(t.Context(), "b1", "g1", 6); err == nil || err.Error() != "version 6 of group g1 is older than version 7, which came before" {
		t.Error(err)
	}
}

func TestWhatIsRefusedAtTheRoot(t *testing.T) {
	f := newTree(t)
	for want, text := range map[string]string{
		"the source 10.3.0.1 is behind box b2; create the group on the box to which the source is attached":                                   strings.Replace(groupFile("10.1.0.2"), "10.1.0.1,", "10.3.0.1,", 1),
		`the member at 10.1.0.2 has via "b7", which is not a neighbour of this box; correct via, or add the box to neighbours: in the config`: strings.Replace(groupFile("10.1.0.2"), "psn: 12", "psn: 12, via: b7", 1),
		"addressing is virtual-qpn and some members are behind other boxes, where that address does not lead to the box; use addressing: group-ip": strings.Replace(
			strings.Replace(groupFile("10.3.0.2"), "mtu:", "addressing: virtual-qpn\nmtu:", 1), "10.1.0.100", "10.3.0.2", 1),
		"source-switch is force, ack is a quorum and some members are behind other boxes, which would leave receivers behind that the quorum counts; use source-switch: guard": strings.Replace(
			groupFile("10.1.0.2", "10.3.0.1"), "mtu:", "ack: quorum 1\nsource-switch: force\nmtu:", 1),
		"silent-after is 19ms at box b1 and evict is true, and a box behind it needs half of that, which is 10ms at least, or one silent receiver would take all others there along; double silent-after": strings.Replace(
			groupFile("10.1.0.2", "10.3.0.1"), "mtu:", "silent-after: 19ms\nevict: true\nmtu:", 1),
		"box b2 refuses: silent-after is 19.5ms at box b2 and evict is true": strings.Replace(
			groupFile("10.1.0.2", "10.3.0.1"), "mtu:", "silent-after: 39ms\nevict: true\nmtu:", 1),
		"ip 10.1.0.100 is not an address of this box, and with addressing switch-ip members reach the group by an address the box has; add it with ip addr add, or use addressing: group-ip": strings.Replace(
			groupFile("10.3.0.2"), "mtu:", "addressing: switch-ip\nmtu:", 1),
	} {
		f.refused(text, want)
	}
	f.nothingLeft()
	// Where an L2 network hides the boxes, via says who is behind which one.
	f.box("b1").hops.Set(map[string]nexthop.Hop{"10.2.0.3": f.box("b1").hops.Hop(addr("10.1.0.2"))})
	hasty := strings.Replace(groupFile("10.1.0.2", "10.2.0.3"), "mtu:", "silent-after: 20ms\nevict: true\nmtu:", 1) // and not too hasty
	f.create(strings.Replace(hasty, "psn: 23", "psn: 23, via: b2", 1))
	f.check("b1: 10.1.0.2 b2 | b2: 10.2.0.3")
}

func TestReceiversJoinAndLeaveBehindBoxes(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.1.0.2", "10.3.0.1"))
	f.check("b1: 10.1.0.2 b2 | b2: b3 | b3: 10.3.0.1")
	b1, b3 := f.box("b1"), f.box("b3")
	link, end := b1.groups.Named("g1").Links[0].Local, b3.groups.Named("g1").Branch.Own
	b1.update(t, groupFile("10.1.0.2", "10.3.0.1", "10.3.0.2", "10.4.0.1"))
	f.check("b1: 10.1.0.2 b2 | b2: b3 b4 | b3: 10.3.0.1 10.3.0.2 | b4: 10.4.0.1")
	if b1.groups.Named("g1").Links[0].Local != link || b3.groups.Named("g1").Branch.Own != end {
		t.Error("the ends of a link have changed")
	}
	if id := (groupfile.ID{IP: addr("10.3.0.2"), RemoteQPN: 1}); b3.groups.Named("g1").Past.Standing(id) != chronicle.Joining {
		t.Error("a receiver that joins a running branch does not wait for the next message")
	}
	b1.update(t, groupFile("10.1.0.2", "10.3.0.1", "10.3.0.2", "10.4.0.1", "10.2.0.4"))
	f.check("b1: 10.1.0.2 b2 | b2: 10.2.0.4 b3 b4 | b3: 10.3.0.1 10.3.0.2 | b4: 10.4.0.1")
	b1.update(t, groupFile("10.1.0.2", "10.3.0.1", "10.3.0.2"))
	f.check("b1: 10.1.0.2 b2 | b2: b3 | b3: 10.3.0.1 10.3.0.2")
	b1.update(t, groupFile("10.1.0.2"))
	if got := f.shape(); got != "b1: 10.1.0.2" {
		t.Error(got)
	}
	if err := b1.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	f.nothingLeft()
}

// An update that fails at one box changes nothing at any.
func TestAnUpdateThatFailsBehindChangesNothing(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.1.0.2", "10.3.0.1", "10.3.0.3"))
	const was = "b1: 10.1.0.2 b2 | b2: b3 | b3: 10.3.0.1 10.3.0.3"
	f.check(was)
	f.box("b4").sw.Refuse(errors.New("the classifier is full"))
	_, err := f.box("b1").Update(t.Context(), "g1", []byte(groupFile("10.1.0.2", "10.3.0.1", "10.3.0.2", "10.4.0.1")))
	if want := "group g1 could not be set up: box b2 refuses: group g1 could not be set up: box b4 refuses: the classifier is full"; err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	f.check(was)
}

// A box that cannot be told that a receiver has left is told with the renewals.
func TestALeaveThatIsLostIsToldLater(t *testing.T) {
	f := newTree(t)
	f.create(groupFile(everywhere...))
	f.cuts(func(_, to, _ string) (bool, bool) { return to != "b3", to != "b3" })
	f.box("b1").update(t, groupFile("10.1.0.2", "10.2.0.1", "10.3.0.1", "10.4.0.1"))
	if got := f.shape(); got != wholeTree {
		t.Errorf("b3 knows already: %s", got)
	}
	f.cuts(nil)
	f.box("b2").due("g1")
	f.tendAll(time.Now())
	f.check("b1: 10.1.0.2 b2 | b2: 10.2.0.1 b3 b4 | b3: 10.3.0.1 | b4: 10.4.0.1")
}

// A box in the middle that restarts has the same ends, and nobody else notices.
func TestABoxInTheMiddleRestarts(t *testing.T) {
	for _, clean := range []bool{true, false} {
		f := newTree(t)
		f.create(groupFile(everywhere...))
		before := *f.box("b2").groups.Named("g1").Branch
		f.box("b2").restart(clean, false)
		g := f.box("b2").groups.Named("g1")
		if g.Branch.Own != before.Own || g.Branch.Link != before.Link || g.Restored == clean {
			t.Errorf("clean %v: restored %v, %+v, before %+v", clean, g.Restored, g.Branch, before)
		}
		f.tendAll(time.Now())
		for _, l := range g.Links {
			if l.Asked.IsZero() || l.Problem != "" {
				t.Errorf("after the restart %s was not asked: %+v", l.Box, l)
			}
		}
		f.check(wholeTree)
		if err := f.box("b1").Remove("g1"); err != nil {
			t.Fatal(err)
		}
		f.nothingLeft()
	}
}

// A box that has lost its state directory gets the branch back with the next renewal, and at the
// same end. It knows nothing of the data so far: the branch counts as restored. Receivers that
// joined later take no part any more, because only the box knew at which PSN.
func TestABoxThatHasForgottenEverythingRestarts(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.1.0.2", "10.3.0.1"))
	f.box("b1").update(t, groupFile("10.1.0.2", "10.3.0.1", "10.3.0.2"))
	end := f.box("b3").groups.Named("g1").Branch.Own
	f.box("b3").restart(false, true)
	if f.box("b3").groups.Named("g1") != nil {
		t.Fatal("it has not forgotten")
	}
	f.box("b2").due("g1")
	f.tendAll(time.Now())
	f.check("b1: 10.1.0.2 b2 | b2: b3 | b3: 10.3.0.1")
	g := f.box("b3").groups.Named("g1")
	if g.Branch.Own != end || !g.Restored {
		t.Errorf("restored %v, %+v", g.Restored, g.Branch)
	}
	if m := f.box("b3").part(t, "10.3.0.2"); m.State != api.LeftOut {
		t.Errorf("%+v", m)
	}
}

// A box that has lost the file with the links of a group must not take the group for one of its own
// that spans no other box.
func TestMissingLinksFailTheirGroup(t *testing.T) {
	f := newTree(t)
	f.create(groupFile(everywhere...))
	for _, name := range []string{"b1", "b2"} { // the root, and a box between others
		path := filepath.Join(f.box(name).dir, "groups", "g1.tree")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		f.box(name).restart(false, false)
		g, err := f.box(name).Controller.Group("g1")
		want := "the links of group g1 are missing, which were in " + path + "; repair the cause and restart rocastd, or remove the group and create it again"
		if err != nil || g.State != api.Failed || g.Reason != want {
			t.Errorf("%s: %v, %s: %s", name, err, g.State, g.Reason)
		}
	}
}

// The root that restarts after a crash has its links, and renews them.
func TestTheRootRestarts(t *testing.T) {
	f := newTree(t)
	f.create(groupFile(everywhere...))
	f.box("b1").restart(false, false)
	f.check2(wholeTree)
	f.tendAll(time.Now())
	f.check(wholeTree)
	f.box("b1").update(t, groupFile("10.1.0.2", "10.3.0.1"))
	f.check("b1: 10.1.0.2 b2 | b2: b3 | b3: 10.3.0.1")
}

// check2 compares only the shape.
func (f *fabric) check2(want string) {
	f.t.Helper()
	if got := f.shape(); got != want {
		f.t.Errorf("the tree is\n%s\nwant\n%s", got, want)
	}
}

// A group that is created again under its name replaces what the withdrawal has left.
func TestAGroupIsCreatedAgain(t *testing.T) {
	f := newTree(t)
	f.create(groupFile(everywhere...))
	f.cuts(func(_, _, method string) (bool, bool) { return method != "DELETE", true })
	if err := f.box("b1").Remove("g1"); err != nil {
		t.Fatal(err)
	}
	f.create(groupFile("10.1.0.2", "10.3.0.2"))
	if b3 := f.box("b3").published("g1"); b3 == nil || len(b3.Paths) != 1 || b3.Restored {
		t.Errorf("%+v", b3)
	}
}

// Members whose route changes are behind another box afterwards, as after a restart; those of other
// groups stay.
func TestMembersFollowTheirRoutes(t *testing.T) {
	f := newFabric(t, 4, "b1 b2", "b1 b3", "b2 b4", "b3 b4")
	b1 := f.box("b1")
	b1.route(4, "b2")
	f.box("b2").route(4, "b4")
	f.box("b3").route(4, "b4")
	f.create(groupFile("10.1.0.2", "10.4.0.1", "10.4.0.2"))
	f.check("b1: 10.1.0.2 b2 | b2: b4 | b4: 10.4.0.1 10.4.0.2")
	for _, name := range []string{"b1", "b2", "b4"} {
		f.box(name).sw.Carry("g1", 1005)
	}
	b1.route(4, "b2", "b3")
	b1.network.HopsChanged([]netip.Addr{addr("10.4.0.1"), addr("10.4.0.2")})
	f.tendAll(time.Now())
	f.check("b1: 10.1.0.2 b2 | b2: b4 | b4: 10.4.0.1 10.4.0.2") // another way is no reason to move
	b1.route(4, "b3")
	b1.network.HopsChanged([]netip.Addr{addr("10.4.0.1"), addr("10.4.0.2")})
	f.tendAll(time.Now())
	f.check("b1: 10.1.0.2 b3 | b3: b4 | b4: 10.4.0.1 10.4.0.2")
	for _, name := range []string{"b1", "b3", "b4"} {
		if !f.box(name).published("g1").Restored {
			t.Errorf("%s does not treat the group as after a restart", name)
		}
	}
}

func TestTheTreeIsShown(t *testing.T) {
	f := newTree(t)
	f.create(groupFile(everywhere...))
	f.cuts(func(_, to, _ string) (bool, bool) { return to != "b4", to != "b4" })
	tree, err := f.box("b1").Tree(t.Context(), "g1")
	if err != nil {
		t.Fatal(err)
	}
	b2 := tree.Below[0]
	if tree.Box != "b1" || b2.Box != "b2" || b2.Group.Upper.Box != "b1" || len(b2.Below) != 2 {
		t.Fatalf("%+v", tree)
	}
	if b3, b4 := b2.Below[0], b2.Below[1]; b3.Box != "b3" || len(b3.Group.Members) != 3 || b4.Box != "b4" || b4.Reason != "box b4: it does not answer (timeout)" {
		t.Errorf("%+v", b2.Below)
	}
	for _, m := range tree.Group.Members {
		if len(m.Regions) > 0 {
			t.Error("R_Keys are shown")
		}
	}
	if _, err := f.box("b1").Tree(t.Context(), "g7"); err == nil {
		t.Error("a tree of no group")
	}
}

// A box behind passes the fatal NAK of a receiver on: it knows whose that is, and what mends it.
func TestABoxBehindSaysWhoseQPHasEnded(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.3.0.1", "10.4.0.1"))
	b := f.box("b1")
	p := b.published("g1").Paths[0]
	b.note(dataplane.Note{Group: b.groups.Named("g1").ID, Receiver: p.Dst, RemoteQPN: p.RemoteQPN, What: feedback.NoteFatal, PSN: 1501, Syndrome: roce.NAKRemoteAccess})
	want := "box b2: it has answered the source's packet 1501 with NAK remote access, which ends its QP; rocast group show g1 at box b2 says whose QP it is"
	if got := b.Groups().Groups[0].Reason; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A group that cannot be created at a box behind, or cannot follow its routes, is degraded, too.
func TestAFailedRegistrationIsTold(t *testing.T) {
	f := newTree(t)
	f.box("b4").sw.Refuse(errors.New("no room"))
	f.refused(groupFile(everywhere...), "b4")
	f.box("b1").expectEvents(t, "degraded g1: its registration failed: box b2 refuses its part")
	f.box("b2").expectEvents(t, "degraded g1: its registration failed: box b4 refuses its part")
}
