package main

import (
	"errors"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/server"
	"github.com/rocast/rocast/dataplane/afxdp"
)

// mistake is an error that every start with the same config repeats. The daemon exits with
// exitConfig after a mistake.
type mistake struct{ error }

func (m mistake) Unwrap() error { return m.error }

// unusablePath lists the kernel errors that every later start repeats: a file in the place of a
// directory, or the reverse, and a name or a chain of symbolic links that is too long. A path that
// is missing, read-only or forbidden is not in this list: it may be on a disk that is mounted
// later.
var unusablePath = []error{unix.ENOTDIR, unix.EISDIR, unix.ENAMETOOLONG, unix.ELOOP}

// aboutPath turns err into a mistake if the config names a path that cannot be used.
func aboutPath(err error) error {
	if errno := syscall.Errno(0); errors.Is(err, server.ErrNotASocket) || errors.As(err, &errno) && slices.Contains(unusablePath, error(errno)) {
		return mistake{err}
	}
	return err
}

// aboutPorts turns err into a mistake if the config asks for something that the interfaces do not
// have.
func aboutPorts(err error) error {
	if errors.Is(err, afxdp.ErrConfig) {
		return mistake{err}
	}
	return err
}
