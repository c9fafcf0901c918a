package ctl

import (
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/nexthop"
)

// takes gives a box the address of a host, so that no group can have that host there.
func (b *box) takes(ip string) {
	b.hops.Set(map[string]nexthop.Hop{ip: {Own: true, Reason: "it is an address of this box"}})
}

// A receiver that joins is judged as one of a new group is, by the box to which it is attached. If
// that box refuses it, nothing has changed anywhere. A receiver that runs is judged no more.
func TestAReceiverThatJoinsIsJudgedByItsBox(t *testing.T) {
	const before = "b1: 10.1.0.2 b2 | b2: b3 | b3: 10.3.0.1"
	for _, policy := range []string{"", "ack: quorum 1\n"} { // boxes merge, and pass frames on
		files := func(receivers ...string) string {
			return strings.Replace(groupFile(receivers...), "mtu:", policy+"mtu:", 1)
		}
		for joins, spoil := range map[string]func(*fabric){
			"10.1.0.3": func(f *fabric) { f.box("b1").takes("10.1.0.3") },
			"10.3.0.2": func(f *fabric) { f.box("b3").takes("10.3.0.2") },
			"10.2.0.1": func(f *fabric) { f.box("b2").takes("10.2.0.1") },
			"10.4.0.1": func(f *fabric) { f.box("b4").takes("10.4.0.1") }, // the first one there
			"10.4.0.2": func(f *fabric) { // the way to its box is too narrow
				hop := ctltest.Hop(3, "eth3", 500, 4)
				hop.Source = linkIP(2)
				f.box("b2").hops.Set(map[string]nexthop.Hop{linkIP(4).String(): hop})
			},
		} {
			all := files("10.1.0.2", "10.3.0.1", joins)
			created := newTree(t)
			spoil(created)
			_, want := created.box("b1").Create(t.Context(), []byte(all))
			if want == nil {
				t.Fatalf("%s: a group is created with it", joins)
			}
			f := newTree(t)
			f.create(files("10.1.0.2", "10.3.0.1"))
			spoil(f)
			f.box("b3").takes("10.3.0.1") // which runs
			b1 := f.box("b1")
			versions := b1.groups.Named("g1").Links[0].Version
			if _, err := b1.Update(t.Context(), "g1", []byte(all)); err == nil || err.Error() != want.Error() {
				t.Errorf("%s, %q: the update\nsays %v\nwant %v", joins, policy, err, want)
			}
			f.renewAll()
			if got := shapeOfHosts(f); got != before {
				t.Errorf("%s, %q: the tree is\n%s\nwant\n%s", joins, policy, got, before)
			}
			if joins == "10.1.0.3" && b1.groups.Named("g1").Links[0].Version != versions {
				t.Error("other boxes were asked for what the root refuses")
			}
			if text, err := b1.Store.Get("g1"); err != nil || string(text) != files("10.1.0.2", "10.3.0.1") {
				t.Errorf("%s: stored is %s, %v", joins, text, err)
			}
		}
	}
}

// shapeOfHosts is shape, with one name for each box that a box sends to.
func shapeOfHosts(f *fabric) string {
	lines := strings.Split(f.shape(), " | ")
	for i, line := range lines {
		var names []string
		for _, name := range strings.Fields(line) {
			if len(names) == 0 || names[len(names)-1] != name {
				names = append(names, name)
			}
		}
		lines[i] = strings.Join(names, " ")
	}
	return strings.Join(lines, " | ")
}

// A box has lost its state, and before the box above has noticed it, a receiver joins there. The
// receiver joins as at any box: no box can have sent it a packet yet. If the box loses its state
// once more before the receiver has joined, the receiver is lost.
func TestAReceiverJoinsBehindABoxThatHasLostItsState(t *testing.T) {
	standing := func(b *box, ip string) chronicle.Standing {
		b.f.t.Helper()
		g := b.groups.Named("g1")
		if g == nil {
			b.f.t.Fatalf("%s has no group", b.name)
		}
		return g.Past.Standing(idOf(ip))
	}
	for _, forgets := range []string{"b2", "b3"} {
		for _, ended := range []bool{false, true} { // the box remembers the branch that has ended
			f, b1, b2, b3 := threeBoxes(t)
			f.create(groupFile("10.1.0.2", "10.2.0.1", "10.3.0.1"))
			for _, b := range f.boxes {
				b.sw.Carry("g1", 1005)
			}
			loses := func() {
				if ended {
					f.box(forgets).ends()
				} else {
					f.box(forgets).restart(false, true)
				}
			}
			loses()
			b1.update(t, groupFile("10.1.0.2", "10.2.0.1", "10.3.0.1", "10.2.0.2", "10.3.0.2"))
			f.check("b1: 10.1.0.2 b2 | b2: 10.2.0.1 10.2.0.2 b3 | b3: 10.3.0.1 10.3.0.2")
			for b, ips := range map[*box][2]string{b2: {"10.2.0.1", "10.2.0.2"}, b3: {"10.3.0.1", "10.3.0.2"}} {
				if runs, joins := standing(b, ips[0]), standing(b, ips[1]); runs != "" || joins != chronicle.Joining {
					t.Errorf("%s, ended %v: at %s the one that runs is %q, and the one that joins %q", forgets, ended, b.name, runs, joins)
				}
				if m := b.part(t, ips[1]); m.State == api.LeftOut {
					t.Errorf("%s, ended %v: %+v", forgets, ended, m)
				}
			}
			b3.joins("10.3.0.2", 1080)
			f.renewAll()
			all := b1.groups.Named("g1").Everywhere()
			if s := all.Standing(idOf("10.3.0.2")); s != chronicle.Joined || all.Since(idOf("10.3.0.2")) != 1080 {
				t.Errorf("%s, ended %v: to the root the one that has joined is %q", forgets, ended, s)
			}
			if forgets == "b2" && !ended {
				loses()
				f.renewAll()
				if s := standing(b2, "10.2.0.2"); s != chronicle.Lost {
					t.Errorf("the one that was joining is %q", s)
				}
			}
		}
	}
}

// A box that has lost its state judges who joins with the request, and nobody else: one that runs
// must not stop the others.
func TestABoxThatHasLostItsStateJudgesWhoJoins(t *testing.T) {
	for _, policy := range []string{"", "ack: quorum 1\n"} {
		files := func(receivers ...string) []byte {
			return []byte(strings.Replace(groupFile(receivers...), "mtu:", policy+"mtu:", 1))
		}
		f, b1, b2 := twoBoxes(t)
		f.create(string(files("10.1.0.2", "10.2.0.1")))
		b2.restart(false, true)
		b2.takes("10.2.0.1")
		b2.takes("10.2.0.2")
		const want = "the member at 10.2.0.2 has an address of this box; write the host's"
		if _, err := b1.Update(t.Context(), "g1", files("10.1.0.2", "10.2.0.1", "10.2.0.2")); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: %v", policy, err)
		}
		if _, err := b1.Update(t.Context(), "g1", files("10.1.0.2", "10.2.0.1", "10.2.0.3")); err != nil {
			t.Errorf("%q: %v", policy, err)
		}
	}
}
