package server

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxGroups is the kernel's NGROUPS_MAX.
const maxGroups = 65536

// peerGroups returns the supplementary groups of a Unix socket's peer (SO_PEERGROUPS). No library
// has a wrapper for this option.
func peerGroups(fd int) ([]uint32, error) {
	groups := make([]uint32, 64)
	for {
		bytes := uint32(len(groups)) * 4
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&bytes)), 0)
		switch {
		case errno == 0:
			return groups[:bytes/4], nil
		case errno == unix.ERANGE && bytes/4 <= maxGroups: // the kernel has set bytes to the size needed
			groups = make([]uint32, bytes/4)
		default:
			return nil, errno
		}
	}
}
