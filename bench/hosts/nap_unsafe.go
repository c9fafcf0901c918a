package hosts

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// napFor is a small part of what any forwarder needs for a window.
const napFor = 40 * time.Microsecond

// nap sleeps while the window is closed. The hosts do not let frames wake them: the sender of a
// frame would pay for that, so a forwarder's bill would depend on how often the hosts had just gone
// to sleep. Go's scheduler is not told, or its threads would run on the hosts' CPU each time.
func nap() {
	t := unix.NsecToTimespec(int64(napFor))
	_, _, _ = unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&t)), 0, 0, 0)
}

// sharpenTimers lets the calling thread's naps end when they should, and not 50 us later.
func sharpenTimers() error { return unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) }

// resetTimers undoes sharpenTimers.
func resetTimers() error { return unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }
