package softroce

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/test/softroce/wire"
	"github.com/vishvananda/netlink"
)

// Namespace is a box that is a network namespace of this machine.
type Namespace struct {
	NS      *netns.NS
	watcher io.Closer
}

func openNamespace() (*Namespace, error) {
	ns, err := netns.Create()
	if err != nil {
		return nil, err
	}
	watcher, err := watchName(filepath.Join(netns.Dir, ns.Name()))
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return &Namespace{NS: ns, watcher: watcher}, nil
}

func (b *Namespace) build(_ context.Context, guests, mtu int) (ports []io.ReadWriteCloser, err error) {
	for n := 1; n <= guests; n++ {
		tap, err := b.addPort(n, mtu)
		if err != nil {
			return ports, err
		}
		ports = append(ports, tap)
	}
	return ports, b.addBridge(guests, mtu)
}

func (b *Namespace) setMTU(_ context.Context, guests, mtu int) error {
	err := b.setUp(bridgeName, mtu)
	for n := 1; n <= guests; n++ {
		err = errors.Join(err, b.setUp(PortName(n), mtu))
	}
	return err
}

// watchName starts a shell that removes the name of the namespace if this process ends without
// doing it: after a panic, Ctrl-C or SIGKILL. The shell reads a pipe that only this process holds
// open. The shell is in a session of its own, which Ctrl-C does not reach.
func watchName(path string) (io.Closer, error) {
	const script = `read -r _; [ ! -e "$0" ] || { umount -l "$0"; rm -f "$0"; }`
	cmd := exec.Command("sh", "-c", script, path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the watcher: %w", err)
	}
	return closeFunc(func() error { return errors.Join(pipe.Close(), cmd.Wait()) }), nil
}

type closeFunc func() error

func (f closeFunc) Close() error { return f() }

func (b *Namespace) close() error { return errors.Join(b.NS.Close(), b.watcher.Close()) }

// Start runs a command inside the box. The command is killed when this process ends. The caller
// waits for it.
func (b *Namespace) Start(cmd *exec.Cmd) error { return spawn(cmd, b.NS) }

// addPort makes the tap for guest n and brings it up.
func (b *Namespace) addPort(n, mtu int) (tap *os.File, err error) {
	err = b.NS.Do(func() error {
		tap, err = wire.OpenTap(PortName(n))
		return err
	})
	if err == nil {
		err = b.setUp(PortName(n), mtu)
	}
	return tap, err
}

func (b *Namespace) setUp(name string, mtu int) error {
	links := b.NS.Netlink()
	link, err := links.LinkByName(name)
	if err == nil {
		err = errors.Join(links.LinkSetMTU(link, mtu), links.LinkSetUp(link))
	}
	if err != nil {
		return fmt.Errorf("bring up %s: %w", name, err)
	}
	return nil
}

// addBridge joins all ports with a bridge that has the addresses of the box.
func (b *Namespace) addBridge(ports, mtu int) error {
	links := b.NS.Netlink()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = bridgeName
	noSnooping := false // snooping would hold neighbour solicitations back
	bridge := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &noSnooping}
	if err := links.LinkAdd(bridge); err != nil {
		return fmt.Errorf("add bridge: %w", err)
	}
	for n := 1; n <= ports; n++ {
		port, err := links.LinkByName(PortName(n))
		if err == nil {
			err = links.LinkSetMaster(port, bridge)
		}
		if err != nil {
			return fmt.Errorf("put %s into the bridge: %w", PortName(n), err)
		}
	}
	if err := b.setUp(bridgeName, mtu); err != nil {
		return err
	}
	return b.addAddresses(netns.Link{NS: b.NS, Name: bridgeName, Index: bridge.Index})
}

func (b *Namespace) addAddresses(bridge netns.Link) error {
	if err := b.NS.Sysctl("net.ipv6.conf."+bridgeName+".disable_ipv6", "0"); err != nil {
		return err
	}
	for _, cidr := range []string{boxAddr + "/24", boxAddr6 + "/64"} {
		if err := bridge.AddAddress(cidr); err != nil {
			return fmt.Errorf("give the box %s: %w", cidr, err)
		}
	}
	return nil
}
