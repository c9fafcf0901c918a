package ctl

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
		{"a clean stop before any data: it begins anew", false, true, false},
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
			published := w.sw.Table().Group(w.groups["g1"].id)
			if published.Restored != c.wantRestored || g.Restored != c.wantRestored {
				t.Errorf("restored: published %v, shown %v, want %v", published.Restored, g.Restored, c.wantRestored)
			}
		})
	}
}

// A group restored without knowledge stays so, though it carried nothing since: its QPs still may
// be anywhere.
func TestRestoredIsForgottenOnlyWithTheGroup(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w = w.restart(t, false).restart(t, true)
	if g, _ := w.Group("g1"); !g.Restored {
		t.Error("the clean stop made it fresh")
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
	if g, err := w.Group("bad"); err != nil || g.State != api.Failed {
		t.Errorf("%+v, %v", g, err)
	}
	if err := w.Remove("bad"); err != nil {
		t.Fatal(err)
	}
	w.expect(t, withG1)
}

// A disk with one bad sector costs one group. Files that root cannot read are rare: a directory is
// one.
func TestAFileThatCannotBeReadCostsItsGroupAlone(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.create(t, anotherGroup("g2", 2))
	w.Store.Close()
	for _, path := range []string{"groups/bad.yaml", "groups/g2.state", "idle"} {
		if err := os.Mkdir(filepath.Join(w.dir, path), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	w = openWorld(t, w.dir)
	list := w.Groups().Groups
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

// A clean stop while a group's file cannot be read does not make the group one that never carried
// data.
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
	addresses.Refuse(errors.New("not now")) // the first that is held: one of g1's
	next := openWorldWith(t, w.dir, addresses)
	if g, _ := next.Group("g1"); g.State != api.Failed || g.Reason != "group g1: not now; rocastd tries again every 5s" || g.Members[0].Reason != "the group failed" {
		t.Errorf("%+v", g)
	}
	if g, _ := next.Group("g2"); g.State != api.Ready {
		t.Errorf("%+v", g)
	}
	next.run(t)
	next.hops.Set(map[string]nexthop.Hop{"10.77.0.2": ctltest.Hop(2, "eth2", 1500, 22)})
	if g, _ := next.Group("g1"); g.State != api.Ready || !g.Restored {
		t.Errorf("%+v", g)
	}
	next.expect(t, "table [g1 g2], addresses [10.77.0.100@1 x2 10.77.0.100@2 x2 10.77.0.100@3 x2], tracking 3, files [g1.yaml g2.yaml]")
}

// What failed for another reason than the network's is tried again, too: nobody tells when that is
// over.
func TestAKeptGroupThatFailedNeedsNoChangeOfTheNetwork(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.Store.Close()
	addresses := ctltest.NewAddresses()
	addresses.Refuse(errors.New("not now"))
	next := openWorldWith(t, w.dir, addresses)
	next.retryFailed()
	if g, _ := next.Group("g1"); g.State != api.Ready || g.Reason != "" {
		t.Errorf("%+v", g)
	}
	next.expect(t, withG1)
}

// A full disk keeps what a crash made of a group from being written down, not the group from coming
// back.
func TestAGroupComesBackThoughItsStateCannotBeKept(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.news(feedback.NoteEvicted, "10.77.0.3", 1, 1007)
	w.Store.Close()
	aside := filepath.Join(w.dir, "groups", ".g1.state.new")
	if err := os.MkdirAll(filepath.Join(aside, "in the way"), 0o700); err != nil { // the state is written there first
		t.Fatal(err)
	}
	w = openWorld(t, w.dir)
	if g, _ := w.Group("g1"); g.State != api.Ready || g.Members[2].State != api.LeftOut {
		t.Errorf("%+v", g)
	}
	if w.logs.FilterMessage("could not store the state of members; a crash would lose it").Len() != 1 {
		t.Errorf("logged %v", w.logs.All())
	}
}

// What a crash left on interfaces is given back once the groups that come back hold what is theirs,
// and not before: their IPs would be gone for a moment.
func TestAddressesThatNoGroupWantsAreGivenBackAfterARestart(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	next := w.restart(t, false)
	if times, held := next.addresses.Swept(); times != 1 || !held {
		t.Errorf("swept %d times, with IPs held: %v", times, held)
	}
}
