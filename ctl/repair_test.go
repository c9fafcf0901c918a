package ctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab/etcd"
)

const noRepairMemory = "repair: local needs memory, and rocastd.yaml says repairMemory: 0; write a size there, or repair: off into the group file"

// offByDefault is what a note says of a group whose file does not ask for repair.
const offByDefault = " (an update cannot change what the file says of repair: create the group again)"

// repairs checks whether g1 has repair at a box, as the data path has it and as it is shown.
func (w *world) repairs(t *testing.T, when string, want bool) {
	t.Helper()
	policy, notes := "off", []string{"repair is off, although that is not the default: " + noRepairMemory + offByDefault}
	if want {
		policy, notes = "local", nil
	}
	g, err := w.Group("g1")
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	published := w.sw.Table().Group(w.groups.Named("g1").ID)
	if published == nil || published.Policy.Repair.String() != policy {
		t.Fatalf("%s: published %+v", when, published)
	}
	if g.Policy.Repair != policy || strings.Join(g.Notes, "; ") != strings.Join(notes, "; ") || g.State == api.Failed {
		t.Errorf("%s: %s, policy %+v, notes %q", when, g.State, *g.Policy, g.Notes)
	}
}

// Where there is no memory for repair, a group stays without whatever changes.
func TestAGroupStaysWithoutRepair(t *testing.T) {
	w := openWorldOn(t, t.TempDir(), ctltest.NewRetaining(0, "eth1", "eth2", "eth3"), ctltest.NewAddresses())
	w.run(t)
	w.create(t, g1)
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.2": ctltest.Hop(2, "eth2", 1500, 22)})
	if p := w.path("10.77.0.2", 1); p.L2[5] != 22 {
		t.Errorf("the next hop is %x", p.L2)
	}
	w.repairs(t, "with another next hop", false)
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.3": {Interface: 3, Reason: "the kernel is asking"}})
	w.repairs(t, "without a next hop", false)
	w.update(t, g1+receiver4)
	w.repairs(t, "with another receiver", false)
	w.news(feedback.NoteEvicted, "10.77.0.4", 1, 1007)
	w.repairs(t, "without a receiver", false)
}

// With path MTU 4096 a window takes twice the memory.
func TestAPathMTUForWhichThereIsNoMemory(t *testing.T) {
	w := openWorldOn(t, t.TempDir(), ctltest.NewRetaining(1024, "eth1", "eth2", "eth3"), ctltest.NewAddresses())
	away := nexthop.Hop{Interface: 1, Reason: "the kernel is asking"} // so that its MTU does not matter
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.1": away, "10.77.0.2": away, "10.77.0.3": away})
	g := w.create(t, strings.Replace(g1, "mtu: 1024", "mtu: 4096", 1))
	if g.Policy.Repair != "off" || len(g.Notes) != 1 || !strings.Contains(g.Notes[0], "has room for 512 of them") {
		t.Errorf("%+v, notes %q", g.Policy, g.Notes)
	}
	if g := w.create(t, anotherGroup("g2", 2)); g.Policy.Repair != "local" || len(g.Notes) > 0 {
		t.Errorf("%+v, notes %q", g.Policy, g.Notes)
	}
}

// Regions of a table come to a group without repair.
func TestATableComesToAGroupWithoutRepair(t *testing.T) {
	f := newSmallTree(t, "b1")
	f.create(tableFile(nearReceivers...))
	f.mustChange(adding(0x1000))
	f.hasTable(0x1000)
	f.box("b1").repairs(t, "with a region", false)
}

// A daemon that starts again has another size of repairMemory. A group has repair if there is
// memory for it; one whose file asks for repair fails without.
func TestRepairAfterARestart(t *testing.T) {
	for _, joins := range []bool{false, true} {
		w := newWorld(t)
		w.create(t, g1)
		w.create(t, "repair: local\n"+anotherGroup("g2", 2))
		if joins { // after a restart it joins a group that runs
			w.update(t, g1+receiver4)
		}
		w.repairs(t, "at first", true)
		for _, chunks := range []int{0, porttest.RepairChunks, 0} {
			w.sw.Carry("g1", 1234)
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			w.Store.Close()
			w = openWorldOn(t, w.dir, ctltest.NewRetaining(chunks, "eth1", "eth2", "eth3"), ctltest.NewAddresses())
			w.repairs(t, "after a restart", chunks > 0)
			if joins != (w.path("10.77.0.4", 1) != nil) {
				t.Errorf("another receiver joins: %v", !joins)
			}
			g, err := w.Group("g2")
			if err != nil || (g.State == api.Failed) != (chunks == 0) || chunks == 0 && !strings.Contains(g.Reason, noRepairMemory) {
				t.Errorf("%d buffers: %s, %s, %v", chunks, g.State, g.Reason, err)
			}
			if g.Policy.Repair != "local" {
				t.Errorf("%d buffers: the group that asks for repair is shown with %+v", chunks, g.Policy)
			}
		}
	}
}

// newSmallTree is newTree where these boxes have no memory for repair.
func newSmallTree(t *testing.T, names ...string) *fabric {
	t.Helper()
	f := newTree(t)
	for _, name := range names {
		f.box(name).small = true
		hops := f.box(name).hops
		f.box(name).Store.Close()
		f.box(name).open(t.TempDir())
		f.box(name).hops.CopyFrom(hops)
	}
	return f
}

// Each box of a tree has repair if it has the memory, and none keeps the others from it. A group
// whose file asks for repair is refused by the box that has not.
func TestABoxWithoutMemoryIsPartOfATree(t *testing.T) {
	for _, small := range []string{"b1", "b2", "b3"} {
		f := newSmallTree(t, small)
		f.create(groupFile(everywhere...))
		check := func(when string) {
			t.Helper()
			f.check2(wholeTree)
			for _, b := range f.boxes {
				b.repairs(t, small+" has no memory, "+b.name+" "+when, b.name != small)
			}
		}
		check("from the start")
		for _, b := range f.boxes {
			b.restart(false, false)
		}
		f.tendAll(time.Now())
		check("after a restart")
		if err := f.box("b1").Remove("g1"); err != nil {
			t.Fatal(err)
		}
		want := []string{noRepairMemory}
		if small != "b1" {
			want = append(want, small)
		}
		f.refused("repair-attempts: 3\n"+groupFile(everywhere...), want...)
		f.nothingLeft()
	}
}

// A branch that its box has stored without repair has it after a restart with memory, and the other
// way round.
func TestABoxOfATreeGetsMemory(t *testing.T) {
	f := newSmallTree(t, "b2")
	f.create(groupFile(everywhere...))
	for _, small := range []bool{false, true} {
		f.box("b2").small = small
		f.box("b2").restart(true, false)
		f.box("b2").repairs(t, "after a restart", !small)
		f.tendAll(time.Now())
		f.check2(wholeTree)
	}
}

// Boxes that share their groups read the same text. The one that has memory has repair.
func TestRepairWhereBoxesShareGroups(t *testing.T) {
	t.Parallel()
	for _, small := range []string{"b1", "b2"} {
		cluster := etcd.Start(t, 1)
		f := newFabric(t, 2, "b1 b2")
		f.box(small).small = true
		f.box(small).Store.Close()
		f.box(small).open(t.TempDir())
		b1, b2 := f.box("b1"), f.box("b2")
		b1.route(2, "b2")
		b2.route(1, "b1")
		b1.share(cluster)
		b2.share(cluster)
		b2.create(t, groupFile("10.1.0.2", "10.2.0.1"))
		f.check("b1: 10.1.0.2 b2 | b2: 10.2.0.1")
		b1.repairs(t, small+" has no memory, b1", small != "b1")
		b2.repairs(t, small+" has no memory, b2", small != "b2")
		if _, err := b2.Update(t.Context(), "g1", []byte(groupFile("10.1.0.2", "10.1.0.3", "10.2.0.1"))); err != nil {
			t.Fatal(err)
		}
		b1.repairs(t, small+" has no memory, b1 with another receiver", small != "b1")
		if err := b2.Remove("g1"); err != nil {
			t.Fatal(err)
		}
		b2.eventually("g1 is gone", b2.lacks("g1"))
		asks := "repair: local\n" + groupFile("10.1.0.2", "10.2.0.1")
		if _, err := b2.Create(t.Context(), []byte(asks)); err == nil || !strings.Contains(err.Error(), noRepairMemory) {
			t.Errorf("%s has no memory, and a group asks for repair: %v", small, err)
		}
	}
}

const (
	forceNeeds  = "source-switch is force, which needs repair, and "
	quorumNeeds = "ack is a quorum and several members may send, which needs repair, and "
	noMemory    = "this box has no memory for that; write a larger repairMemory into rocastd.yaml"
)

// A group that must not be without repair is refused where there is no memory for it, whatever
// makes it so, and fails after a restart without that memory.
func TestAGroupThatNeedsRepairHasIt(t *testing.T) {
	w := openWorldOn(t, t.TempDir(), ctltest.NewRetaining(0, "eth1", "eth2", "eth3"), ctltest.NewAddresses())
	for text, want := range map[string]string{
		"source-switch: force\n" + g1: "line 2: " + forceNeeds + noMemory,
		"ack: quorum 1\n" + bothG1:    "line 2: " + quorumNeeds + noMemory,
	} {
		if _, err := w.Create(t.Context(), []byte(text)); err == nil || err.Error() != want {
			t.Errorf("\ngot  %v\nwant %s", err, want)
		}
	}
	one := "ack: quorum 1\n" + strings.Replace(bothG1, ", sendPSN: 2000, role: both", "", 1)
	w.create(t, one)
	text := one + "  - {ip: 10.77.0.4, qpn: 20, psn: 9, sendPSN: 4000, role: both}\n"
	if _, err := w.Update(t.Context(), "g1", []byte(text)); err == nil || err.Error() != "line 2: "+quorumNeeds+noMemory {
		t.Error(err)
	}
	if f := w.groups.Named("g1").File; len(f.Receivers) != 3 || w.path("10.77.0.4", 1) != nil {
		t.Errorf("it has become %+v", f)
	}

	w = newWorld(t)
	w.create(t, text)
	for _, chunks := range []int{0, porttest.RepairChunks} {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		w.Store.Close()
		w = openWorldOn(t, w.dir, ctltest.NewRetaining(chunks, "eth1", "eth2", "eth3"), ctltest.NewAddresses())
		want := ""
		if chunks == 0 {
			want = "line 2: " + quorumNeeds + noMemory + "; rocastd tries again every 5s"
		}
		if g, err := w.Group("g1"); err != nil || (g.State == api.Failed) != (chunks == 0) || chunks == 0 && g.Reason != want {
			t.Errorf("%d buffers: %s, %s, %v", chunks, g.State, g.Reason, err)
		}
	}
}

// An older release has accepted and stored such groups. They fail with the sentence, and are there
// to be seen and removed.
func TestAStoredGroupThatNeedsRepairFails(t *testing.T) {
	for keys, want := range map[string]string{
		"source-switch: force\nrepair: off\n": "line 2: " + forceNeeds + "repair is off; use repair: local; remove the group and create it again",
		"ack: quorum 1\nrepair: off\n":        "line 2: " + quorumNeeds + "repair is off; use repair: local; remove the group and create it again",
	} {
		w := newWorld(t)
		if _, err := w.Create(t.Context(), []byte(keys+bothG1)); err == nil {
			t.Errorf("%q is accepted", keys)
		}
		dir := filepath.Join(w.dir, "groups")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "g1.yaml"), []byte(keys+bothG1), 0o600); err != nil {
			t.Fatal(err)
		}
		w = w.restart(t, true)
		if g, err := w.Group("g1"); err != nil || g.State != api.Failed || g.Reason != want {
			t.Errorf("\n%s %s, %v\nwant %s", g.State, g.Reason, err, want)
		}
		if err := w.Remove("g1"); err != nil {
			t.Error(err)
		}
		w.create(t, bothG1)
	}
}

// A box behind the root carries a part of such a group. It has the memory, or the group is refused;
// and it does not hear of the quorum.
func TestABranchThatNeedsRepair(t *testing.T) {
	f := newSmallTree(t, "b2")
	quorum := strings.Replace(groupFile("10.1.0.2", "10.2.0.1"), "mtu:", "ack: quorum 1\nmtu:", 1)
	quorum = strings.Replace(quorum, "psn: 21", "psn: 21, sendPSN: 5, role: both", 1)
	for _, text := range []string{quorum, strings.Replace(groupFile("10.1.0.2", "10.2.0.1"), "mtu:", "source-switch: force\nmtu:", 1)} {
		f.refused(text, noRepairMemory)
		f.nothingLeft()
	}
	f.box("b2").small = false
	f.box("b2").restart(true, false)
	f.create(quorum)
	f.box("b2").small = true
	f.box("b2").restart(true, false)
	if g, err := f.box("b2").Group("g1"); err != nil || g.State != api.Failed || !strings.Contains(g.Reason, noRepairMemory) {
		t.Errorf("%s %s, %v", g.State, g.Reason, err)
	}
}
