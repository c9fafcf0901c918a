package hosts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/gather"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/internal/testlab"
)

// hangUp lets a member ask how its group is, and end the connection before there is an answer.
func (h *Hosts) hangUp(t *testing.T, name, ip, role string) {
	t.Helper()
	a, err := h.ready(t, name, ip, role)
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	r := ctltest.HostAsks(ip, role, 3)
	r.Ready = true
	if _, err := h.Join(gone, addr(ip), name, r, a.Version); err != nil {
		t.Fatal(err)
	}
}

// A member whose program has died leaves its group, so that the others go on. One stays whose
// connection broke and that asks again, and one that listens: it may use single connections.
func TestAProgramThatDied(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	listens := map[uint16]bool{7001: true, 7002: true, 7003: true}
	h.connect = func(_ context.Context, at netip.AddrPort) error {
		if listens[at.Port()] {
			return nil
		}
		return &net.OpError{Op: "dial", Err: unix.ECONNREFUSED}
	}
	h.together(t, "g1", "source", "receiver", "receiver")
	h.hangUp(t, "g1", "10.77.0.2", "receiver")
	h.hangUp(t, "g1", "10.77.0.3", "receiver")
	then := time.Now().Add(gather.Patience + time.Second)
	h.removeGone(t.Context(), then)
	if got := w.members(t, "g1"); got != "1 2 3" {
		t.Errorf("programs that listen: members %s", got)
	}
	clear(listens)
	if _, err := h.ready(t, "g1", "10.77.0.3", "receiver"); err != nil {
		t.Fatal(err)
	}
	h.removeGone(t.Context(), then.Add(gather.Patience-time.Second))
	if got := w.members(t, "g1"); got != "1 2 3" {
		t.Errorf("too early: members %s", got)
	}
	h.removeGone(t.Context(), then.Add(gather.Patience+time.Second))
	if got := w.members(t, "g1"); got != "1 3" {
		t.Errorf("members %s", got)
	}
	if _, err := h.ready(t, "g1", "10.77.0.2", "receiver"); kindOf(err) != api.NotFound {
		t.Errorf("a member that was removed: %v", err)
	}
	if w.logs.FilterMessage("the program of a host has ended without leaving its group").Len() != 1 {
		t.Errorf("%v", w.logs.All())
	}
	h.hangUp(t, "g1", "10.77.0.1", "source")
	h.removeGone(t.Context(), time.Now().Add(gather.Patience+time.Second))
	w.expect(t) // the source took the group with it
}

// A member that cannot be removed at once is removed later.
func TestAProgramThatDiedIsNotForgotten(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	h.connect = func(context.Context, netip.AddrPort) error { return unix.ECONNREFUSED }
	h.together(t, "g1", "source", "receiver", "receiver")
	h.hangUp(t, "g1", "10.77.0.2", "receiver")
	then := time.Now().Add(gather.Patience + time.Second)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	h.removeGone(over, then)
	if got := w.members(t, "g1"); got != "1 2 3" || w.logs.FilterMessage("could not remove a member whose program has ended; it is tried again").Len() != 1 {
		t.Errorf("members %s; logged %v", got, w.logs.All())
	}
	h.removeGone(t.Context(), then.Add(gather.Patience+time.Second))
	if got := w.members(t, "g1"); got != "1 3" || h.desk.programs["g1"][addr("10.77.0.2")] != nil {
		t.Errorf("members %s, programs %v", got, h.desk.programs)
	}
}

// A program that does not say where it listens has gone with its connection, unless it comes back.
func TestAProgramThatListensNowhere(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	h.connect = func(context.Context, netip.AddrPort) error { return errors.New("there is no port to connect to") }
	h.together(t, "g1", "source", "receiver", "receiver")
	for _, p := range h.desk.programs["g1"] {
		p.port = 0
	}
	h.removeGone(t.Context(), time.Now().Add(time.Hour))
	if got := w.members(t, "g1"); got != "1 2 3" {
		t.Errorf("programs that did not hang up: members %s", got)
	}
	h.hangUp(t, "g1", "10.77.0.2", "receiver")
	h.hangUp(t, "g1", "10.77.0.3", "receiver")
	for _, p := range h.desk.programs["g1"] {
		p.port = 0 // hangUp has said one
	}
	back := h.desk.silentPrograms(time.Now().Add(gather.Patience+time.Second), w.Known())
	if _, err := h.ready(t, "g1", "10.77.0.3", "receiver"); err != nil {
		t.Fatal(err)
	}
	for _, s := range back {
		h.expire(t.Context(), s)
	}
	if got := w.members(t, "g1"); got != "1 3" || len(back) != 2 {
		t.Errorf("%d were looked at, members %s", len(back), got)
	}
}

// A program that asks nothing for long may be busy: its host's kernel reports whether it is there.
func TestAProgramThatAsksNothing(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	h.together(t, "g1", "source", "receiver", "receiver")
	asked := make(chan netip.AddrPort, 9)
	h.connect = func(_ context.Context, at netip.AddrPort) error {
		asked <- at
		switch at {
		case netip.MustParseAddrPort("10.77.0.2:7002"):
			return &net.OpError{Op: "dial", Err: unix.ECONNREFUSED}
		case netip.MustParseAddrPort("10.77.0.3:7003"):
			return &net.OpError{Op: "dial", Err: unix.EHOSTUNREACH} // it may come back
		}
		return nil
	}
	h.removeGone(t.Context(), time.Now().Add(silentProgram-time.Second))
	if got := w.members(t, "g1"); got != "1 2 3" || len(asked) != 0 {
		t.Errorf("too early: %s, asked %d", got, len(asked))
	}
	then := time.Now().Add(silentProgram + time.Second)
	h.removeGone(t.Context(), then)
	if got := w.members(t, "g1"); got != "1 3" || len(asked) != 3 {
		t.Errorf("members %s, asked %d", got, len(asked))
	}
	h.removeGone(t.Context(), then.Add(silentProgram-time.Second))
	if len(asked) != 3 {
		t.Error("a program is asked again at once")
	}
	if err := h.End(t.Context(), addr("10.77.0.1"), "g1", false); err != nil {
		t.Fatal(err)
	}
	h.removeGone(t.Context(), then)
	if len(h.desk.programs) != 0 {
		t.Errorf("the programs of a group that has ended: %v", h.desk.programs)
	}
}

// What connectTo says of a port where nobody listens is what expires a member.
func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := newWorld().hosts()
	at := netip.MustParseAddrPort(l.Addr().String())
	if h.refuses(t.Context(), at) {
		t.Error("a program that listens has gone")
	}
	l.Close()
	if !h.refuses(t.Context(), at) {
		t.Error("nobody listens, and the program is there")
	}
}

// All questions of a group that wait share one look at it, and hear of its changes.
func TestQuestionsThatWaitForAChange(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	h.together(t, "g1", "source", "receiver", "receiver")
	a, err := h.ready(t, "g1", "10.77.0.1", "source")
	if err != nil || a.Version == "" {
		t.Fatal(a, err)
	}
	source := ctltest.HostAsks("10.77.0.1", "source", 3)
	source.Ready = true
	answers := make(chan joining)
	for range 3 {
		go func() {
			g, err := h.Join(t.Context(), addr("10.77.0.1"), "g1", source, a.Version)
			answers <- joining{g, err}
		}()
	}
	// What one member waits for is no news for the others: only that nobody is waited for any more.
	for _, ip := range []string{"10.77.0.2", "10.77.0.3"} {
		b, err := h.ready(t, "g1", ip, "receiver")
		if err != nil || (b.Version == a.Version) != (ip == "10.77.0.2") {
			t.Errorf("%s: version %s, %v; it was %s", ip, b.Version, err, a.Version)
		}
	}
	for range 3 {
		if j := <-answers; j.err != nil || !j.group.ClearToSend {
			t.Errorf("%+v, %v", j.group, j.err)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.subscriptions) != 0 {
		t.Errorf("%d subscriptions are left", len(h.subscriptions))
	}
}

// A question that waits ends with its group.
func TestAQuestionWhoseGroupEnds(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	h.together(t, "g1", "source", "receiver")
	a, err := h.ready(t, "g1", "10.77.0.1", "source")
	if err != nil {
		t.Fatal(err)
	}
	source := ctltest.HostAsks("10.77.0.1", "source", 2)
	source.Ready = true
	answer := make(chan error)
	go func() {
		_, err := h.Join(t.Context(), addr("10.77.0.1"), "g1", source, a.Version)
		answer <- err
	}()
	if err := w.Remove("g1", nil); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; kindOf(err) != api.NotFound {
		t.Error(err)
	}
}

// One host cannot use up what the box has for groups.
func TestAHostIsInSoManyGroups(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	w.create(t, anotherGroup("open", 101)+"hosts: true\n")
	theirs := groupfile.File{Hosts: groupfile.HostsJoin, Source: groupfile.Member{IP: addr("10.77.0.1")}, Receivers: []groupfile.Member{{IP: addr("10.77.0.9")}}}
	others := theirs
	others.Hosts = groupfile.HostsNothing
	w.mu.Lock()
	for i := range maxOfHost {
		w.groups[fmt.Sprint("n", i)] = &kept{file: &theirs}
		w.groups[fmt.Sprint("o", i)] = &kept{file: &others}
	}
	w.mu.Unlock()
	const want = "10.77.0.9 is in 256 groups already; let it leave some of them, or end some with rocast group rm"
	for _, name := range []string{"open", "more"} {
		_, err := h.Join(t.Context(), addr("10.77.0.9"), name, ctltest.HostAsks("10.77.0.9", "receiver", 2), "")
		if err == nil || err.Error() != want || kindOf(err) != api.Unavailable {
			t.Errorf("%s:\ngot  %v\nwant %s", name, err, want)
		}
	}
	if _, err := h.Join(t.Context(), addr("10.77.0.8"), "more", ctltest.HostAsks("10.77.0.8", "both", 2), ""); err != nil {
		t.Errorf("another host: %v", err)
	}
	w.mu.Lock()
	delete(w.groups, "n0")
	w.mu.Unlock()
	if _, err := h.Join(t.Context(), addr("10.77.0.9"), "open", ctltest.HostAsks("10.77.0.9", "receiver", 2), ""); err != nil {
		t.Errorf("a host that has left a group: %v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range maxOfHost {
		delete(w.groups, fmt.Sprint("n", i))
		delete(w.groups, fmt.Sprint("o", i))
	}
}

// A host that leaves while its group is being created is not left in it.
func TestLeaveWhileTheGroupIsCreated(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	var all []chan joining
	all = append(all, h.join(t, "g1", "10.77.0.1", ctltest.HostAsks("10.77.0.1", "source", 3)))
	over := ended(t)
	if _, err := h.Join(over, addr("10.77.0.2"), "g1", ctltest.HostAsks("10.77.0.2", "receiver", 3), ""); err != nil { // its question has ended
		t.Fatal(err)
	}
	h.came(t, "g1", "10.77.0.1")
	unlock, err := w.lock(t.Context(), "g1") // holds up the creation
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, h.join(t, "g1", "10.77.0.3", ctltest.HostAsks("10.77.0.3", "receiver", 3)))
	h.came(t, "g1", "10.77.0.3")
	left := make(chan error)
	go func() { left <- h.Leave(t.Context(), addr("10.77.0.2"), "g1") }()
	if err := h.Leave(over, addr("10.77.0.3"), "g1"); kindOf(err) != api.Internal {
		t.Errorf("a host has left before its group was there: %v", err)
	}
	unlock()
	for _, c := range all {
		outcome(t, c)
	}
	if err := <-left; err != nil {
		t.Error(err)
	}
	if got := w.members(t, "g1"); got != "1 3" {
		t.Errorf("members %s", got)
	}
}

// While hosts make a group, etcd says that there is one before this box knows more of it. A host
// that asks then is not refused.
func TestAGroupThatIsNotThereYet(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	h.mu.Lock()
	for ip, role := range map[string]string{"10.77.0.1": "source", "10.77.0.2": "receiver"} {
		host, err := gather.NewHost(addr(ip), ctltest.HostAsks(ip, role, 2))
		testlab.Must(t, err)
		_, _, _, err = h.desk.hall.Come(time.Now(), "g1", host)
		testlab.Must(t, err)
	}
	party := h.desk.hall.Party("g1")
	h.mu.Unlock()
	w.mu.Lock()
	w.groups["g1"] = &kept{}
	w.mu.Unlock()
	first := h.join(t, "g1", "10.77.0.1", ctltest.HostAsks("10.77.0.1", "source", 2))
	over := ended(t)
	testlab.Eventually(t, testlab.Patience, "the host's question has the turn, or is answered", func() bool {
		unlock, err := w.lock(over, "hosts of g1")
		if err == nil {
			unlock()
		}
		return err != nil || len(first) > 0
	}, nil)
	w.mu.Lock()
	delete(w.groups, "g1")
	w.mu.Unlock()
	creates := &task{name: "g1", groupIP: h.Config.GroupIPs[0], host: party.Hosts[1], then: func(time.Time, *task, event) act {
		return act{do: choose, party: party, then: h.desk.chose(party, party.Hosts[1])}
	}}
	_, err := h.run(t.Context(), creates, begin)
	testlab.Must(t, err)
	outcome(t, first)
}

// The members that are left when the group ends with one of them hear who they are, so that they
// can make the group anew. Nobody else hears it.
func TestThoseWhoAreLeft(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	h.together(t, "g1", "both", "both", "receiver")
	a, err := h.ready(t, "g1", "10.77.0.2", "both")
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan joining)
	r := ctltest.HostAsks("10.77.0.2", "both", 3)
	r.Ready = true
	go func() {
		g, err := h.Join(t.Context(), addr("10.77.0.2"), "g1", r, a.Version)
		waiting <- joining{g, err}
	}()
	if err := h.Leave(t.Context(), addr("10.77.0.1"), "g1"); err != nil {
		t.Fatal(err)
	}
	w.expect(t)
	j := <-waiting
	if g := j.group; j.err != nil || g.State != api.HostRunning || !g.Degraded || g.ClearToSend || g.IP != a.IP || g.QPN != a.QPN ||
		len(g.Members) != 2 || g.Members[0].IP != "10.77.0.2" || g.Members[1] != (api.HostMember{IP: "10.77.0.3", Role: "receiver", Port: 7003}) {
		t.Errorf("%+v, %v", j.group, j.err)
	}
	over := ended(t)
	if g, err := h.Join(over, addr("10.77.0.2"), "g1", r, j.group.Version); err != nil || g.Version != j.group.Version {
		t.Errorf("asked again: %+v, %v", g, err)
	}
	if _, err := h.ready(t, "g1", "10.77.0.1", "both"); kindOf(err) != api.NotFound {
		t.Errorf("the member that left: %v", err)
	}
	if err := h.End(t.Context(), addr("10.77.0.2"), "g1", false); kindOf(err) != api.NotFound {
		t.Errorf("the group is there: %v", err)
	}
	second := h.join(t, "g1", "10.77.0.2", ctltest.HostAsks("10.77.0.2", "both", 2))
	h.came(t, "g1", "10.77.0.2")
	again := outcome(t, h.join(t, "g1", "10.77.0.3", ctltest.HostAsks("10.77.0.3", "receiver", 2)))
	outcome(t, second)
	if g, err := h.ready(t, "g1", "10.77.0.2", "both"); err != nil || g.QPN != again.QPN || g.Degraded {
		t.Errorf("the new group: %+v, %v", g, err)
	}
	if err := h.Leave(t.Context(), addr("10.77.0.2"), "g1"); err != nil {
		t.Fatal(err)
	}
	if g, err := h.ready(t, "g1", "10.77.0.3", "receiver"); err != nil || g.State != api.HostEnded {
		t.Errorf("one is left, and cannot send: %+v, %v", g, err)
	}
	h.together(t, "g3", "both", "both")
	if err := h.Leave(t.Context(), addr("10.77.0.1"), "g3"); err != nil {
		t.Fatal(err)
	}
	alone := ctltest.HostAsks("10.77.0.2", "both", 2)
	alone.Ready, alone.QPN = true, alone.QPN+1
	if _, err := h.Join(t.Context(), addr("10.77.0.2"), "g3", alone, ""); kindOf(err) != api.NotFound {
		t.Errorf("one is left, and has nobody to send to: %v", err)
	}
	h.together(t, "g2", "source", "receiver", "receiver")
	if err := h.Leave(t.Context(), addr("10.77.0.1"), "g2"); err != nil {
		t.Fatal(err)
	}
	r = ctltest.HostAsks("10.77.0.2", "receiver", 3)
	r.Ready, r.QPN = true, r.QPN+1
	const reason = "10.77.0.1 has left, and group g2 has ended with it"
	ended, err := h.Join(t.Context(), addr("10.77.0.2"), "g2", r, "")
	if err != nil || ended.State != api.HostEnded || ended.Reason != reason || ended.Version == "" || ended.Members != nil || ended.ClearToSend {
		t.Errorf("nobody is left that could send: %+v, %v", ended, err)
	}
	if _, err := h.ready(t, "g2", "10.77.0.1", "source"); kindOf(err) != api.NotFound {
		t.Errorf("the source that left: %v", err)
	}
	fresh := ctltest.HostAsks("10.77.0.1", "source", 2)
	if a, err := h.Join(over, addr("10.77.0.1"), "g2", fresh, ""); err != nil || a.State != api.HostGathering || h.desk.hall.Party("g2") == nil {
		t.Errorf("the source waits for receivers again: %+v, %v", a, err)
	}
}

// A member that sends ends the group for all. The others hear so, also those that could send to
// each other, and the name is free for another group. Without telling, they hear that there is no
// group.
func TestAMemberEndsTheGroup(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	h.together(t, "g1", "both", "both", "receiver")
	a, err := h.ready(t, "g1", "10.77.0.3", "receiver")
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan joining)
	r := ctltest.HostAsks("10.77.0.3", "receiver", 3)
	r.Ready = true
	go func() {
		g, err := h.Join(t.Context(), addr("10.77.0.3"), "g1", r, a.Version)
		waiting <- joining{g, err}
	}()
	if err := h.End(t.Context(), addr("10.77.0.3"), "g1", true); kindOf(err) != api.Forbidden {
		t.Errorf("a receiver: %v", err)
	}
	if err := h.End(t.Context(), addr("10.77.0.2"), "g1", true); err != nil {
		t.Fatal(err)
	}
	w.expect(t)
	const reason = "10.77.0.2 has ended group g1"
	if j := <-waiting; j.err != nil || j.group.State != api.HostEnded || j.group.Reason != reason || j.group.Version == "" || j.group.Members != nil {
		t.Errorf("a receiver that waits: %+v, %v", j.group, j.err)
	}
	if g, err := h.ready(t, "g1", "10.77.0.1", "both"); err != nil || g.State != api.HostEnded || g.Reason != reason {
		t.Errorf("another sender: %+v, %v", g, err)
	}
	if g, err := h.ready(t, "g1", "10.77.0.2", "both"); kindOf(err) != api.NotFound {
		t.Errorf("the member that ended it: %+v, %v", g, err)
	}
	if n := w.logs.FilterMessage("a host has ended its group").Len(); n != 1 {
		t.Errorf("logged %d times", n)
	}
	h.together(t, "g1", "both", "both")
	if g, err := h.ready(t, "g1", "10.77.0.1", "both"); err != nil || g.State != api.HostRunning {
		t.Errorf("another group of the same name: %+v, %v", g, err)
	}
	if err := h.End(t.Context(), addr("10.77.0.1"), "g1", false); err != nil {
		t.Fatal(err)
	}
	if g, err := h.ready(t, "g1", "10.77.0.2", "both"); kindOf(err) != api.NotFound {
		t.Errorf("nobody was told: %+v, %v", g, err)
	}
	first := h.join(t, "g1", "10.77.0.1", ctltest.HostAsks("10.77.0.1", "both", 2))
	h.came(t, "g1", "10.77.0.1")
	if err := h.End(t.Context(), addr("10.77.0.1"), "g1", true); err != nil || h.desk.hall.Party("g1") != nil {
		t.Errorf("a host that waits for others: %v", err)
	}
	if j := <-first; kindOf(j.err) != api.Stale {
		t.Errorf("its question: %+v, %v", j.group, j.err)
	}
}

// A question hears that its group has ended, also if the group ends after the question has looked
// and before the subscription looks for the first time.
func TestAGroupEndsBeforeItsFeedLooks(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	f := &subscription{changed: make(chan struct{})}
	changed := f.changed
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		h.tend(ctx, "g1", f)
		close(ended)
	}()
	select {
	case <-changed:
	case <-time.After(10 * time.Second):
		t.Error("nobody is told")
	}
	stop()
	<-ended
}

// A member whose program starts again, and with whom its group ends, does not keep those from each
// other that are left: it joins the group that they make. If all programs have started again, they
// make one group together.
func TestTheMemberThatTheGroupBeganWithStartsAgain(t *testing.T) {
	for _, c := range []struct {
		others int // that the programs of the others wait for, themselves included
		want   string
	}{{2, "2 3 1"}, {3, "2 1 3"}} {
		w := newWorld()
		h := w.hosts()
		h.together(t, "g1", "both", "both", "receiver")
		again := ctltest.HostAsks("10.77.0.1", "both", 3)
		again.QPN++
		first := h.join(t, "g1", "10.77.0.1", again)
		testlab.Eventually(t, testlab.Patience, "the group ends", func() bool { return len(w.Known()) == 0 }, nil)
		second, third := ctltest.HostAsks("10.77.0.2", "both", c.others), ctltest.HostAsks("10.77.0.3", "receiver", c.others)
		second.QPN, third.QPN = second.QPN+1, third.QPN+1
		all := []chan joining{first, h.join(t, "g1", "10.77.0.2", second)}
		h.came(t, "g1", "10.77.0.2")
		if c.others == 3 {
			h.came(t, "g1", "10.77.0.1")
		}
		all = append(all, h.join(t, "g1", "10.77.0.3", third))
		for _, j := range all {
			outcome(t, j)
		}
		if got := w.members(t, "g1"); got != c.want {
			t.Errorf("the others wait for %d: members %s, want %s", c.others, got, c.want)
		}
	}
}

// While nobody makes the group anew, the member waits as one that waits for others.
func TestNobodyMakesTheGroupAnew(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	h.together(t, "g1", "both", "both", "receiver")
	again := ctltest.HostAsks("10.77.0.1", "both", 3)
	again.QPN++
	a, err := h.Join(t.Context(), addr("10.77.0.1"), "g1", again, "")
	if err != nil || a.State != api.HostGathering || a.Version == "" || len(a.Came) != 1 || a.Came[0] != "10.77.0.1" {
		t.Errorf("%+v, %v", a, err)
	}
	over := ended(t)
	if b, err := h.Join(over, addr("10.77.0.1"), "g1", again, a.Version); err != nil || b.Version != a.Version {
		t.Errorf("at the end of the question: %+v, %v", b, err)
	}
	if h.desk.hall.Party("g1") != nil {
		t.Error("others that wait for fewer are kept out")
	}
}

// Hosts that make groups and leave them do not take the daemon's memory.
func TestSoManyGroupsAreRememberedThatHaveEnded(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	for i := range maxLeft - 1 {
		h.desk.ended[fmt.Sprint("n", i)] = &endedGroup{at: time.Now()}
	}
	for _, name := range []string{"g1", "g2"} {
		h.together(t, name, "both", "both", "receiver")
		if err := h.Leave(t.Context(), addr("10.77.0.1"), name); err != nil {
			t.Fatal(err)
		}
	}
	if len(h.desk.ended) != maxLeft || h.desk.ended["g1"] == nil || h.desk.ended["g2"] != nil {
		t.Errorf("%d are kept", len(h.desk.ended))
	}
	ask := func() error { _, err := h.ready(t, "g1", "10.77.0.2", "both"); return err }
	if err := ask(); err != nil {
		t.Error(err)
	}
	for name, g := range h.desk.ended {
		if g.at = g.at.Add(-keepLeft); name == "n0" {
			g.at = time.Now()
		}
	}
	if err := ask(); kindOf(err) != api.NotFound || len(h.desk.ended) != 1 || h.desk.ended["n0"] == nil {
		t.Errorf("long after that %d are kept: %v", len(h.desk.ended), err)
	}
	w.expect(t)
}

// A question whose group has ended waits for the next one, and nobody looks at the one that ended.
func TestAQuestionFollowsNoGroupThatHasEnded(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	h.together(t, "g1", "source", "receiver")
	a, err := h.Join(t.Context(), addr("10.77.0.2"), "g1", ctltest.HostAsks("10.77.0.2", "receiver", 2), "")
	testlab.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error)
	go func() {
		_, err := h.Join(ctx, addr("10.77.0.2"), "g1", ctltest.HostAsks("10.77.0.2", "receiver", 2), a.Version)
		answered <- err
	}()
	follows := func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.subscriptions) == 1
	}
	testlab.Eventually(t, testlab.Patience, "it follows its group", follows, nil)
	testlab.Must(t, w.Remove("g1", nil))
	h.came(t, "g1", "10.77.0.2")
	if follows() {
		t.Error("a group that has ended is looked at")
	}
	cancel()
	testlab.Must(t, <-answered)
	h.together(t, "g1", "source", "receiver")
	a, err = h.Join(t.Context(), addr("10.77.0.2"), "g1", ctltest.HostAsks("10.77.0.2", "receiver", 2), "")
	testlab.Must(t, err)
	ctx, cancel = context.WithCancel(t.Context())
	go func() {
		_, err := h.Join(ctx, addr("10.77.0.2"), "g1", ctltest.HostAsks("10.77.0.2", "receiver", 2), a.Version)
		answered <- err
	}()
	testlab.Eventually(t, testlab.Patience, "it follows the next group", follows, nil)
	cancel()
	testlab.Must(t, <-answered)
	if follows() {
		t.Error("a question that is answered looks at its group")
	}
}

// All hosts of a group wait for its creation, so that goes on if the one that came last has hung
// up.
func TestTheLastHostHangsUp(t *testing.T) {
	w := newWorld()
	h := w.hosts()
	h.HasNeighbours = true
	first := h.join(t, "g1", "10.77.0.1", ctltest.HostAsks("10.77.0.1", "source", 2))
	h.came(t, "g1", "10.77.0.1")
	gone, hangUp := context.WithCancel(t.Context())
	w.arrives = hangUp
	if a, err := h.Join(gone, addr("10.77.0.2"), "g1", ctltest.HostAsks("10.77.0.2", "receiver", 2), ""); err != nil || a.State != api.HostRunning {
		t.Errorf("%+v, %v", a, err)
	}
	outcome(t, first)
}
