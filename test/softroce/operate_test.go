//go:build softroce

package softroce

import (
	"context"
	"flag"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/test/softroce/control"
	"github.com/rocast/rocast/test/softroce/wire"
)

var update = flag.Bool("update", false, "write the session into docs/operate.md")

const (
	operateLimit = 10 * time.Minute // of the whole session
	stepLimit    = 2 * time.Minute
	stepPoll     = 500 * time.Millisecond
)

// TestOperate plays the session of docs/operate.md in a Debian that has just booted.
func TestOperate(t *testing.T) {
	deb := makeDeb(t, "v1.0.0")
	l := openLab(t, Config{Kernel: "6.1", Guests: 4, MTU: MTU1024, System: "bookworm"})
	ctx := testContext(t, operateLimit)
	o := &operator{Lab: l, box: l.Box.(*System), running: map[string]*control.Process{}}
	o.box.copyIn(t, ctx, deb)
	for _, s := range session {
		ctx, cancel := context.WithTimeout(ctx, stepLimit)
		defer cancel()
		began := time.Now()
		if o.group != "" {
			s.command = strings.ReplaceAll(s.command, groupOfSession, o.group)
		}
		output := o.take(t, ctx, s)
		if o.group == "" {
			o.group = groupName.FindString(output)
		}
		if !s.hidden {
			fmt.Fprintf(&o.text, "%s\n%s", s.prompt(), s.page(output))
		}
		fmt.Printf("%s\n%s", s.prompt(), output)
		t.Logf("%.1f s: %s", time.Since(began).Seconds(), s.prompt())
	}
	if *update {
		must(t, writePage(sessionBegin, sessionEnd, o.text.String()))
	}
}

// operator is a person with a terminal at the box and at every host.
type operator struct {
	*Lab
	box     *System
	running map[string]*control.Process // by the place
	group   string                      // the name of the group, when group ls has shown it
	text    strings.Builder
}

// take takes a step, and returns the output that has all it must have. If the time is up it shows
// the last attempt that the end of the time has not cut.
func (o *operator) take(t *testing.T, ctx context.Context, s step) string {
	t.Helper()
	if s.at == "" {
		o.happens(s.happen)
		return ""
	}
	var output, wrong string
	var err error
	for tried := false; ; tried = true {
		next, nextErr := o.run(ctx, s)
		if ctx.Err() == nil || !tried {
			output, wrong, err = next, s.wrong(next), nextErr
		}
		if ctx.Err() == nil && err == nil && wrong == "" {
			return output
		}
		select {
		case <-time.After(stepPoll):
		case <-ctx.Done():
		}
		if ctx.Err() != nil || s.command == waitCommand || len(s.wants) == 0 {
			for at, p := range o.running {
				t.Logf("%s:\n%s", at, p.Stdout)
			}
			t.Fatalf("%s\n%serror: %v; the output %s", s.prompt(), output, err, wrong)
		}
	}
}

// run runs the command of a step. The output is what a terminal would show.
func (o *operator) run(ctx context.Context, s step) (string, error) {
	c, shell := o.box.computer, []string{"bash", "-c", "cd; exec 2>&1; " + s.command}
	if n, ok := strings.CutPrefix(s.at, "host "); ok {
		number, err := strconv.Atoi(n)
		if err != nil {
			return "", err
		}
		c, shell = o.Guests[number-1].computer, []string{"dash", "-c", "exec 2>&1; " + s.command}
	}
	p := o.running[s.at]
	if s.command != waitCommand {
		var err error
		if p, err = c.Start(shell...); err != nil {
			return "", err
		}
	}
	if s.meanwhile {
		o.running[s.at] = p
		if !strings.Contains(s.command, "10.77.0.100") { // a server
			return "", o.listens(ctx, c)
		}
		return "", nil
	}
	exit, err := p.Wait(ctx)
	if err == nil && !exit.OK() && !s.unhealthy {
		err = fmt.Errorf("%v", exit)
	}
	return tidy(p.Stdout.String()), err
}

// listens returns when a client can connect to the server.
func (o *operator) listens(ctx context.Context, c *computer) error {
	_, err := c.Run(ctx, "dash", "-c", fmt.Sprintf("until rdma resource show cm_id | grep LISTEN | grep -q :%d; do sleep 0.1; done", perftestPort))
	return err
}

// The cable of host 3 is cut at the host's end: the port of the box keeps its carrier, as behind a
// switch.
func (o *operator) happens(e event) {
	cable := o.Guests[2].Wire
	var filter wire.Filter
	if e == pullOut {
		filter = func([]byte) wire.Verdict { return wire.Drop }
	}
	cable.SetFilter(wire.ToGuest, filter)
	cable.SetFilter(wire.ToBox, filter)
}

var progress = regexp.MustCompile(`\(Reading database \.\.\. [0-9]+%`)

// tidy removes what a terminal would overwrite, and spaces at the end of lines.
func tidy(output string) string {
	output = progress.ReplaceAllString(output, "")
	var b strings.Builder
	for line := range strings.Lines(output) {
		b.WriteString(strings.TrimRight(line[strings.LastIndex(strings.TrimRight(line, "\r\n"), "\r")+1:], " \r\n") + "\n")
	}
	return b.String()
}
