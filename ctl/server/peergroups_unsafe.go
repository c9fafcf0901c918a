package server

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// groupBytes is the size of a gid_t.
const groupBytes = 4

// peerGroups returns the supplementary groups of a Unix socket's peer (SO_PEERGROUPS). No library
// has a wrapper for this option. While the buffer is too small, the kernel returns the size needed.
func peerGroups(fd int) ([]uint32, error) {
	var groups []uint32
	for {
		bytes := uint32(len(groups)) * groupBytes
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(unsafe.SliceData(groups))), uintptr(unsafe.Pointer(&bytes)), 0)
		switch errno {
		case 0:
			return groups, nil
		case unix.ERANGE:
			groups = make([]uint32, bytes/groupBytes)
		default:
			return nil, errno
		}
	}
}
