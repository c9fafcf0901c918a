package ctl

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// renewAfter is after how many packets the running turn is stored again (ctl/watch/turn.go).
const renewAfter = 1 << 20

// turnOfB is the turn of 10.77.0.2 in a group of bothG1.
var turnOfB = ctltest.TurnOfB()

// takes lets a member of g1 take a turn, and returns whether it was granted and what was stored by
// then.
func (w *world) takes(t *testing.T, turn mft.Turn) (granted bool, stored string) {
	t.Helper()
	told := 0
	w.sw.OnTurn = func(yes bool) {
		text, _ := os.ReadFile(filepath.Join(w.dir, "groups", "g1.state"))
		told, granted, stored = told+1, yes, string(text)
	}
	w.sw.Wait(w.groups.Named("g1").ID, turn)
	w.news(feedback.NoteWaits, "10.77.0.2", 1, 2000)
	if told > 1 {
		t.Errorf("the data path was told %d times", told)
	}
	return granted, stored
}

// A turn is on the disk before it begins, and a restart begins with it, however the daemon ended.
func TestATurnIsStoredBeforeItBegins(t *testing.T) {
	for _, clean := range []bool{false, true} {
		w := newWorld(t)
		w.create(t, bothG1)
		if g := w.sw.Table().Group(w.groups.Named("g1").ID); !g.KeepsTurns || g.Turn != nil {
			t.Errorf("published %+v", g)
		}
		if granted, stored := w.takes(t, turnOfB); !granted || !strings.Contains(stored, `"nextPSN": 1003`) {
			t.Errorf("granted %v, stored %s", granted, stored)
		}
		if m := w.part(t, "10.77.0.2"); m.Part != api.PartSource {
			t.Errorf("the new source is shown as %+v", m)
		}
		w = w.restart(t, clean)
		g := w.sw.Table().Group(w.groups.Named("g1").ID)
		if diff := cmp.Diff(&turnOfB, g.Turn, cmp.Comparer(func(a, b mft.QP) bool { return a == b })); diff != "" || !g.Restored || !g.KeepsTurns {
			t.Errorf("clean %v: %+v\n%s", clean, g, diff)
		}
		if m := w.part(t, "10.77.0.2"); m.Part != api.PartSource {
			t.Errorf("the source is shown as %+v", m)
		}
		if s, _ := w.Group("g1"); s.State != api.Ready {
			t.Errorf("%+v", s)
		}
		// The first source's turn, for which no receiver's ID stands.
		back := turnOfB
		back.Source, back.First = mft.QP{}, mft.Sender{NextPSN: 77, Messages: 4}
		w.takes(t, back)
		w = w.restart(t, clean)
		if g := w.sw.Table().Group(w.groups.Named("g1").ID); g.Turn.Source != back.Source || g.Turn.First != back.First {
			t.Errorf("%+v", g.Turn)
		}
	}
}

// Who takes no part in a turn is out on the disk before the turn begins, though no note said so:
// the offset with which a restart would let it take part again is that of an earlier turn.
func TestWhoIsOutIsStoredWithTheTurn(t *testing.T) {
	for part, want := range map[feedback.Part]string{feedback.PartBehind: "behind", feedback.PartGone: "evicted"} {
		for _, role := range []string{"", ", sendPSN: 3000, role: both"} {
			w := newWorld(t)
			w.create(t, strings.Replace(bothG1, "psn: 7}", "psn: 7"+role+"}", 1))
			id := w.groups.Named("g1").ID
			w.sw.Part(id, "10.77.0.1", feedback.PartGone) // because it is the source
			w.sw.Part(id, "10.77.0.3", part)
			granted, stored := w.takes(t, turnOfB)
			if !granted || strings.Count(stored, `"standing"`) != 1 || !strings.Contains(stored, `"standing": "`+want+`"`) {
				t.Errorf("role %q, part %v: granted %v, stored %s", role, part, granted, stored)
			}
			w = w.restart(t, false)
			if m := w.part(t, "10.77.0.3"); m.Part != want {
				t.Errorf("role %q, part %v: it is shown as %+v", role, part, m)
			}
		}
	}
}

// A member that is still joining may take its turn. A restart begins with that, and it joins when
// another member's turn begins.
func TestTheTurnOfAMemberThatJoins(t *testing.T) {
	for _, clean := range []bool{false, true} {
		w := newWorld(t)
		w.create(t, bothG1)
		w.update(t, bothG1+"  - {ip: 10.77.0.4, qpn: 20, psn: 8, sendPSN: 4000, role: both}\n")
		turn := turnOfB
		turn.Source.IP = addr("10.77.0.4")
		turn.Members = append(slices.Clone(turn.Members), mft.Standing{QP: turn.Source, Expects: 8, Sender: mft.Sender{NextPSN: 4000}})
		w.takes(t, turn)
		w = w.restart(t, clean)
		g := w.sw.Table().Group(w.groups.Named("g1").ID)
		want := []mft.Part{{QP: turn.Source, Part: feedback.PartJoining}}
		if g.Turn == nil || g.Turn.Sender() == nil || g.Turn.Sender().NextPSN != 4000 || !slices.Equal(g.Parts, want) {
			t.Errorf("clean %v: %+v, parts %v", clean, g.Turn, g.Parts)
		}
		if m := w.part(t, "10.77.0.4"); m.Part != api.PartSource {
			t.Errorf("clean %v: %+v", clean, m)
		}
	}
}

// Without a disk no other member becomes the source, and what was stored before is restored.
func TestATurnThatCannotBeStoredDoesNotBegin(t *testing.T) {
	w := newWorld(t)
	w.create(t, bothG1)
	w.takes(t, turnOfB)
	later := turnOfB
	later.Source = mft.QP{IP: addr("10.77.0.1"), RemoteQPN: 1}
	groups := filepath.Join(w.dir, "groups")
	if err := os.Rename(groups, groups+"-away"); err != nil {
		t.Fatal(err)
	}
	if granted, _ := w.takes(t, later); granted {
		t.Error("the turn was granted")
	}
	const message = "could not store that another member is the source; the source stays, and rocastd tries again with the member's next packet"
	if w.logs.FilterMessage(message).Len() != 1 {
		t.Errorf("%v", w.logs.All())
	}
	if m := w.part(t, "10.77.0.2"); m.Part != api.PartSource {
		t.Errorf("the source is shown as %+v", m)
	}
	if err := os.Rename(groups+"-away", groups); err != nil {
		t.Fatal(err)
	}
	w.news(feedback.NoteEvicted, "10.77.0.3", 1, 2001) // the state is stored again
	w = w.restart(t, false)
	if g := w.sw.Table().Group(w.groups.Named("g1").ID); g.Turn == nil || g.Turn.Source != turnOfB.Source {
		t.Errorf("%+v", g.Turn)
	}
}

// A turn that may be stored is not taken back: control stores it again until the disk says that it
// is there, and lets it begin, without another packet of the member. Or nobody waits any more.
func TestATurnThatMayBeStoredIsStoredAgain(t *testing.T) {
	const message = "could not make sure that a crash keeps who is the source; nothing is forwarded until it is stored, and rocastd tries again every 250 ms"
	for _, gone := range []bool{false, true} {
		w := newWorld(t)
		w.create(t, bothG1)
		look := func() { w.watch.Look("g1", time.Now()) }
		syncs := w.Store.SyncDir
		w.Store.SyncDir = func(string) error { return unix.EIO }
		told := 0
		granted, stored := false, ""
		w.sw.OnTurn = func(yes bool) {
			text, _ := os.ReadFile(filepath.Join(w.dir, "groups", "g1.state"))
			told, granted, stored = told+1, yes, string(text)
		}
		id := w.groups.Named("g1").ID
		w.sw.Wait(id, turnOfB)
		w.news(feedback.NoteWaits, "10.77.0.2", 1, 2000)
		look()
		groups := filepath.Join(w.dir, "groups")
		if err := os.Rename(groups, groups+"-away"); err != nil { // another error, and it may be stored still
			t.Fatal(err)
		}
		look()
		if err := os.Rename(groups+"-away", groups); err != nil {
			t.Fatal(err)
		}
		if told > 0 || w.logs.FilterMessage(message).Len() != 1 || w.logs.FilterMessageSnippet("could not").Len() != 1 {
			t.Errorf("told %d times; %v", told, w.logs.All())
		}
		if gone {
			w.sw.OnTurn = nil
			w.sw.BeginTurn(id, false)
			look()
		}
		w.Store.SyncDir = syncs
		look()
		if m := w.part(t, "10.77.0.2"); gone {
			w = w.restart(t, false)
			if g := w.sw.Table().Group(w.groups.Named("g1").ID); g.Turn != nil || m.Part == api.PartSource {
				t.Errorf("%+v is restored; it was shown as %+v", g.Turn, m)
			}
		} else if told != 1 || !granted || !strings.Contains(stored, `"nextPSN": 1003`) || m.Part != api.PartSource {
			t.Errorf("told %d times, granted %v, stored %s; it is shown as %+v", told, granted, stored, m)
		} else {
			// The doubt is over: the next turn that cannot be stored is taken back.
			w.sw.Wait(id, turnOfB)
			look()
			if told != 1 {
				t.Error("the data path is asked for a turn though it has not said that somebody waits")
			}
			if err := os.Rename(groups, groups+"-away"); err != nil {
				t.Fatal(err)
			}
			w.news(feedback.NoteWaits, "10.77.0.2", 1, 2000)
			if told != 2 || granted {
				t.Errorf("told %d times, granted %v", told, granted)
			}
		}
	}
}

// A member that joins in a turn has no place in what was stored of it: its own record says where it
// began. One that leaves and joins again, with another queue pair, has no place from before.
func TestAMemberJoinsInATurn(t *testing.T) {
	w := newWorld(t)
	w.create(t, bothG1)
	w.takes(t, turnOfB)
	without := strings.Replace(bothG1, "  - {ip: 10.77.0.3, qpn: 19, psn: 7}\n", "", 1)
	w.update(t, without)
	w.update(t, without+"  - {ip: 10.77.0.3, qpn: 20, psn: 300}\n")
	w.news(feedback.NoteJoined, "10.77.0.3", 1, 2010)
	w = w.restart(t, false)
	g := w.sw.Table().Group(w.groups.Named("g1").ID)
	m := g.Turn.Member(mft.QP{IP: addr("10.77.0.3"), RemoteQPN: 1})
	if m == nil || m.Expects != 290 { // it expected 300 with packet 2010, and the turn begins with 2000
		t.Errorf("%+v", m)
	}
	next := turnOfB
	next.Members = append(next.Members[:2:2], mft.Standing{QP: m.QP, Expects: 400})
	w.takes(t, next)
	w = w.restart(t, false)
	if m := w.sw.Table().Group(w.groups.Named("g1").ID).Turn.Member(m.QP); m == nil || m.Expects != 400 {
		t.Errorf("%+v", m)
	}
}

// An update that takes a member out is stored, and a crash comes before the member has gone from
// the state. It joins again, with another queue pair, and a crash comes again: nothing is left of
// what its first queue pair expected, nor of the NAK that has ended that.
func TestAMemberThatACrashTookOutJoinsInATurn(t *testing.T) {
	w := newWorld(t)
	w.create(t, bothG1)
	w.takes(t, turnOfB)
	without := strings.Replace(bothG1, "  - {ip: 10.77.0.3, qpn: 19, psn: 7}\n", "", 1)
	crashed := t.TempDir()
	w.groups.Switch = replaceHook{w.sw, func() error { return os.CopyFS(crashed, os.DirFS(w.dir)) }}
	w.update(t, without)
	w = openWorld(t, crashed)
	w.update(t, without+"  - {ip: 10.77.0.3, qpn: 20, psn: 300}\n")
	w.news(feedback.NoteJoined, "10.77.0.3", 1, 2010)
	w = w.restart(t, false)
	m := w.sw.Table().Group(w.groups.Named("g1").ID).Turn.Member(mft.QP{IP: addr("10.77.0.3"), RemoteQPN: 1})
	if m == nil || m.Expects != 290 || m.Ended { // it expected 300 with packet 2010, and the turn begins with 2000
		t.Errorf("%+v", m)
	}
}

// A turn is stored again when it has gone on by 2^20 packets, also the first source's. Then a
// restart begins there, and no other member has been the source because of that.
func TestALongTurnIsStoredAgain(t *testing.T) {
	w := newWorld(t)
	w.create(t, bothG1)
	id := w.groups.Named("g1").ID
	stored := func() string {
		text, _ := os.ReadFile(filepath.Join(w.dir, "groups", "g1.state"))
		return string(text)
	}
	at := func(merged roce.PSN, next roce.PSN) {
		turn := turnOfB
		turn.Source = mft.QP(w.groups.Named("g1").File.Source.ID())
		turn.Members = []mft.Standing{{QP: turn.Source, Sender: mft.Sender{NextPSN: next}}}
		w.sw.Runs(id, turn)
		w.sw.Merge(id, merged)
		w.watch.Look("g1", time.Now())
	}
	first := w.groups.Named("g1").File.Source.FirstPSN
	for _, near := range []int32{-1, -(1 << 20), renewAfter - 1} {
		if at(first.Add(near), 77); strings.Contains(stored(), `"turn"`) {
			t.Errorf("stored with %d packets acknowledged: %s", near, stored())
		}
	}
	w.sw.Part(id, "10.77.0.3", feedback.PartGone)
	at(first.Add(renewAfter), first.Add(renewAfter+1))
	if text := stored(); !strings.Contains(text, `"turn"`) || strings.Contains(text, `"sourceSwitched": true`) || !strings.Contains(text, `"evicted"`) {
		t.Errorf("stored %s", text)
	}
	before := stored()
	at(first.Add(2*renewAfter), first.Add(2*renewAfter))
	if stored() != before {
		t.Errorf("it is stored again after %d packets: %s", renewAfter-1, stored())
	}
	at(first.Add(1<<23+3*renewAfter), first.Add(3*renewAfter)) // many packets between two looks
	if stored() == before {
		t.Error("it is not stored again")
	}

	const message = "could not store how far a group has come; rocastd tries again every 250 ms. After a crash no other member may become the source"
	groups := filepath.Join(w.dir, "groups")
	for range 2 {
		if err := os.Rename(groups, groups+"-away"); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			at(first.Add(5*renewAfter), first.Add(5*renewAfter))
		}
		if err := os.Rename(groups+"-away", groups); err != nil {
			t.Fatal(err)
		}
		if from := w.groups.Named("g1").Past.From(w.groups.Named("g1").File); from != first.Add(3*renewAfter) && from != first.Add(5*renewAfter) || w.logs.FilterMessage(message).Len() != 1 {
			t.Errorf("from %d; %v", from, w.logs.All())
		}
		at(first.Add(5*renewAfter), first.Add(5*renewAfter))
	}

	w = w.restart(t, false)
	if g := w.sw.Table().Group(w.groups.Named("g1").ID); g.Turn == nil || g.Turn.Sender().NextPSN != first.Add(5*renewAfter) || g.Turn.Source != mft.QP(w.groups.Named("g1").File.Source.ID()) {
		t.Errorf("%+v", g.Turn)
	}
	if m := w.part(t, "10.77.0.2"); m.Part == api.PartSource {
		t.Errorf("b is shown as %+v", m)
	}
}

// A turn is stored again, once, when its source has ended: after a crash its QP is not waited for.
func TestAnEndedTurnIsStored(t *testing.T) {
	w := newWorld(t)
	w.create(t, strings.Replace(bothG1, "mtu:", "on-fatal: evict\nmtu:", 1))
	id, source := w.groups.Named("g1").ID, mft.QP(w.groups.Named("g1").File.Source.ID())
	turn := mft.Turn{Source: source, Members: []mft.Standing{{QP: source, Expects: 5, Sender: mft.Sender{NextPSN: 1003, Ended: true}}}}
	w.sw.Runs(id, turn)
	w.watch.Look("g1", time.Now())
	if w.groups.Named("g1").Past.Turn != nil {
		t.Error("it is stored before it has ended")
	}
	w.sw.End(id)
	w.watch.Look("g1", time.Now())
	before := w.groups.Named("g1").Past.Turn
	w.sw.Runs(id, mft.Turn{})
	w.watch.Look("g1", time.Now())
	if w.groups.Named("g1").Past.Turn != before {
		t.Error("it is stored with every look")
	}
	w = w.restart(t, false)
	if g := w.sw.Table().Group(w.groups.Named("g1").ID); g.Turn == nil || !g.Turn.Sender().Ended {
		t.Errorf("%+v", g.Turn)
	}
}

// A clean stop stores where the source is if its only receivers have come and not joined yet: who
// joins behind a restart begins there. Others know where they are.
func TestAStopStoresWhereThoseWhoAreAloneJoin(t *testing.T) {
	both := strings.Replace(bothG1, "  - {ip: 10.77.0.3, qpn: 19, psn: 7}\n", "", 1)
	one := both[:strings.Index(both, "  - {ip: 10.77.0.2")]
	const joins = "  - {ip: 10.77.0.4, qpn: 20, psn: 8}\n"
	at := mft.Turn{Source: mft.QP{IP: addr("10.77.0.1"), RemoteQPN: 1}, Members: []mft.Standing{
		{QP: mft.QP{IP: addr("10.77.0.1"), RemoteQPN: 1}, Expects: 5, Sender: mft.Sender{NextPSN: 1003, Messages: 3}},
	}}
	for name, tt := range map[string]struct {
		before, after string
		want          bool
	}{
		"alone":              {both, one + joins, true},
		"another takes part": {both, strings.Replace(both, "  - {ip: 10.77.0.2", joins+"  - {ip: 10.77.0.2", 1), false},
		"nobody joins":       {both, both, false},
	} {
		w := newWorld(t)
		w.create(t, tt.before)
		w.sw.Carry("g1", 1002)
		if tt.after != tt.before {
			w.update(t, tt.after)
		}
		w.sw.Runs(w.groups.Named("g1").ID, at)
		w = w.restart(t, true)
		g := w.sw.Table().Group(w.groups.Named("g1").ID)
		if g.Turn == nil != !tt.want || tt.want && g.Turn.Sender().NextPSN != 1003 {
			t.Errorf("%s: %+v", name, g.Turn)
		}
		if joins := len(g.Parts) == 1 && g.Parts[0].Part == feedback.PartJoining; joins != (tt.after != tt.before) {
			t.Errorf("%s: parts %v", name, g.Parts)
		}
	}
}

// While it is not known where the receivers are, what was stored before stays. So it does in a
// group that ends with the daemon.
func TestATurnIsNotStoredAgainWhileReceiversAreUnknown(t *testing.T) {
	w := newWorld(t)
	w.create(t, bothG1)
	w.takes(t, turnOfB)
	g := w.groups.Named("g1")
	w.sw.Merge(g.ID, turnOfB.Members[1].NextPSN.Add(renewAfter))
	w.watch.Look("g1", time.Now())
	if from := g.Past.From(g.File); from != 2000 {
		t.Errorf("from %d", from)
	}
	g.Kept = false
	w.sw.Runs(g.ID, mft.Turn{First: mft.Sender{NextPSN: 9}})
	w.watch.Look("g1", time.Now())
	if from := g.Past.From(g.File); from != 2000 {
		t.Errorf("from %d", from)
	}
}

// Who joins in a turn is stored with how many messages came before, which the record does not know.
func TestWhoJoinsInATurnIsStoredWithIt(t *testing.T) {
	w := newWorld(t)
	w.create(t, bothG1)
	w.takes(t, turnOfB)
	without := strings.Replace(bothG1, "  - {ip: 10.77.0.3, qpn: 19, psn: 7}\n", "", 1)
	w.update(t, without)
	w.update(t, without+"  - {ip: 10.77.0.3, qpn: 20, psn: 300}\n")
	now := turnOfB
	now.Members = append(now.Members[:2:2], mft.Standing{QP: mft.QP{IP: addr("10.77.0.3"), RemoteQPN: 1}, Expects: 300, Messages: 5})
	w.sw.Runs(w.groups.Named("g1").ID, now)
	w.news(feedback.NoteJoined, "10.77.0.3", 1, 2010)
	w = w.restart(t, false)
	if m := w.sw.Table().Group(w.groups.Named("g1").ID).Turn.Member(now.Members[2].QP); m == nil || m.Messages != 5 || m.Expects != 300 {
		t.Errorf("%+v", m)
	}
}

// A group that ends with the daemon stores nothing.
func TestTheTurnsOfAConnectionsGroupAreNotStored(t *testing.T) {
	w := newWorld(t)
	file, err := w.parse(t.Context(), []byte(bothG1))
	if err != nil {
		t.Fatal(err)
	}
	if err := groupsOf(w.Controller).Create(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	if w.sw.Table().Group(w.groups.Named("g1").ID).KeepsTurns {
		t.Error("the data path waits for control")
	}
}

// What the daemon hears when its data path has ended comes too late: nothing may be sent any more.
func TestNoTurnBeginsWhenTheDaemonEnds(t *testing.T) {
	w := newWorld(t)
	w.create(t, bothG1)
	w.sw.OnTurn = func(bool) { t.Error("a turn begins") }
	w.sw.Wait(w.groups.Named("g1").ID, turnOfB)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w.news(feedback.NoteWaits, "10.77.0.2", 1, 2000)
}
