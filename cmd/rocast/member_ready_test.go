package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/api"
)

func TestAMemberConfirms(t *testing.T) {
	d := startDaemon(t)
	text, err := os.ReadFile("testdata/g1.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "g1.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(text), "{ip: 10.77.0.2,", "{confirm: true, ip: 10.77.0.2,")), 0o600); err != nil {
		t.Fatal(err)
	}
	made := d.must(t, "group", "create", "-f", file)
	ready := []string{"member", "ready", "g1", "--ip", "10.77.0.2", "--qpn", "18", "--state", "RTR"}
	d.refused(t, exitRefused, api.BadRequest, "QP 18 of 10.77.0.2 expects PSN 9, and the group file says psn: 5; create the QP again, or correct the group",
		append(ready, "--psn", "9")...)
	golden(t, "member_ready.txt", made+d.must(t, append(ready, "--psn", "5", "--remote-qpn", "1", "--mtu", "1024")...))
	var g api.Group
	if d.mustJSON(t, &g, ready...); !g.ClearToSend {
		t.Errorf("%+v", g)
	}
}
