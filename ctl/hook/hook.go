// Package hook runs a program of the operator for each event, one after the other.
//
// The program gets the event as its arguments, in its environment and as JSON on its standard
// input: see docs/operate.md#a-program-for-each-event. What it writes goes to the log. A program
// that hangs is killed, and events that cannot wait any longer are missed and counted, so a hook
// never holds anything up.
package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/api"
)

const (
	// Timeout is how long the program may take for one event.
	Timeout = 10 * time.Second
	// MaxWaiting bounds the events that wait for the program. The oldest of more are missed.
	MaxWaiting = 256
	maxOutput  = 4096
	// drainFor is how long what the program has started may keep its output open.
	drainFor = time.Second
)

// Check says in one sentence why a file cannot be run as a hook.
func Check(path string) error {
	is, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("hook: there is no file %s; write it, or remove hook: from the config", path)
	case err != nil:
		return fmt.Errorf("hook: %w", err)
	case !is.Mode().IsRegular():
		return fmt.Errorf("hook: %s is not a file; name a program or a script", path)
	case is.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("hook: %s is not executable; chmod +x %[1]s", path)
	case is.Mode().Perm()&0o002 != 0:
		return fmt.Errorf("hook: every user may change %s; chmod o-w %[1]s", path)
	}
	return nil
}

// Source returns the events after a place. If there is none, it waits for one until ctx is done.
type Source func(ctx context.Context, at api.Place, group string) api.Events

// Runner runs the program at Path.
type Runner struct {
	path    string
	events  Source
	log     *zap.Logger
	timeout time.Duration

	mu    sync.Mutex
	state api.Hook
}

// New returns a Runner that does nothing until Run is called.
func New(path string, events Source, log *zap.Logger) *Runner {
	return &Runner{path: path, events: events, log: log, timeout: Timeout, state: api.Hook{Path: path}}
}

// State says what has become of the events until now.
func (r *Runner) State() api.Hook {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// Run runs the program for each event until ctx is done. The program that is running then is
// killed.
func (r *Runner) Run(ctx context.Context) {
	var at api.Place
	for {
		list := r.events(ctx, at, "")
		if ctx.Err() != nil {
			return
		}
		waiting := list.Events
		if len(waiting) == 0 {
			at = list.Place
			continue
		}
		next := waiting[max(0, len(waiting)-MaxWaiting)]
		if missed := next.Seq - at.Seq - 1; missed > 0 {
			r.miss(missed)
		}
		r.call(ctx, &next)
		at = api.Place{Run: list.Place.Run, Seq: next.Seq}
	}
}

func (r *Runner) miss(n uint64) {
	r.mu.Lock()
	r.state.Missed += n
	r.mu.Unlock()
	r.log.Warn("the hook has missed events, because too many waited for it", zap.String("hook", r.path), zap.Uint64("events", n))
}

// call runs the program for one event.
func (r *Runner) call(ctx context.Context, e *api.Event) {
	limited, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	var out output
	text, err := json.Marshal(e)
	if err == nil {
		cmd := exec.CommandContext(limited, r.path, string(e.Kind), subject(e))
		cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = "/", r.environment(e), bytes.NewReader(append(text, '\n')), &out, &out
		// The program and what it starts are one process group, so that all of it can be killed.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
		cmd.WaitDelay = drainFor
		err = cmd.Run()
	}
	if ctx.Err() == nil {
		r.judge(e, err, limited.Err() != nil, out.String())
	}
}

// judge counts and logs how the program has ended.
func (r *Runner) judge(e *api.Event, err error, late bool, output string) {
	r.mu.Lock()
	r.state.Runs++
	switch {
	case late:
		r.state.TimedOut++
	case err != nil:
		r.state.Failed++
	}
	r.mu.Unlock()
	fields := []zap.Field{zap.String("hook", r.path), zap.String("event", string(e.Kind)), zap.Uint64("seq", e.Seq)}
	if output != "" {
		fields = append(fields, zap.String("output", output))
	}
	switch {
	case late:
		r.log.Warn("the hook was killed, because it took too long", append(fields, zap.Duration("limit", r.timeout))...)
	case err != nil:
		r.log.Warn("the hook has failed", append(fields, zap.Error(err))...)
	case output != "":
		r.log.Info("the hook has written", fields...)
	}
}

// subject is what an event is about: a group, a port or a neighbour.
func subject(e *api.Event) string {
	for _, name := range []string{e.Group, e.Port, e.Neighbour} {
		if name != "" {
			return name
		}
	}
	return ""
}

// environment is all that the program has in its environment.
func (r *Runner) environment(e *api.Event) []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"ROCAST_SEQ=" + strconv.FormatUint(e.Seq, 10), "ROCAST_TIME=" + e.Time.UTC().Format(time.RFC3339Nano),
		"ROCAST_MISSED=" + strconv.FormatUint(r.State().Missed, 10), "ROCAST_KIND=" + string(e.Kind),
	}
	for _, v := range []struct{ name, value string }{
		{"GROUP", e.Group}, {"MEMBER", e.Member}, {"PORT", e.Port}, {"NEIGHBOUR", e.Neighbour}, {"CAUSE", e.Cause},
	} {
		if v.value != "" {
			env = append(env, "ROCAST_"+v.name+"="+v.value)
		}
	}
	if e.RemoteQPN != 0 {
		env = append(env, fmt.Sprint("ROCAST_REMOTE_QPN=", e.RemoteQPN))
	}
	if e.PSN != nil {
		env = append(env, fmt.Sprint("ROCAST_PSN=", *e.PSN))
	}
	if e.GoesOn {
		env = append(env, "ROCAST_GOES_ON=1")
	}
	return env
}

// output keeps the begin of what a program writes.
type output struct{ text []byte }

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.text = append(o.text, b[:min(len(b), maxOutput-len(o.text))]...)
	return len(b), nil
}

func (o *output) String() string { return strings.TrimSpace(strings.ToValidUTF8(string(o.text), "?")) }
