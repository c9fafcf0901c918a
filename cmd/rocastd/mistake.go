package main

import (
	"errors"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/server"
	"github.com/rocast/rocast/dataplane/afxdp"
)

// mistake is an error that every start with the same config repeats: it ends the daemon with exitConfig.
type mistake struct{ error }

func (m mistake) Unwrap() error { return m.error }

// unusablePath are the kernel's answers that are about the path itself. A disk that is full or fails is not among them.
var unusablePath = []error{unix.ENOTDIR, unix.EISDIR, unix.ENOENT, unix.EACCES, unix.EPERM, unix.EROFS, unix.ENAMETOOLONG, unix.ELOOP}

// aboutPath marks an error of opening what the config names by a path, if that path cannot be used.
func aboutPath(err error) error {
	if errno := syscall.Errno(0); errors.Is(err, server.ErrNotASocket) || errors.As(err, &errno) && slices.Contains(unusablePath, error(errno)) {
		return mistake{err}
	}
	return err
}

// aboutPorts marks an error of opening the ports, if the config asks for what the interfaces do not have.
func aboutPorts(err error) error {
	if errors.Is(err, afxdp.ErrConfig) {
		return mistake{err}
	}
	return err
}
