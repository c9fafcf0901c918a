package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheCommandLine(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("ports: [eth1]\nprots: [eth2]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	noGroup := filepath.Join(t.TempDir(), "group.yaml")
	if err := os.WriteFile(noGroup, []byte("ports: [eth1]\nsocketGroup: nobody-has-this\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args           string
		exit           int
		stdout, stderr string // what they contain
	}{
		{"--help", exitOK, "rocastd [flags]", ""},
		{"--version", exitOK, "rocastd version ", ""},
		{"man", exitOK, `.TH ROCASTD 8 "" "rocast `, ""},
		{"--confg x", exitUsage, "", "rocastd: unknown flag: --confg"},
		{"start", exitUsage, "", `rocastd: unknown command "start" for "rocastd"`},
		{"--config /none.yaml", exitConfig, "", "rocastd: read the config: open /none.yaml: no such file or directory; write this file, or name another one with --config"},
		{"--config " + bad, exitConfig, "", "rocastd: " + bad + `: line 2: key "prots" is unknown here; the known keys are ports,`},
		{"--config " + noGroup, exitConfig, "", "rocastd: socketGroup: group: unknown group nobody-has-this; create the group with groupadd, or write another one"},
	} {
		var stdout, stderr bytes.Buffer
		exit := run(context.Background(), strings.Fields(c.args), &stdout, &stderr)
		if exit != c.exit || !strings.Contains(stdout.String(), c.stdout) || !strings.Contains(stderr.String(), c.stderr) {
			t.Errorf("rocastd %s: exit %d\nstdout %s\nstderr %s", c.args, exit, stdout.String(), stderr.String())
		}
	}
}
