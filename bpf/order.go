package bpf

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// checkOrder refuses machines on which the programs may read memory in another order than they are
// written, or read what another program has half written. CPUs other than x86 may read a slot
// before its word, and a path after it: fanout.h has no barriers for them, nor has classifier.h for
// those that may look up a group before they read the number of changes. A kernel with PREEMPT_RT
// may let another program run on the same CPU in the middle of one, and both write to the memories
// that each CPU has.
func checkOrder(arch, kernel string) error {
	switch {
	case arch != "amd64":
		return fmt.Errorf("fan-out in the kernel relies on the order in which x86 reads memory, this is %s: %w",
			arch, errors.ErrUnsupported)
	case strings.Contains(kernel, "PREEMPT_RT"):
		return fmt.Errorf("fan-out in the kernel relies on programs that are not preempted, and this kernel has PREEMPT_RT: %w",
			errors.ErrUnsupported)
	}
	return nil
}

// order is checkOrder of this machine.
var order = sync.OnceValue(func() error {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("ask for the kernel's version: %w", err)
	}
	return checkOrder(runtime.GOARCH, unix.ByteSliceToString(name.Version[:]))
})
