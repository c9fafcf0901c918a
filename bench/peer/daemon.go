package peer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/bench/workload"
	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// Daemon is rocastd in the box of a lab, with its files in a directory of its own.
type Daemon struct {
	dir    string
	bin    string
	box    *netns.NS
	ports  []string
	more   string // of the config
	cmd    *exec.Cmd
	ended  chan error
	client *client.Client
}

// StartDaemon returns when the daemon answers. The daemon is bound to no CPU, as on a real box. Its
// config has further lines.
func StartDaemon(ctx context.Context, bin string, box *netns.NS, ports []string, more string) (*Daemon, error) {
	dir, err := os.MkdirTemp("", "rocbench-daemon-")
	if err != nil {
		return nil, err
	}
	d := &Daemon{dir: dir, bin: bin, box: box, ports: ports, more: more, ended: make(chan error, 1)}
	if err := d.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start rocastd: %w: %s", err, d.log()), d.Stop())
	}
	return d, nil
}

// Kill ends the daemon without a warning.
func (d *Daemon) Kill() error {
	err := d.cmd.Process.Kill()
	<-d.ended // reports the kill
	return err
}

// Restart starts the daemon again after Kill, and returns when it answers.
func (d *Daemon) Restart(ctx context.Context) error {
	if err := d.start(ctx); err != nil {
		return fmt.Errorf("start rocastd again: %w: %s", err, d.log())
	}
	return nil
}

func (d *Daemon) start(ctx context.Context) error {
	config := fmt.Sprintf("ports: [%s]\nsocket: %s\nstateDir: %s\n%s",
		strings.Join(d.ports, ", "), d.path("rocast.sock"), d.path("state"), d.more)
	if err := os.WriteFile(d.path("rocastd.yaml"), []byte(config), 0o600); err != nil {
		return err
	}
	output, err := os.Create(d.path("log"))
	if err != nil {
		return err
	}
	defer output.Close()
	cmd := exec.Command(filepath.Join(d.bin, "rocastd"), "--config", d.path("rocastd.yaml"))
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.box.Do(func() error { return startUnpinned(cmd) }); err != nil {
		return err
	}
	d.cmd = cmd
	go func() { d.ended <- cmd.Wait() }()
	d.client = client.New(d.path("rocast.sock"))
	for deadline := time.Now().Add(startPatience); ; time.Sleep(10 * time.Millisecond) {
		if _, err = d.client.Version(ctx); err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		select {
		case err := <-d.ended:
			d.ended <- err
			return fmt.Errorf("it ended: %w", err)
		default:
		}
	}
}

// startUnpinned starts a command that may use all CPUs, although this process is bound to one.
func startUnpinned(cmd *exec.Cmd) error {
	var own, all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err != nil {
		return err
	}
	for cpu := range len(all) * 64 {
		all.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &all); err != nil {
		return err
	}
	return errors.Join(cmd.Start(), unix.SchedSetaffinity(0, &own))
}

// PID is the daemon's process ID.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// CreateGroup creates group g of a workload.
func (d *Daemon) CreateGroup(ctx context.Context, w *workload.Workload, g int) error {
	return d.Create(ctx, groupFile(w, g))
}

// Create creates the group that a file describes.
func (d *Daemon) Create(ctx context.Context, file []byte) error {
	_, err := d.client.CreateGroup(ctx, file)
	return err
}

// Group describes a group.
func (d *Daemon) Group(ctx context.Context, name string) (api.Group, error) {
	return d.client.Group(ctx, name)
}

// RemoveGroup removes group g.
func (d *Daemon) RemoveGroup(ctx context.Context, g int) error {
	return d.Remove(ctx, groupName(g))
}

// Remove removes a group.
func (d *Daemon) Remove(ctx context.Context, name string) error {
	_, err := d.client.RemoveGroup(ctx, name)
	return err
}

func groupName(g int) string { return fmt.Sprintf("g%d", g) }

func groupFile(w *workload.Workload, g int) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nip: %v\nqpn: %d\nmtu: 1024\nmemory: {va: %#x, length: %d, rkey: %#x}\nmembers:\n",
		groupName(g), workload.GroupIP(g), workload.GroupQPN, workload.Memory.VA, workload.Memory.Length, workload.Memory.RKey)
	fmt.Fprintf(&b, "  - {ip: %v, qpn: %d, psn: %d, role: source}\n",
		workload.SourceIP, workload.SourceQPN(g), workload.SourcePSN(g))
	for r := range w.Receivers {
		m := workload.Region(g, r)
		fmt.Fprintf(&b, "  - {ip: %v, qpn: %d, psn: %d, regions: [{va: %#x, length: %d, rkey: %#x}]}\n",
			workload.ReceiverIP(r), workload.ReceiverQPN(g, r), workload.ReceiverPSN(g, r), m.VA, m.Length, m.RKey)
	}
	return []byte(b.String())
}

func (d *Daemon) path(name string) string { return filepath.Join(d.dir, name) }

func (d *Daemon) log() string {
	b, _ := os.ReadFile(d.path("log"))
	return string(b)
}

// Stop ends the daemon like systemd.
func (d *Daemon) Stop() error {
	defer os.RemoveAll(d.dir)
	if d.cmd == nil {
		return nil
	}
	_ = d.cmd.Process.Signal(unix.SIGTERM)
	timer := time.AfterFunc(stopPatience, func() { _ = d.cmd.Process.Kill() })
	defer timer.Stop()
	if err := <-d.ended; err != nil {
		return fmt.Errorf("rocastd: %w: %s", err, d.log())
	}
	return nil
}
