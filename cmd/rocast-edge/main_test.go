package main

import (
	"bytes"
	"strings"
	"testing"
)

// Wrong arguments have a status of their own, by which systemd knows that another start would fail
// in the same way, and a sentence that says what to write.
func TestWrongArguments(t *testing.T) {
	for args, want := range map[string]string{
		"run":                             "no box is named: write --box ADDRESS:PORT, as hosts: listen has it in the box's rocastd.yaml",
		"run --box 10.77.3.254":           "--box 10.77.3.254: write ADDRESS:PORT, as hosts: listen has it in the box's rocastd.yaml",
		"run --box [fd77::1]:1 --ip eth0": "--ip eth0: write an address of this host",
		"run --box 1.2.3.4:5 --attach tc": "--attach tc: write one of these: xdp native frags, xdp native, tcx, tc clsact, xdp generic",
		"run eth0":                        `unknown command "eth0" for "rocast-edge run"`,
		"stop":                            `unknown command "stop" for "rocast-edge"`,
		"status --socket x":               "unknown flag: --socket",
	} {
		var stdout, stderr bytes.Buffer
		exit := execute(t.Context(), strings.Fields(args), &stdout, &stderr)
		if got := strings.TrimSpace(stderr.String()); exit != exitUsage || got != "rocast-edge: "+want {
			t.Errorf("rocast-edge %s: exit status %d, %q, want %q", args, exit, got, want)
		}
	}
}

// Without a program that is pinned there is nothing to show or to remove, and that is no error.
func TestNothingIsThere(t *testing.T) {
	none := t.TempDir() + "/none"
	for command, want := range map[string]string{"status": "no program is attached\nrocast-edge run has not been started\n", "remove": ""} {
		var stdout, stderr bytes.Buffer
		if exit := execute(t.Context(), []string{command, "--pins", none, "--state", none}, &stdout, &stderr); exit != exitOK || stdout.String() != want {
			t.Errorf("rocast-edge %s: exit status %d, %q, %q", command, exit, &stdout, &stderr)
		}
	}
}

func TestTheManPage(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if exit := execute(t.Context(), []string{"man"}, &stdout, &stderr); exit != exitOK || !strings.HasPrefix(stdout.String(), `.TH ROCAST-EDGE 8 "" `) {
		t.Errorf("exit status %d, %.100q, %q", exit, &stdout, &stderr)
	}
}
