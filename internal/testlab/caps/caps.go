// Package caps lets a test do something without a capability that the test itself has.
package caps

import (
	"errors"
	"runtime"

	"golang.org/x/sys/unix"
)

// Without runs fn in the calling goroutine, on a thread that lacks one of its capabilities (unix.CAP_NET_ADMIN). A
// thread that cannot get it back ends with the goroutine.
func Without(capability uint, fn func() error) (err error) {
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var had, has [2]unix.CapUserData // 32 capabilities each
	if err := unix.Capget(&header, &had[0]); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	has = had
	has[capability/32].Effective &^= 1 << (capability % 32)
	if err := unix.Capset(&header, &has[0]); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	err = fn()
	if restore := unix.Capset(&header, &had[0]); restore != nil {
		return errors.Join(err, restore)
	}
	runtime.UnlockOSThread()
	return err
}
