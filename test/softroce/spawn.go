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

// spawner runs functions on one thread that lives as long as the process: a child's parent-death signal is tied to the
// thread that started it.
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

// spawn starts a command that is killed when this process ends, however it ends. With a namespace it runs inside.
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

// inNamespace is netns.NS.Do for the spawner's thread. If the way back is barred no later child may start.
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
