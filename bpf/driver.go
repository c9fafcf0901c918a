package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// DriverFeatures is what an interface's driver says of its XDP (enum netdev_xdp_act, include/uapi/linux/netdev.h).
type DriverFeatures uint64

const (
	xdpBasic      DriverFeatures = 1 << 0
	xdpRedirect   DriverFeatures = 1 << 1
	xskZeroCopy   DriverFeatures = 1 << 3
	xdpRxFragment DriverFeatures = 1 << 5
)

// Native: the driver runs XDP programs and their redirects itself.
func (d DriverFeatures) Native() bool { return d&xdpBasic != 0 && d&xdpRedirect != 0 }

// ZeroCopy: AF_XDP sockets can share their memory with the NIC.
func (d DriverFeatures) ZeroCopy() bool { return d&xskZeroCopy != 0 }

// MultiBuffer: frames larger than one buffer reach the program in native mode.
func (d DriverFeatures) MultiBuffer() bool { return d&xdpRxFragment != 0 }

// Driver asks the kernel (>= 6.3, else [ebpf.ErrNotSupported]) what an interface can do. It attaches nothing.
func Driver(ifindex int) (DriverFeatures, error) {
	const (
		devGet          = 1 // NETDEV_CMD_DEV_GET
		attrIfindex     = 1 // NETDEV_A_DEV_IFINDEX
		attrXDPFeatures = 3 // NETDEV_A_DEV_XDP_FEATURES
	)
	family, err := netlink.GenlFamilyGet("netdev")
	if errors.Is(err, unix.ENOENT) {
		return 0, fmt.Errorf("XDP features of interface %d: the netdev netlink family needs a kernel >= 6.3: %w", ifindex, ebpf.ErrNotSupported)
	}
	if err != nil {
		return 0, fmt.Errorf("XDP features of interface %d: find the netdev netlink family: %w", ifindex, err)
	}
	req := nl.NewNetlinkRequest(int(family.ID), 0)
	req.AddData(genlHeader{devGet, uint8(family.Version)})
	req.AddData(nl.NewRtAttr(attrIfindex, binary.NativeEndian.AppendUint32(nil, uint32(ifindex))))
	replies, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return 0, fmt.Errorf("XDP features of interface %d: %w", ifindex, err)
	}
	for _, reply := range replies {
		attrs, err := nl.ParseRouteAttr(reply[len(genlHeader{}):])
		if err != nil {
			return 0, fmt.Errorf("XDP features of interface %d: %w", ifindex, err)
		}
		for _, attr := range attrs {
			if attr.Attr.Type == attrXDPFeatures && len(attr.Value) >= 8 {
				return DriverFeatures(binary.NativeEndian.Uint64(attr.Value)), nil
			}
		}
	}
	return 0, fmt.Errorf("XDP features of interface %d: the kernel's answer holds none", ifindex)
}

// genlHeader is struct genlmsghdr: command, version, and two reserved bytes that the kernel requires to be 0, which
// nl.Genlmsg leaves to chance.
type genlHeader [4]byte

func (h genlHeader) Len() int          { return len(h) }
func (h genlHeader) Serialize() []byte { return h[:] }
