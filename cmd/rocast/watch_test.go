package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
)

// until is an output that ends a command when it has been written so often.
type until struct {
	bytes.Buffer
	writes int
	stop   context.CancelFunc
}

func (u *until) Write(p []byte) (int, error) {
	if u.writes--; u.writes == 0 {
		u.stop()
	}
	return u.Buffer.Write(p)
}

// Every command that shows something shows it again with -w, also when the box is not healthy, and
// each time in one write.
func TestWatching(t *testing.T) {
	d := startDaemon(t)
	d.must(t, "group", "create", "-f", writeFile(t, "10.77.0.3", "10.77.0.9"))
	for command, line := range map[string]string{
		"group ls": "NAME ", "group show g1": "name ", "port ls": "PORT ", "status": "rocastd ", "stats": "PACKETS ", "drops": "none", "top": "GROUP ",
		"status --json": "{", "group ls --json": "{",
	} {
		ctx, stop := context.WithCancel(t.Context())
		out, errs := &until{writes: 3, stop: stop}, &bytes.Buffer{}
		args := append(strings.Fields(command), "--socket", d.socket)
		if command != "top" {
			args = append(args, "-w")
		}
		e := env{args: args, stdout: out, stderr: errs, every: time.Millisecond}
		exit := e.run(ctx)
		stop()
		if got := strings.Count("\n"+out.String(), "\n"+line); exit != exitOK || errs.Len() > 0 || got != 3 {
			t.Errorf("rocast %s -w: exit %d, %d times, %s\n%s", command, exit, got, errs, out)
		}
	}
	gone := &daemon{socket: "/nowhere"}
	gone.refused(t, exitUnreachable, api.Unreachable, "no daemon answers on /nowhere (no such file or directory); is rocastd running, and is this its socket?", "group", "ls", "-w")
}

// A watched command ends when the daemon does.
func TestWatchingEndsWithAnError(t *testing.T) {
	a := &app{env: &env{stdout: &bytes.Buffer{}, every: time.Millisecond}, watching: true}
	n := 0
	failed := errors.New("failed")
	err := a.everySecond(t.Context(), 0, func() error {
		if n++; n == 3 {
			return failed
		}
		return errUnhealthy
	})
	if !errors.Is(err, failed) || n != 3 {
		t.Errorf("%v after %d times", err, n)
	}
}

func TestOnlyATerminalIsCleared(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0) // a character device, as a terminal is
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if isTerminal(&bytes.Buffer{}) || isTerminal(file) || !isTerminal(null) {
		t.Error("a file or a buffer counts as a terminal, or a device does not")
	}
}
