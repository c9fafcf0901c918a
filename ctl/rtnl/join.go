package rtnl

import (
	"fmt"
	"io"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Join lets an interface take what is sent to a multicast address, and says so to the network, by
// IGMP or MLD. It ends when the result is closed, or with the process. One socket may have few
// memberships (net.ipv4.igmp_max_memberships), so each has its own.
func Join(ifindex int, to netip.Addr) (io.Closer, error) {
	family := unix.AF_INET
	if to.Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("join %v: %w", to, err)
	}
	if to.Is6() {
		err = unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &unix.IPv6Mreq{Multiaddr: to.As16(), Interface: uint32(ifindex)})
	} else {
		err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &unix.IPMreqn{Multiaddr: to.As4(), Ifindex: int32(ifindex)})
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("join %v: %w", to, err)
	}
	return os.NewFile(uintptr(fd), to.String()), nil
}
