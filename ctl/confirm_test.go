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
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

// confirming is g1 with a receiver that has to confirm.
var confirming = strings.Replace(g1, "{ip: 10.77.0.3,", "{confirm: true, ip: 10.77.0.3,", 1)

const unconfirmed = "its program has not confirmed that its QP is ready (rocast member ready)"

func (w *world) confirm(t *testing.T, request string) api.Group {
	t.Helper()
	g, err := w.Confirm("g1", []byte(request))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestAGroupWaitsForConfirmations(t *testing.T) {
	w := newWorld(t)
	g := w.create(t, confirming)
	if g.State != api.Waiting || g.ClearToSend || g.WaitingCount != 1 || g.Members[2].State != api.Waiting || g.Members[2].Reason != unconfirmed || !g.Members[2].Confirm {
		t.Errorf("%+v", g)
	}
	if g.Members[1].State != api.Ready || g.Members[1].Confirm {
		t.Errorf("%+v", g.Members[1])
	}
	w.happened()
	const request = `{"ip": "10.77.0.3", "qpn": 19, "state": "rtr", "psn": 7, "remoteQPN": 1, "mtu": 1024}`
	if g := w.confirm(t, request); g.State != api.Ready || !g.ClearToSend || g.WaitingCount != 0 || g.Members[2].State != api.Ready {
		t.Errorf("%+v", g)
	}
	w.confirm(t, request)
	w.expectEvents(t, "member-confirmed g1 10.77.0.3: its QP 19 is in state RTR")
	w.confirm(t, `{"ip": "10.77.0.2", "qpn": 18, "state": "RTS"}`) // nobody waits for it
	w.expectEvents(t, "member-confirmed g1 10.77.0.2: its QP 18 is in state RTS")

	// A member that cannot be reached is waited for as well.
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.3": {Interface: 3, Reason: "nothing answers"}})
	w.network.HopsChanged([]netip.Addr{addr("10.77.0.3")})
	if g := w.group(t); g.Members[2].State != api.Waiting || g.Members[2].Reason != "nothing answers" {
		t.Errorf("%+v", g.Members[2])
	}
}

// A group that never carried data begins anew, but its programs do not.
func TestAConfirmationOfAnIdleGroupOutlivesAStop(t *testing.T) {
	w := newWorld(t)
	w.create(t, confirming)
	w.confirm(t, `{"ip": "10.77.0.3", "qpn": 19, "state": "RTR"}`)
	w = w.restart(t, true)
	if g := w.group(t); !g.ClearToSend || g.Restored {
		t.Errorf("%+v", g)
	}
	// Nor does it end with an update that lets another member leave.
	without := strings.Replace(confirming, confirming[strings.Index(confirming, "  - {ip: 10.77.0.2"):strings.Index(confirming, "  - {confirm")], "", 1)
	g, err := w.Update(t.Context(), "g1", []byte(without))
	if err != nil || !g.ClearToSend || len(g.Members) != 2 {
		t.Errorf("%+v, %v", g, err)
	}
}

// What was confirmed outlives the daemon, also a crash. A member that joins again confirms again.
func TestAConfirmationOutlivesTheDaemon(t *testing.T) {
	w := newWorld(t)
	w.create(t, confirming)
	for _, clean := range []bool{true, false} {
		if w = w.restart(t, clean); w.group(t).ClearToSend {
			t.Error("nobody has confirmed")
		}
	}
	w.confirm(t, `{"ip": "10.77.0.3", "qpn": 19, "state": "RTR"}`)
	for _, clean := range []bool{true, false} {
		if w = w.restart(t, clean); !w.group(t).ClearToSend {
			t.Errorf("after a clean stop %v: %+v", clean, w.group(t).Members[2])
		}
	}
	without := g1[:strings.LastIndex(g1, "  - {ip: 10.77.0.3")]
	for _, text := range []string{without, confirming} {
		if _, err := w.Update(t.Context(), "g1", []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if g := w.group(t); g.ClearToSend || g.Members[2].Reason != unconfirmed {
		t.Errorf("%+v", g.Members[2])
	}
}

func TestWhatAConfirmationMayNotSay(t *testing.T) {
	w := newWorld(t)
	w.create(t, confirming)
	for request, want := range map[string]string{
		"":         "the confirmation cannot be read (EOF); write ip, qpn and state",
		`{"a": 1}`: `the confirmation cannot be read (json: unknown field "a"); write ip, qpn and state`,
		`{}`:       `ip is ""; write the address of the member, such as 10.77.0.2`,
		`{"ip": "10.77.0.3", "qpn": 18, "state": "RTR"}`:                 "QP 18 of 10.77.0.3 is no receiver of group g1; rocast group show g1 lists them",
		`{"ip": "10.77.0.1", "qpn": 17, "state": "RTR"}`:                 "QP 17 of 10.77.0.1 is no receiver of group g1; rocast group show g1 lists them",
		`{"ip": "10.77.0.3", "qpn": 19}`:                                 `QP 19 of 10.77.0.3 is in state "", and receives only in RTR and RTS; move it there and confirm again`,
		`{"ip": "10.77.0.3", "qpn": 19, "state": "INIT"}`:                `QP 19 of 10.77.0.3 is in state "INIT", and receives only in RTR and RTS; move it there and confirm again`,
		`{"ip": "10.77.0.3", "qpn": 19, "state": "RTR", "psn": 0}`:       "QP 19 of 10.77.0.3 expects PSN 0, and the group file says psn: 7; create the QP again, or correct the group",
		`{"ip": "10.77.0.3", "qpn": 19, "state": "RTR", "remoteQPN": 2}`: "QP 19 of 10.77.0.3 has remote QPN 2, and the group has 1; create the QP again, or correct the group",
		`{"ip": "10.77.0.3", "qpn": 19, "state": "RTR", "mtu": 512}`:     "QP 19 of 10.77.0.3 has path MTU 512, and the group has 1024; create the QP again, or correct the group",
	} {
		if _, err := w.Confirm("g1", []byte(request)); err == nil || err.Error() != want {
			t.Errorf("%s:\ngot  %v\nwant %s", request, err, want)
		}
	}
	_, err := w.Confirm("g2", []byte(`{}`))
	if e := (*api.Error)(nil); !errors.As(err, &e) || e.Kind != api.NotFound {
		t.Error(err)
	}
	if w.group(t).ClearToSend {
		t.Error("it is clear to send")
	}
}

// A receiver says that it is ready at its own box or at one above, and the boxes tell each other.
func TestConfirmationsBehindABox(t *testing.T) {
	f, b1, b2 := twoBoxes(t)
	g := f.create(strings.Replace(groupFile("10.2.0.1"), "{ip: 10.2.0.1,", "{confirm: true, ip: 10.2.0.1,", 1))
	if g.ClearToSend || g.State != api.Waiting || g.Reason != "10.2.0.1 at box b2: "+unconfirmed {
		t.Errorf("%+v", g.GroupSummary)
	}
	m := b2.groups.Named("g1").Wanted.Receivers[0]
	request := []byte(strings.Replace(`{"ip": "10.2.0.1", "qpn": N, "state": "RTR"}`, "N", fmt.Sprint(m.QPN), 1))
	if _, err := b2.Confirm("g1", request); err != nil {
		t.Fatal(err)
	}
	b1.due("g1")
	b1.Branches.Tend(t.Context(), b1.groups.Named("g1"))
	if g, _ := b1.Group("g1"); !g.ClearToSend {
		t.Errorf("%+v", g.GroupSummary)
	}
	if err := b1.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	f.create(strings.Replace(groupFile("10.2.0.1"), "{ip: 10.2.0.1,", "{confirm: true, ip: 10.2.0.1,", 1))
	if g, err := b1.Confirm("g1", request); err != nil || g.ClearToSend {
		t.Errorf("box b2 has not heard of it: %+v, %v", g.GroupSummary, err)
	}
	f.tendAll(time.Now())
	if g, _ := b1.Group("g1"); !g.ClearToSend {
		t.Errorf("%+v", g.GroupSummary)
	}
}

// blockState lets nothing be stored of the members of g1, until the returned function is called.
func (w *world) blockState(t *testing.T) (free func()) {
	t.Helper()
	inTheWay := filepath.Join(w.dir, "groups", ".g1.state.new")
	if err := os.MkdirAll(filepath.Join(inTheWay, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := os.RemoveAll(inTheWay); err != nil {
			t.Fatal(err)
		}
	}
}

// A source sends as soon as it sees that all have confirmed. A crash must not take that back.
func TestAConfirmationThatCannotBeStoredDoesNotCount(t *testing.T) {
	w := newWorld(t)
	w.create(t, confirming)
	w.happened()
	free := w.blockState(t)
	const request = `{"ip": "10.77.0.3", "qpn": 19, "state": "RTR"}`
	_, err := w.Confirm("g1", []byte(request))
	const begins, ends = "the confirmation of QP 19 of 10.77.0.3 cannot be stored, so it does not count (keep the state of group g1: ", "; repair the cause and confirm again"
	if err == nil || !strings.HasPrefix(err.Error(), begins) || !strings.HasSuffix(err.Error(), ends) {
		t.Error(err)
	}
	if g := w.group(t); g.ClearToSend || g.Members[2].Reason != unconfirmed {
		t.Errorf("%+v", g)
	}
	w.expectEvents(t)
	free()
	if g := w.confirm(t, request); !g.ClearToSend {
		t.Errorf("%+v", g.GroupSummary)
	}
	w.expectEvents(t, "member-confirmed g1 10.77.0.3: its QP 19 is in state RTR")
	w = w.restart(t, false)
	if g := w.group(t); !g.ClearToSend {
		t.Errorf("after a crash: %+v", g.GroupSummary)
	}
}

// The box above says it again until it is stored.
func TestAConfirmationFromAboveThatCannotBeStoredDoesNotCount(t *testing.T) {
	f, b1, b2 := twoBoxes(t)
	f.create(strings.Replace(groupFile("10.2.0.1"), "{ip: 10.2.0.1,", "{confirm: true, ip: 10.2.0.1,", 1))
	m := b2.groups.Named("g1").Wanted.Receivers[0]
	free := b2.blockState(t)
	b2.happened()
	if _, err := b1.Confirm("g1", fmt.Appendf(nil, `{"ip": "10.2.0.1", "qpn": %d, "state": "RTR"}`, m.QPN)); err != nil {
		t.Fatal(err)
	}
	f.tendAll(time.Now())
	if g, _ := b2.Group("g1"); g.ClearToSend {
		t.Errorf("%+v", g.GroupSummary)
	}
	b2.expectEvents(t)
	free()
	b1.due("g1")
	f.tendAll(time.Now())
	if g, _ := b1.Group("g1"); !g.ClearToSend {
		t.Errorf("%+v", g.GroupSummary)
	}
	b2.expectEvents(t, "member-confirmed g1 10.2.0.1: box b1 says so")
}

// part returns how a receiver takes part in what a box sends to the data path.
func part(t *testing.T, g *mft.Group, ip string) feedback.Part {
	t.Helper()
	i := slices.IndexFunc(g.Paths, func(p mft.Path) bool { return p.Dst == addr(ip) })
	if i < 0 {
		t.Fatalf("no path to %s", ip)
	}
	for _, p := range g.Parts {
		if p.QP == g.Paths[i].QP() {
			return p.Part
		}
	}
	return feedback.PartActive
}

// A receiver that joins is sent nothing before its program has confirmed: its QP would drop that.
// One that an operator adds without confirm joins at once.
func TestAReceiverThatJoinsWaitsForItsConfirmation(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1[:strings.Index(g1, "  - {ip: 10.77.0.3")])
	w.sw.Carry("g1", 1000)
	if _, err := w.Update(t.Context(), "g1", []byte(confirming)); err != nil {
		t.Fatal(err)
	}
	if got := part(t, w.published(t), "10.77.0.3"); got != feedback.PartWaiting {
		t.Errorf("it is %v", got)
	}
	w = w.restart(t, true)
	if got := part(t, w.published(t), "10.77.0.3"); got != feedback.PartWaiting {
		t.Errorf("after a stop it is %v", got)
	}

	// The data path does not take the change: then the program hears that, and confirms again.
	w.sw.Refuse(errors.New("the map is full"))
	const request = `{"ip": "10.77.0.3", "qpn": 19, "state": "RTR"}`
	_, err := w.Confirm("g1", []byte(request))
	if err == nil || err.Error() != "QP 19 of 10.77.0.3 cannot join, so its confirmation does not count (the map is full); repair the cause and confirm again" {
		t.Error(err)
	}
	if g := w.group(t); g.ClearToSend || g.Members[2].Reason != unconfirmed {
		t.Errorf("%+v", g.Members[2])
	}
	w.sw.Refuse(nil)
	if g := w.confirm(t, request); !g.ClearToSend {
		t.Errorf("%+v", g.GroupSummary)
	}
	if got := part(t, w.published(t), "10.77.0.3"); got != feedback.PartJoining {
		t.Errorf("after its confirmation it is %v", got)
	}

	without := strings.Replace(confirming, "  - {ip: 10.77.0.2", "  - {ip: 10.77.0.4", 1)
	if _, err := w.Update(t.Context(), "g1", []byte(without)); err != nil {
		t.Fatal(err)
	}
	if got := part(t, w.published(t), "10.77.0.4"); got != feedback.PartJoining {
		t.Errorf("without confirm it is %v", got)
	}
}

// A confirmation was stored, the data path refused the receiver, and the disk took nothing more: it
// has a confirmation that did not happen. No restart believes that. Before a crash or an end that
// could store nothing the receiver may have joined for all that is known, so it is out, and its
// program hears so. Else the disk is told until it takes it, at the latest by the end.
func TestAConfirmationThatDidNotHappenIsNotBelieved(t *testing.T) {
	const request = `{"ip": "10.77.0.3", "qpn": 19, "state": "RTR"}`
	for _, tt := range []struct {
		name          string
		carried       bool
		clean, usable bool // how rocastd ends; the disk takes something again before
		confirms      bool // the program can confirm
	}{
		{"crash", true, false, false, false},
		{"crash, idle", false, false, false, false},
		{"the disk fails until the end", true, true, false, false},
		{"the disk fails until the end, idle", false, true, false, false},
		{"the disk is back", true, true, true, true},
		{"the disk is back, idle", false, true, true, true},
	} {
		w := newWorld(t)
		w.create(t, g1[:strings.Index(g1, "  - {ip: 10.77.0.3")])
		if tt.carried {
			w.sw.Carry("g1", 1000)
		}
		if _, err := w.Update(t.Context(), "g1", []byte(confirming)); err != nil {
			t.Fatal(err)
		}
		free := func() {}
		stores := 0
		w.groups.Members = func(string) {
			if stores++; stores == 2 {
				free = w.blockState(t)
			}
		}
		w.sw.Refuse(errors.New("the map is full"))
		_, err := w.Confirm("g1", []byte(request))
		if err == nil || !strings.Contains(err.Error(), "the map is full") || !strings.Contains(err.Error(), "keep the state of group g1") || stores != 2 {
			t.Fatalf("%s: %v after %d stores", tt.name, err, stores)
		}
		if text, err := os.ReadFile(filepath.Join(w.dir, "groups", "g1.state")); err != nil || !strings.Contains(string(text), "confirmed") {
			t.Errorf("%s: the disk has %s, %v", tt.name, text, err)
		}
		if g := w.group(t); g.ClearToSend {
			t.Errorf("%s: before the end: %+v", tt.name, g.Members[2])
		}
		if tt.usable {
			free()
		}
		if tt.clean {
			if err := w.Close(); err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
		free()
		w = w.restart(t, false)
		g := w.group(t)
		if g.Members[2].State == api.Ready || g.ClearToSend && tt.confirms {
			t.Errorf("%s: it is believed: %+v", tt.name, g.Members[2])
		}
		if _, err := w.Confirm("g1", []byte(request)); (err == nil) != tt.confirms {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// Nobody knows after a crash whether a receiver that waited has joined. It is out, and its program
// hears so when it confirms, with what lets it join again.
func TestAReceiverThatACrashHasLeftOutCannotConfirm(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1[:strings.Index(g1, "  - {ip: 10.77.0.3")])
	w.sw.Carry("g1", 1000)
	if _, err := w.Update(t.Context(), "g1", []byte(confirming)); err != nil {
		t.Fatal(err)
	}
	w = w.restart(t, false)
	_, err := w.Confirm("g1", []byte(`{"ip": "10.77.0.3", "qpn": 19, "state": "RTR"}`))
	const want = "QP 19 of 10.77.0.3 gets no data from group g1 (lost: it was joining when the daemon crashed, so it is unknown which packets " +
		"its QP received; to let it join again, group update without it, then with it and the psn its QP expects)"
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

// Behind a box, the box there holds the receiver back, and the group is clear to send only when it
// does so no more.
func TestAReceiverThatJoinsBehindABoxWaitsForItsConfirmation(t *testing.T) {
	f, b1, b2, b3 := threeBoxes(t)
	f.create(groupFile("10.2.0.1", "10.1.0.2"))
	for _, b := range f.boxes[:2] {
		b.sw.Carry("g1", 1000)
	}
	confirmed := func(text string, hosts ...string) string {
		for _, ip := range hosts {
			text = strings.Replace(text, "{ip: "+ip, "{confirm: true, ip: "+ip, 1)
		}
		return text
	}
	update := func(text string) {
		t.Helper()
		if _, err := b1.Update(t.Context(), "g1", []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	ready := func(at *box, ip string) api.Group {
		t.Helper()
		a := addr(ip).As4()
		g, err := at.Confirm("g1", fmt.Appendf(nil, `{"ip": "%s", "qpn": %d, "state": "RTR"}`, ip, 100+10*int(a[1])+int(a[3])))
		if err != nil {
			t.Fatal(err)
		}
		return g
	}

	// A box that carries the group already.
	update(confirmed(groupFile("10.2.0.1", "10.1.0.2", "10.2.0.2"), "10.2.0.2"))
	if got := part(t, b1.published("g1"), "10.9.0.2"); got != feedback.PartActive {
		t.Errorf("the link is %v", got)
	}
	if got := part(t, b2.published("g1"), "10.2.0.2"); got != feedback.PartWaiting {
		t.Errorf("it is %v", got)
	}
	if g := ready(b1, "10.2.0.2"); g.ClearToSend {
		t.Error("box b2 has not heard of it, and holds the receiver back")
	}
	f.tendAll(time.Now())
	if g, _ := b1.Group("g1"); !g.ClearToSend || part(t, b2.published("g1"), "10.2.0.2") != feedback.PartJoining {
		t.Errorf("%+v, %v", g.GroupSummary, part(t, b2.published("g1"), "10.2.0.2"))
	}

	// A box that does not: to it all packets from the first one on are for the receiver, so the box
	// above holds the link back, until the programs of all receivers behind it have confirmed.
	update(confirmed(groupFile("10.2.0.1", "10.1.0.2", "10.2.0.2", "10.3.0.1", "10.3.0.2", "10.3.0.3"), "10.2.0.2", "10.3.0.1", "10.3.0.2"))
	if got := part(t, b2.published("g1"), "10.9.0.3"); got != feedback.PartWaiting {
		t.Errorf("the link is %v", got)
	}
	ready(b1, "10.3.0.1")
	f.tendAll(time.Now())
	if got := part(t, b2.published("g1"), "10.9.0.3"); got != feedback.PartWaiting {
		t.Errorf("one has confirmed of two, and the link is %v", got)
	}
	ready(b3, "10.3.0.2") // which does not go up
	for _, b := range []*box{b2, b1} {
		b.due("g1")
		b.Branches.Tend(t.Context(), b.groups.Named("g1"))
	}
	if g, _ := b1.Group("g1"); !g.ClearToSend || part(t, b2.published("g1"), "10.9.0.3") != feedback.PartJoining {
		t.Errorf("%+v, %v", g.GroupSummary, part(t, b2.published("g1"), "10.9.0.3"))
	}
}

// A box that lists no member, because its part of the group has failed, has not said that the
// programs there have confirmed. The link is held back: nothing there could acknowledge data.
func TestAReceiverThatJoinsBehindABoxThatFailsWaits(t *testing.T) {
	f, b1, b2 := twoBoxes(t)
	f.create("repair: local\n" + groupFile("10.1.0.2"))
	b1.sw.Carry("g1", 1000)
	text := "repair: local\n" + strings.Replace(groupFile("10.1.0.2", "10.2.0.1"), "{ip: 10.2.0.1", "{confirm: true, ip: 10.2.0.1", 1)
	if _, err := b1.Update(t.Context(), "g1", []byte(text)); err != nil {
		t.Fatal(err)
	}
	b2.small = true // it has no memory for repair
	b2.restart(true, false)
	b1.due("g1")
	f.tendAll(time.Now())
	if absent := b1.groups.Named("g1").Links[0].Absent; len(absent) != 1 || absent[0].Member != "" {
		t.Fatalf("box b2 says %+v", absent)
	}
	if got := part(t, b1.published("g1"), "10.9.0.2"); got != feedback.PartWaiting {
		t.Errorf("the link is %v", got)
	}
}
