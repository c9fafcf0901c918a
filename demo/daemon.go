package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rocast/rocast/internal/testlab/bed"
)

// daemon is rocastd in the box's namespace.
type daemon struct {
	cmd   *exec.Cmd
	log   *bytes.Buffer
	ended chan error // receives the result of Wait
}

func (d *demo) startDaemon(ctx context.Context) (*daemon, error) {
	config := fmt.Sprintf("ports: [%s]\nsocket: %s\nstateDir: %s\n",
		strings.Join(d.lab.Ports(), ", "), d.path("rocast.sock"), d.path("state"))
	if err := os.WriteFile(d.path("rocastd.yaml"), []byte(config), 0o600); err != nil {
		return nil, err
	}
	p := &daemon{log: &bytes.Buffer{}, ended: make(chan error, 1)}
	p.cmd = exec.Command(filepath.Join(d.bin, "rocastd"), "--config", d.path("rocastd.yaml"))
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := d.lab.Box.Do(p.cmd.Start); err != nil {
		return nil, err
	}
	go func() { p.ended <- p.cmd.Wait() }()
	for {
		c, err := net.Dial("unix", d.path("rocast.sock"))
		if err == nil {
			return p, c.Close()
		}
		select {
		case err := <-p.ended:
			return nil, errors.Join(fmt.Errorf("rocastd ended: %w", err), p.dump())
		case <-ctx.Done():
			return nil, errors.Join(errors.New("rocastd did not open its socket in time"), p.stop(), p.dump())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// stop ends the daemon as systemd does, with SIGTERM, and waits for its end.
func (p *daemon) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	if err := <-p.ended; err != nil {
		return errors.Join(fmt.Errorf("rocastd: %w", err), p.dump())
	}
	return nil
}

// dump returns the daemon's log as an error.
func (p *daemon) dump() error { return fmt.Errorf("rocastd's log:\n%s", p.log) }

// rocast runs the command line.
func (d *demo) rocast(ctx context.Context, args ...string) ([]byte, error) {
	args = append(args, "--socket", d.path("rocast.sock"))
	out, err := exec.CommandContext(ctx, filepath.Join(d.bin, "rocast"), args...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("rocast %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return out, nil
}

func (d *demo) createGroup(ctx context.Context) error {
	var b strings.Builder
	fmt.Fprintf(&b, "name: demo\nip: %s\nqpn: %d\nmtu: %d\nack: all\nnak: hold\nmemory: {va: %#x, rkey: "+
		"%#x}\nmembers:\n",
		groupIP, groupQPN, pathMTU, memoryVA, memoryKey)
	fmt.Fprintf(&b, "  - {ip: %s, qpn: %d, psn: %d, role: source}\n", bed.HostIP(0), sourceQPN, sourcePSN)
	for i := range receivers {
		r := describe(i)
		fmt.Fprintf(&b, "  - {ip: %s, qpn: %d, psn: %d, regions: [{va: %#x, length: %d, rkey: %#x}]}\n",
			bed.HostIP(1+i), r.qpn, r.psn, r.va, d.bytes, r.rkey)
	}
	if err := os.WriteFile(d.path("group.yaml"), []byte(b.String()), 0o600); err != nil {
		return err
	}
	_, err := d.rocast(ctx, "group", "create", "-f", d.path("group.yaml"))
	return err
}

// groupCounters returns the group's counters by name.
func (d *demo) groupCounters(ctx context.Context) (map[string]uint64, error) {
	out, err := d.rocast(ctx, "group", "show", "demo", "--json")
	if err != nil {
		return nil, err
	}
	var group struct {
		Counters map[string]uint64 `json:"counters"`
	}
	if err := json.Unmarshal(out, &group); err != nil {
		return nil, err
	}
	return group.Counters, nil
}

func mustAddr(s string) netip.Addr { return netip.MustParseAddr(s) }
