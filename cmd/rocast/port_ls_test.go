package main

import (
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/dataplane"
)

func TestPortList(t *testing.T) {
	d := startDaemon(t)
	golden(t, "port_ls.txt", d.must(t, "port", "ls"))
	var list api.Ports
	if d.mustJSON(t, &list, "port", "ls"); len(list.Ports) != 3 || list.Ports[2].Name != "eth3" || list.Ports[2].IfIndex != 3 {
		t.Errorf("%+v", list)
	}
}

func TestPortListTellsWhyTheKernelEngineLeavesAPort(t *testing.T) {
	d := startDaemon(t)
	d.sw.SetNoFanOut(1, "its driver takes no frames")
	const want = "\nThe kernel engine cannot send by eth2: its driver takes no frames\n"
	if out := d.must(t, "port", "ls"); !strings.HasSuffix(out, want) {
		t.Errorf("\n%s", out)
	}
}

func TestPortListTellsWhyAPortIsNotOpen(t *testing.T) {
	d := startDaemon(t)
	d.sw.SetPort(1, dataplane.PortGone, 0)
	out := d.must(t, "port", "ls")
	if !strings.Contains(out, "\neth2  gone ") || !strings.HasSuffix(out, "\neth2 is gone: no interface has this name\n") {
		t.Errorf("\n%s", out)
	}
}

func TestPortListTellsWhoseTagsAPortTakesOut(t *testing.T) {
	d := startDaemon(t)
	d.sw.SetTakesTags(1, "")
	d.sw.SetTakesTags(2, "eth3.100")
	const want = " eth3 takes the VLAN tags of eth3.100 out of frames before rocast sees them, so that rocast refuses the frames; " +
		"run ethtool -K eth3 rxvlan off txvlan off"
	if out := oneLine(d.must(t, "port", "ls")); !strings.HasSuffix(out, want) || strings.Contains(out, "ethtool -K eth2") {
		t.Errorf("\n%s", out)
	}
}

func TestPortListTellsWhyAPortHasFallenBack(t *testing.T) {
	d := startDaemon(t)
	d.sw.SetFallback(1, "its driver is odd")
	if out := d.must(t, "port", "ls"); !strings.HasSuffix(out, "\neth2 works in generic mode: its driver is odd\n") {
		t.Errorf("\n%s", out)
	}
}

// oneLine is what a text says, without its lines.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
