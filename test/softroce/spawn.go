package softroce

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"github.com/rocast/rocast/internal/testlab/netns"
	"golang.org/x/sys/unix"
)

// spawner runs functions on one thread that lives as long as the process: the parent-death signal
// of a child belongs to the thread that started the child.
var spawner = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for fn := range work {
			fn()
		}
	}()
	return work
})

// spawn starts a command that is killed when this process ends, for whatever reason. If ns is not
// nil, the command runs inside this namespace.
func spawn(cmd *exec.Cmd, ns *netns.NS) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	done := make(chan error)
	spawner() <- func() {
		if ns == nil {
			done <- cmd.Start()
			return
		}
		done <- inNamespace(filepath.Join(netns.Dir, ns.Name()), cmd.Start)
	}
	return <-done
}

// inNamespace is netns.NS.Do for the thread of the spawner. If the thread cannot return to its own
// namespace, the process panics, because later children would start in the wrong one.
func inNamespace(path string, fn func() error) error {
	own, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(own)
	target, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	if err := unix.Setns(target, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter %s: %w", path, err)
	}
	err = fn()
	if back := unix.Setns(own, unix.CLONE_NEWNET); back != nil {
		panic(errors.Join(err, back))
	}
	return err
}
