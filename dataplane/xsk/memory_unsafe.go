package xsk

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// All unsafe code of the package is in this file: it lays Go values over memory that the kernel
// shares, and makes three system calls that need a pointer to a struct.

// The kernel's struct xdp_desc is 16 bytes without padding.
var _ [16]byte = [unsafe.Sizeof(Desc{})]byte{}

// mapRing maps one ring of a socket. The offsets come from the kernel (XDP_MMAP_OFFSETS), never
// from a header file.
func mapRing[E entry](fd int, pageOffset int64, offsets unix.XDPRingOffset, entries uint32) (ring[E], error) {
	var e E
	length := int(offsets.Desc) + int(entries)*int(unsafe.Sizeof(e))
	mapping, err := unix.Mmap(fd, pageOffset, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return ring[E]{}, fmt.Errorf("map ring of %d entries: %w", entries, err)
	}
	return overlay[E](mapping, offsets, entries), nil
}

// overlay lays a ring over memory. The kernel aligns indexes and entries, and mmap aligns pages.
func overlay[E entry](mapping []byte, offsets unix.XDPRingOffset, entries uint32) ring[E] {
	return ring[E]{
		producer: (*atomic.Uint32)(unsafe.Pointer(&mapping[offsets.Producer])),
		consumer: (*atomic.Uint32)(unsafe.Pointer(&mapping[offsets.Consumer])),
		flags:    (*atomic.Uint32)(unsafe.Pointer(&mapping[offsets.Flags])),
		entries:  unsafe.Slice((*E)(unsafe.Pointer(&mapping[offsets.Desc])), entries),
		mask:     entries - 1,
		mapping:  mapping,
	}
}

// address returns the address of memory outside the Go heap, for XDP_UMEM_REG.
func address(memory []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(memory)))) }

func setsockopt[T any](fd, option int, value *T) error {
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(option),
		uintptr(unsafe.Pointer(value)), unsafe.Sizeof(*value), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// getsockopt fills value and returns how many bytes of it this kernel filled.
func getsockopt[T any](fd, option int, value *T) (length uint32, err error) {
	length = uint32(unsafe.Sizeof(*value))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(option),
		uintptr(unsafe.Pointer(value)), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return 0, errno
	}
	return length, nil
}

// waitRaw is ppoll, which Go's scheduler does not notice, and returns how many of fds are ready.
// When the scheduler notices a system call that takes 20 us, it gives the thread's processor to
// another thread that it wakes for this, and the call is followed by a wait for a processor. That
// costs more than a short wait.
func waitRaw(fds []unix.PollFd, timeout time.Duration) (ready int, err error) {
	limit := unix.NsecToTimespec(int64(timeout))
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(fds))), uintptr(len(fds)),
		uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
