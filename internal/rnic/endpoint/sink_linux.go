package endpoint

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/roce"
)

// sink is a UDP socket on port 4791 of the address of the endpoint. Its filter drops everything.
// Because the port has an owner, the kernel sends no "port unreachable".
type sink struct{ fd int }

func openSink(ip netip.Addr) (*sink, error) {
	family := unix.AF_INET
	if ip.Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("UDP socket: %w", err)
	}
	err = attachFilter(fd, dropFilter)
	if err == nil {
		err = unix.Bind(fd, sockaddr(netip.AddrPortFrom(ip, roce.UDPPort)))
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("take UDP port %d of %s: %w", roce.UDPPort, ip, err)
	}
	return &sink{fd: fd}, nil
}

func (s *sink) close() { unix.Close(s.fd) }

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}
