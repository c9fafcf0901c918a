package hosts

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// napFor is a small part of the time that any forwarder needs for a window.
const napFor = 40 * time.Microsecond

// nap sleeps while the window is closed. Frames do not wake the hosts: the wake-up would count as
// CPU time of the sender, and the CPU time of a forwarder would depend on how often the hosts were
// asleep. nap is a raw system call, without Go's scheduler, whose threads would otherwise run on
// the hosts' CPU at each sleep.
func nap() {
	t := unix.NsecToTimespec(int64(napFor))
	_, _, _ = unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&t)), 0, 0, 0)
}

// sharpenTimers makes the calling thread's naps end in time, and not up to 50 us later.
func sharpenTimers() error { return unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) }

// resetTimers undoes sharpenTimers.
func resetTimers() error { return unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }
