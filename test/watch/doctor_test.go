package watch

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/doctor"
	"github.com/rocast/rocast/internal/testlab"
)

// diagnose runs rocast doctor on the box.
func (l *faulty) diagnose() (r doctor.Report) {
	l.t.Helper()
	file := l.path("report.json")
	testlab.Must(l.t, os.RemoveAll(file))
	said, err := l.Box.Exec(l.program, "doctor", "--seconds", "1", "--json", "-o", file, "--socket", l.daemon.Socket)
	text, readErr := os.ReadFile(file)
	if readErr != nil || json.Unmarshal(text, &r) != nil {
		l.t.Fatalf("%v %v: %s\n%s", err, readErr, said, text)
	}
	if (err == nil) != (r.Counts[doctor.Look] == 0) { // exit status 4: something needs a look
		l.t.Errorf("%v, and %v", err, r.Counts)
	}
	return r
}

// of returns what a check has found, or a finding without a verdict.
func of(r doctor.Report, check, what string) doctor.Finding {
	for _, f := range r.Findings {
		if f.Check == check && f.Of == what {
			return f
		}
	}
	return doctor.Finding{Check: check, Of: what, Seen: "nothing"}
}

// A doctor reads a real daemon and the ethtool of real interfaces: while data flows, and behind a
// cut cable.
func TestDoctorOfARealBox(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program, and waits until a cut cable shows")
	}
	l := newFaulty(t, rocast(t), &fault{})
	report := l.diagnose()
	for _, want := range []struct{ check, of, seen string }{
		{"daemon", "", "rocastd and rocast are "}, {"groups", "", "1 group ready; the kernel carries "}, {"link", "", "4 ports up"},
		{"driver", "eth1", "veth, version "}, {"queues", "eth1", "the NIC has "}, {"attach", "eth1", "native"}, {"copies", "eth1", "mode copy; "},
		{"mtu", "eth1", "path MTU of groups: g1 1024"}, {"offloads", "eth1", "on: rx-checksumming"}, {"headers", "", ": none"},
		{"rings", "eth1", "since the daemon started"}, {"nic-faults", "eth1", "since the driver was loaded"},
	} {
		if f := of(report, want.check, want.of); f.Verdict != doctor.OK || !strings.Contains(f.Seen, want.seen) {
			t.Errorf("%+v\nwant %s", f, want.seen)
		}
	}
	if f := of(report, "groups", ""); strings.Contains(f.Seen, " 0 packets a second") {
		t.Errorf("%+v", f)
	}
	if f := of(report, "pause", "eth1"); f.Verdict != doctor.Unclear { // no veth counts pause frames
		t.Errorf("%+v", f)
	}
	l.cable("down")
	l.waitFor("the group stands still", func() bool { return strings.Contains(l.rocast("rocast group ls"), "none gets on") })
	report = l.diagnose()
	if f := of(report, "link", "eth3"); f.Verdict != doctor.Look || f.Seen != "down: its link is down" {
		t.Errorf("%+v", f)
	}
	if f := of(report, "groups", "g1"); f.Verdict != doctor.Look || !strings.Contains(f.Seen, "who holds it up: "+third) {
		t.Errorf("%+v", f)
	}
}
