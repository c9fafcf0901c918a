//go:build softroce

package softroce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
)

// rocast is the product as a user has it: the daemon in the box, and the command line.
type rocast struct {
	site   site
	daemon *daemon
}

// site is where the programs of rocast run and their files are.
type site interface {
	// path is the full name of a file or a program of rocast.
	path(name string) string
	write(ctx context.Context, name, content string) error
	// start returns when the daemon is ready.
	start(ctx context.Context) (*daemon, error)
	// run runs a program to its end. The error has what it printed.
	run(ctx context.Context, program string, args ...string) (stdout string, err error)
	// leftovers returns an error that names what a daemon has left behind in the box.
	leftovers(ctx context.Context) error
}

// daemon is one run of rocastd.
type daemon struct {
	log    fmt.Stringer
	signal func(syscall.Signal) error
	exited chan struct{}
	end    string // how it ended, known when exited is closed; "": with status 0
}

// buildRocast builds the programs of this tree, unless -here says where they are. They run in
// guests too.
func buildRocast(t *testing.T, ctx context.Context) (dir string) {
	t.Helper()
	if *here != "" {
		return *here
	}
	dir = t.TempDir()
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", dir, "../../cmd/rocast", "../../cmd/rocastd")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build rocast: %v\n%s", err, out)
	}
	return dir
}

// startRocast starts the daemon on all ports of the box.
func startRocast(t *testing.T, ctx context.Context, l *Lab, p site) *rocast {
	t.Helper()
	r := &rocast{site: p}
	must(t, r.configure(ctx, l, fmt.Sprintf("engine: %s\nhosts: {listen: '[::]:%d', groupIPs: [10.77.0.200, 'fd77::200']}\n", *engine, hostPort)))
	must(t, r.Start(ctx))
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// configure writes the config for all ports of the box. rest is the rest of the config.
func (r *rocast) configure(ctx context.Context, l *Lab, rest string) error {
	var ports []string
	for _, guest := range l.Guests {
		ports = append(ports, PortName(guest.Number))
	}
	return r.site.write(ctx, "rocastd.yaml", rest+fmt.Sprintf("ports: [%s]\nsocket: %s\nstateDir: %s\n",
		strings.Join(ports, ", "), r.site.path("socket"), r.site.path("state")))
}

// Start returns when the daemon is ready.
func (r *rocast) Start(ctx context.Context) (err error) {
	r.daemon, err = r.site.start(ctx)
	return err
}

// Kill ends the daemon. The daemon cannot release anything.
func (r *rocast) Kill() error {
	err := r.daemon.signal(syscall.SIGKILL)
	<-r.daemon.exited
	return err
}

// stopLimit is how long the daemon may take to release everything.
const stopLimit = 10 * time.Second

// Stop ends the daemon as systemd does, and checks that the daemon leaves nothing behind.
func (r *rocast) Stop() error {
	d := r.daemon
	_ = d.signal(syscall.SIGTERM) // fails if it has ended
	select {
	case <-d.exited:
	case <-time.After(stopLimit):
		return errors.Join(fmt.Errorf("rocastd does not stop within %v\n%s", stopLimit, d.log), r.Kill())
	}
	if d.end != "" {
		return fmt.Errorf("rocastd ended with %s\n%s", d.end, d.log)
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	return r.site.leftovers(ctx)
}

// Create creates a group and returns when all its members are ready.
func (r *rocast) Create(ctx context.Context, name, groupFile string) error {
	if err := r.give(ctx, "create", name, groupFile); err != nil {
		return err
	}
	return r.Ready(ctx, name)
}

// give writes the group file and creates or updates the group with it.
func (r *rocast) give(ctx context.Context, verb, name, groupFile string) error {
	if err := r.site.write(ctx, name+".yaml", groupFile); err != nil {
		return err
	}
	_, err := r.ask(ctx, "group", verb, "-f", r.site.path(name+".yaml"))
	return err
}

// Ready returns when all members of a group are ready.
func (r *rocast) Ready(ctx context.Context, name string) error {
	for {
		var shown api.Group
		out, err := r.ask(ctx, "group", "show", name)
		if err == nil {
			err = json.Unmarshal(out, &shown)
		}
		if err != nil {
			return err
		}
		if shown.State == api.Ready {
			return nil
		}
	}
}

// Remove removes a group.
func (r *rocast) Remove(ctx context.Context, name string) error {
	_, err := r.ask(ctx, "group", "rm", name)
	return err
}

// Counters returns the daemon's counters of frames by name, since its start.
func (r *rocast) Counters(ctx context.Context) (map[string]uint64, error) {
	var stats api.Stats
	out, err := r.ask(ctx, "stats")
	if err == nil {
		err = json.Unmarshal(out, &stats)
	}
	return stats.Counters, err
}

// Report returns what the daemon says about groups and ports, and the end of its log.
func (r *rocast) Report(ctx context.Context, groups ...string) string {
	var b strings.Builder
	questions := [][]string{{"port", "ls"}, {"stats"}}
	for _, name := range groups {
		questions = append([][]string{{"group", "show", name}}, questions...)
	}
	for _, q := range questions {
		out, err := r.text(ctx, q...)
		fmt.Fprintf(&b, "rocast %s: %v\n%s\n", strings.Join(q, " "), err, out)
	}
	log := r.daemon.log.String()
	fmt.Fprintf(&b, "rocastd's log:\n%s", log[max(0, len(log)-4096):])
	return b.String()
}

func (r *rocast) ask(ctx context.Context, args ...string) ([]byte, error) {
	out, err := r.text(ctx, append([]string{"--json"}, args...)...)
	return []byte(out), err
}

func (r *rocast) text(ctx context.Context, args ...string) (string, error) {
	return r.site.run(ctx, "rocast", append([]string{"--socket", r.site.path("socket")}, args...)...)
}
