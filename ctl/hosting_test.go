package ctl

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/gather"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/hosts"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/feedback"
)

var hostsConfig = gather.Config{GroupIPs: []netip.Addr{netip.MustParseAddr("10.77.0.200")}}

// onHosts is programs on hosts that ask a box.
type onHosts struct{ *hosts.Hosts }

func newHosts(c *Controller) onHosts { return onHosts{NewHosts(c, hostsConfig)} }

// joining is the outcome of a Join.
type joining struct {
	group api.HostGroup
	err   error
}

// join lets a host come, and asks in the background until the group runs.
func (h onHosts) join(t *testing.T, name, ip string, r api.HostRequest) chan joining {
	over, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	var j joining
	j.group, j.err = h.Join(over, addr(ip), name, r, "")
	done := make(chan joining, 1)
	go func() {
		for j.group.State != api.HostRunning && j.err == nil {
			j.group, j.err = h.Join(t.Context(), addr(ip), name, r, j.group.Version)
		}
		done <- j
	}()
	return done
}

func kindOf(err error) api.Kind {
	if e := (*api.Error)(nil); errors.As(err, &e) {
		return e.Kind
	}
	return ""
}

func outcome(t *testing.T, c chan joining) api.HostGroup {
	t.Helper()
	j := <-c
	if j.err != nil {
		t.Fatal(j.err)
	}
	return j.group
}

// together lets hosts make a group. All say role and their number.
func (h onHosts) together(t *testing.T, name string, roles ...string) (answers []api.HostGroup) {
	t.Helper()
	var all []chan joining
	for i, role := range roles {
		ip := fmt.Sprint("10.77.0.", i+1)
		r := ctltest.HostAsks(ip, role, len(roles))
		if name != "g1" {
			r.QPN++ // the program has another QP for each group
		}
		all = append(all, h.join(t, name, ip, r))
	}
	for _, c := range all {
		answers = append(answers, outcome(t, c))
	}
	return answers
}

// ready says that a host's QP is connected, and returns what the box answers.
func (h onHosts) ready(t *testing.T, name, ip, role string) (api.HostGroup, error) {
	r := ctltest.HostAsks(ip, role, 3)
	r.Ready = true
	return h.Join(t.Context(), addr(ip), name, r, "")
}

// members returns the last numbers of the addresses of a group's members.
func (w *world) members(_ *testing.T, name string) string { return ctltest.Members(w.Group(name)) }

// A host leaves a group, which would end it. Meanwhile an operator has put another one in its
// place.
func TestAHostRemovesNoGroupThatWasMadeMeanwhile(t *testing.T) {
	w := newWorld(t)
	control := hosting{w.Controller}
	w.create(t, g1)
	_, from, err := control.Running(t.Context(), "g1")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	if err := control.Remove("g1", from); kindOf(err) != api.NotFound {
		t.Errorf("there is none: %v", err)
	}
	w.create(t, g1)
	if err := control.Remove("g1", from); kindOf(err) != api.Stale {
		t.Errorf("removed: %v", err)
	}
	w.expect(t, withG1)
	if _, from, err = control.Running(t.Context(), "g1"); err != nil {
		t.Fatal(err)
	}
	if err := control.Remove("g1", from); err != nil {
		t.Error(err)
	}
	w.expect(t, nothing)
}

// Groups that hosts make, any number of them, neither hide those of operators nor make the box
// unready.
func TestGroupsOfOperatorsComeFirst(t *testing.T) {
	w := newWorld(t)
	h := newHosts(w.Controller)
	h.together(t, "a1", "source", "receiver")
	w.create(t, g1)
	w.create(t, anotherGroup("g2", 101))
	w.edit("a1", func(g *groups.Group) {
		g.Past.Confirm(g.Wanted.Receivers[0].ID())
		g.TreeProblem = "a box is missing"
	})
	if s := w.Status(); !s.Ready || s.Healthy || len(s.Problems) != 1 || s.Problems[0].Blocks || s.Problems[0].Name != "a1" {
		t.Errorf("%+v", s)
	}
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.3": {Reason: "no route"}})
	w.network.HopsChanged([]netip.Addr{addr("10.77.0.3")})
	var problems, traffic, list []string
	s := w.Status()
	for _, p := range s.Problems {
		problems = append(problems, p.Name)
	}
	for _, g := range w.Traffic().Groups {
		traffic = append(traffic, g.Name+g.By)
	}
	for _, g := range w.Groups().Groups {
		list = append(list, g.Name+g.By)
	}
	if got, want := fmt.Sprint(problems, traffic, list), "[g1 g2 a1] [g1 g2 a1hosts] [g1 g2 a1hosts]"; got != want || s.Ready {
		t.Errorf("got %s, want %s; ready %v", got, want, s.Ready)
	}
}

// Groups of which hosts have not yet said that they are ready can be of anybody. They make no box
// unhealthy, and come last.
func TestGroupsThatNobodyHasConfirmedAreNoProblem(t *testing.T) {
	w := newWorld(t)
	h := newHosts(w.Controller)
	h.together(t, "a1", "source", "receiver")
	h.together(t, "g1", "source", "receiver", "receiver")
	const note = "groups that hosts have made and not confirmed yet: 2; rocast group ls shows them"
	expect := func(healthy, ready bool, unconfirmed int, problems string) {
		t.Helper()
		s := w.Status()
		var names []string
		for _, p := range s.Problems {
			names = append(names, p.Name)
		}
		if s.Healthy != healthy || s.Ready != ready || s.Unconfirmed != unconfirmed || strings.Join(names, " ") != problems {
			t.Errorf("%+v", s)
		}
		if unconfirmed == 2 && (len(s.Notes) != 1 || s.Notes[0] != note) || unconfirmed == 0 && len(s.Notes) != 0 {
			t.Errorf("notes %q", s.Notes)
		}
	}
	expect(true, true, 2, "")
	w.edit("a1", func(g *groups.Group) { g.Problem = "a cause" })
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.3": {Reason: "no route"}})
	w.network.HopsChanged([]netip.Addr{addr("10.77.0.3")})
	expect(true, true, 2, "")
	if s := w.Status(); fmt.Sprint(s.Groups) != "map[degraded:0 failed:0 ready:0 waiting:0]" {
		t.Errorf("%v", s.Groups)
	}
	w.edit("a1", func(g *groups.Group) { g.Problem = "" })
	if _, err := h.ready(t, "g1", "10.77.0.2", "receiver"); err != nil {
		t.Fatal(err)
	}
	expect(true, true, 2, "")
	if _, err := h.ready(t, "g1", "10.77.0.3", "receiver"); err != nil {
		t.Fatal(err)
	}
	expect(false, true, 1, "g1") // confirmed, and not reached
	var order []string
	for _, g := range w.Traffic().Groups {
		order = append(order, fmt.Sprint(g.Name, g.Unconfirmed))
	}
	if got := fmt.Sprint(order); got != "[g1false a1true]" {
		t.Error(got)
	}
	w.edit("a1", func(g *groups.Group) { g.Past.Confirm(g.Wanted.Receivers[0].ID()) })
	expect(false, true, 0, "g1")
	outcome(t, h.join(t, "a1", "10.77.0.9", ctltest.HostAsks("10.77.0.9", "receiver", 2))) // it has not confirmed
	expect(false, true, 0, "a1 g1")
}

// Who does not show the secret of the group's first member is no member, when the group begins,
// later, after a restart and as a program of a member's host.
func TestTheSecretOfAGroup(t *testing.T) {
	w := newWorld(t)
	h := newHosts(w.Controller)
	showing := func(ip, role, secret string) api.HostRequest {
		r := ctltest.HostAsks(ip, role, 2)
		r.Secret = secret
		return r
	}
	refused := func(ip, role, secret string, ready bool) {
		t.Helper()
		r := showing(ip, role, secret)
		r.Ready = ready
		_, err := h.Join(t.Context(), addr(ip), "g1", r, "")
		want := ip + " does not show the secret of group g1, which is that of its first member; set ROCAST_SECRET to the same at all its hosts"
		if err == nil || err.Error() != want || kindOf(err) != api.Forbidden {
			t.Errorf("%s with %q: %v", ip, secret, err)
		}
	}
	first := h.join(t, "g1", "10.77.0.1", showing("10.77.0.1", "source", "s3cret"))
	refused("10.77.0.2", "receiver", "", false)
	refused("10.77.0.2", "receiver", "secret", false)
	outcome(t, h.join(t, "g1", "10.77.0.2", showing("10.77.0.2", "receiver", "s3cret")))
	outcome(t, first)
	for range 2 {
		refused("10.77.0.9", "receiver", "", false)
		refused("10.77.0.2", "receiver", "", false)
		refused("10.77.0.2", "receiver", "other", true)
		if got := w.members(t, "g1"); got != "1 2" {
			t.Errorf("members %s", got)
		}
		w = w.restart(t, false)
		h = newHosts(w.Controller)
	}
	if _, err := h.Join(t.Context(), addr("10.77.0.3"), "g1", showing("10.77.0.3", "receiver", "s3cret"), ""); err != nil {
		t.Error(err)
	}
	// A secret that the group does not have protects nobody, so it is refused, too.
	h.together(t, "g2", "source", "receiver")
	r := showing("10.77.0.3", "receiver", "mine")
	r.QPN++
	if _, err := h.Join(t.Context(), addr("10.77.0.3"), "g2", r, ""); kindOf(err) != api.Forbidden {
		t.Errorf("%v", err)
	}
}

// A member hears whether what is complete has come to all, because it may do without the fallback.
func TestAMemberHearsForWhomTheGroupWaits(t *testing.T) {
	w := newWorld(t)
	h := newHosts(w.Controller)
	h.together(t, "made", "source", "receiver")
	for i, c := range []struct {
		name, keys, ack string
		evicts          bool
	}{
		{"quorum", "ack: quorum 2\n", "quorum 2", true}, // whose on-fatal is evict
		{"failing", "ack: quorum 2\non-fatal: fail\n", "quorum 2", false},
		{"evicting", "silent-after: 1s\nevict: true\n", "", true},
		{"dropping", "on-fatal: evict\n", "", true},
		{"plain", "", "", false},
		{"made", "", "", false},
	} {
		if c.name != "made" {
			w.create(t, anotherGroup(c.name, 102+i)+"hosts: true\n"+c.keys)
		}
		r := ctltest.HostAsks("10.77.0.9", "receiver", 2)
		r.QPN += uint32(i)
		if a := outcome(t, h.join(t, c.name, "10.77.0.9", r)); a.Ack != c.ack || a.Evicts != c.evicts {
			t.Errorf("%s: %+v", c.name, a)
		}
	}
}

// After a restart of the daemon the members are what the stored group says.
func TestHostsAfterARestart(t *testing.T) {
	w := newWorld(t)
	newHosts(w.Controller).together(t, "g1", "source", "receiver", "receiver")
	w = w.restart(t, false)
	h := newHosts(w.Controller)
	a, err := h.ready(t, "g1", "10.77.0.3", "receiver")
	if err != nil || len(a.Members) != 3 || a.Members[2].Port != 7003 || a.Members[1].Port != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	if err := h.Leave(t.Context(), addr("10.77.0.3"), "g1"); err != nil {
		t.Fatal(err)
	}
	if g, err := w.Group("g1"); err != nil || len(g.Members) != 2 {
		t.Errorf("%+v, %v", g, err)
	}
	if err := h.End(t.Context(), addr("10.77.0.1"), "g1", false); err != nil { // hosts have made it
		t.Fatal(err)
	}
	w.expect(t, nothing)
}

// asksAt is what a host of a fabric says that joins.
func asksAt(ip, role string, members int) api.HostRequest {
	r := ctltest.HostAsks(ip, role, members)
	r.QPN += uint32(addr(ip).As4()[1])
	return r
}

func (h onHosts) readyAt(t *testing.T, ip, role string) api.HostGroup {
	t.Helper()
	r := asksAt(ip, role, 3)
	r.Ready = true
	a, err := h.Join(t.Context(), addr(ip), "g1", r, "")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Hosts behind other boxes join at the box to which the source is attached. They say there that
// they are ready, and the boxes on the way hear so, also one that has forgotten it.
func TestHostsBehindOtherBoxes(t *testing.T) {
	f, b1, b2, b3 := threeBoxes(t)
	h := newHosts(b1.Controller)
	far := h.join(t, "g1", "10.3.0.1", asksAt("10.3.0.1", "receiver", 3))
	near := h.join(t, "g1", "10.1.0.2", asksAt("10.1.0.2", "receiver", 3))
	source := h.join(t, "g1", "10.1.0.1", asksAt("10.1.0.1", "source", 3))
	for _, c := range []chan joining{far, near, source} {
		outcome(t, c)
	}
	f.check("b1: 10.1.0.2 b2 | b2: b3 | b3: 10.3.0.1")
	h.readyAt(t, "10.1.0.2", "receiver")
	h.readyAt(t, "10.3.0.1", "receiver")
	if a := h.readyAt(t, "10.1.0.1", "source"); a.ClearToSend {
		t.Errorf("before the boxes behind have heard: %+v", a)
	}
	f.tendAll(time.Now()) // nobody waits until a lease is due: each box passes it on at once
	if g := b3.groups.Named("g1"); len(b3.Branches.Absent(g)) > 0 {
		t.Errorf("the last box waits for %+v", b3.Branches.Absent(g))
	}
	renew := func() {
		for _, b := range []*box{b2, b1} {
			b.due("g1")
			b.Branches.Tend(t.Context(), b.groups.Named("g1"))
		}
	}
	renew()
	a := h.readyAt(t, "10.1.0.1", "source")
	if !a.ClearToSend {
		t.Errorf("all are ready: %+v", a)
	}
	var ips []string // not those of boxes, to which nobody falls back
	for _, m := range a.Members {
		ips = append(ips, m.IP)
	}
	if got := strings.Join(ips, " "); got != "10.1.0.1 10.1.0.2 10.3.0.1" {
		t.Errorf("a host hears of the members %s", got)
	}
	for _, b := range []*box{b1, b2, b3} {
		if n := b.logs.FilterMessage("member confirmed").FilterField(zap.Stringer("member", addr("10.3.0.1"))).Len(); n != 1 {
			t.Errorf("%s has logged %d times that it is ready", b.name, n)
		}
	}
	b3.restart(false, true)
	renew()
	if g := b3.groups.Named("g1"); g == nil || len(b3.Branches.Absent(g)) > 0 {
		t.Error("a box that has forgotten the group does not hear again who is ready")
	}
	// A program that starts again is not ready because the one before was.
	again := asksAt("10.3.0.1", "receiver", 3)
	again.QPN++
	outcome(t, h.join(t, "g1", "10.3.0.1", again))
	renew()
	if a := h.readyAt(t, "10.1.0.1", "source"); a.ClearToSend {
		t.Errorf("another program of a host: %+v", a)
	}
	if err := h.Leave(t.Context(), addr("10.3.0.1"), "g1"); err != nil {
		t.Fatal(err)
	}
	f.check("b1: 10.1.0.2")
	if err := h.End(t.Context(), addr("10.1.0.1"), "g1", true); err != nil {
		t.Fatal(err)
	}
	f.nothingLeft()
}

// A group begins at the box of a member that sends: at another box a source hears which one, before
// anything waits for it, and among several that send one at this box is the first.
func TestAGroupBeginsAtTheBoxOfASender(t *testing.T) {
	f := newFabric(t, 2, "b1 b2")
	b1 := f.box("b1")
	tracked := b1.hops.Tracked()
	b1.hops.Meanwhile = func() { b1.route(2, "b2") } // the kernel is asked when the host comes
	h := newHosts(b1.Controller)
	const far = "10.2.0.1 is behind box b2, and a group begins at the box to which its source is attached; name box b2 at all hosts of the group"
	if a, err := h.Join(t.Context(), addr("10.2.0.1"), "g1", asksAt("10.2.0.1", "source", 2), ""); err == nil || err.Error() != far || kindOf(err) != api.BadRequest {
		t.Errorf("%+v, %v", a, err)
	}
	if n := b1.hops.Tracked(); n != tracked {
		t.Errorf("%d addresses are tracked for a host that was refused", n-tracked)
	}
	first := h.join(t, "g1", "10.2.0.1", asksAt("10.2.0.1", "both", 2))
	outcome(t, h.join(t, "g1", "10.1.0.2", asksAt("10.1.0.2", "both", 2)))
	outcome(t, first)
	if g, err := b1.Group("g1"); err != nil || g.Members[0].IP != "10.1.0.2" || len(g.Members) != 2 {
		t.Errorf("%+v, %v", g.Members, err)
	}
	first = h.join(t, "g2", "10.2.0.1", asksAt("10.2.0.1", "both", 2))
	second := h.join(t, "g2", "10.1.0.2", asksAt("10.1.0.2", "receiver", 2))
	const none = "no member of group g2 that sends is attached to box b1 (10.2.0.1 is behind box b2); name the box of a member that sends at all hosts of the group"
	for _, c := range []chan joining{first, second} {
		if j := <-c; j.err == nil || j.err.Error() != none {
			t.Errorf("\ngot  %v\nwant %s", j.err, none)
		}
	}
}

// The hosts of a group say its policy, with the keys of a group file. Who says another one is no
// member, when the group begins, later and after a restart; who says nothing takes what there is.
func TestThePolicyOfAGroup(t *testing.T) {
	w := newWorld(t)
	h := newHosts(w.Controller)
	saying := func(ip, role, policy string) api.HostRequest {
		r := ctltest.HostAsks(ip, role, 3)
		r.Policy = policy
		return r
	}
	refused := func(policy, want string) {
		t.Helper()
		_, err := h.Join(t.Context(), addr("10.77.0.4"), "g1", saying("10.77.0.4", "receiver", policy), "")
		if err == nil || err.Error() != want || kindOf(err) != api.BadRequest {
			t.Errorf("%s: %v", policy, err)
		}
	}
	first := h.join(t, "g1", "10.77.0.1", saying("10.77.0.1", "source", ""))
	const policy = "ack=quorum 1,nak=lower,evict=true,silent-after=200ms,repair=local,repair-window=64"
	second := h.join(t, "g1", "10.77.0.2", saying("10.77.0.2", "receiver", policy))
	refused("nak=lower", "10.77.0.4 says policy nak=lower, and 10.77.0.2 says "+policy+"; write the same policy at all hosts of group g1, or at one alone")
	refused("repair=of", `policy repair=of: repair "of" is not one of off, local`)
	refused("mtu=9", `policy mtu=9: key "mtu" is unknown here; the known keys are ack, nak, on-fatal, silent-after, evict, cnp, cnp-interval, credits, source-switch, `+
		"repair, on-slow, repair-window, repair-bytes, repair-attempts, repair-timer-floor, repair-timer-cap")
	refused("source-switch=force,repair=off", "policy source-switch=force,repair=off: source-switch is force, which needs repair, and repair is off; use repair: local")
	refused("evict=true", "policy evict=true: evict has no effect without silent-after, which says when a receiver counts as silent; add silent-after: 200ms, or remove evict")
	// The order of the keys, and those that say what is so without them, make no difference.
	third := h.join(t, "g1", "10.77.0.3", saying("10.77.0.3", "receiver", "repair-window=64,silent-after=200ms,evict=true,nak=lower,ack=quorum 1,cnp=filter"))
	for _, c := range []chan joining{first, second, third} {
		if g := outcome(t, c); g.Ack != "quorum 1" || !g.Evicts {
			t.Errorf("%+v", g)
		}
	}
	for range 2 {
		p := w.groups.Named("g1").File.Policy
		if p.Ack != 1 || p.Nak != feedback.NakLower || !p.Evict || p.SilentAfter != 200*time.Millisecond || p.RepairWindow != 64 {
			t.Errorf("%+v", p)
		}
		refused("nak=lower,repair=off", "10.77.0.4 says policy nak=lower,repair=off, and group g1 runs with another one; write what rocast group show g1 shows, or no policy")
		w = w.restart(t, false)
		h = newHosts(w.Controller)
	}
	for ip, policy := range map[string]string{"10.77.0.4": "nak=lower,repair-window=64", "10.77.0.5": ""} {
		if _, err := h.Join(t.Context(), addr(ip), "g1", saying(ip, "receiver", policy), ""); err != nil {
			t.Errorf("%s: %v", policy, err)
		}
	}
}

// An IP that no group of hosts can have is a problem of the box from its start, before any host
// asks for a group. A group that runs there is not asked about.
func TestGroupIPsThatNoGroupCanHave(t *testing.T) {
	w := newWorld(t)
	w.addresses.Networks = []netip.Prefix{netip.MustParsePrefix("10.77.0.0/24")}
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.200": {Interface: 1}, "10.78.0.5": {Interface: 1}, "10.79.0.5": {Reason: "no route leads there"}})
	look := func(ip string) { // as Hosts do whose config has this IP
		bad := map[string]string{}
		if err := (hosting{w.Controller}).RefuseIP(t.Context(), addr(ip)); err != nil {
			bad[ip] = err.Error()
		}
		hosting{w.Controller}.BadIPs(bad)
	}
	for ip, want := range map[string]string{
		"10.77.0.200": "",
		"10.78.0.5":   "ip 10.78.0.5 is in no subnet of the interfaces that lead to the members ([10.77.0.0/24]); write an unused address of one of them",
		"10.79.0.5":   "ip 10.79.0.5 is in no subnet of this box (no route leads there); write an unused address of the subnet of the hosts",
	} {
		for range 2 { // it is said once
			look(ip)
		}
		var got string
		if s := w.Status(); len(s.Problems) > 0 {
			got = s.Problems[0].Reason
			if p := s.Problems[0]; p.Of != api.OfHosts || p.Name != ip || p.Blocks || s.Healthy || !s.Ready {
				t.Errorf("%+v", s)
			}
		}
		if got != want || w.logs.FilterField(zap.String("ip", ip)).Len() != map[bool]int{true: 1}[want != ""] {
			t.Errorf("%s\ngot  %s\nwant %s\nlogged %v", ip, got, want, w.logs.All())
		}
	}
	w.addresses.Box[addr("10.77.0.200")] = true
	h := newHosts(w.Controller)
	if look("10.77.0.200"); len(w.Status().Problems) != 1 {
		t.Error("the box's own address is no problem")
	}
	delete(w.addresses.Box, addr("10.77.0.200"))
	h.together(t, "g1", "source", "receiver")
	w.addresses.Box[addr("10.77.0.200")] = true
	if look("10.77.0.200"); len(w.Status().Problems) != 0 {
		t.Errorf("an IP that a group has is asked about: %+v", w.Status().Problems)
	}
	if err := h.End(t.Context(), addr("10.77.0.1"), "g1", false); err != nil {
		t.Fatal(err)
	}
	delete(w.addresses.Box, addr("10.77.0.200"))
	if look("10.77.0.200"); len(w.Status().Problems) != 0 {
		t.Error("the problem is mended, and still told")
	}
}

// What the box refuses all hosts hear that wait for it, and the name is free again.
func TestAGroupThatTheBoxRefuses(t *testing.T) {
	w := newWorld(t)
	h := newHosts(w.Controller)
	w.create(t, strings.ReplaceAll(g1, "qpn: 18", "qpn: 200")) // the QP that 10.77.0.2 has
	first := h.join(t, "g2", "10.77.0.1", ctltest.HostAsks("10.77.0.1", "source", 2))
	second := h.join(t, "g2", "10.77.0.2", ctltest.HostAsks("10.77.0.2", "receiver", 2))
	const want = "QP 200 of 10.77.0.2 is already in group g1, and a queue pair has only one peer; write another qpn, or remove group g1"
	for _, c := range []chan joining{first, second} {
		if j := <-c; j.err == nil || j.err.Error() != want {
			t.Errorf("\ngot  %v\nwant %s", j.err, want)
		}
	}
	w.expect(t, withG1)
}
