//go:build softroce

package softroce

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/vishvananda/netlink"
)

// rocast is the product as a user has it: the daemon in the box, and the command line.
type rocast struct {
	box    *Box
	bin    string // the directory of the programs
	dir    string // the directory of config, socket and state
	daemon *daemon
}

// daemon is one run of rocastd.
type daemon struct {
	cmd    *exec.Cmd
	log    *console
	exited chan struct{}
}

// buildRocast builds the programs of this tree.
func buildRocast(t *testing.T, ctx context.Context) (dir string) {
	t.Helper()
	dir = t.TempDir()
	out, err := exec.CommandContext(ctx, "go", "build", "-o", dir, "../../cmd/rocast", "../../cmd/rocastd").CombinedOutput()
	if err != nil {
		t.Fatalf("build rocast: %v\n%s", err, out)
	}
	return dir
}

// startRocast starts the daemon on all ports of the box.
func startRocast(t *testing.T, ctx context.Context, l *Lab, bin string) *rocast {
	t.Helper()
	r := &rocast{box: l.Box, bin: bin, dir: t.TempDir()}
	var ports []string
	for _, guest := range l.Guests {
		ports = append(ports, PortName(guest.Number))
	}
	config := fmt.Sprintf("ports: [%s]\nsocket: %s\nstateDir: %s\nengine: %s\n",
		strings.Join(ports, ", "), r.socket(), r.path("state"), *engine)
	must(t, os.WriteFile(r.path("rocastd.yaml"), []byte(config), 0o600))
	must(t, r.Start(ctx))
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rocast) path(name string) string { return filepath.Join(r.dir, name) }

func (r *rocast) socket() string { return r.path("socket") }

// Start returns when the daemon reports that it is ready, as it does to systemd.
func (r *rocast) Start(ctx context.Context) error {
	address := &net.UnixAddr{Net: "unixgram", Name: r.path("notify")}
	notify, err := net.ListenUnixgram("unixgram", address)
	if err != nil {
		return err
	}
	defer os.Remove(address.Name)
	defer notify.Close()
	d := &daemon{
		cmd: exec.Command(filepath.Join(r.bin, "rocastd"), "--config", r.path("rocastd.yaml")),
		log: &console{}, exited: make(chan struct{}),
	}
	d.cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+address.Name)
	d.cmd.Stderr = d.log
	if err := r.box.Start(d.cmd); err != nil {
		return err
	}
	go func() {
		defer close(d.exited)
		defer notify.Close()
		_ = d.cmd.Wait()
	}()
	r.daemon = d
	stop := context.AfterFunc(ctx, func() { notify.Close() })
	defer stop()
	message := make([]byte, 64)
	n, err := notify.Read(message)
	if err != nil || string(message[:n]) != "READY=1" {
		return fmt.Errorf("rocastd is not ready: %q, %w\n%s", message[:n], err, d.log)
	}
	return nil
}

// Kill ends the daemon. The daemon cannot release anything.
func (r *rocast) Kill() error {
	err := r.daemon.cmd.Process.Kill()
	<-r.daemon.exited
	return err
}

// stopLimit is how long the daemon may take to release everything.
const stopLimit = 10 * time.Second

// Stop ends the daemon as systemd does, and checks that the daemon leaves nothing behind.
func (r *rocast) Stop() error {
	d := r.daemon
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended
	select {
	case <-d.exited:
	case <-time.After(stopLimit):
		return errors.Join(fmt.Errorf("rocastd does not stop within %v\n%s", stopLimit, d.log), r.Kill())
	}
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("rocastd ended with %v\n%s", d.cmd.ProcessState, d.log)
	}
	return r.leftovers()
}

// leftovers returns an error that names what a daemon has left behind in the box.
func (r *rocast) leftovers() error {
	links, err := r.box.NS.Netlink().LinkList()
	for _, l := range links {
		if xdp := l.Attrs().Xdp; xdp != nil && xdp.Attached {
			err = errors.Join(err, fmt.Errorf("an XDP program is left on %s", l.Attrs().Name))
		}
	}
	addresses, listErr := r.box.NS.Netlink().AddrList(nil, netlink.FAMILY_V4)
	for _, a := range addresses {
		if ip := a.IP.String(); ip != boxAddr && !a.IP.IsLoopback() {
			err = errors.Join(err, fmt.Errorf("a group's IP is left on %s: %s", a.Label, ip))
		}
	}
	return errors.Join(err, listErr)
}

// Create creates a group and returns when all its members are ready.
func (r *rocast) Create(ctx context.Context, name, groupFile string) error {
	file := r.path(name + ".yaml")
	if err := os.WriteFile(file, []byte(groupFile), 0o600); err != nil {
		return err
	}
	if _, err := r.ask(ctx, "group", "create", "-f", file); err != nil {
		return err
	}
	return r.Ready(ctx, name)
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
	return r.text(ctx, append([]string{"--json"}, args...)...)
}

func (r *rocast) text(ctx context.Context, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(r.bin, "rocast"), append([]string{"--socket", r.socket()}, args...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.Bytes(), fmt.Errorf("rocast %s: %w: %s%s", strings.Join(args, " "), err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.Bytes(), nil
}
