package afxdp

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtoolChannels is struct ethtool_channels (include/uapi/linux/ethtool.h).
type ethtoolChannels struct {
	cmd                                       uint32
	maxRx, maxTx, maxOther, maxCombined       uint32
	rxCount, txCount, otherCount, combinedNow uint32
}

// ifreq is struct ifreq with a pointer in its union.
type ifreq struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

// queues are the numbers of queues of an interface.
type queues struct{ rx, tx int }

// countQueues asks the driver. An interface whose driver does not answer, such as tap, has one
// queue.
func countQueues(name string) (queues, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return queues{}, err
	}
	defer unix.Close(fd)
	channels := ethtoolChannels{cmd: unix.ETHTOOL_GCHANNELS}
	req := ifreq{data: unsafe.Pointer(&channels)}
	copy(req.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	if errors.Is(errno, unix.EOPNOTSUPP) {
		return queues{1, 1}, nil
	} else if errno != 0 {
		return queues{}, fmt.Errorf("read the number of queues: %w", errno)
	}
	return queues{
		rx: max(1, int(channels.rxCount+channels.combinedNow)),
		tx: max(1, int(channels.txCount+channels.combinedNow)),
	}, nil
}
