package ctl

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

const (
	// receiver3 is the second receiver of g1; updates add receiver4.
	receiver3 = "  - {ip: 10.77.0.3, qpn: 19, psn: 7, regions: [{va: 0x7f1000000000, length: 4096, rkey: 0xfeedbea9}]}\n"
	receiver4 = "  - {ip: 10.77.0.4, qpn: 20, psn: 9, regions: [{va: 0x7f2000000000, length: 4096, rkey: 0xfeedbeaa}]}\n"
	// on the same host as receiver4, with another remote QPN
	receiver4b = "  - {ip: 10.77.0.4, qpn: 21, psn: 3, remoteQPN: 2, regions: [{va: 0x7f3000000000, length: 4096, rkey: 0xfeedbeab}]}\n"

	// bothG1 is a group with members of role both.
	bothG1 = ctltest.BothG1
)

func (w *world) update(t *testing.T, text string) api.Group {
	t.Helper()
	g, err := w.Update(t.Context(), "g1", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// news makes the data path send a note about a member of g1.
func (w *world) news(what feedback.Note, ip string, remoteQPN roce.QPN, psn roce.PSN) {
	w.newsOf("g1", what, ip, remoteQPN, psn)
}

func (w *world) newsOf(group string, what feedback.Note, ip string, remoteQPN roce.QPN, psn roce.PSN) {
	w.note(dataplane.Note{Group: w.groups.Named(group).ID, What: what, Receiver: addr(ip), RemoteQPN: remoteQPN, PSN: psn})
}

// happens is news whose note is lost.
func (w *world) happens(what feedback.Note, ip string, remoteQPN roce.QPN, psn roce.PSN) {
	w.sw.Happens(w.noteOf(what, ip, remoteQPN, psn))
}

func (w *world) noteOf(what feedback.Note, ip string, remoteQPN roce.QPN, psn roce.PSN) dataplane.Note {
	return dataplane.Note{Group: w.groups.Named("g1").ID, What: what, Receiver: addr(ip), RemoteQPN: remoteQPN, PSN: psn}
}

func (w *world) note(n dataplane.Note) {
	w.groups.Lock()
	defer w.groups.Unlock()
	w.sw.Happens(n)
	w.watch.Hear(n)
}

// path returns the published path of g1's receiver, or nil.
func (w *world) path(ip string, remoteQPN roce.QPN) *mft.Path {
	g := w.sw.Table().Group(w.groups.Named("g1").ID)
	if i := g.FindPath(addr(ip), remoteQPN); i >= 0 {
		return &g.Paths[i]
	}
	return nil
}

// part returns the field Part that the API shows for g1's receiver.
func (w *world) part(t *testing.T, ip string) api.Member {
	t.Helper()
	g, err := w.Group("g1")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range g.Members {
		if m.IP == ip {
			return m
		}
	}
	t.Fatalf("%s is not shown: %+v", ip, g.Members)
	return api.Member{}
}

func TestMembersComeAndGo(t *testing.T) {
	w := newWorld(t)
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.4": ctltest.Hop(3, "eth3", 1500, 4)})
	w.create(t, g1)
	id := w.groups.Named("g1").ID
	g := w.update(t, strings.Replace(g1, receiver3, receiver4, 1))
	if w.groups.Named("g1").ID != id || g.State != api.Ready || g.Restored || len(g.Members) != 3 || g.Members[2].IP != "10.77.0.4" {
		t.Errorf("%+v", g)
	}
	// No data has come yet. Even so the new receiver joins with the next message.
	if w.path("10.77.0.3", 1) != nil || w.path("10.77.0.4", 1) == nil || g.Members[1].Part != "active" || g.Members[2].Part != "joining" {
		t.Errorf("%+v", g.Members)
	}
	w.expect(t, "table [g1], addresses [10.77.0.100@1 x1 10.77.0.100@2 x1 10.77.0.100@3 x1], tracking 3, files [g1.state g1.yaml]")
	w.run(t)
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.4": ctltest.Hop(2, "eth2", 1500, 4)})
	if p := w.path("10.77.0.4", 1); p.Port != 1 {
		t.Errorf("the next hop of the new member is not followed: %+v", p)
	}
	if err := w.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	w.expect(t, nothing)
}

// A new member may be behind an interface that no other member is behind.
func TestAnUpdateAddsTheIPWhereNewMembersAre(t *testing.T) {
	w := newWorld(t)
	hop := ctltest.Hop(3, "eth3", 1500, 4)
	hop.Interface = 9
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.4": hop})
	w.create(t, g1)
	w.logs.TakeAll()
	w.update(t, g1+receiver4)
	if got, want := w.addresses.String(), "10.77.0.100@1 x1 10.77.0.100@2 x1 10.77.0.100@3 x1 10.77.0.100@9 x1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if lines := w.logs.All(); len(lines) != 1 || lines[0].Message != "group updated" {
		t.Errorf("logged %v", lines)
	}
}

// A late note about a receiver that has left does not keep it out when it comes again.
func TestALateNoteAboutAReceiverThatHasLeft(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.news(feedback.NoteEvicted, "10.77.0.4", 1, 1007)
	w.update(t, g1+receiver4)
	if m := w.part(t, "10.77.0.4"); m.Part != "joining" {
		t.Errorf("%+v", m)
	}
}

// replaceHook is a data path that calls a function instead of the next Replace, or before it if the
// function returns nil.
type replaceHook struct {
	*ctltest.Switch
	hook func() error
}

func (r replaceHook) Replace(id mft.GroupID, g *mft.Group) error {
	if err := r.hook(); err != nil {
		return err
	}
	return r.Switch.Replace(id, g)
}

// After the update only a record too many is stored, which the next start ignores.
func TestAnUpdateWhoseLastWriteFailsIsMade(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.groups.Switch = replaceHook{w.sw, func() error {
		return os.MkdirAll(filepath.Join(w.dir, "groups", ".g1.state.new", "in the way"), 0o700)
	}}
	w.update(t, g1+receiver4)
	if w.path("10.77.0.4", 1) == nil || w.logs.FilterMessage("could not remove receivers that have left from the stored state; a restart ignores them, and rocastd tries again").Len() != 1 {
		t.Errorf("logged %v", w.logs.All())
	}
}

// Receivers that were joining at a clean stop join in the next run, also if the data path takes
// the group at the third try only.
func TestWhoWasJoiningStillDoesAfterAFailure(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.update(t, g1+receiver4)
	w.sw.Carry("g1", 1234)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w.Store.Close()
	addresses := ctltest.NewAddresses()
	addresses.Refuse(errCannot)
	w = openWorldWith(t, w.dir, addresses)
	w.sw.Refuse(errCannot)
	w.groups.RetryFailed()
	if g := w.group(t); g.State != api.Failed {
		t.Errorf("%+v", g)
	}
	w.expect(t, "table [], addresses [], tracking 4, files [g1.state g1.yaml]")
	w.groups.RetryFailed()
	if m := w.part(t, "10.77.0.4"); m.Part != "joining" {
		t.Errorf("%+v", m)
	}
}

func TestAGroupWhoseFileIsGoneIsNotUpdated(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	if err := os.Remove(filepath.Join(w.dir, "groups", "g1.yaml")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Update(t.Context(), "g1", []byte(g1+receiver4)); err == nil || w.path("10.77.0.4", 1) != nil {
		t.Errorf("updated: %v", err)
	}
	w.expect(t, strings.Replace(withG1, "g1.yaml", "", 1))
}

// A receiver with the IP and the remote QPN of a source that only sends is another QP.
func TestAReceiverOnTheSourcesHostIsNotTheSource(t *testing.T) {
	w := newWorld(t)
	onItsHost := strings.Replace(receiver4, "10.77.0.4", "10.77.0.1", 1)
	w.create(t, g1+onItsHost)
	w.news(feedback.NoteEvicted, "10.77.0.1", 1, 1007)
	m := w.group(t).Members
	if m[0].Role != "source" || m[0].State != api.Ready || m[3].IP != "10.77.0.1" || m[3].Part != "evicted" {
		t.Errorf("%+v", m)
	}
	w.update(t, g1)
	w.update(t, g1+onItsHost)
	if m := w.group(t).Members[3]; m.Part != "joining" {
		t.Errorf("again: %+v", m)
	}
}

// A host that is not reached yet may be in a subnet that the box does not have yet.
func TestAnUnknownHostIsNotRefusedForItsAddress(t *testing.T) {
	w := newWorld(t)
	inSubnet("10.77.0.0/30", "10.0.0.0/8")(w)
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.3": {Reason: "no route"}})
	if g := w.create(t, g1); g.State != api.Waiting {
		t.Errorf("%+v", g)
	}
}

// Who is out stays out with the first packet that it lacks, whatever a later look sees. A member of
// role both that sends is not out.
func TestALaterLookLeavesThoseAloneWhoAreOut(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1+receiver4)
	w.news(feedback.NoteEvicted, "10.77.0.3", 1, 1007)
	w = w.restart(t, false) // from here on it is not published
	w.news(feedback.NoteEvicted, "10.77.0.4", 1, 1009)
	w.news(feedback.NoteEvicted, "10.77.0.4", 1, 1012)
	w.news(feedback.NoteEvicted, "10.77.0.9", 1, 1010) // no member
	w.news(feedback.NoteBehind, "10.77.0.2", 1, 1011)
	for ip, psn := range map[string]uint32{"10.77.0.2": 1011, "10.77.0.3": 1007, "10.77.0.4": 1009} {
		if m := w.part(t, ip); m.State != api.LeftOut || *m.Lacks != psn || !strings.Contains(m.Reason, fmt.Sprintf("PSN %d", psn)) {
			t.Errorf("%s: %+v", ip, m)
		}
	}

	w = newWorld(t)
	w.create(t, bothG1)
	w.takes(t, turnOfB)
	w.news(feedback.NoteEvicted, "10.77.0.3", 1, 1007)
	if m := w.part(t, "10.77.0.2"); m.State != api.Ready {
		t.Errorf("it sends: %+v", m)
	}
}

func TestAnUpdateThatIsRefusedChangesNothing(t *testing.T) {
	notNow := errors.New("not now")
	for _, c := range []struct {
		name, old, new, want string
		set                  func(*world)
	}{
		{"a bad file", "psn: 5", "psn: -5", "line 8: member 2: psn is not a whole number from 0 to 16777215 (0xffffff); write one, without quotes", nil},
		{"another name", "name: g1", "name: g2", "line 1: name is g2, and group g1 was to be updated; write that name, or update group g2", nil},
		{"another key", "mtu: 1024", "mtu: 512", "line 4: mtu is 512 and the running group has 1024; an update may change only receivers and memory: write 1024, or remove the group and create it again", nil},
		{"a port's MTU", receiver3, receiver3 + receiver4, "line 4: mtu: 10.77.0.4 is reached through eth3, whose MTU 1000 cannot carry path MTU 1024; set it with ip link set eth3 mtu 1088",
			func(w *world) {
				w.hops.Set(map[string]nexthop.Hop{"10.77.0.4": ctltest.Hop(3, "eth3", 1000, 4)})
			}},
		{"the data path", receiver3, receiver4, "not now", func(w *world) { w.sw.Refuse(notNow) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.create(t, g1)
			if c.set != nil {
				c.set(w)
			}
			_, err := w.Update(t.Context(), "g1", []byte(strings.Replace(g1, c.old, c.new, 1)))
			if e := (*api.Error)(nil); !errors.As(err, &e) || err.Error() != c.want {
				t.Errorf("\ngot  %v\nwant %s", err, c.want)
			}
			w.expect(t, withG1)
			if text, err := w.Store.Get("g1"); err != nil || string(text) != g1 || w.path("10.77.0.3", 1) == nil {
				t.Errorf("%v, kept\n%s", err, text)
			}
		})
	}
}

// The offset between a receiver's PSNs and the source's stays as it was when the receiver joined,
// even after a crash.
func TestWhereAReceiverJoinedOutlivesACrash(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.update(t, g1+receiver4+receiver4b)
	w.happens(feedback.NoteJoined, "10.77.0.4", 1, 0x3) // the source's PSNs have wrapped; this note is lost
	w.news(feedback.NoteJoined, "10.77.0.4", 2, 0x3)
	for _, clean := range []bool{false, true} {
		w = w.restart(t, clean)
		const firstPSN, wrap = 1000, 1 << 24
		for remoteQPN, psn := range map[roce.QPN]int{1: 9, 2: 3} {
			// At the source's PSN 3 the receiver expected psn. PSN 1000 is 997 later, so there it
			// would expect psn + 997.
			want := roce.PSN((psn + firstPSN - 3 + wrap) % wrap)
			if p := w.path("10.77.0.4", remoteQPN); p == nil || p.FirstPSN != want {
				t.Errorf("clean %v, remote QPN %d: %+v, want FirstPSN %d", clean, remoteQPN, p, want)
			}
		}
		if p := w.path("10.77.0.2", 1); p.FirstPSN != 5 {
			t.Errorf("a receiver of the first file: %+v", p)
		}
	}
}

// A quorum does not count who has joined for the packets before, which the source may send again.
// So a restart has to know where, until all of them were acknowledged.
func TestAQuorumKnowsAfterACrashWhereAReceiverJoined(t *testing.T) {
	quorum := strings.Replace(g1, "mtu:", "ack: quorum 1\nmtu:", 1)
	w := newWorld(t)
	w.create(t, quorum)
	w.update(t, quorum+receiver4)
	joins := func(clean bool, want ...mft.Join) {
		t.Helper()
		w = w.restart(t, clean)
		if got := w.sw.Table().Group(w.groups.Named("g1").ID).Joins; !slices.Equal(got, want) {
			t.Errorf("joins %v, want %v", got, want)
		}
	}
	look := func(s feedback.PathSnapshot) {
		w.sw.Repair("10.77.0.4", s, 0)
		w.watch.Look("g1", time.Now())
	}
	w.happens(feedback.NoteJoined, "10.77.0.4", 1, 1234)
	look(feedback.PathSnapshot{Part: feedback.PartActive, Fresh: true})
	at1234 := mft.Join{QP: mft.QP{IP: addr("10.77.0.4"), RemoteQPN: 1}, PSN: 1234}
	joins(false, at1234)
	look(feedback.PathSnapshot{Part: feedback.PartUnknown})
	joins(true, at1234)
	look(feedback.PathSnapshot{Part: feedback.PartActive})
	joins(false)
	if p := w.path("10.77.0.4", 1); p.FirstPSN == 9 {
		t.Error("it is forgotten where the receiver has joined")
	}
}

// The source's PSN at which it joined is that of an earlier turn, once a turn has begun.
func TestWhoHasJoinedHasEverythingOfTheNextTurn(t *testing.T) {
	w := newWorld(t)
	quorum := strings.Replace(bothG1, "mtu:", "ack: quorum 1\nmtu:", 1)
	w.create(t, quorum)
	w.update(t, quorum+"  - {ip: 10.77.0.4, qpn: 20, psn: 300}\n")
	w.sw.Repair("10.77.0.4", feedback.PathSnapshot{Part: feedback.PartActive, Fresh: true}, 0)
	w.news(feedback.NoteJoined, "10.77.0.4", 1, 1010)
	next := turnOfB
	next.Members = append(next.Members[:3:3], mft.Standing{QP: mft.QP{IP: addr("10.77.0.4"), RemoteQPN: 1}, Expects: 310})
	groups := filepath.Join(w.dir, "groups")
	if err := os.Rename(groups, groups+"-away"); err != nil {
		t.Fatal(err)
	}
	granted, _ := w.takes(t, next)
	if err := os.Rename(groups+"-away", groups); err != nil {
		t.Fatal(err)
	}
	if g := w.groups.Named("g1"); granted || g.Past.Turn != nil || len(g.Past.Open()) != 1 {
		t.Errorf("a turn that was not stored: granted %v, %+v", granted, g.Past)
	}
	if granted, _ := w.takes(t, next); !granted {
		t.Error("not granted")
	}
	w = w.restart(t, false)
	if g := w.sw.Table().Group(w.groups.Named("g1").ID); len(g.Joins) > 0 {
		t.Errorf("%+v", g.Joins)
	}
}

// FirstPSN must not change: the data path would take the receiver for another QP and let it join
// again.
func TestWhoJoinedStaysTheSameQPWhenANextHopMoves(t *testing.T) {
	w := newWorld(t)
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.4": ctltest.Hop(3, "eth3", 1500, 4)})
	w.create(t, g1)
	w.run(t)
	w.update(t, g1+receiver4)
	moveAndCompare := func(ifIndex int, want roce.PSN) {
		t.Helper()
		w.news(feedback.NoteJoined, "10.77.0.4", 1, 1234)
		w.hops.Set(map[string]nexthop.Hop{"10.77.0.4": ctltest.Hop(ifIndex, "eth", 1500, 4)})
		if p := w.path("10.77.0.4", 1); int(p.Port) != ifIndex-1 || p.FirstPSN != want {
			t.Errorf("%+v, want FirstPSN %d", p, want)
		}
	}
	moveAndCompare(2, 9)
	moveAndCompare(1, 9)
	// A receiver that was joining at a clean stop joins in the next run.
	w.update(t, g1)
	w.update(t, g1+receiver4)
	w.sw.Carry("g1", 1234)
	next := w.restart(t, true)
	next.hops.Set(map[string]nexthop.Hop{"10.77.0.4": ctltest.Hop(3, "eth3", 1500, 4)})
	next.run(t)
	w = next
	moveAndCompare(2, 9)
}

// The same for a receiver that is out: the data path still has it, and knows that it is out.
func TestWhoIsEvictedStaysTheSameQPWhenANextHopMoves(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.update(t, g1+receiver4)
	w.news(feedback.NoteJoined, "10.77.0.4", 1, 1234)
	w = w.restart(t, false)
	before := w.path("10.77.0.4", 1).FirstPSN
	w.news(feedback.NoteEvicted, "10.77.0.4", 1, 1300)
	w.run(t)
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.2": ctltest.Hop(3, "eth3", 1500, 2)})
	if w.path("10.77.0.2", 1).Port != 2 || w.path("10.77.0.4", 1).FirstPSN != before {
		t.Errorf("%+v", w.groups.Named("g1").Published.Paths)
	}
}

// There are two updates. A note that the receiver of the first update joined says nothing about the
// receiver of the second.
func TestANoteSpeaksForThoseWhoJoinedTogether(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.update(t, g1+receiver4)
	w.update(t, g1+receiver4+receiver4b)
	w.news(feedback.NoteJoined, "10.77.0.4", 1, 1234)
	g := w.groups.Named("g1")
	if a, b := g.Past.Standing(groupfile.ID{IP: addr("10.77.0.4"), RemoteQPN: 1}), g.Past.Standing(groupfile.ID{IP: addr("10.77.0.4"), RemoteQPN: 2}); a != chronicle.Joined || b != chronicle.Joining {
		t.Errorf("%s, %s", a, b)
	}
}

// It is unknown whether the receiver had joined when the daemon crashed. With a wrong offset of
// PSNs it might acknowledge packets that it never got.
func TestWhoWasJoiningAtACrashIsLeftOut(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.update(t, g1+receiver4)
	w.sw.Carry("g1", 1234)
	w = w.restart(t, false)
	for range 2 { // a clean stop does not change that
		want := "lost: it was joining when the daemon crashed, so it is unknown which packets its QP received; to let it join again, group update without it, then with it and the psn its QP expects"
		if m := w.part(t, "10.77.0.4"); w.path("10.77.0.4", 1) != nil || m.State != api.LeftOut || m.Part != "lost" || m.Lacks != nil || m.Reason != want {
			t.Errorf("%+v", m)
		}
		w = w.restart(t, true)
	}
	w.update(t, g1)
	w.update(t, g1+strings.Replace(receiver4, "psn: 9", "psn: 99", 1))
	if m := w.part(t, "10.77.0.4"); w.path("10.77.0.4", 1) == nil || m.Part != "joining" {
		t.Errorf("again: %+v", m)
	}
}

func TestWhoWasJoiningAtACleanStopStillDoes(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.update(t, g1+receiver4)
	w.sw.Carry("g1", 1234) // the source has sent, and now pauses
	w = w.restart(t, true)
	if m := w.part(t, "10.77.0.4"); m.Part != "joining" {
		t.Errorf("%+v", m)
	}
	w = w.restart(t, false)
	if m := w.part(t, "10.77.0.4"); m.Part != "lost" {
		t.Errorf("after a crash: %+v", m)
	}
}

// After a clean stop, a group that never carried data begins with all its members.
func TestWhoWasJoiningAnIdleGroupIsThereFromTheStart(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.update(t, g1+receiver4)
	w = w.restart(t, true)
	if m := w.part(t, "10.77.0.4"); m.Part != "active" || w.path("10.77.0.4", 1).FirstPSN != 9 {
		t.Errorf("%+v", m)
	}
}

// An evicted receiver stays out after a crash. If the group waited for its answer, the group would
// block for ever.
func TestWhoIsOutStaysOutAfterACrash(t *testing.T) {
	for _, c := range []struct {
		what       feedback.Note
		part, want string
	}{
		{feedback.NoteEvicted, "evicted", "evicted: it lacks the source's PSN 1007 and what follows; to let it join again, group update without it, then with it and the psn its QP expects"},
		{feedback.NoteBehind, "behind", "behind: it lacks the source's PSN 1007, which the source no longer has; to let it join again, group update without it, then with it and the psn its QP expects"},
	} {
		t.Run(c.part, func(t *testing.T) {
			w := newWorld(t)
			w.create(t, g1)
			w.news(c.what, "10.77.0.3", 1, 1007)
			for _, end := range []string{"alive", "crash", "stop"} {
				m := w.part(t, "10.77.0.3")
				if m.State != api.LeftOut || m.Part != c.part || m.Reason != c.want {
					t.Errorf("%s: shown as %+v", end, m)
				}
				// While the daemon runs, the data path has the receiver, and knows that it is out.
				if published := w.path("10.77.0.3", 1) != nil; published != (end == "alive") {
					t.Errorf("%s: published %v", end, published)
				}
				w = w.restart(t, end == "crash")
			}
			w.update(t, strings.Replace(g1, receiver3, "", 1))
			w.update(t, g1)
			if m := w.part(t, "10.77.0.3"); m.Part != "joining" {
				t.Errorf("again: %+v", m)
			}
		})
	}
}

// When many receivers are evicted at once, some notes are lost.
func TestOneNoteIsEnoughToFindAllWhoAreOut(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1+receiver4)
	id := w.groups.Named("g1").ID
	w.sw.Part(id, "10.77.0.3", feedback.PartGone)
	w.sw.Part(id, "10.77.0.4", feedback.PartGone)
	w.news(feedback.NoteEvicted, "10.77.0.3", 1, 1007)
	w = w.restart(t, false)
	if w.path("10.77.0.2", 1) == nil || w.path("10.77.0.3", 1) != nil || w.path("10.77.0.4", 1) != nil {
		t.Errorf("published %+v", w.groups.Named("g1").Published.Paths)
	}
}

func TestNewsIsReadBeforeTheDaemonEnds(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.sw.Notify(dataplane.Note{Group: w.groups.Named("g1").ID, What: feedback.NoteEvicted, Receiver: addr("10.77.0.3"), RemoteQPN: 1})
	w.sw.Carry("g1", 1234)
	if w = w.restart(t, true); w.path("10.77.0.3", 1) != nil {
		t.Error("the last news is lost")
	}
}

func TestAGroupWhoseSourceSwitchedComesBackAsFailed(t *testing.T) {
	for _, clean := range []bool{false, true} {
		w := newWorld(t)
		w.create(t, bothG1)
		if m := w.part(t, "10.77.0.1"); m.Part != "source" {
			t.Errorf("the first source is shown as %+v", m)
		}
		w.news(feedback.NoteSource, "10.77.0.2", 1, 2000)
		if m := w.part(t, "10.77.0.2"); m.Part != "source" {
			t.Errorf("the new source is shown as %+v", m)
		}
		_, err := w.Update(t.Context(), "g1", []byte(strings.Replace(bothG1, "  - {ip: 10.77.0.2, qpn: 18, psn: 6, sendPSN: 2000, role: both}\n", "", 1)))
		if err == nil || !strings.Contains(err.Error(), "members lacks 10.77.0.2, which is the source now") {
			t.Errorf("the source leaves: %v", err)
		}
		w.edit("g1", func(g *groups.Group) { _ = w.groups.SaveChronicle(g) }) // as an earlier release does then
		w = w.restart(t, clean)
		want := "the source had switched before the daemon ended, and the offsets between the members' PSNs are lost; remove the group and create it again with fresh QPs and PSNs"
		if g, _ := w.Group("g1"); g.State != api.Failed || g.Reason != want {
			t.Errorf("clean %v: %+v", clean, g)
		}
		w.run(t)
		w.hops.Set(map[string]nexthop.Hop{"10.77.0.1": ctltest.Hop(2, "eth2", 1500, 1)})
		w.expect(t, "table [], addresses [], tracking 0, files [g1.state g1.yaml]")
		if _, err := w.Update(t.Context(), "g1", []byte(bothG1)); err == nil || !strings.HasPrefix(err.Error(), "group g1 does not run (the source had switched") {
			t.Errorf("update: %v", err)
		}
		if err := w.Remove("g1"); err != nil {
			t.Fatal(err)
		}
		w.create(t, bothG1)
		if w = w.restart(t, true); w.groups.Named("g1").Problem != "" {
			t.Errorf("created again: %s", w.groups.Named("g1").Problem)
		}
	}
}

// A crash between the two writes of an update leaves a state with more receivers than the file.
func TestAStateOfNoMemberMeansNothing(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.update(t, g1+receiver4)
	if err := w.Store.Put("g1", []byte(g1)); err != nil {
		t.Fatal(err)
	}
	w = w.restart(t, false)
	if g, _ := w.Group("g1"); g.State != api.Ready || len(g.Members) != 3 {
		t.Errorf("%+v", g)
	}
	w.expect(t, withG1)
}

func TestAStateThatCannotBeReadFailsItsGroupAlone(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	if err := os.WriteFile(filepath.Join(w.dir, "groups", "g1.state"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	w = w.restart(t, false)
	if g, _ := w.Group("g1"); g.State != api.Failed || !strings.HasPrefix(g.Reason, "the state that was kept of its receivers cannot be read (") {
		t.Errorf("%+v", g)
	}
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }
