package hosts

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/bounds"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/internal/testlab"
)

// joining is the outcome of a Join.
type joining struct {
	group api.HostGroup
	err   error
}

// join asks in the background until the group runs.
func (h *Hosts) join(t *testing.T, name, ip string, r api.HostRequest) chan joining {
	done := make(chan joining, 1)
	go func() {
		var j joining
		for j.group.State != api.HostRunning && j.err == nil {
			j.group, j.err = h.Join(t.Context(), addr(ip), name, r, j.group.Version)
		}
		done <- j
	}()
	return done
}

// came waits until a host is in the hall.
func (h *Hosts) came(t *testing.T, name, ip string) {
	t.Helper()
	testlab.Eventually(t, testlab.Patience, ip+" waits for "+name, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		p := h.desk.hall.Party(name)
		return p != nil && slices.Contains(p.Came(), ip)
	}, nil)
}

func outcome(t *testing.T, c chan joining) api.HostGroup {
	t.Helper()
	j := <-c
	if j.err != nil {
		t.Fatal(j.err)
	}
	return j.group
}

// ended is the context of a host that does not wait for others.
func ended(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	t.Cleanup(cancel)
	return ctx
}

// together lets hosts make a group. All say role and their number.
func (h *Hosts) together(t *testing.T, name string, roles ...string) (answers []api.HostGroup) {
	t.Helper()
	var all []chan joining
	for i, role := range roles {
		ip := fmt.Sprint("10.77.0.", i+1)
		r := ctltest.HostAsks(ip, role, len(roles))
		if name != "g1" {
			r.QPN++ // the program has another QP for each group
		}
		all = append(all, h.join(t, name, ip, r))
		if i < len(roles)-1 {
			h.came(t, name, ip)
		}
	}
	for _, c := range all {
		answers = append(answers, outcome(t, c))
	}
	return answers
}

// ready says that a host's QP is connected, and returns what the box answers.
func (h *Hosts) ready(t *testing.T, name, ip, role string) (api.HostGroup, error) {
	r := ctltest.HostAsks(ip, role, 3)
	r.Ready = true
	return h.Join(t.Context(), addr(ip), name, r, "")
}

// Hosts make a group, say that they are ready, leave and end it, and nothing is left.
func TestHostsMakeAGroup(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	answers := h.together(t, "g1", "source", "receiver", "receiver")
	w.expect(t, "g1")
	a := answers[1]
	if a.IP != "10.77.0.200" || a.QPN < minHostQPN || a.MTU != 1024 || len(a.Memory) != 1 || a.Memory[0].Length != 4096 || a.Memory[0].RKey == nil || a.ClearToSend {
		t.Errorf("%+v", a)
	}
	if m := a.Members[2]; len(a.Members) != 3 || m.IP != "10.77.0.3" || m.Role != "receiver" {
		t.Errorf("%+v", a.Members)
	}
	for i, c := range []struct {
		ip, role string
		clear    bool
	}{{"10.77.0.2", "receiver", false}, {"10.77.0.1", "source", false}, {"10.77.0.3", "receiver", true}, {"10.77.0.1", "source", true}} {
		if a, err := h.ready(t, "g1", c.ip, c.role); err != nil || a.ClearToSend != c.clear || a.Members[1].Port != 7002 {
			t.Errorf("%d: %+v, %v", i, a, err)
		}
	}
	next := h.together(t, "g2", "both", "both")
	if next[0].QPN == a.QPN || next[0].IP != a.IP {
		t.Errorf("%d and %d: two groups at one IP need two QPNs", next[0].QPN, a.QPN)
	}
	for name, leaving := range map[string][]string{"g1": {"10.77.0.3", "10.77.0.2"}, "g2": {"10.77.0.2"}} {
		for _, ip := range leaving {
			if err := h.Leave(t.Context(), addr(ip), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.expect(t) // a group without receivers ends
	if _, err := h.ready(t, "g1", "10.77.0.2", "receiver"); kindOf(err) != api.NotFound {
		t.Errorf("a group that has ended: %v", err)
	}
}

// A host may come later, and one that starts again gets a place of its new QP.
func TestAHostJoinsARunningGroup(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	h.together(t, "g1", "both", "both")
	a := outcome(t, h.join(t, "g1", "10.77.0.3", ctltest.HostAsks("10.77.0.3", "receiver", 2)))
	if len(a.Members) != 3 || a.Members[2].IP != "10.77.0.3" {
		t.Errorf("%+v", a)
	}
	again := ctltest.HostAsks("10.77.0.3", "receiver", 2)
	again.QPN = 999
	outcome(t, h.join(t, "g1", "10.77.0.3", again))
	g, err := w.Group("g1")
	if err != nil || len(g.Members) != 3 || g.Members[2].QPN != 999 || g.Members[2].Role != "receiver" {
		t.Errorf("%+v, %v", g.Members, err)
	}
	for want, r := range map[string]api.HostRequest{
		"group g1 runs, and its source is 10.77.0.1; join with role receiver": ctltest.HostAsks("10.77.0.9", "source", 2),
		"10.77.0.9 has 0 regions, and the group has 1; all receivers have equally many": func() api.HostRequest {
			r := ctltest.HostAsks("10.77.0.9", "receiver", 2)
			r.Regions = nil
			return r
		}(),
		"region 1 of 10.77.0.9 has 100 bytes, and that of the group has 4096; register a longer one": func() api.HostRequest {
			r := ctltest.HostAsks("10.77.0.9", "receiver", 2)
			r.Regions[0].Length = 100
			return r
		}(),
		"the path MTU of 10.77.0.9 is 512, and that of group g1 is 1024": func() api.HostRequest {
			r := ctltest.HostAsks("10.77.0.9", "receiver", 2)
			r.MTU = 512
			return r
		}(),
	} {
		if j := <-h.join(t, "g1", "10.77.0.9", r); j.err == nil || j.err.Error() != want {
			t.Errorf("\ngot  %v\nwant %s", j.err, want)
		}
	}
	// The member that was the source first takes the group with it.
	if err := h.Leave(t.Context(), addr("10.77.0.1"), "g1"); err != nil {
		t.Fatal(err)
	}
	w.expect(t)
}

// A stranger that comes later would write into memory that the others have registered for each
// other. A host of those that made the group comes back as what it was.
func TestHostsThatComeLaterOnlyReceive(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	h.together(t, "g1", "both", "both", "receiver")
	const refused = "group g1 runs, and hosts that come later only receive; join with role receiver, or when the group begins"
	late := func(ip, role string, qpn uint32) error {
		r := ctltest.HostAsks(ip, role, 3)
		r.QPN = qpn
		_, err := h.Join(t.Context(), addr(ip), "g1", r, "")
		return err
	}
	for _, ip := range []string{"10.77.0.9", "10.77.0.3"} { // also one that is a receiver
		if err := late(ip, "both", 901); err == nil || err.Error() != refused || kindOf(err) != api.Forbidden {
			t.Errorf("%s: %v", ip, err)
		}
	}
	if got := w.members(t, "g1"); got != "1 2 3" {
		t.Errorf("members %s", got)
	}
	if err := late("10.77.0.9", "receiver", 900); err != nil {
		t.Error(err)
	}
	if err := h.End(t.Context(), addr("10.77.0.9"), "g1", true); kindOf(err) != api.Forbidden {
		t.Errorf("it ends the group: %v", err)
	}
	if err := late("10.77.0.2", "both", 201); err != nil {
		t.Errorf("a program of a sender starts again: %v", err)
	}
	h = w.hosts() // the daemon has started again
	if err := h.Leave(t.Context(), addr("10.77.0.2"), "g1"); err != nil {
		t.Error(err)
	}
	if err := late("10.77.0.2", "both", 202); err != nil {
		t.Errorf("a sender comes back: %v", err)
	}
	if err := h.End(t.Context(), addr("10.77.0.1"), "g1", false); err != nil {
		t.Error(err)
	}
	h.together(t, "g1", "source", "receiver")
	if err := late("10.77.0.2", "both", 203); kindOf(err) != api.Forbidden {
		t.Errorf("it has sent in another group of that name: %v", err)
	}
	if err := h.End(t.Context(), addr("10.77.0.1"), "g1", false); err != nil {
		t.Error(err)
	}
	if h.desk.silentPrograms(time.Now(), w.Known()); len(h.desk.senders) != 0 {
		t.Errorf("it remembers %v", h.desk.senders)
	}
}

// A member whose program never says that its QP is ready is removed, and a group of such members
// ends. In a group of an operator only those go that came by themselves.
func TestMembersThatDoNotConfirm(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	h.together(t, "g1", "source", "receiver", "receiver")
	h.together(t, "never", "source", "receiver")
	w.create(t, strings.ReplaceAll(anotherGroup("open", 101), "psn: 5", "psn: 5, confirm: true")+"hosts: true\n")
	outcome(t, h.join(t, "open", "10.77.0.9", ctltest.HostAsks("10.77.0.9", "receiver", 2)))
	now := time.Now()
	h.removeUnconfirmed(t.Context(), now)
	if _, err := h.ready(t, "g1", "10.77.0.2", "receiver"); err != nil {
		t.Fatal(err)
	}
	h.removeUnconfirmed(t.Context(), now.Add(confirmWithin-1))
	if got := w.members(t, "g1") + ", " + w.members(t, "never"); got != "1 2 3, 1 2" {
		t.Errorf("too early: %s", got)
	}
	h.removeUnconfirmed(t.Context(), now.Add(confirmWithin))
	if got := w.members(t, "g1") + ", " + w.members(t, "open"); got != "1 2, 1 2 3" {
		t.Error(got)
	}
	if _, err := w.Group("never"); kindOf(err) != api.NotFound {
		t.Errorf("a group of which nobody is ready: %v", err)
	}
	// One that joins now has its own time.
	outcome(t, h.join(t, "g1", "10.77.0.3", ctltest.HostAsks("10.77.0.3", "receiver", 3)))
	h.removeUnconfirmed(t.Context(), now.Add(2*confirmWithin))
	h.removeUnconfirmed(t.Context(), now.Add(3*confirmWithin-1))
	if got := w.members(t, "g1"); got != "1 2 3" {
		t.Error(got)
	}
}

// A host is in so many groups of which nobody says that they are used; that is counted.
func TestAHostIsInSoManyGroupsThatAreNotConfirmed(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	made := groupfile.File{Hosts: groupfile.HostsEnd, Source: groupfile.Member{IP: addr("10.77.0.1")},
		Receivers: []groupfile.Member{{IP: addr("10.77.0.9"), Confirm: true}}}
	w.mu.Lock()
	for i := range maxUnconfirmed {
		w.groups[fmt.Sprint("n", i)] = &kept{file: &made}
	}
	w.mu.Unlock()
	const want = "10.77.0.9 is in 64 groups of which members have not said that their QPs are ready; let them say so, or leave"
	if _, err := h.Join(t.Context(), addr("10.77.0.9"), "more", ctltest.HostAsks("10.77.0.9", "receiver", 2), ""); err == nil || err.Error() != want || kindOf(err) != api.Unavailable {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	if n := w.book.Counts()[bounds.HostGroups]; n != 1 {
		t.Errorf("counted %d", n)
	}
	w.mu.Lock()
	w.groups["n0"].confirmed = map[groupfile.ID]bool{made.Receivers[0].ID(): true}
	w.mu.Unlock()
	if err := h.desk.roomFor(addr("10.77.0.9"), w.Known()); err != nil {
		t.Errorf("one is confirmed: %v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range maxUnconfirmed {
		delete(w.groups, fmt.Sprint("n", i))
	}
}

// A host may not touch what it is no member of.
func TestHostsSpeakForThemselves(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	w.create(t, strings.ReplaceAll(g1, "0.100", "0.200")) // the IP does not make it theirs
	const notTheirs = "group g1 was not made by hosts, so they cannot join it; take another name"
	if j := <-h.join(t, "g1", "10.77.0.2", ctltest.HostAsks("10.77.0.2", "receiver", 2)); j.err == nil || j.err.Error() != notTheirs || kindOf(j.err) != api.Forbidden {
		t.Errorf("%v", j.err)
	}
	if err := h.Leave(t.Context(), addr("10.77.0.2"), "g1"); kindOf(err) != api.Forbidden {
		t.Errorf("%v", err)
	}
	h.together(t, "mine", "source", "receiver")
	for want, err := range map[string]error{
		"10.77.0.3 is not in group mine":                                     h.End(t.Context(), addr("10.77.0.3"), "mine", false),
		"10.77.0.2 only receives, so it cannot end group mine; it may leave": h.End(t.Context(), addr("10.77.0.2"), "mine", false),
		`there is no group "other"; rocast group ls lists the groups`:        h.Leave(t.Context(), addr("10.77.0.2"), "other"),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("\ngot  %v\nwant %s", err, want)
		}
	}
	if err := h.End(t.Context(), addr("10.77.0.1"), "mine", false); err != nil {
		t.Error(err)
	}
	_, err := h.Join(t.Context(), netip.MustParseAddr("fd77::1"), "v6", ctltest.HostAsks("10.77.0.1", "source", 2), "")
	if want := "your address is fd77::1, and groupIPs of hosts: in rocastd.yaml has no address of its family"; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	w.expect(t, "g1")
	w.create(t, anotherGroup("open", 101)+"hosts: true\n")
	if a := outcome(t, h.join(t, "open", "10.77.0.9", ctltest.HostAsks("10.77.0.9", "receiver", 2))); a.IP != "10.77.0.100" || len(a.Members) != 4 {
		t.Errorf("a group whose file lets hosts join: %+v", a)
	}
	err = h.End(t.Context(), addr("10.77.0.1"), "open", false)
	if want := "group open was not made by hosts, so they may leave it and not end it; rocast group rm ends it"; err == nil || err.Error() != want || kindOf(err) != api.Forbidden {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	if got := w.members(t, "open"); got != "1 2 3 9" {
		t.Errorf("members %s", got)
	}
}

// A host does not wait for others with a name that no group can have.
func TestANameThatNoGroupHas(t *testing.T) {
	h := newWorld().hosts()
	over := ended(t)
	_, err := h.Join(over, addr("10.77.0.1"), "../g1", ctltest.HostAsks("10.77.0.1", "source", 2), "")
	const want = `"../g1" is not a valid group name; write 1 to 63 letters, digits, '.', '_' or '-', a letter or digit first`
	if err == nil || err.Error() != want || kindOf(err) != api.BadRequest {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
}

// What the box refuses all hosts hear that wait for it, and the name is free again.
func TestAGroupThatTheBoxRefuses(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	w.create(t, strings.ReplaceAll(g1, "qpn: 18", "qpn: 200")) // the QP that 10.77.0.2 has
	first := h.join(t, "g2", "10.77.0.1", ctltest.HostAsks("10.77.0.1", "source", 2))
	h.came(t, "g2", "10.77.0.1")
	second := h.join(t, "g2", "10.77.0.2", ctltest.HostAsks("10.77.0.2", "receiver", 2))
	const want = "QP 200 of 10.77.0.2 is in group g1"
	for _, c := range []chan joining{first, second} {
		if j := <-c; j.err == nil || j.err.Error() != want {
			t.Errorf("\ngot  %v\nwant %s", j.err, want)
		}
	}
	if h.desk.hall.Party("g2") != nil {
		t.Error("it waits for hosts")
	}
	w.expect(t, "g1")
}

// A host that has just been told who came hears of a refusal with its next question. If its program
// begins anew, it waits for the others anew.
func TestARefusalBetweenTwoQuestions(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	w.create(t, strings.ReplaceAll(g1, "qpn: 18", "qpn: 200")) // the QP that 10.77.0.2 has
	over := ended(t)
	first := ctltest.HostAsks("10.77.0.1", "source", 2)
	a, err := h.Join(over, addr("10.77.0.1"), "g2", first, "")
	if err != nil || a.State != api.HostGathering {
		t.Fatalf("%+v, %v", a, err)
	}
	_, refusal := h.Join(t.Context(), addr("10.77.0.2"), "g2", ctltest.HostAsks("10.77.0.2", "receiver", 2), "")
	if refusal == nil {
		t.Fatal("the group was not refused")
	}
	if _, err := h.Join(over, addr("10.77.0.1"), "g2", first, a.Version); err == nil || err.Error() != refusal.Error() {
		t.Errorf("\ngot  %v\nwant %v", err, refusal)
	}
	if a, err := h.Join(over, addr("10.77.0.1"), "g2", first, ""); err != nil || a.State != api.HostGathering {
		t.Errorf("%+v, %v", a, err)
	}
}

// A host that leaves between two questions of its program, one of which waits for others, hears so
// with the next one. It can join again.
func TestAHostLeavesBetweenTwoQuestions(t *testing.T) {
	h := newWorld().hosts()
	over := ended(t)
	one := addr("10.77.0.1")
	r := ctltest.HostAsks("10.77.0.1", "source", 2)
	a, err := h.Join(over, one, "g1", r, "")
	if err != nil || a.State != api.HostGathering {
		t.Fatalf("%+v, %v", a, err)
	}
	if err := h.Leave(t.Context(), one, "g1"); err != nil {
		t.Fatal(err)
	}
	if a, err := h.Join(over, one, "g1", r, a.Version); kindOf(err) != api.Stale || h.desk.hall.Party("g1") != nil {
		t.Errorf("its next question: %+v, %v", a, err)
	}
	for _, seen := range []string{"", a.Version} {
		if a, err := h.Join(over, one, "g1", r, seen); err != nil || a.State != api.HostGathering {
			t.Errorf("it joins again, and has seen %q: %+v, %v", seen, a, err)
		}
	}
}

// The same if the group was created between the two questions: a host that has left its group is
// no member again, and does not wait for another group, before its program joins again. One that
// has not left hears that the group has ended.
func TestAHostLeavesAGroupBeforeItHasHeardOfIt(t *testing.T) {
	over := ended(t)
	leave := (*Hosts).Leave
	end := func(tell bool) func(*Hosts, context.Context, netip.Addr, string) error {
		return func(h *Hosts, ctx context.Context, host netip.Addr, name string) error {
			return h.End(ctx, host, name, tell)
		}
	}
	for name, c := range map[string]struct {
		role   string // of the receivers
		host   int
		leaves func(h *Hosts, ctx context.Context, host netip.Addr, name string) error
		then   string // what it gets when it joins again
		other  string // what the other one gets that has not heard of the group; "": it joins again
	}{
		"the source":                              {"receiver", 1, leave, api.HostGathering, api.HostEnded},
		"the source, which ends the group":        {"receiver", 1, end(true), api.HostGathering, api.HostEnded},
		"the source, which makes it anew":         {"receiver", 1, end(false), api.HostGathering, api.HostGathering},
		"the source, and the others make it anew": {"both", 1, leave, api.HostGathering, ""},
		"a receiver":                              {"receiver", 2, leave, api.HostRunning, ""},
	} {
		h := newWorld().hosts()
		seen := make([]string, 4)
		ask := func(ctx context.Context, i int, seen string) (api.HostGroup, error) {
			ip, role := fmt.Sprint("10.77.0.", i), c.role
			if i == 1 && role == "receiver" {
				role = "source"
			}
			return h.Join(ctx, addr(ip), "g1", ctltest.HostAsks(ip, role, 3), seen)
		}
		for i := 1; i <= 3; i++ {
			a, err := ask(over, i, "")
			if err != nil {
				t.Fatal(err)
			}
			seen[i] = a.Version
		}
		if a, err := ask(over, 3, seen[3]); err != nil || a.State != api.HostRunning {
			t.Errorf("%s: the group does not run: %+v, %v", name, a, err)
		}
		if err := c.leaves(h, t.Context(), addr(fmt.Sprint("10.77.0.", c.host)), "g1"); err != nil {
			t.Fatal(err)
		}
		if a, err := ask(over, c.host, seen[c.host]); kindOf(err) != api.Stale || h.desk.hall.Party("g1") != nil {
			t.Errorf("%s has left: %+v, %v", name, a, err)
		}
		if c.host == 1 {
			a, err := ask(over, 2, seen[2])
			if c.other == "" && kindOf(err) != api.Stale || c.other != "" && (err != nil || a.State != c.other) {
				t.Errorf("%s has left, and a member that has not heard of the group: %+v, %v", name, a, err)
			}
			if c.other == api.HostEnded {
				if b, err := h.ready(t, "g1", "10.77.0.3", c.role); err != nil || b.Version != a.Version || a.Reason == "" {
					t.Errorf("%s has left, and a member that has heard of the group: %+v, %v; the other one: %+v", name, b, err, a)
				}
			}
			if err := h.Leave(t.Context(), addr("10.77.0.3"), "g1"); kindOf(err) != api.NotFound {
				t.Errorf("a member leaves after that: %v", err)
			}
			if a, err := ask(over, 3, seen[3]); kindOf(err) != api.Stale {
				t.Errorf("its next question: %+v, %v", a, err)
			}
		}
		if a, err := ask(t.Context(), c.host, ""); err != nil || a.State != c.then {
			t.Errorf("%s joins again: %+v, %v", name, a, err)
		}
		if c.host == 2 {
			if err := h.Leave(t.Context(), addr("10.77.0.1"), "g1"); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if a, err := ask(over, c.host, seen[c.host]); err != nil || a.State != api.HostGathering {
			t.Errorf("%s has joined again and waits: %+v, %v", name, a, err)
		}
	}
}

// A question waits while its group is created and removed at once. It waits for the next group
// then, and is its member.
func TestAQuestionOutlivesItsGroup(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	turns := make(chan func(), 1)
	var once sync.Once
	w.created = func() {
		once.Do(func() { // the other host's question looks at the group when it is its turn
			done, err := h.Control.Lock(t.Context(), "g1")
			if err != nil {
				t.Error(err)
			}
			turns <- done
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), testlab.Patience)
	defer cancel()
	waits := make(chan joining, 1)
	go func() {
		var j joining
		j.group, j.err = h.Join(ctx, addr("10.77.0.2"), "g1", ctltest.HostAsks("10.77.0.2", "receiver", 2), "before a restart of the box")
		waits <- j
	}()
	h.came(t, "g1", "10.77.0.2")
	first := ctltest.HostAsks("10.77.0.1", "source", 2)
	if a, err := h.Join(ctx, addr("10.77.0.1"), "g1", first, ""); err != nil || a.State != api.HostRunning {
		t.Fatalf("%+v, %v", a, err)
	}
	if err := w.Remove("g1", nil); err != nil {
		t.Fatal(err)
	}
	(<-turns)()
	h.came(t, "g1", "10.77.0.2")
	a, err := h.Join(ctx, addr("10.77.0.1"), "g1", first, "")
	if err != nil || a.State != api.HostRunning {
		t.Fatalf("%+v, %v", a, err)
	}
	if b := outcome(t, waits); b.Version != a.Version {
		t.Errorf("%+v, want %+v", b, a)
	}
}

// leftAndJoinsAgain lets 10.77.0.1 leave a group that the two others can make anew, and join again.
// It returns what the host hears then.
func (h *Hosts) leftAndJoinsAgain(t *testing.T, over context.Context, r api.HostRequest) api.HostGroup {
	t.Helper()
	h.together(t, "g1", "both", "both", "both")
	if err := h.Leave(t.Context(), addr("10.77.0.1"), "g1"); err != nil {
		t.Fatal(err)
	}
	a, err := h.Join(over, addr("10.77.0.1"), "g1", r, "")
	if err != nil || a.State != api.HostGathering {
		t.Fatalf("%+v, %v", a, err)
	}
	return a
}

// A host that waits for those who make its group anew leaves: it hears so, and is no member when
// they have, before it joins again.
func TestAHostLeavesThatWaitsForThoseThatMakeTheGroupAnew(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	over := ended(t)
	one, r := addr("10.77.0.1"), ctltest.HostAsks("10.77.0.1", "both", 3)
	a := h.leftAndJoinsAgain(t, over, r)
	if err := h.Leave(t.Context(), one, "g1"); kindOf(err) != api.NotFound {
		t.Errorf("it leaves: %v", err)
	}
	if a, err := h.Join(over, one, "g1", r, a.Version); kindOf(err) != api.Stale {
		t.Errorf("its next question: %+v, %v", a, err)
	}
	h.desk.silentPrograms(time.Now(), w.Known()) // which forgets what is of no use any more
	two := h.join(t, "g1", "10.77.0.2", ctltest.HostAsks("10.77.0.2", "both", 2))
	h.came(t, "g1", "10.77.0.2")
	outcome(t, h.join(t, "g1", "10.77.0.3", ctltest.HostAsks("10.77.0.3", "both", 2)))
	outcome(t, two)
	if a, err := h.Join(over, one, "g1", r, a.Version); kindOf(err) != api.Stale || w.members(t, "g1") != "2 3" {
		t.Errorf("the others have made the group anew: %+v, %v, members %s", a, err, w.members(t, "g1"))
	}
	if a, err := h.Join(t.Context(), one, "g1", r, ""); err != nil || a.State != api.HostRunning {
		t.Errorf("it joins again: %+v, %v", a, err)
	}
	if err := w.Remove("g1", nil); err != nil {
		t.Fatal(err)
	}
	if a, err := h.ready(t, "g1", "10.77.0.2", "both"); kindOf(err) != api.NotFound {
		t.Errorf("the new group has ended, and a member hears of the one before: %+v, %v", a, err)
	}
}

// A group for which a host waits comes by another way. The host is a member then, also for Leave.
func TestAGroupThatComesByAnotherWay(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	over := ended(t)
	nine, r := addr("10.77.0.9"), ctltest.HostAsks("10.77.0.9", "receiver", 3)
	a, err := h.Join(over, nine, "open", r, "")
	if err != nil || a.State != api.HostGathering {
		t.Fatalf("%+v, %v", a, err)
	}
	for _, name := range []string{"open", "shut"} { // others wait for these, and leave when they have come
		if _, err := h.Join(over, addr("10.77.0.8"), name, ctltest.HostAsks("10.77.0.8", "receiver", 3), ""); err != nil {
			t.Fatal(err)
		}
	}
	w.create(t, anotherGroup("open", 101)+"hosts: true\n")
	w.create(t, anotherGroup("shut", 102))
	before := w.members(t, "open")
	for _, name := range []string{"open", "shut"} {
		if err := h.Leave(t.Context(), addr("10.77.0.8"), name); err != nil || w.members(t, name) != before {
			t.Errorf("%s: a host leaves that only waited: %v, members %s", name, err, w.members(t, name))
		}
		if err := h.Leave(t.Context(), addr("10.77.0.8"), name); err == nil {
			t.Errorf("%s: it leaves twice", name)
		}
	}
	if a, err := h.Join(t.Context(), nine, "open", r, a.Version); err != nil || a.State != api.HostRunning || w.members(t, "open") != before+" 9" {
		t.Errorf("%+v, %v, members %s", a, err, w.members(t, "open"))
	}
	if err := h.Leave(t.Context(), nine, "open"); err != nil || w.members(t, "open") != before {
		t.Errorf("it leaves: %v, members %s", err, w.members(t, "open"))
	}
}

// A program joins in the place of another one of its host, which has not heard of the group yet:
// that one does not take the place back.
func TestAProgramThatWasReplacedBeforeItHadHeard(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	over := ended(t)
	two, before := addr("10.77.0.2"), ctltest.HostAsks("10.77.0.2", "receiver", 3)
	a, err := h.Join(over, two, "g1", before, "")
	if err != nil {
		t.Fatal(err)
	}
	source := h.join(t, "g1", "10.77.0.1", ctltest.HostAsks("10.77.0.1", "source", 3))
	outcome(t, h.join(t, "g1", "10.77.0.3", ctltest.HostAsks("10.77.0.3", "receiver", 3)))
	outcome(t, source)
	now := before
	now.QPN = 999
	outcome(t, h.join(t, "g1", "10.77.0.2", now))
	if a, err := h.Join(over, two, "g1", before, a.Version); kindOf(err) != api.Stale {
		t.Errorf("the program of before: %+v, %v", a, err)
	}
	now.Ready = true
	if a, err := h.Join(over, two, "g1", now, ""); err != nil || a.State != api.HostRunning {
		t.Errorf("the program that is a member: %+v, %v", a, err)
	}
}

// A program takes the place of another one, and the group ends with that, while the group is being
// created: all hear so.
func TestAProgramIsReplacedWhileItsGroupIsCreated(t *testing.T) {
	synctest.Test(t, replacedWhileItsGroupIsCreated)
}

func replacedWhileItsGroupIsCreated(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	over := ended(t)
	seen := map[string]string{}
	ask := func(ip, role string) (api.HostGroup, error) {
		a, err := h.Join(over, addr(ip), "g1", ctltest.HostAsks(ip, role, 3), seen[ip])
		seen[ip] = a.Version
		return a, err
	}
	for ip, role := range map[string]string{"10.77.0.1": "source", "10.77.0.2": "receiver"} {
		if _, err := ask(ip, role); err != nil {
			t.Fatal(err)
		}
	}
	again := ctltest.HostAsks("10.77.0.1", "source", 3)
	again.QPN = 999
	other := make(chan joining, 1)
	var asked atomic.Bool
	w.created = func() {
		if asked.Swap(true) {
			return
		}
		go func() { // the group is there, and those who wait do not know yet
			var j joining
			j.group, j.err = h.Join(t.Context(), addr("10.77.0.1"), "g1", again, "")
			other <- j
		}()
		synctest.Wait() // it waits until the group is created, or has an answer
	}
	if a, err := ask("10.77.0.3", "receiver"); err != nil || a.State != api.HostRunning {
		t.Errorf("%+v, %v", a, err)
	}
	if j := <-other; j.err != nil || j.group.State != api.HostGathering {
		t.Errorf("the other program: %+v", j)
	}
	if a, err := ask("10.77.0.2", "receiver"); err != nil || a.State != api.HostEnded {
		t.Errorf("a receiver: %+v, %v", a, err)
	}
	if a, err := ask("10.77.0.1", "source"); kindOf(err) != api.Stale {
		t.Errorf("the program that was replaced: %+v, %v", a, err)
	}
}

// Hosts that have waited for long for the last one have time to look at their group, although
// others look at it first.
func TestHostsThatHaveWaitedForLongJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		h := w.hosts()
		all := []chan joining{h.join(t, "g1", "10.77.0.1", ctltest.HostAsks("10.77.0.1", "source", 3)), h.join(t, "g1", "10.77.0.2", ctltest.HostAsks("10.77.0.2", "receiver", 3))}
		time.Sleep(workWithin + time.Second)
		w.created = func() {
			unlock, err := w.Lock(t.Context(), "g1")
			if err != nil {
				t.Error(err)
				return
			}
			time.AfterFunc(time.Second, unlock)
		}
		all = append(all, h.join(t, "g1", "10.77.0.3", ctltest.HostAsks("10.77.0.3", "receiver", 3)))
		for _, c := range all {
			if a := outcome(t, c); a.State != api.HostRunning {
				t.Errorf("%+v", a)
			}
		}
	})
}

// A program whose earlier group was removed takes the place of another one in the next group, which
// ends with that. It waits for another group then.
func TestAProgramThatReplacesIsNotReplaced(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	h.together(t, "g1", "source", "receiver")
	if err := w.Remove("g1", nil); err != nil {
		t.Fatal(err)
	}
	two, other := ctltest.HostAsks("10.77.0.2", "receiver", 2), ctltest.HostAsks("10.77.0.2", "receiver", 2)
	other.QPN = 999
	source := h.join(t, "g1", "10.77.0.1", ctltest.HostAsks("10.77.0.1", "source", 2))
	h.came(t, "g1", "10.77.0.1")
	outcome(t, h.join(t, "g1", "10.77.0.2", other))
	outcome(t, source)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waits := make(chan joining, 1)
	go func() {
		var j joining
		j.group, j.err = h.Join(ctx, addr("10.77.0.2"), "g1", two, "what it has seen")
		waits <- j
	}()
	testlab.Eventually(t, testlab.Patience, "it waits, or is refused", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(waits) > 0 || h.desk.hall.Party("g1") != nil
	}, nil)
	cancel()
	if j := <-waits; j.err != nil || j.group.State != api.HostGathering {
		t.Errorf("%+v", j)
	}
}

// A Leave that was given up has changed nothing, and no question hears of it.
func TestALeaveThatWasGivenUp(t *testing.T) {
	h := newWorld().hosts()
	over := ended(t)
	two, r := addr("10.77.0.2"), ctltest.HostAsks("10.77.0.2", "receiver", 2)
	a, err := h.Join(over, two, "g1", r, "")
	if err != nil {
		t.Fatal(err)
	}
	outcome(t, h.join(t, "g1", "10.77.0.1", ctltest.HostAsks("10.77.0.1", "source", 2)))
	done, err := h.Control.Lock(t.Context(), "g1")
	if err != nil {
		t.Fatal(err)
	}
	err = h.Leave(over, two, "g1")
	done()
	if err == nil {
		t.Error("it has left although another change was under way")
	}
	if err := h.Control.Remove("g1", nil); err != nil {
		t.Fatal(err)
	}
	if a, err := h.Join(over, two, "g1", r, a.Version); err != nil || a.State != api.HostGathering {
		t.Errorf("%+v, %v", a, err)
	}
}

// A host that has left a group which the others make anew, and joins again, waits until they have.
func TestAHostThatLeftWaitsForThoseThatMakeTheGroupAnew(t *testing.T) {
	h := newWorld().hosts()
	over := ended(t)
	r := ctltest.HostAsks("10.77.0.1", "both", 3)
	a := h.leftAndJoinsAgain(t, over, r)
	if a, err := h.Join(over, addr("10.77.0.1"), "g1", r, a.Version); err != nil || a.State != api.HostGathering {
		t.Errorf("%+v, %v", a, err)
	}
}

// A question ends with its time, and a host whose connection has ended is not waited with.
func TestQuestionsThatEnd(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	over := ended(t)
	a, err := h.Join(over, addr("10.77.0.1"), "g1", ctltest.HostAsks("10.77.0.1", "source", 2), "")
	if err != nil || a.State != api.HostGathering || len(a.Came) != 1 || a.Came[0] != "10.77.0.1" || h.desk.hall.Party("g1") == nil {
		t.Errorf("%+v, %v", a, err)
	}
	if b, err := h.Join(over, addr("10.77.0.1"), "g1", ctltest.HostAsks("10.77.0.1", "source", 2), a.Version); err != nil || b.Version != a.Version {
		t.Errorf("%+v, %v", b, err)
	}
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	if _, err := h.Join(gone, addr("10.77.0.1"), "g1", ctltest.HostAsks("10.77.0.1", "source", 2), a.Version); err != nil || h.desk.hall.Party("g1") != nil {
		t.Errorf("a host has gone, and is waited with: %v", err)
	}
	w.expect(t)
}

// A question that waits for nothing (wait=0) is a question all the same: the group is made, a host
// joins it, and another program takes a place.
func TestQuestionsThatWaitForNothing(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	over := ended(t)
	for _, ip := range []string{"10.77.0.1", "10.77.0.2", "10.77.0.3"} {
		role := map[bool]string{true: "source", false: "receiver"}[ip == "10.77.0.1"]
		if a, err := h.Join(over, addr(ip), "g1", ctltest.HostAsks(ip, role, 2), ""); err != nil || (a.State == api.HostRunning) != (ip != "10.77.0.1") {
			t.Errorf("%s: %+v, %v", ip, a, err)
		}
	}
	again := ctltest.HostAsks("10.77.0.3", "receiver", 2)
	again.QPN = 999
	if a, err := h.Join(over, addr("10.77.0.3"), "g1", again, ""); err != nil || a.State != api.HostRunning {
		t.Errorf("%+v, %v", a, err)
	}
	turn, err := h.Control.Lock(t.Context(), "g1")
	if err != nil {
		t.Fatal(err)
	}
	asked := h.join(t, "g1", "10.77.0.3", again)
	turn()
	outcome(t, asked)
}

// A source that is behind another box is refused before anything waits for it. Where boxes are, a
// group begins with a member that sends and is attached here.
func TestASourceBehindAnotherBox(t *testing.T) {
	w := newWorld()
	w.behind = map[netip.Addr]string{addr("10.77.0.1"): "b2"}
	h := w.hosts()
	h.HasNeighbours = true
	const far = "10.77.0.1 is behind box b2, and a group begins at the box to which its source is attached; name box b2 at all hosts of the group"
	if _, err := h.Join(t.Context(), addr("10.77.0.1"), "g1", ctltest.HostAsks("10.77.0.1", "source", 2), ""); err == nil || err.Error() != far || h.desk.hall.Party("g1") != nil {
		t.Errorf("%v", err)
	}
	h.together(t, "g1", "both", "receiver", "both")
	if got := w.members(t, "g1"); got != "3 1 2" {
		t.Errorf("members %s", got)
	}
	if err := h.End(t.Context(), addr("10.77.0.3"), "g1", false); err != nil {
		t.Fatal(err)
	}
	first := h.join(t, "g1", "10.77.0.1", ctltest.HostAsks("10.77.0.1", "both", 2))
	h.came(t, "g1", "10.77.0.1")
	_, err := h.Join(t.Context(), addr("10.77.0.2"), "g1", ctltest.HostAsks("10.77.0.2", "receiver", 2), "")
	const none = "no member of group g1 that sends is attached to box b1 (10.77.0.1 is behind box b2); name the box of a member that sends at all hosts of the group"
	for _, err := range []error{err, (<-first).err} {
		if err == nil || err.Error() != none {
			t.Errorf("\ngot  %v\nwant %s", err, none)
		}
	}
}

// The IPs of the config that no group can have are told control, and nothing else.
func TestWhichGroupIPsAreToldToControl(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	h.Config.GroupIPs = append(h.Config.GroupIPs, addr("10.79.0.5"))
	w.refuses[addr("10.79.0.5")] = errors.New("it is in no subnet")
	h.lookAtGroupIPs(t.Context())
	if len(w.bad) != 1 || w.bad["10.79.0.5"] != "it is in no subnet" {
		t.Errorf("%v", w.bad)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if h.lookAtGroupIPs(over); len(w.bad) != 0 {
		t.Errorf("what is refused when the daemon ends: %v", w.bad)
	}
}
