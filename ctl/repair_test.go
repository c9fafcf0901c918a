package ctl

import (
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/feedback"
)

// roomy is a switch that says how many bytes a group can retain.
type roomy struct {
	*ctltest.Switch
	bytes int
}

func (r roomy) RepairRoom() int { return r.bytes }

// A group whose file does not mention repair has it wherever there is memory for it, and so has the
// group of a perftest run. A box without memory carries them without repair.
func TestRepairIsTheDefaultWhereThereIsMemory(t *testing.T) {
	for _, c := range []struct {
		bytes, window int
		repair        feedback.RepairPolicy
	}{
		{64 << 20, 1024, feedback.RepairLocal}, {400 << 10, 100, feedback.RepairLocal}, {0, 0, feedback.RepairOff},
	} {
		w := newWorld(t)
		w.Switch = roomy{w.sw, c.bytes}
		check := func(when string) {
			t.Helper()
			if p := w.published(t).Policy; p.Repair != c.repair || p.RepairWindow != c.window {
				t.Errorf("%d bytes, %s: repair %v with a window of %d", c.bytes, when, p.Repair, p.RepairWindow)
			}
		}
		w.create(t, g1)
		check("created")
		if _, err := w.Update(t.Context(), "g1", []byte(g1)); err != nil {
			t.Errorf("%d bytes: the same file is refused as an update: %v", c.bytes, err)
		}
		check("updated")
		if err := w.Remove("g1"); err != nil {
			t.Fatal(err)
		}
		if err := (helperGroups{w.Controller}).Create(t.Context(), runFile(t)); err != nil {
			t.Fatal(err)
		}
		check("a run")
	}
}

// What the file leaves open is decided again when the daemon starts: rocastd.yaml may have changed.
func TestARestoredGroupRepairsAsFarAsThereIsMemory(t *testing.T) {
	w := newWorld(t)
	w.Switch = roomy{w.sw, 400 << 10}
	w.create(t, g1)
	if p := w.published(t).Policy; p.RepairWindow != 100 {
		t.Fatalf("a window of %d", p.RepairWindow)
	}
	if p := w.restart(t, true).published(t).Policy; p.Repair != feedback.RepairLocal || p.RepairWindow != feedback.DefaultRepairWindow {
		t.Errorf("after the restart, with more memory: repair %v with a window of %d", p.Repair, p.RepairWindow)
	}
}

// A box without memory for repair carries its part of a group that other boxes repair. What the
// file says about repair holds for all boxes.
func TestEachBoxRepairsWithItsOwnMemory(t *testing.T) {
	f := newTree(t)
	f.box("b3").Switch = roomy{f.box("b3").sw, 0}
	f.create(groupFile(everywhere...))
	for _, b := range f.boxes {
		want := feedback.RepairLocal
		if b.name == "b3" {
			want = feedback.RepairOff
		}
		if got := b.published("g1").Policy.Repair; got != want {
			t.Errorf("box %s: repair %v, want %v", b.name, got, want)
		}
	}
	if err := f.box("b1").Remove("g1"); err != nil {
		t.Fatal(err)
	}
	f.create(strings.Replace(groupFile(everywhere...), "mtu: 1024", "mtu: 1024\nrepair: off", 1))
	for _, b := range f.boxes {
		if got := b.published("g1").Policy.Repair; got != feedback.RepairOff {
			t.Errorf("repair: off, and box %s has %v", b.name, got)
		}
	}
}
