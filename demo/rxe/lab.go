package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// lab is the box, the hosts and their RDMA devices.
type lab struct {
	*boxes.Single
	devices  []string // by host
	programs []*program
}

const (
	receivers    = 3
	perftestPort = 18515
)

// newLab builds the lab, and lets the box answer RDMA-CM at its group IP for all receivers.
func newLab(ctx context.Context, bin string) (_ *lab, err error) {
	l := &lab{}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if l.Single, err = boxes.NewSingle(ctx, bed.Options{Hosts: 1 + receivers, NoRNIC: true}, filepath.Join(bin, "rocastd")); err != nil {
		return l, err
	}
	var addrs []string
	for i, h := range l.Hosts {
		device := deviceName(i + 1)
		if err := addRXE(ctx, h.NS, device, h.End.Name); err != nil {
			return l, err
		}
		l.devices = append(l.devices, device)
		if i > 0 {
			addrs = append(addrs, h.IP.String())
		}
	}
	_, err = l.Daemon.Client().CMUp(ctx, api.CMRequest{GroupIP: l.GroupIP().String(), Port: perftestPort, Receivers: addrs, Memory: "perftest"})
	return l, err
}

// close waits for the programs, whose context has to be over, and removes the devices before their
// namespaces: without them the namespaces go at once.
func (l *lab) close() error {
	for _, p := range l.programs {
		<-p.ended
	}
	var errs []error
	for i, device := range l.devices {
		_, err := l.Hosts[i].NS.Exec("rdma", "link", "del", device)
		errs = append(errs, err)
	}
	if l.Single != nil {
		errs = append(errs, l.Single.Close())
	}
	return errors.Join(errs...)
}

func (l *lab) log() error { return fmt.Errorf("rocastd's log:\n%s", l.Daemon.Log()) }

// deviceName is the name of the n-th RDMA device of this run. The names are those of the whole
// machine, and another run may be under way, or have been killed.
func deviceName(n int) string { return fmt.Sprintf("rcrxe%d_%d", os.Getpid(), n) }

// addRXE gives the interface of a namespace an RDMA device.
func addRXE(ctx context.Context, in *netns.NS, device, below string) error {
	if _, err := in.Exec("rdma", "link", "add", device, "type", "rxe", "netdev", below); err != nil {
		return err
	}
	// A kernel worker adds the GID of the address. Until then a program finds none.
	const gids = "grep -l 0000:0000:0000:0000:0000:ffff: /sys/class/infiniband/$0/ports/1/gids/* >/dev/null 2>&1"
	return until(ctx, "a GID of "+device, func() (bool, error) {
		return exec.CommandContext(ctx, "ip", "netns", "exec", in.Name(), "sh", "-c", gids, device).Run() == nil, nil
	})
}

// until waits until what is looked for is there.
func until(ctx context.Context, what string, found func() (bool, error)) error {
	for {
		if ok, err := found(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain for %s: %w", what, context.Cause(ctx))
		case <-time.After(200 * time.Millisecond): // each look takes an emulated CPU half as long
		}
	}
}

// probe returns why the hosts cannot be namespaces on this kernel. It finds out by a device in a
// namespace: if rdma_rxe can receive there, the namespace has the socket of RoCEv2's port.
func probe(ctx context.Context) (err error) {
	for _, module := range []string{"rdma_rxe", "rdma_ucm"} {
		_ = exec.CommandContext(ctx, "modprobe", module).Run() // it may be built in
	}
	a, err := netns.Create()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	end, _, err := netns.CreateVeth(a, "eth0", a, "eth1", netns.VethOptions{})
	if err != nil {
		return err
	}
	if err := end.AddAddress("10.77.0.1/24"); err != nil {
		return err
	}
	device := deviceName(0)
	if _, err := a.Exec("rdma", "link", "add", device, "type", "rxe", "netdev", end.Name); err != nil {
		return err
	}
	defer func() {
		_, deleted := a.Exec("rdma", "link", "del", device)
		err = errors.Join(err, deleted)
	}()
	var sockets []byte
	if err := a.Do(func() (err error) { sockets, err = os.ReadFile("/proc/thread-self/net/udp"); return err }); err != nil {
		return err
	}
	if !strings.Contains(string(sockets), roceSocket) {
		return errors.New("its rdma_rxe receives only in the initial network namespace")
	}
	return nil
}

// roceSocket is UDP port 4791 as /proc/net/udp prints it.
const roceSocket = ":12B7 "

// nothingIsLeft checks that no namespace and no device of this run exists any more.
func (d *demo) nothingIsLeft(ctx context.Context) error {
	names, err := os.ReadDir(netns.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	ours, _, _ := strings.Cut(d.lab.Box.Name(), "-")
	for _, n := range names {
		if strings.HasPrefix(n.Name(), ours+"-") {
			return fmt.Errorf("the namespace %s is left", n.Name())
		}
	}
	out, err := exec.CommandContext(ctx, "rdma", "link", "show").Output()
	if err != nil {
		return err
	}
	for _, device := range d.lab.devices {
		if strings.Contains(string(out), device+"/") {
			return fmt.Errorf("the RDMA device %s is left", device)
		}
	}
	d.say("\nleft behind: no namespace and no RDMA device")
	return nil
}
