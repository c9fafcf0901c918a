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

// ethtool asks a driver. question points to a structure of the kernel, whose first field is the
// command; the answer is written into it.
func ethtool(name string, question unsafe.Pointer) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req := ifreq{data: question}
	copy(req.name[:unix.IFNAMSIZ-1], name)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); errno != 0 {
		return errno
	}
	return nil
}

// queues are the numbers of queues of an interface.
type queues struct{ rx, tx int }

// countQueues asks the driver. An interface whose driver does not answer, such as tap, has one
// queue.
func countQueues(name string) (queues, error) {
	channels := ethtoolChannels{cmd: unix.ETHTOOL_GCHANNELS}
	if err := ethtool(name, unsafe.Pointer(&channels)); errors.Is(err, unix.EOPNOTSUPP) {
		return queues{1, 1}, nil
	} else if err != nil {
		return queues{}, fmt.Errorf("read the number of queues: %w", err)
	}
	return queues{
		rx: max(1, int(channels.rxCount+channels.combinedNow)),
		tx: max(1, int(channels.txCount+channels.combinedNow)),
	}, nil
}

// ethtoolValue is struct ethtool_value (include/uapi/linux/ethtool.h).
type ethtoolValue struct{ cmd, data uint32 }

// flagRxVLAN is ETH_FLAG_RXVLAN of the same file.
const flagRxVLAN = 1 << 8

// takesTags reports whether a device takes VLAN tags out of the frames that it receives. The kernel
// then keeps them beside the frame, where no XDP program sees them. For a veth the feature of its
// other end decides, so the result is false.
func takesTags(name, kind string) bool {
	flags := ethtoolValue{cmd: unix.ETHTOOL_GFLAGS}
	return kind != "veth" && ethtool(name, unsafe.Pointer(&flags)) == nil && flags.data&flagRxVLAN != 0
}
