package main

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/feedback"
)

func TestGroupShow(t *testing.T) {
	d := startDaemon(t)
	d.must(t, "group", "create", "-f", writeFile(t, "10.77.0.3", "10.77.0.4"))
	d.sw.Carry("g1", 1234)
	shown, _, found := strings.Cut(d.must(t, "group", "show", "g1"), "\nCOUNTER")
	if !found {
		t.Error("no counters are shown")
	}
	golden(t, "group_show.txt", shown)

	var g api.Group
	d.mustJSON(t, &g, "group", "show", "g1")
	if g.Progress == nil || g.Progress.Sent != 1234 || len(g.Members[2].VLANs) != 1 || g.Members[2].VLANs[0] != 100 {
		t.Errorf("%+v", g)
	}
	if _, there := g.Counters["forwarded"]; !there {
		t.Errorf("counters %v", g.Counters)
	}
}

func TestGroupShowSaysWhatIsRepaired(t *testing.T) {
	d := startDaemon(t)
	file := writeFile(t, "10.77.0.3", "10.77.0.4")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(text, "\nrepair: local\nrepair-window: 100\nrepair-timer-floor: 200us\nrepair-timer-cap: 16ms\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	d.must(t, "group", "create", "-f", file)
	d.sw.Carry("g1", 1234)
	d.sw.Repair("10.77.0.4", feedback.PathSnapshot{Acked: 1200, Repairing: true, Cursor: 1210, Repaired: 17, Probes: 2, GivenUp: 1}, 5)
	shown, _, _ := strings.Cut(d.must(t, "group", "show", "g1"), "\nCOUNTER")
	golden(t, "group_show_repair.txt", shown)

	var g api.Group
	d.mustJSON(t, &g, "group", "show", "g1")
	want := api.Repair{Repairing: true, Cursor: 1210, Lag: 34, Repaired: 17, Recently: 5, Probes: 2, GivenUp: 1}
	if got := g.Members[2].Repair; got == nil || *got != want || g.Members[0].Repair != nil {
		t.Errorf("%+v", g.Members)
	}
}

func TestGroupShowSaysWhichMembersAreBoxes(t *testing.T) {
	d := startDaemon(t)
	d.addresses.Box[netip.MustParseAddr("10.77.0.99")] = true
	file := writeFile(t, "10.77.0.3", "10.77.0.4", "qpn: 19,", "qpn: 19, remoteIP: 10.77.0.99, remoteQPN: 500, receivers: 3,")
	d.must(t, "group", "create", "-f", file)
	shown, _, _ := strings.Cut(d.must(t, "group", "show", "g1"), "\nCOUNTER")
	golden(t, "group_show_link.txt", shown)

	var g api.Group
	d.mustJSON(t, &g, "group", "show", "g1")
	if m := g.Members[2]; m.RemoteIP != "10.77.0.99" || m.RemoteQPN != 500 || m.Receivers != 3 {
		t.Errorf("%+v", m)
	}
}

func TestGroupShowSaysWhyAMemberIsWaitedFor(t *testing.T) {
	d := startDaemon(t)
	d.must(t, "group", "create", "-f", writeFile(t, "10.77.0.3", "10.77.0.9"))
	shown, _, _ := strings.Cut(d.must(t, "group", "show", "g1"), "\nCOUNTER")
	golden(t, "group_show_waiting.txt", shown)
}

func TestGroupShowOfNone(t *testing.T) {
	startDaemon(t).refused(t, exitRefused, api.NotFound, `there is no group "g9"; rocast group ls lists the groups`, "group", "show", "g9")
}
