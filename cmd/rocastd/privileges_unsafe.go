package main

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dropStartCapability gives up CAP_SYS_ADMIN and the ambient capabilities in all threads, for good.
// Only the probes for kernel features need CAP_SYS_ADMIN, because they make a network namespace of
// their own; each has run once and remembers its answer. Without ambient capabilities a
// program that the daemon starts has none. A program that uses cgo cannot do that and keeps them.
func dropStartCapability() error {
	_, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0)
	if errno != 0 && !errors.Is(errno, unix.ENOTSUP) {
		return fmt.Errorf("give up the ambient capabilities: %w", errno)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData // 32 capabilities each
	if err := unix.Capget(&header, &has[0]); err != nil {
		return fmt.Errorf("read the capabilities: %w", err)
	}
	const bit = 1 << unix.CAP_SYS_ADMIN
	if has[0].Permitted&bit == 0 {
		return nil
	}
	has[0].Permitted &^= bit
	has[0].Effective &^= bit
	has[0].Inheritable &^= bit
	_, _, errno = syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&has[0])), 0)
	if errno != 0 && !errors.Is(errno, unix.ENOTSUP) {
		return fmt.Errorf("give up CAP_SYS_ADMIN: %w", errno)
	}
	return nil
}
