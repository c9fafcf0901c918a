package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// completions are what a shell is offered when Tab is pressed at the end of a command line.
func (d *daemon) completions(t *testing.T, line ...string) []string {
	t.Helper()
	var out, errs strings.Builder
	e := env{args: append([]string{"__complete", "--socket", d.socket}, line...), stdout: &out, stderr: &errs}
	if exit := e.run(t.Context()); exit != exitOK {
		t.Fatalf("%q: exit %d: %s", line, exit, errs.String())
	}
	words := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if noFiles := ":4"; words[len(words)-1] != noFiles {
		t.Errorf("%q: the shell adds the names of files: %q", line, words)
	}
	return words[:len(words)-1]
}

func TestTheShellCompletesNames(t *testing.T) {
	d := startDaemon(t)
	d.must(t, "group", "create", "-f", writeFile(t, "10.77.0.3", "10.77.0.9"))
	d.must(t, "perftest", "up", "--group-ip", "127.0.0.210", "--receivers", "10.77.0.2", "--port", "18599")
	d.must(t, "cm", "up", "--group-ip", "127.0.0.240", "--receivers", "10.77.0.2", "--port", "7175")
	group := []string{"g1\twaiting, 3 members"}
	waits := "waiting: the kernel is asking for the MAC of 10.77.0.9 on eth3"
	for _, c := range []struct {
		line string // its last word has been begun
		want []string
	}{
		{"group show ", group},
		{"group tree ", group},
		{"group rm ", group},
		{"group rm g1 ", nil},
		{"events --group ", group},
		{"capture --group ", group},
		{"capture --kind ", []string{"data", "feedback", "drop"}},
		{"trace inject 00 --port ", []string{"eth1\tup", "eth2\tup", "eth3\tup"}},
		{"member ready ", group},
		{"member ready g1 --ip ", []string{"10.77.0.2\tready", "10.77.0.9\t" + waits}},
		{"member ready g1 --qpn ", []string{"18\tready", "19\t" + waits}},
		{"member ready g1 --state ", []string{"RTR", "RTS"}},
		{"member ready --ip ", nil}, // of which group is not known yet
		{"member ready g2 --ip ", nil},
		{"perftest down --group-ip ", []string{"127.0.0.210"}},
		{"cm down --group-ip ", []string{"127.0.0.240"}},
		{"cm up --memory ", []string{"private-data", "perftest", "regions"}},
	} {
		if got := d.completions(t, strings.Split(c.line, " ")...); !slices.Equal(got, c.want) {
			t.Errorf("rocast %s\ngot  %q\nwant %q", c.line, got, c.want)
		}
	}
}

func TestWithoutADaemonNoNameIsCompleted(t *testing.T) {
	d := &daemon{socket: filepath.Join(os.TempDir(), "nowhere")}
	for _, line := range []string{"group show ", "member ready g1 --ip ", "perftest down --group-ip ", "cm down --group-ip "} {
		if got := d.completions(t, strings.Split(line, " ")...); len(got) > 0 {
			t.Errorf("rocast %s: %q", line, got)
		}
	}
}
