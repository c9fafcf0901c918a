//go:build softroce

package softroce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
)

// inNamespaceOf is the site of rocast in a box that is a namespace: the files are on this machine.
type inNamespaceOf struct {
	box *Namespace
	bin string // the directory of the programs
	dir string // the directory of all other files
	own string // the address of the box
}

func (p inNamespaceOf) path(name string) string { return filepath.Join(p.dir, name) }

func (p inNamespaceOf) write(_ context.Context, name, content string) error {
	return os.WriteFile(p.path(name), []byte(content), 0o600)
}

// start waits until the daemon reports that it is ready, as it does to systemd.
func (p inNamespaceOf) start(ctx context.Context) (*daemon, error) {
	address := &net.UnixAddr{Net: "unixgram", Name: p.path("notify")}
	notify, err := net.ListenUnixgram("unixgram", address)
	if err != nil {
		return nil, err
	}
	defer os.Remove(address.Name)
	defer notify.Close()
	cmd := exec.Command(filepath.Join(p.bin, "rocastd"), "--config", p.path("rocastd.yaml"))
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+address.Name)
	log := &console{}
	cmd.Stderr = log
	if err := p.box.Start(cmd); err != nil {
		return nil, err
	}
	d := &daemon{
		log: log, exited: make(chan struct{}),
		signal: func(s syscall.Signal) error { return cmd.Process.Signal(s) },
	}
	go func() {
		defer close(d.exited)
		defer notify.Close()
		if err := cmd.Wait(); err != nil {
			d.end = err.Error()
		}
	}()
	stop := context.AfterFunc(ctx, func() { notify.Close() })
	defer stop()
	message := make([]byte, 64)
	n, err := notify.Read(message)
	if first, _, _ := strings.Cut(string(message[:n]), "\n"); err != nil || first != "READY=1" {
		return d, fmt.Errorf("rocastd is not ready: %q, %w\n%s", message[:n], err, log)
	}
	return d, nil
}

func (p inNamespaceOf) run(ctx context.Context, program string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, program), args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		err = fmt.Errorf("%s %s: %w: %s%s", program, strings.Join(args, " "), err, &stdout, &stderr)
		return stdout.String(), err
	}
	return stdout.String(), nil
}

func (p inNamespaceOf) leftovers(context.Context) error {
	links, err := p.box.NS.Netlink().LinkList()
	for _, l := range links {
		if xdp := l.Attrs().Xdp; xdp != nil && xdp.Attached {
			err = errors.Join(err, fmt.Errorf("an XDP program is left on %s", l.Attrs().Name))
		}
	}
	addresses, listErr := p.box.NS.Netlink().AddrList(nil, netlink.FAMILY_V4)
	for _, a := range addresses {
		if ip := a.IP.String(); ip != p.own && !a.IP.IsLoopback() {
			err = errors.Join(err, fmt.Errorf("a group's IP is left on %s: %s", a.Label, ip))
		}
	}
	return errors.Join(err, listErr)
}

// inGuest is the site of rocast in a box that is a guest.
type inGuest struct{ box *BoxGuest }

// boxDir is the directory of the programs and of all files.
const boxDir = "/run/rocast"

func (p inGuest) path(name string) string { return path.Join(boxDir, name) }

func (p inGuest) write(ctx context.Context, name, content string) error {
	return p.box.Put(ctx, p.path(name), []byte(content))
}

// install copies the programs in dir into the box.
func (p inGuest) install(ctx context.Context, dir string) error {
	programs, err := os.ReadDir(dir)
	if err == nil {
		_, err = p.box.Run(ctx, "mkdir", "-p", boxDir)
	}
	for _, program := range programs {
		if err != nil {
			return err
		}
		var content []byte
		if content, err = os.ReadFile(filepath.Join(dir, program.Name())); err == nil {
			err = p.box.Put(ctx, p.path(program.Name()), content)
		}
	}
	return err
}

const readyPoll = 50 * time.Millisecond

// start waits until the daemon answers.
func (p inGuest) start(ctx context.Context) (*daemon, error) {
	process, err := p.box.Start(p.path("rocastd"), "--config", p.path("rocastd.yaml"))
	if err != nil {
		return nil, err
	}
	d := &daemon{log: process.Stderr, signal: process.Signal, exited: make(chan struct{})}
	go func() {
		defer close(d.exited)
		exit, err := process.Wait(context.Background())
		if err != nil {
			d.end = err.Error()
		} else if !exit.OK() {
			d.end = exit.String()
		}
	}()
	for {
		_, err := p.run(ctx, "rocast", "--socket", p.path("socket"), "port", "ls")
		if err == nil {
			return d, nil
		}
		select {
		case <-time.After(readyPoll):
		case <-d.exited:
			return d, fmt.Errorf("rocastd ended with %s\n%s", d.end, d.log)
		case <-ctx.Done():
			return d, fmt.Errorf("rocastd is not ready: %w\n%s", err, d.log)
		}
	}
}

func (p inGuest) run(ctx context.Context, program string, args ...string) (string, error) {
	out, err := p.box.Run(ctx, append([]string{p.path(program)}, args...)...)
	if err != nil {
		err = fmt.Errorf("%w%s", err, out)
	}
	return out, err
}

func (p inGuest) leftovers(ctx context.Context) error {
	links, err := p.box.Run(ctx, "ip", "link")
	if strings.Contains(links, "xdp") {
		err = errors.Join(err, fmt.Errorf("an XDP program is left:\n%s", links))
	}
	addresses, listErr := p.box.Run(ctx, "ip", "-4", "-oneline", "address", "show", "dev", bridgeName)
	if strings.Count(addresses, "\n") != 1 {
		err = errors.Join(err, fmt.Errorf("a group's IP is left:\n%s", addresses))
	}
	return errors.Join(err, listErr)
}
