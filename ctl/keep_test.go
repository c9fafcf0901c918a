package ctl

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// noState lets the state of g1 fail to be stored until again is called.
func (w *world) noState(t *testing.T) (again func()) {
	t.Helper()
	inTheWay := filepath.Join(w.dir, "groups", ".g1.state.new") // the new state is first written there
	if err := os.MkdirAll(filepath.Join(inTheWay, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.RemoveAll(inTheWay); err != nil {
			t.Fatal(err)
		}
	}
}

// A receiver has joined with the source's packet 2000. If the next run took it for one that is
// joining, it would join again, and take new packets for those that it has. So the next run knows
// where it joined, or leaves it out.
func TestAReceiverDoesNotJoinAgain(t *testing.T) {
	const joined, lost = "", "lost"
	for _, c := range []struct {
		name string
		ends func(t *testing.T, w *world) *world
		want string
	}{
		{"the note is dropped, and a look sees it before the crash", func(t *testing.T, w *world) *world {
			w.watch.Look("g1", time.Now())
			return w.restart(t, false)
		}, joined},
		{"the note is dropped before a clean stop", func(t *testing.T, w *world) *world { return w.restart(t, true) }, joined},
		{"the note is dropped, and a crash comes before the look", func(t *testing.T, w *world) *world { return w.restart(t, false) }, lost},
		{"it is stored late", func(t *testing.T, w *world) *world {
			again := w.noState(t)
			w.news(feedback.NoteJoined, "10.77.0.4", 1, 2000)
			again()
			return w.restart(t, true)
		}, joined},
		{"it cannot be stored at the stop either", func(t *testing.T, w *world) *world {
			again := w.noState(t)
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			again()
			w.Store.Close()
			return openWorld(t, w.dir)
		}, lost},
		{"behind a crash the group cannot be published, and the stop of that run is clean", func(t *testing.T, w *world) *world {
			w.Store.Close()
			sw := ctltest.NewSwitch("eth1", "eth2", "eth3")
			sw.Refuse(errors.New("not now"))
			w = openWorldOn(t, w.dir, sw, ctltest.NewAddresses())
			if g, _ := w.Group("g1"); g.State != api.Failed {
				t.Errorf("%+v", g)
			}
			return w.restart(t, true)
		}, lost},
		{"nor can what that run knows of it be stored", func(t *testing.T, w *world) *world {
			w.Store.Close()
			sw := ctltest.NewSwitch("eth1", "eth2", "eth3")
			sw.Refuse(errors.New("not now"))
			again := w.noState(t)
			w = openWorldOn(t, w.dir, sw, ctltest.NewAddresses())
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			again()
			w.Store.Close()
			return openWorld(t, w.dir)
		}, lost},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.create(t, g1)
			w.update(t, g1+receiver4)
			w.sw.Carry("g1", 5000)
			w.happens(feedback.NoteJoined, "10.77.0.4", 1, 2000)
			w = c.ends(t, w)
			if m := w.part(t, "10.77.0.4"); m.Part == "joining" || (m.Part == lost) != (c.want == lost) {
				t.Fatalf("%+v", m)
			}
			if c.want == joined {
				w.expectFirst(t, 1, 2000)
			}
		})
	}
}

// expectFirst checks that a restarted group maps the source's packet since onto the first one, 9,
// that the QP of receiver4 or receiver4b expected.
func (w *world) expectFirst(t *testing.T, remoteQPN roce.QPN, since roce.PSN) {
	t.Helper()
	const firstPSN = 1000 // of the source
	if p := w.path("10.77.0.4", remoteQPN); p == nil || p.FirstPSN.Add(since.Sub(firstPSN)) != map[roce.QPN]roce.PSN{1: 9, 2: 3}[remoteQPN] {
		t.Errorf("remote QPN %d: %+v", remoteQPN, p)
	}
}

// Two receivers join with updates of their own, and the note of the first one is lost. That the
// second one joins says nothing of the first.
func TestEachReceiverJoinsWhereItJoined(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.update(t, g1+receiver4)
	w.happens(feedback.NoteJoined, "10.77.0.4", 1, 2000)
	w.update(t, g1+receiver4+receiver4b)
	w.news(feedback.NoteJoined, "10.77.0.4", 2, 9000)
	w = w.restart(t, false)
	w.expectFirst(t, 1, 2000)
	w.expectFirst(t, 2, 9000)
}

// A late note about a queue pair that has left says nothing of the one that came in its place.
func TestANoteOfAQueuePairThatHasLeft(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	for _, what := range []feedback.Note{feedback.NoteJoined, feedback.NoteEvicted, feedback.NoteBehind} {
		w.update(t, g1+receiver4)
		w.sw.Notify(w.noteOf(what, "10.77.0.4", 1, 2000))
		w.update(t, g1)
		w.update(t, g1+receiver4)
		w.edit("g1", func(*groups.Group) { w.watch.Hear() })
		if m := w.part(t, "10.77.0.4"); m.Part != "joining" {
			t.Errorf("%v: %+v", what, m)
		}
		w.update(t, g1)
	}
}

// Who is out is stored with the next look if its note was dropped, and by a later one if the disk
// fails. The log says once that it does.
func TestWhoIsOutIsStoredInTheEnd(t *testing.T) {
	for what, want := range map[feedback.Note]string{feedback.NoteEvicted: "evicted", feedback.NoteBehind: "behind"} {
		w := newWorld(t)
		w.create(t, g1)
		again := w.noState(t)
		w.happens(what, "10.77.0.3", 1, 1007)
		for range 3 {
			w.watch.Look("g1", time.Now())
		}
		again()
		w.watch.Look("g1", time.Now())
		if n := w.logs.FilterMessageSnippet("could not store the state of members").Len(); n != 1 {
			t.Errorf("logged %d times", n)
		}
		w = w.restart(t, false)
		if m := w.part(t, "10.77.0.3"); m.Part != want || *m.Lacks != 1007 {
			t.Errorf("%+v", m)
		}
	}
}

// A group that has carried 2^24 packets is where it began, and yet it is not new.
func TestAGroupIsNotIdleAfterARound(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.sw.Carry("g1", w.groups.Named("g1").File.Source.FirstPSN.Prev())
	w.sw.Traffic("g1", dataplane.Traffic{Packets: 1 << 24, Sent: 1 << 24})
	w = w.restart(t, true)
	if g, _ := w.Group("g1"); !g.Restored {
		t.Error("it begins as a new group")
	}
}

// A group whose receivers are all joining or out is restored as it was: a receiver can join it.
func TestAGroupWithoutReceiversIsRestored(t *testing.T) {
	one := strings.Replace(g1, receiver3, "", 1)
	two := one[:strings.LastIndex(strings.TrimSuffix(one, "\n"), "\n")+1] // without the last line, the only receiver
	for name, c := range map[string]struct {
		becomes func(w *world)
		crash   string // the part of 10.77.0.4 after a crash
		stop    string // and after a clean stop
	}{
		"the only receiver is replaced": {func(w *world) { w.update(t, one); w.update(t, two+receiver4) }, "lost", "joining"},
		"all are behind": {func(w *world) {
			w.update(t, one)
			w.update(t, two+receiver4)
			w.news(feedback.NoteJoined, "10.77.0.4", 1, 1005)
			w.news(feedback.NoteBehind, "10.77.0.4", 1, 1007)
		}, "behind", "behind"},
	} {
		for _, clean := range []bool{false, true} {
			w := newWorld(t)
			w.create(t, g1)
			w.sw.Carry("g1", 5000)
			c.becomes(w)
			w = w.restart(t, clean)
			want := c.crash
			if clean {
				want = c.stop
			}
			if m := w.part(t, "10.77.0.4"); m.Part != want || w.group(t).State == api.Failed {
				t.Errorf("%s, clean %v: %+v, %+v", name, clean, m, w.group(t).GroupSummary)
			}
			g := w.sw.Table().Group(w.groups.Named("g1").ID)
			if state, _ := w.sw.GroupState(g.ID); len(state.Paths) != 1 || state.Paths[0].Part == feedback.PartActive || state.Paths[0].Part == feedback.PartUnknown {
				t.Errorf("%s, clean %v: %+v", name, clean, state.Paths)
			}
			w.update(t, two+receiver4+receiver4b)
		}
	}
}

// A member that was evicted as a receiver may be the source, and stays it after a restart.
func TestASourceThatWasEvictedAsAReceiver(t *testing.T) {
	for _, clean := range []bool{false, true} {
		w := newWorld(t)
		w.create(t, bothG1)
		w.news(feedback.NoteEvicted, "10.77.0.2", 1, 1001)
		if granted, _ := w.takes(t, turnOfB); !granted {
			t.Fatal("not granted")
		}
		w = w.restart(t, clean)
		id := w.groups.Named("g1").ID
		state, _ := w.sw.GroupState(id)
		if state.Source != turnOfB.Source || state.Paths[1].Part != feedback.PartGone || state.Paths[2].Part != feedback.PartUnknown {
			t.Errorf("clean %v: the source is %v, %+v", clean, state.Source, state.Paths)
		}
		// In the next turn it gets nothing.
		next := turnOfB
		next.Source = mft.QP{IP: addr("10.77.0.1"), RemoteQPN: 1}
		w.takes(t, next)
		w = w.restart(t, clean)
		if state, _ := w.sw.GroupState(w.groups.Named("g1").ID); state.Paths[1].Part != feedback.PartGone {
			t.Errorf("clean %v: after its turn it is %v", clean, state.Paths[1].Part)
		}
	}
}
