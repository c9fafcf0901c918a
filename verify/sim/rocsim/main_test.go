package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func call(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	var stdout, stderr strings.Builder
	code = run(args, &stdout, &stderr)
	return code, stdout.String() + stderr.String()
}

func TestCampaign(t *testing.T) {
	code, out := call(t, "-seeds", "50", "-from", "1000", "-workers", "2")
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, out)
	}
	for _, want := range []string{"50 runs, seeds 1000 to 1049", "runs/s", "switch-crash", "success", "all invariants held in all runs"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

func TestReceivers(t *testing.T) {
	code, out := call(t, "-seeds", "5", "-receivers", "40")
	if code != 0 || !strings.Contains(out, "5 runs, seeds 0 to 4") || !strings.Contains(out, "all invariants held in all runs") {
		t.Errorf("exit %d\n%s", code, out)
	}
	code, out = call(t, "-replay", "1", "-receivers", "40", "-out", t.TempDir())
	if code != 0 || !strings.Contains(out, "h40 to switch") || strings.Contains(out, "h41") {
		t.Errorf("exit %d\n%s", code, out)
	}
	for _, n := range []string{"-1", "1024"} {
		if code, out := call(t, "-receivers", n); code != 2 || out != "rocsim: "+n+" receivers are not from 1 to 1023\n" {
			t.Errorf("exit %d\n%s", code, out)
		}
	}
}

func TestTree(t *testing.T) {
	code, out := call(t, "-tree", "-seeds", "20", "-from", "5")
	if code != 0 || !strings.Contains(out, "20 runs, seeds 5 to 24") || !strings.Contains(out, "all invariants held in all runs") {
		t.Errorf("exit %d\n%s", code, out)
	}
	code, out = call(t, "-tree", "-replay", "7", "-lines", "3")
	if code != 0 || !strings.Contains(out, "the hosts are at boxes [0") || !strings.Contains(out, "all invariants held") {
		t.Errorf("exit %d\n%s", code, out)
	}
	if code, out := call(t, "-tree", "-receivers", "4"); code != 2 || out != "rocsim: -tree goes with neither -receivers nor -table\n" {
		t.Errorf("exit %d\n%s", code, out)
	}
}

func TestReplayWritesFrames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "build")
	code, out := call(t, "-replay", "7", "-lines", "3", "-out", dir)
	if code != 0 || !strings.Contains(out, "seed 7:") || !strings.Contains(out, "all invariants held") {
		t.Errorf("exit %d\n%s", code, out)
	}
	info, err := os.Stat(filepath.Join(dir, "sim-7.pcapng"))
	if err != nil || info.Size() == 0 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestBadFlag(t *testing.T) {
	if code, out := call(t, "-sedes", "5"); code != 2 || !strings.Contains(out, "-seeds") {
		t.Errorf("exit %d\n%s", code, out)
	}
}

func TestTable(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	code, out := call(t, "-table", "1", "-receivers", "1")
	if code != 0 || strings.Count(out, "Receivers: ") != 1 || !strings.HasPrefix(out, "Receivers: 1. ") || !strings.Contains(out, "| unicast |") {
		t.Errorf("exit %d\n%s", code, out)
	}
	for want, args := range map[string][]string{
		"rocsim: -workers and -table need a number from 1 on\n":              {"-table", "0"},
		"rocsim: -workers and -table need a number from 1 on\n ":             {"-workers", "0"},
		"rocsim: there is no table for 5 receivers, only for [1 3 64 512]\n": {"-table", "1", "-receivers", "5"},
	} {
		if code, out := call(t, args...); code != 2 || out != strings.TrimSuffix(want, " ") {
			t.Errorf("exit %d\n%s", code, out)
		}
	}
}

func TestCongestion(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	code, out := call(t, "-congestion")
	if code != 0 || strings.Count(out, "\n|---|") != 3 || !strings.Contains(out, "| 7 | DCQCN |") || !strings.HasPrefix(out, "| from, ms |") {
		t.Errorf("exit %d\n%s", code, out)
	}
}

func TestMatrix(t *testing.T) {
	code, out := call(t, "-matrix", "-seeds", "2", "-from", "9", "-only", "event=kill shape=tree")
	if code != 0 || !strings.Contains(out, "seeds 9 to 10") || !strings.Contains(out, "all cells hold that are not known to fail") || !strings.Contains(out, "runs a minute") {
		t.Errorf("exit %d\n%s", code, out)
	}
	if code, out := call(t, "-matrix", "-only", "event=kil"); code != 2 || out != "rocsim: event has no value \"kil\"\n" {
		t.Errorf("exit %d\n%s", code, out)
	}
	if code, out := call(t, "-matrix", "-only", "shape=etcd"); code != 2 || out != "rocsim: no simulated cell has shape=etcd\n" {
		t.Errorf("exit %d\n%s", code, out)
	}
	code, out = call(t, "-cell", "event=cut family=ipv6", "-from", "4", "-lines", "3")
	if code != 0 || !strings.Contains(out, "IPv6 true") || !strings.Contains(out, "cut of ") || !strings.Contains(out, "all invariants held") {
		t.Errorf("exit %d\n%s", code, out)
	}
	if code, out := call(t, "-cell", "shape=etcd"); code != 2 || out != "rocsim: the cell is not simulated: shape=etcd is not run there\n" {
		t.Errorf("exit %d\n%s", code, out)
	}
}
