package ctl

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/feedback"
)

func TestWhatIsKnownOfAGroupAfterAStop(t *testing.T) {
	for _, c := range []struct {
		name           string
		carried, clean bool
		wantRestored   bool
	}{
		{"a clean stop before any data: it begins as a new group", false, true, false},
		{"a clean stop after data: its QPs have moved on", true, true, true},
		{"a crash: nothing is known", false, false, true},
		{"a crash after data", true, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.create(t, g1)
			if c.carried {
				w.sw.Carry("g1", 1234)
			}
			w = w.restart(t, c.clean)
			w.expect(t, withG1)
			g, err := w.Group("g1")
			if err != nil {
				t.Fatal(err)
			}
			published := w.sw.Table().Group(w.groups.Named("g1").ID)
			if published.Restored != c.wantRestored || g.Restored != c.wantRestored {
				t.Errorf("restored: published %v, shown %v, want %v", published.Restored, g.Restored, c.wantRestored)
			}
		})
	}
}

// A group that was restored after a crash counts as restored after further restarts, even if it has
// carried nothing since: the PSNs of its QPs are still unknown.
func TestRestoredIsForgottenOnlyWithTheGroup(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w = w.restart(t, false).restart(t, true)
	if g, _ := w.Group("g1"); !g.Restored {
		t.Error("after the clean stop it counts as a new group")
	}
	if err := w.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	if g := w.create(t, g1); g.Restored {
		t.Error("a new group counts as restored")
	}
}

func TestAKeptGroupThatCannotBeReadIsShownAndKeepsNoOtherOut(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.Store.Close()
	if err := os.WriteFile(filepath.Join(w.dir, "groups", "bad.yaml"), []byte("name: bad\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w = openWorld(t, w.dir)
	list := w.Groups().Groups
	want := "line 1: the group file has no ip; add ip: ADDRESS, what members use as peer IP; remove the group and create it again"
	if len(list) != 2 || list[0].State != api.Failed || list[0].Reason != want || list[1].State != api.Ready {
		t.Errorf("%+v", list)
	}
	lines := w.logs.FilterMessage("group could not be restored; rocast group show says why").All()
	if len(lines) != 1 || lines[0].ContextMap()["line"] != int64(1) || lines[0].ContextMap()["error"] != nil {
		t.Errorf("logged %v", lines)
	}
	if g, err := w.Group("bad"); err != nil || g.State != api.Failed {
		t.Errorf("%+v, %v", g, err)
	}
	if err := w.Remove("bad"); err != nil {
		t.Fatal(err)
	}
	w.expect(t, withG1)
}

// A file that cannot be read affects one group only. Root can read every file, so the test uses a
// directory in place of the file.
func TestAFileThatCannotBeReadCostsItsGroupAlone(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.create(t, anotherGroup("g2", 2))
	w.Store.Close()
	for _, path := range []string{"groups/bad.yaml", "groups/g2.state", "idle"} {
		_ = os.Remove(filepath.Join(w.dir, path)) // g2 has an empty one
		if err := os.Mkdir(filepath.Join(w.dir, path), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	w = openWorld(t, w.dir)
	list := w.Groups().Groups
	for _, line := range w.logs.FilterMessage("group could not be restored; rocast group show says why").All() {
		if fields := line.ContextMap(); fields["error"] == nil || fields["line"] != nil {
			t.Errorf("logged %v", fields)
		}
	}
	if len(list) != 3 || list[0].Name != "bad" || list[0].State != api.Failed || !strings.Contains(list[0].Reason, "bad.yaml: is a directory") ||
		list[1].Name != "g1" || list[1].State != api.Ready ||
		list[2].Name != "g2" || list[2].State != api.Failed || !strings.Contains(list[2].Reason, "g2.state: is a directory") {
		t.Errorf("%+v", list)
	}
	for _, name := range []string{"bad", "g2"} {
		if err := w.Remove(name); err != nil {
			t.Error(err)
		}
	}
	w.expect(t, withG1)
}

// If a group's file cannot be read at the start, a clean stop must not record that the group never
// carried data.
func TestAGroupThatCouldNotBeReadForOneRunIsAsItWas(t *testing.T) {
	for _, carried := range []bool{true, false} {
		w := newWorld(t)
		w.create(t, g1)
		if carried {
			w.sw.Carry("g1", 1234)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		w.Store.Close()
		file, aside := filepath.Join(w.dir, "groups", "g1.yaml"), filepath.Join(w.dir, "aside")
		if err := errors.Join(os.Rename(file, aside), os.Mkdir(file, 0o700)); err != nil {
			t.Fatal(err)
		}
		w = openWorld(t, w.dir)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		w.Store.Close()
		if err := errors.Join(os.Remove(file), os.Rename(aside, file)); err != nil {
			t.Fatal(err)
		}
		w = openWorld(t, w.dir)
		if g, err := w.Group("g1"); err != nil || g.State != api.Ready || g.Restored != carried {
			t.Errorf("carried %v: state %v, restored %v, %v", carried, g.State, g.Restored, err)
		}
	}
}

func TestAKeptGroupThatFailedIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.create(t, anotherGroup("g2", 2))
	w.Store.Close()
	addresses := ctltest.NewAddresses()
	addresses.Refuse(errors.New("not now")) // the first address that g1 needs
	next := openWorldWith(t, w.dir, addresses)
	if g, _ := next.Group("g1"); g.State != api.Failed || g.Reason != "group g1: not now; rocastd tries again every 5s" || g.Members[0].Reason != "the group failed" {
		t.Errorf("%+v", g)
	}
	if g, _ := next.Group("g1"); g.Counters != nil || g.Engine.Carrier != "" {
		t.Errorf("a group without traffic is shown with another one's: %+v", g)
	}
	if g, _ := next.Group("g2"); g.State != api.Ready {
		t.Errorf("%+v", g)
	}
	addresses.Refuse(errors.New("not yet"))
	next.groups.RetryFailed()
	if g, _ := next.Group("g1"); g.Reason != "group g1: not yet; rocastd tries again every 5s" {
		t.Errorf("%+v", g)
	}
	next.run(t)
	next.hops.Set(map[string]nexthop.Hop{"10.77.0.2": ctltest.Hop(2, "eth2", 1500, 22)})
	if g, _ := next.Group("g1"); g.State != api.Ready || !g.Restored {
		t.Errorf("%+v", g)
	}
	next.expect(t, "table [g1 g2], addresses [10.77.0.100@1 x2 10.77.0.100@2 x2 10.77.0.100@3 x2], tracking 3, files [g1.yaml g2.yaml]")
}

// A group that failed for a reason outside the network is retried too: no event says that the
// reason is gone.
func TestAKeptGroupThatFailedNeedsNoChangeOfTheNetwork(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.Store.Close()
	addresses := ctltest.NewAddresses()
	addresses.Refuse(errors.New("not now"))
	if err := os.MkdirAll(filepath.Join(w.dir, "idle", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	next := openWorldWith(t, w.dir, addresses)
	next.groups.RetryFailed()
	if n := next.logs.FilterMessage("could not remove the record of the last clean stop").Len(); n != 1 {
		t.Errorf("logged %d times", n)
	}
	if g, _ := next.Group("g1"); g.State != api.Ready || g.Reason != "" {
		t.Errorf("%+v", g)
	}
	next.expect(t, withG1)
}

// After a crash a group is restored even if the disk is full and its new state cannot be stored.
func TestAGroupComesBackThoughItsStateCannotBeKept(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.news(feedback.NoteEvicted, "10.77.0.3", 1, 1007)
	w.Store.Close()
	aside := filepath.Join(w.dir, "groups", ".g1.state.new")
	if err := os.MkdirAll(filepath.Join(aside, "in the way"), 0o700); err != nil { // the new state is first written there
		t.Fatal(err)
	}
	w = openWorld(t, w.dir)
	if g, _ := w.Group("g1"); g.State != api.Degraded || g.Reason != "10.77.0.3: evicted: it lacks the source's PSN 1007 and what follows" || g.Members[2].State != api.LeftOut {
		t.Errorf("%+v", g)
	}
	if w.logs.FilterMessage("could not store the state of members; a crash would lose it, so rocastd tries again").Len() != 1 {
		t.Errorf("logged %v", w.logs.All())
	}
}

// The addresses that a crash left are removed only after the restored groups hold theirs. Otherwise
// the IPs of the restored groups would be missing for a moment.
func TestAddressesThatNoGroupWantsAreGivenBackAfterARestart(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	next := w.restart(t, false)
	if times, held := next.addresses.Swept(); times != 1 || !held {
		t.Errorf("swept %d times, with IPs held: %v", times, held)
	}
}

// A start that cannot even list the kept groups fails, and removes none of their IPs.
func TestGroupsThatCannotBeListedEndTheStart(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	before, _ := w.addresses.Swept()
	groups := filepath.Join(w.dir, "groups")
	if err := os.Rename(groups, groups+".aside"); err != nil {
		t.Fatal(err)
	}
	if err := w.Restore(); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if times, _ := w.addresses.Swept(); times != before {
		t.Error("addresses were removed although the groups are unknown")
	}
	if err := os.Rename(groups+".aside", groups); err != nil {
		t.Fatal(err)
	}
}

// What a crash left unknown stays unknown when the group is restored later than the daemon, and
// then stopped cleanly.
func TestAGroupThatIsRestoredLaterKeepsItsState(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.update(t, g1+receiver4)
	w.sw.Carry("g1", 1234)
	w.Store.Close()
	addresses := ctltest.NewAddresses()
	addresses.Refuse(errors.New("not now"))
	w = openWorldWith(t, w.dir, addresses)
	w.groups.RetryFailed()
	if m := w.part(t, "10.77.0.4"); m.Part != "lost" {
		t.Errorf("after the retry: %+v", m)
	}
	if m := w.restart(t, true).part(t, "10.77.0.4"); m.Part != "lost" {
		t.Errorf("after a clean stop: %+v", m)
	}
}

// Nothing tells the daemon that another group gave the QPs free, so it looks every five seconds.
func TestAGroupThatFailedIsTriedAgainEveryFiveSeconds(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.Store.Close()
	synctest.Test(t, func(t *testing.T) {
		addresses := ctltest.NewAddresses()
		addresses.Refuse(errors.New("not now"))
		w := openWorldWith(t, w.dir, addresses)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.watch.FollowNotes(ctx) }()
		for _, want := range []string{api.Failed, api.Ready} { // after 4 and 8 seconds
			time.Sleep(4 * time.Second)
			synctest.Wait()
			if g, _ := w.Group("g1"); g.State != want {
				t.Errorf("%s, want %s", g.State, want)
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// An older release took numbers with a leading zero, octal ones too. A group that it has stored is
// restored with the same numbers, and no new one may have them.
func TestOldNumbersAreRestored(t *testing.T) {
	w := newWorld(t)
	old := g1
	for _, c := range []struct{ key, is, was string }{
		{"psn", "psn: 5,", "psn: 0017,"}, {"degraded-below", "mtu:", "degraded-below: 025%\nmtu:"}, {"silent-after", "mtu:", "silent-after: 0200ms\nmtu:"},
		{"ack", "mtu:", "ack: quorum 02\nmtu:"}, {"degraded-after", "mtu:", "degraded-after: 03s\nmtu:"},
	} {
		_, err := w.Create(t.Context(), []byte(strings.Replace(g1, c.is, c.was, 1)))
		if want := c.key + " has a leading zero; write it in decimal without one"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		old = strings.Replace(old, c.is, c.was, 1)
	}
	w.Store.Close()
	if err := os.WriteFile(filepath.Join(w.dir, "groups", "g1.yaml"), []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	w = openWorld(t, w.dir)
	f := w.groups.Named("g1").File
	if f == nil || f.Receivers[0].FirstPSN != 15 || f.DegradedBelow != 25 || f.Policy.SilentAfter != 200*time.Millisecond || f.Policy.Ack != 2 || f.DegradedAfter != 3*time.Second {
		t.Fatalf("%+v, %s", f, w.groups.Named("g1").Problem)
	}
}

// A group of whose state the file has gone must not begin anew: a receiver that was behind would
// count again.
func TestAMissingStateFailsItsGroup(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.create(t, anotherGroup("g2", 2))
	w.news(feedback.NoteBehind, "10.77.0.3", 1, 1000)
	w.Store.Close()
	path := filepath.Join(w.dir, "groups", "g1.state")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	w = openWorld(t, w.dir)
	want := "the state of group g1 is missing, which was in " + path + "; repair the cause and restart rocastd, or remove the group and create it again"
	if list := w.Groups().Groups; list[0].State != api.Failed || list[0].Reason != want || list[1].State != api.Ready {
		t.Errorf("%+v", list)
	}
}
