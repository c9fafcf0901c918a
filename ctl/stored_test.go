package ctl

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
)

func parsed(t *testing.T, text string) *groupfile.File {
	t.Helper()
	f, err := groupfile.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// An update whose text or state cannot be stored would be half of one after a crash.
func TestAnUpdateThatCannotBeStoredChangesNothing(t *testing.T) {
	for _, file := range []string{".g1.yaml.new", ".g1.state.new"} {
		w := newWorld(t)
		w.create(t, g1)
		inTheWay := filepath.Join(w.dir, "groups", file)
		if err := os.MkdirAll(filepath.Join(inTheWay, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Update(t.Context(), "g1", []byte(g1+receiver4)); err == nil {
			t.Errorf("%s cannot be written, and the group is updated", file)
		}
		if w.path("10.77.0.4", 1) != nil || len(w.groups.Named("g1").File.Receivers) != 2 {
			t.Errorf("%s cannot be written: %+v", file, w.groups.Named("g1").File)
		}
		if err := os.RemoveAll(inTheWay); err != nil {
			t.Fatal(err)
		}
		w.expect(t, withG1)
	}
}

// A stored file in which a digit has changed fails its group, and stays as it is: a receiver that
// the source no longer serves must not count again, under the address that the file has now.
func TestADamagedFileFailsItsGroup(t *testing.T) {
	for _, c := range []struct{ file, was, is, what string }{
		{"g1.state", "10.77.0.3", "10.77.0.8", "state of "},
		{"g1.state", `"remoteQPN": 1`, `"remoteQPN": 3`, "state of "},
		{"g1.state", "behind", "behine", "state of "},
		{"g1.yaml", "psn: 1", "psn: 3", ""},
	} {
		w := newWorld(t)
		w.create(t, g1)
		w.news(feedback.NoteBehind, "10.77.0.3", 1, 1007)
		path := filepath.Join(w.dir, "groups", c.file)
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), c.was) {
			t.Fatalf("%s, %v", text, err)
		}
		damaged := strings.Replace(string(text), c.was, c.is, 1)
		if err := os.WriteFile(path, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		w = w.restart(t, true)
		want := "read the " + c.what + "group g1: the file " + path + " is damaged: its checksum does not match; repair the cause and " +
			"restart rocastd, or remove the group and create it again"
		if c.what == "" {
			want = strings.Replace(want, "read the group", "read group", 1)
		}
		if g, err := w.Group("g1"); err != nil || g.State != api.Failed || g.Reason != want {
			t.Errorf("%s: %+v, %v", c.is, g.GroupSummary, err)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != damaged {
			t.Errorf("the file has changed: %s, %v", now, err)
		}
		if err := w.Remove("g1"); err != nil {
			t.Error(err)
		}
	}
}

// Without its record, a clean stop is no better than a crash, and the log says so.
func TestADamagedRecordOfACleanStop(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(w.dir, "idle")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)-1] ^= 1
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	w = w.restart(t, false)
	if g, _ := w.Group("g1"); g.State != api.Ready || !g.Restored {
		t.Errorf("%+v", g)
	}
	if lines := w.logs.FilterMessage("the record of the last clean stop is not used; groups are restored as after a crash"); lines.Len() != 1 {
		t.Error(w.logs.All())
	}
}

func TestAnUpdateWaitsForTheAnswersOfNewHosts(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	before := w.hops.Resolved()
	w.update(t, g1+receiver4)
	if now := w.hops.Resolved(); now != before+1 {
		t.Errorf("settled %d times", now-before)
	}
}

// Old members that a port cannot carry any more wait. Only a new one is a reason to refuse the
// update.
func TestAnUpdateIsNotRefusedForOldMembers(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.hops.Set(map[string]nexthop.Hop{
		"10.77.0.1": ctltest.Hop(1, "eth1", 500, 1), "10.77.0.2": ctltest.Hop(2, "eth2", 500, 2), "10.77.0.4": ctltest.Hop(3, "eth3", 1500, 4),
	})
	w.update(t, g1+receiver4)
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.4": ctltest.Hop(3, "eth3", 500, 4)})
	if _, err := w.Update(t.Context(), "g1", []byte(g1+receiver4+receiver4b)); err == nil || !strings.Contains(err.Error(), "cannot carry path MTU 1024") {
		t.Errorf("a new member: %v", err)
	}
}

// The member that sends now stays, wherever it stands in the file.
func TestAnUpdateKeepsTheMemberThatSends(t *testing.T) {
	const both = "  - {ip: 10.77.0.2, qpn: 18, psn: 6, sendPSN: 2000, role: both}\n"
	const others = "  - {ip: 10.77.0.3, qpn: 19, psn: 7}\n"
	const head = "name: g1\nip: 10.77.0.100\nqpn: 1\nmtu: 1024\nmembers:\n  - {ip: 10.77.0.1, qpn: 17, psn: 1000, role: source}\n"
	w := newWorld(t)
	w.create(t, head+both+others)
	w.news(feedback.NoteSource, "10.77.0.2", 1, 2000)
	if _, err := w.Update(t.Context(), "g1", []byte(head+others)); err == nil || !strings.Contains(err.Error(), "members lacks 10.77.0.2, which is the source now") {
		t.Error(err)
	}
	w.update(t, head+both+others+"  - {ip: 10.77.0.4, qpn: 20, psn: 9}\n")
}

// One note makes control look at all receivers, the first one too, and believe what it says itself.
func TestEveryReceiverIsLookedAt(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1+receiver4)
	w.sw.Part(w.groups.Named("g1").ID, "10.77.0.2", feedback.PartBehind)
	w.news(feedback.NoteEvicted, "10.77.0.3", 1, 1007)
	for ip, want := range map[string]string{"10.77.0.2": "behind", "10.77.0.3": "evicted", "10.77.0.4": ""} {
		if m := w.part(t, ip); (m.State == "left-out") != (want != "") || want != "" && m.Part != want {
			t.Errorf("%s: %+v", ip, m.Reach)
		}
	}
	w = newWorld(t)
	w.create(t, g1)
	w.news(feedback.NoteEvicted, "10.77.0.2", 1, 1007)
	if m := w.part(t, "10.77.0.2"); m.Part != "evicted" {
		t.Errorf("the first one: %+v", m.Reach)
	}
}

// A note names the group that it is about, although groups that failed have no ID, and one about a
// group that has gone names none.
func TestANoteIsOfItsGroup(t *testing.T) {
	w := newWorld(t)
	if err := w.Store.Put("failed", []byte("no group file")); err != nil {
		t.Fatal(err)
	}
	w = w.restart(t, false)
	w.create(t, g1)
	w.create(t, anotherGroup("g2", 2))
	w.create(t, anotherGroup("g3", 3))
	gone := w.groups.Named("g3").ID
	if err := w.Remove("g3"); err != nil {
		t.Fatal(err)
	}
	var want []string
	for range 10 { // groups are looked at in another order each time
		for _, name := range []string{"g1", "g2"} {
			w.note(dataplane.Note{Group: w.groups.Named(name).ID, Receiver: addr("10.77.0.3"), What: feedback.NoteFatal})
			want = append(want, name)
		}
	}
	w.note(dataplane.Note{Group: gone, Receiver: addr("10.77.0.3"), What: feedback.NoteFatal})
	want = append(want, "")
	var got []string
	for _, line := range w.logs.FilterMessage("member event").All() {
		fields := line.ContextMap()
		got = append(got, fields["group"].(string))
		if answer, has := fields["answer"]; has {
			t.Errorf("an answer that was not given: %v", answer)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("logged %q", got)
	}
}

// The group's IP comes back with a member that comes back, and is tried again where it failed.
func TestTheGroupsIPIsHeldWhereItIsNeededNow(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	follow := func(hop nexthop.Hop) {
		w.hops.Set(map[string]nexthop.Hop{"10.77.0.3": hop})
		w.network.HopsChanged([]netip.Addr{addr("10.77.0.3")})
	}
	follow(ctltest.Hop(2, "eth2", 1500, 3))
	w.expect(t, strings.Replace(withG1, " 10.77.0.100@3 x1", "", 1))
	w.addresses.Refuse(os.ErrPermission)
	follow(ctltest.Hop(3, "eth3", 1500, 3))
	w.expect(t, strings.Replace(withG1, " 10.77.0.100@3 x1", "", 1))
	if n := w.logs.FilterMessage("group's IP is not on every interface that needs it").Len(); n != 1 {
		t.Errorf("logged %d times", n)
	}
	follow(ctltest.Hop(3, "eth3", 1500, 4))
	w.expect(t, withG1)
	follow(ctltest.Hop(3, "eth3", 1500, 5))
	w.expect(t, withG1)
	if err := w.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	w.expect(t, nothing)
}

// What a start logs: the ports, and nothing that went wrong if nothing did.
func TestAStartLogsItsPorts(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w = w.restart(t, true)
	w.groups.RetryFailed()
	var messages []string
	for _, line := range w.logs.All() {
		messages = append(messages, line.Message)
	}
	if want := []string{"port opened", "port opened", "port opened", "group restored"}; !slices.Equal(messages, want) {
		t.Errorf("logged %q, want %q", messages, want)
	}
}
