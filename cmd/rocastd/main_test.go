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
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good.yaml", "ports: [later]\n")
	glob := write("glob.yaml", "ports: ['nothing-has-this*']\n")
	noPort := write("egress.yaml", "ports: [eth1]\negress: [{port: eth2, limit: 1MiB}]\n")
	noKey := write("api.yaml", "ports: [eth1]\napi: {listen: \"127.0.0.1:1\", cert: /none, key: /none, ca: /none}\n")
	noCert := write("etcd.yaml", "ports: [eth1]\nstore: etcd\netcd: {endpoints: [\"https://127.0.0.1:1\"], ca: /none}\n")
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
		{"--check --config " + good, exitOK, good + ": rocastd can start with this config\n", ""},
		{"--check --config " + bad, exitConfig, "", "rocastd: " + bad + `: line 2: key "prots" is unknown here`},
		{"--check --config " + noGroup, exitConfig, "", "rocastd: socketGroup: group: unknown group nobody-has-this"},
		{"--check --config " + glob, exitConfig, "", "rocastd: ports: no interface matches nothing-has-this*"},
		{"--check --config " + noPort, exitConfig, "", "rocastd: egress: no port matches eth2"},
		{"--check --config " + noKey, exitConfig, "", "rocastd: api: read the certificate /none and its key"},
		{"--check --config " + noCert, exitConfig, "", "rocastd: etcd: "},
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
