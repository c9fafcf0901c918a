// Command agent is process 1 of a lab guest. It mounts the file systems, loads the modules that
// /modules lists, and then runs the commands that the lab sends over the virtio serial port
// (package control). In a guest that is a whole Debian the agent is a service, and only runs the
// commands. So it does in a guest that is a namespace, where control.PortVariable has the number of
// an open file in place of the port.
//
// The agent configures no network and does not use RDMA. The lab does both with ordinary commands,
// so the whole setup of a guest is in one place. When the lab has gone, process 1 powers the guest
// off.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/rocast/rocast/test/softroce/control"
	"golang.org/x/sys/unix"
)

func main() {
	hello := control.Hello{Kernel: release()}
	first := os.Getpid() == 1 && os.Getenv(control.PortVariable) == ""
	if first {
		if err := up(); err != nil {
			hello.Error = err.Error()
		}
	}
	err := serve(hello)
	fmt.Println("agent:", err)
	if !first {
		os.Exit(1)
	}
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func up() error {
	if err := mountAll(); err != nil {
		return err
	}
	return errors.Join(setLimits(), loadModules("/modules"))
}

func serve(hello control.Hello) error {
	port, err := findPort()
	if err != nil {
		return err
	}
	defer port.Close()
	return control.Serve(port, hello)
}

func findPort() (io.ReadWriteCloser, error) {
	number := os.Getenv(control.PortVariable)
	if number == "" {
		return openPort(control.PortName)
	}
	fd, err := strconv.ParseUint(number, 10, 31)
	return os.NewFile(uintptr(fd), control.PortName), err
}

func release() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(name.Release[:])
}

// setLimits allows the verbs programs to lock memory, and sets the environment that programs
// expect.
func setLimits() error {
	unlimited := &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	return errors.Join(
		unix.Setrlimit(unix.RLIMIT_MEMLOCK, unlimited),
		os.Setenv("PATH", "/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin"),
		os.Setenv("HOME", "/"),
	)
}
