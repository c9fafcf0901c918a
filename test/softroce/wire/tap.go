package wire

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// OpenTap creates a tap in the network namespace of the calling thread. The tap disappears when the
// file is closed, so also when the process ends for any reason. A new tap offers no offload.
func OpenTap(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("create tap %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
