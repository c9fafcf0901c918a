package ctl

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/view"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
)

// Waiting for next hops takes a second, and asking for the IP takes some tenths of a second. A name
// that is already used is refused before that.
func TestANameThatIsTakenIsToldBeforeAnybodyIsAsked(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	settled, asked := w.hops.Resolved(), w.addresses.Asked()
	_, err := w.Create(t.Context(), []byte(strings.Replace(g1, "10.77.0.100", "10.77.0.101", 1)))
	if err == nil || err.Error() != "line 1: group g1 exists; remove it first with rocast group rm g1, or write another name" {
		t.Errorf("%v", err)
	}
	if w.hops.Resolved() != settled || w.addresses.Asked() != asked {
		t.Errorf("hosts were waited for %d times and asked %d times", w.hops.Resolved()-settled, w.addresses.Asked()-asked)
	}
	w.expect(t, withG1)
}

// If two requests for the same name run at the same time, one of them is refused.
func TestANameThatIsTakenMeanwhileIsRefused(t *testing.T) {
	w := newWorld(t)
	w.hops.Meanwhile = func() { w.create(t, g1) }
	_, err := w.Create(t.Context(), []byte(strings.Replace(g1, "10.77.0.100", "10.77.0.101", 1)))
	if err == nil || !strings.HasPrefix(err.Error(), "line 1: group g1 exists;") {
		t.Errorf("%v", err)
	}
	w.expect(t, withG1)
}

// If a client disconnects before its request is done, its group is not created.
func TestARequestWhoseClientHasGoneChangesNothing(t *testing.T) {
	w := newWorld(t)
	gone, leave := context.WithCancel(t.Context())
	leave()
	for range 20 { // the request may end while its text is parsed, or not
		if _, err := w.Create(gone, []byte(g1)); err == nil || !strings.HasSuffix(err.Error(), "nothing has changed") {
			t.Errorf("create: %v", err)
		}
	}
	w.expect(t, nothing)
	was := w.create(t, g1)
	without := strings.Join(strings.Split(g1, "\n")[:8], "\n") + "\n"
	for range 20 {
		if _, err := w.Update(gone, "g1", []byte(without)); err == nil || !strings.HasSuffix(err.Error(), "nothing has changed") {
			t.Errorf("update: %v", err)
		}
	}
	if is, err := w.Group("g1"); err != nil || len(is.Members) != len(was.Members) {
		t.Errorf("%+v, %v", is, err)
	}
}

// While one parser runs, another one waits until it has ended.
func TestParsersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		end := make(chan struct{})
		running, most := 0, 0
		for range 2 {
			go func() {
				_ = w.alone(t.Context(), func() error {
					running++
					most = max(most, running)
					<-end
					running--
					return nil
				})
			}()
			synctest.Wait()
		}
		close(end)
		synctest.Wait()
		if most != 1 || running != 0 {
			t.Errorf("%d parsers ran at one time, and %d have not ended", most, running)
		}
	})
}

// Only one text is parsed at a time, because parsing a text of a megabyte takes much more memory.
func TestOneTextIsParsedAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.parsing <- struct{}{} // another request is parsing
		results := make(chan error, 3)
		go func() { _, err := w.Create(t.Context(), []byte(g1)); results <- err }()
		go func() { _, err := w.Update(t.Context(), "g2", []byte("?")); results <- err }()
		go func() { _, err := w.Services.PerftestUp(t.Context(), []byte("?")); results <- err }()
		synctest.Wait()
		if len(results) > 0 {
			t.Errorf("%d texts were parsed beside another one", len(results))
		}
		<-w.parsing
		for range 3 {
			<-results
		}
		w.expect(t, withG1)
	})
}

// A QP has one peer. It would drop the packets of a second group, or take them for the first
// group's.
func TestAQPIsInOneGroup(t *testing.T) {
	w := newWorld(t)
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.4": ctltest.Hop(3, "eth3", 1500, 4)})
	w.create(t, g1)
	g2 := anotherGroup("g2", 2)
	for name, c := range map[string]struct{ old, new, want string }{
		"the source":   {"qpn: 217", "qpn: 17", "line 7: QP 17 of 10.77.0.1 is already in group g1, and a queue pair has only one peer; write another qpn, or remove group g1"},
		"a receiver":   {"qpn: 219", "qpn: 19", "line 9: QP 19 of 10.77.0.3 is already in group g1, and a queue pair has only one peer; write another qpn, or remove group g1"},
		"another role": {"qpn: 219, psn: 7", "qpn: 19, psn: 7, sendPSN: 3, role: both", "line 9: QP 19 of 10.77.0.3 is already in group g1, and a queue pair has only one peer; write another qpn, or remove group g1"},
	} {
		settled := w.hops.Resolved()
		if _, err := w.Create(t.Context(), []byte(strings.Replace(g2, c.old, c.new, 1))); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v", name, err)
		}
		if w.hops.Resolved() != settled {
			t.Errorf("%s: hosts were waited for first", name)
		}
	}
	w.hops.Meanwhile = func() { w.create(t, strings.Replace(g2, "name: g2", "name: g3", 1)) }
	if _, err := w.Create(t.Context(), []byte(strings.Replace(g2, "qpn: 2\n", "qpn: 4\n", 1))); err == nil || !strings.Contains(err.Error(), "is already in group g3") {
		t.Errorf("meanwhile: %v", err)
	}
	if err := w.Remove("g3"); err != nil {
		t.Fatal(err)
	}
	w.expect(t, withG1)

	w.create(t, g2)
	w.update(t, g1+receiver4)
	_, err := w.Update(t.Context(), "g2", []byte(g2+receiver4))
	if want := "line 10: QP 20 of 10.77.0.4 is already in group g1, and a queue pair has only one peer; write another qpn, or remove group g1"; err == nil || err.Error() != want {
		t.Errorf("update: %v", err)
	}
	w.update(t, g1) // the QP leaves the group and is free
	if _, err := w.Update(t.Context(), "g2", []byte(g2+receiver4)); err != nil {
		t.Error(err)
	}
}

// An earlier version may have stored two groups with the same QP. The group whose name comes first
// is restored, and the other one as soon as the first one is removed.
func TestAGroupThatSharesAQPWithAnotherComesBackWhenThatIsGone(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.Store.Close()
	g2 := strings.Replace(anotherGroup("g2", 2), "qpn: 219", "qpn: 19", 1)
	if err := os.WriteFile(filepath.Join(w.dir, "groups", "g2.yaml"), []byte(g2), 0o600); err != nil {
		t.Fatal(err)
	}
	w = openWorld(t, w.dir)
	list := w.Groups().Groups
	if len(list) != 2 || list[0].State != api.Ready || list[1].State != api.Failed || !strings.Contains(list[1].Reason, "QP 19 of 10.77.0.3 is already in group g1") {
		t.Errorf("%+v", list)
	}
	w.groups.RetryFailed()
	if err := w.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	w.groups.RetryFailed()
	w.expect(t, "table [g2], addresses [10.77.0.100@1 x1 10.77.0.100@2 x1 10.77.0.100@3 x1], tracking 3, files [g2.yaml]")
	if err := w.Remove("g2"); err != nil {
		t.Fatal(err)
	}
	w.expect(t, nothing)
}

// The members that an update adds are checked like those of a new group.
func TestAnUpdateTakesNoMemberThatCannotBe(t *testing.T) {
	w := newWorld(t)
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.4": ctltest.Hop(3, "eth3", 1500, 4)})
	w.create(t, g1)
	inSubnet("10.77.0.0/29", "10.0.0.0/8")(w)
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.7": ctltest.Hop(3, "eth3", 1500, 7), "10.77.0.4": {Own: true}})
	for ip, want := range map[string]string{
		"10.77.0.7": "line 10: the member's ip 10.77.0.7 is the broadcast address of 10.77.0.0/29; write the host's",
		"10.77.0.4": "line 10: the member at 10.77.0.4 has an address of this box; write the host's",
	} {
		if _, err := w.Update(t.Context(), "g1", []byte(g1+strings.Replace(receiver4, "10.77.0.4", ip, 1))); err == nil || err.Error() != want {
			t.Errorf("%s: %v", ip, err)
		}
	}
	w.expect(t, withG1)
}

// The most frequent mistake is a wrong PSN in the group file.
func TestASourceWithAnotherPSNIsShownAsSuch(t *testing.T) {
	onItsHost := strings.Replace(receiver4, "10.77.0.4", "10.77.0.1", 1)
	for _, text := range []string{g1 + onItsHost, bothG1} {
		w := newWorld(t)
		if g := w.create(t, text); g.Members[0].Reason != "" {
			t.Errorf("before any data: %+v", g.Members[0])
		}
		id := w.groups.Named("g1").ID
		w.sw.Refused(id, dataplane.Refused{Count: 1, Reason: dataplane.Reason(feedback.OutsideWindow), From: addr("10.77.0.1"), QPN: 1})
		w.watch.Look("g1", time.Unix(1, 0))
		w.watch.Look("g1", time.Unix(2, 0))
		want := "its packets have PSNs far from what the group has sent: its first PSN is not 1000, as the group file says; create its QP and the group again"
		if g, _ := w.Group("g1"); g.Members[0].Reason != want || g.Members[1].Reason != "" || g.Members[len(g.Members)-1].Reason != "" {
			t.Errorf("%+v", g.Members)
		}
		w.sw.Traffic("g1", dataplane.Traffic{Sent: 3}) // that was a late or forged frame
		w.watch.Look("g1", time.Unix(3, 0))
		if g, _ := w.Group("g1"); g.Members[0].Reason != "" {
			t.Errorf("the source is heard: %+v", g.Members[0])
		}
	}
}

// A group has repair unless its file says otherwise. On a box without the memory it has none and
// says why, but one that asks for repair is refused.
func TestRepairIsTheDefaultWhereThereIsMemory(t *testing.T) {
	w := newWorld(t)
	if g := w.create(t, g1); g.Policy.Repair != "local" || g.Policy.RepairWindow != 1024 || g.Retained == nil || len(g.Notes) > 0 {
		t.Errorf("with memory: %+v, notes %q", g.Policy, g.Notes)
	}
	if g := w.create(t, "repair: off\n"+anotherGroup("g2", 2)); g.Policy.Repair != "off" || g.Retained != nil || len(g.Notes) > 0 {
		t.Errorf("without by name: %+v, notes %q", g.Policy, g.Notes)
	}

	for chunks, why := range map[int]string{
		0: "repair: local needs memory, and rocastd.yaml says repairMemory: 0; write a size there, or repair: off into the group file",
		1023: "repair-window is 1024 packets, and the repairMemory of a forwarding thread has room for 1023 of them; write 1023 or less, " +
			"or a larger repairMemory into rocastd.yaml",
	} {
		w := openWorldOn(t, t.TempDir(), ctltest.NewRetaining(chunks, "eth1", "eth2", "eth3"), ctltest.NewAddresses())
		note := "repair is off, although that is not the default: " + why + offByDefault
		check := func(when string, g api.Group, err error) {
			t.Helper()
			published := w.groups.Named("g1").Published.Policy
			if err != nil || *g.Policy != *view.Policy(published) || g.Policy.Repair != "off" || g.Policy.RepairWindow != 0 || g.Retained != nil ||
				len(g.Notes) != 1 || g.Notes[0] != note || g.Members[1].Repair != nil {
				t.Errorf("%d buffers, %s: %+v, notes %q, %v", chunks, when, g.Policy, g.Notes, err)
			}
		}
		g, err := w.Create(t.Context(), []byte(g1))
		check("created", g, err)
		g, err = w.Update(t.Context(), "g1", []byte(strings.Replace(g1, "  - {ip: 10.77.0.3", "  #", 1)))
		check("updated", g, err)
		for _, asks := range []string{"repair: local\n", "repair-attempts: 3\n"} {
			if _, err := w.Create(t.Context(), []byte(asks+anotherGroup("g2", 2))); err == nil || err.Error() != "line 1: group g2: "+why {
				t.Errorf("%d buffers, %s: %v", chunks, asks, err)
			}
		}
	}
}

// A window that does not fit into the packet memory is refused with its line.
func TestAWindowBeyondTheRepairMemoryIsRefused(t *testing.T) {
	w := newWorld(t)
	_, err := w.Create(t.Context(), []byte("repair: local\nrepair-window: 4097\n"+g1))
	want := "line 2: group g1: repair-window is 4097 packets, and the repairMemory of a forwarding thread has room for 4096 of them; write 4096 or less, or a larger repairMemory into rocastd.yaml"
	if err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	_, err = w.Create(t.Context(), []byte("repair: local\nrepair-bytes: 17MiB\n"+g1))
	want = "line 2: group g1: repair-bytes is 17408KiB, and the repairMemory of a forwarding thread is 16384KiB; write 16384KiB or less, or a larger repairMemory into rocastd.yaml"
	if err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	if _, err := w.Create(t.Context(), []byte("repair: local\nrepair-window: 4096\n"+g1)); err != nil {
		t.Error(err)
	}
}
