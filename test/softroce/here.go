package softroce

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/test/softroce/control"
	"github.com/rocast/rocast/test/softroce/wire"
)

// A guest may be a network namespace of this machine, whose kernel then has the guest's rxe
// (Config.Here). Linux can do so from 7.1 on: docs/wire.md#several-hosts-in-one-kernel says why
// each step is needed. The agent runs in the namespace as in a virtual machine, so that stories
// need not know the difference. Such a guest cannot be paused, because its kernel goes on.

// agentPath is where the agent is in a virtual machine that holds such a lab (TestOneMachine).
const agentPath = "/init"

// private gives the agent $0 a view of its own: of processes, of the interfaces of its namespace,
// and of temporary files.
const private = `set -e
mount --make-rprivate /
mount -t proc none /proc
mount -t sysfs none /sys
mount -t tmpfs none /tmp
exec "$0"`

const lowestPriority = 19

// nicQueue is how many frames wait until the test reads them: more than a source sends at once
// (1024 packets in storyRepairQuorum). The kernel's default of 1000 loses some on a busy machine.
const nicQueue = "4096"

// startHere makes the namespace of a guest and starts the agent in it.
func startHere(mac string) (_ *machine, err error) {
	ns, err := netns.Create()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ns.Close())
		}
	}()
	if err := ns.Sysctl("net.ipv6.conf.default.disable_ipv6", "0"); err != nil {
		return nil, err
	}
	var nic *os.File
	if err := ns.Do(func() (err error) { nic, err = wire.OpenTap("eth0"); return err }); err != nil {
		return nil, err
	}
	if _, err := ns.Exec("ip", "link", "set", "eth0", "address", mac, "txqueuelen", nicQueue); err != nil {
		return nil, errors.Join(err, nic.Close())
	}
	near, far, err := socketPair()
	if err != nil {
		return nil, errors.Join(err, nic.Close())
	}
	defer far.Close()
	m := &machine{
		control: control.NewClient(near), nics: []io.ReadWriteCloser{nic}, console: &console{}, exited: make(chan struct{}),
		unplug: func() error { return setDown(ns, "eth0") }, remove: ns.Close,
	}
	m.cmd = exec.Command("dash", "-c", private, agentPath)
	m.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", control.PortVariable, controlFD))
	m.cmd.ExtraFiles = []*os.File{far}
	m.cmd.Stdout, m.cmd.Stderr = m.console, m.console
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	if err := spawn(m.cmd, ns); err != nil {
		return nil, errors.Join(fmt.Errorf("start the agent: %w", err), nic.Close(), near.Close())
	}
	go m.await()
	// The guest's programs have the lowest priority, as all that the agent starts. They poll, and
	// would take the CPU from the kernel's workers, which are the NICs here.
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, m.cmd.Process.Pid, lowestPriority); err != nil {
		_ = m.cmd.Process.Kill()
		<-m.exited
		return nil, errors.Join(err, nic.Close(), near.Close())
	}
	return m, nil
}

// setDown takes an interface down. From then on the kernel sends nothing by it.
func setDown(ns *netns.NS, name string) error {
	link, err := ns.Netlink().LinkByName(name)
	if err != nil {
		return err
	}
	return ns.Netlink().LinkSetDown(link)
}
