package address

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel sends requests only for addresses it wants to send to, and uses one of its own
// addresses as the sender. The questions here must have no sender address: 0.0.0.0 in ARP, :: in a
// neighbour solicitation.
const (
	arpRequest             = 1
	neighbourSolicitation  = 135
	neighbourAdvertisement = 136
	hardwareEthernet       = 1
	icmpv6                 = 58
	arpBytes, ipv6Bytes    = 28, 40
	icmpTarget             = 8 // offset in a solicitation and an advertisement
	icmpBytes              = icmpTarget + 16
	macBytes, ipv4Bytes    = 6, 4
	arpSender              = 14 // offset of the sender's IP
)

var errNobody = errors.New("nobody can be asked there")

// packets is a question in the form of frames on one interface.
type packets struct {
	socket  *os.File
	to      *unix.SockaddrLinklayer
	request []byte
	isReply func([]byte) bool
}

// ask opens a question for the IP. It returns an error if no host can hear the question.
func (k *netlinkKernel) ask(p IfAddr) (question, error) {
	mac, err := k.asker(p.IfIndex)
	if err != nil {
		return nil, err
	}
	q := newPackets(p, mac)
	if q.socket, err = packetSocket(q.to); err != nil {
		return nil, err
	}
	return q, nil
}

// asker returns the MAC of an interface. It returns an error if no host can hear it there.
func (k *netlinkKernel) asker(ifIndex int) (mac [macBytes]byte, err error) {
	l, err := k.LinkByIndex(ifIndex)
	if err != nil {
		return mac, err
	}
	attrs := l.Attrs()
	if attrs.RawFlags&unix.IFF_LOWER_UP == 0 || attrs.RawFlags&unix.IFF_NOARP != 0 || len(attrs.HardwareAddr) != macBytes {
		return mac, errNobody
	}
	return [macBytes]byte(attrs.HardwareAddr), nil
}

// newPackets returns the question of an interface that has the MAC from, still without a socket.
func newPackets(p IfAddr, from [macBytes]byte) *packets {
	target := p.IP.As16()
	q := &packets{to: toHosts(p, [4]byte{0xff, target[13], target[14], target[15]})}
	if p.IP.Is4() {
		q.request = arpRequestOf(from, netip.IPv4Unspecified(), p.IP)
		q.isReply = func(packet []byte) bool { return isARPReply(packet, p.IP) }
		return q
	}
	q.request = solicitation(p.IP)
	q.isReply = func(packet []byte) bool { return isAdvertisement(packet, p.IP) }
	return q
}

// toHosts addresses all hosts on an interface in IPv4, and in IPv6 those in a multicast group, of
// whose address low is the end (RFC 2464, 7).
func toHosts(p IfAddr, low [4]byte) *unix.SockaddrLinklayer {
	to := &unix.SockaddrLinklayer{Ifindex: p.IfIndex, Halen: macBytes}
	if p.IP.Is4() {
		to.Protocol = networkOrder(unix.ETH_P_ARP)
		copy(to.Addr[:], []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
		return to
	}
	to.Protocol = networkOrder(unix.ETH_P_IPV6)
	copy(to.Addr[:], append([]byte{0x33, 0x33}, low[:]...))
	return to
}

// packetSocket opens a socket for one protocol on one interface. The socket is created without a
// protocol; otherwise it would receive from all interfaces until it is bound. It does not receive
// what the box itself sends: only sockets for all protocols do.
func packetSocket(at *unix.SockaddrLinklayer) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	if at.Protocol == networkOrder(unix.ETH_P_IPV6) {
		err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, onlyAdvertisements())
	}
	err = errors.Join(err, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: at.Protocol, Ifindex: at.Ifindex}))
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	return os.NewFile(uintptr(fd), "packet socket"), nil
}

// onlyAdvertisements filters the socket, so that other IPv6 traffic on a busy interface cannot fill
// it.
func onlyAdvertisements() *unix.SockFprog {
	const nextHeader = 6 // offset in the IPv6 header
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: nextHeader},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: icmpv6, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: ipv6Bytes},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: neighbourAdvertisement, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: math.MaxUint32}, // the whole packet
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	return &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
}

func (q *packets) put() error {
	conn, _ := q.socket.SyscallConn() // fails for a nil file only
	var sent error
	err := conn.Write(func(fd uintptr) bool {
		sent = unix.Sendto(int(fd), q.request, 0, q.to)
		return !errors.Is(sent, unix.EAGAIN)
	})
	return errors.Join(err, sent)
}

func (q *packets) answer(deadline time.Time) (mac [6]byte, err error) {
	if err := q.socket.SetReadDeadline(deadline); err != nil {
		return mac, err
	}
	packet := make([]byte, ipv6Bytes+icmpBytes) // longer than an ARP packet; the kernel drops the rest
	for {
		n, from, err := receive(q.socket, packet)
		if err != nil {
			return mac, err
		}
		if link, ok := from.(*unix.SockaddrLinklayer); ok && q.isReply(packet[:n]) {
			return [macBytes]byte(link.Addr[:macBytes]), nil
		}
	}
}

// receive waits for a packet.
func receive(socket *os.File, packet []byte) (n int, from unix.Sockaddr, err error) {
	conn, _ := socket.SyscallConn() // fails for a nil file only
	var heard error
	err = conn.Read(func(fd uintptr) bool {
		n, from, heard = unix.Recvfrom(int(fd), packet, 0)
		return !errors.Is(heard, unix.EAGAIN)
	})
	return max(n, 0), from, errors.Join(err, heard)
}

func (q *packets) close() { q.socket.Close() }

// arpRequestOf returns an ARP request for ip. Without a sender, 0.0.0.0, it is a probe; with ip
// itself it announces ip.
func arpRequestOf(from [macBytes]byte, sender, ip netip.Addr) []byte {
	b := make([]byte, 0, arpBytes)
	b = binary.BigEndian.AppendUint16(b, hardwareEthernet)
	b = binary.BigEndian.AppendUint16(b, unix.ETH_P_IP)
	b = append(b, macBytes, ipv4Bytes)
	b = binary.BigEndian.AppendUint16(b, arpRequest)
	b = append(b, from[:]...)
	b = append(b, sender.AsSlice()...)
	b = append(b, make([]byte, macBytes)...)
	return append(b, ip.AsSlice()...)
}

// isARPReply reports whether a host claims ip. This includes the announcement of a host that starts
// to use ip now (RFC 5227, 2.1.1: a conflict), although an announcement is an ARP request.
func isARPReply(b []byte, ip netip.Addr) bool {
	return len(b) >= arpBytes && binary.BigEndian.Uint16(b[2:]) == unix.ETH_P_IP && netip.AddrFrom4([4]byte(b[arpSender:])) == ip
}

// solicitation returns the neighbour solicitation for duplicate address detection.
func solicitation(ip netip.Addr) []byte {
	target := ip.As16()
	to := [16]byte{0xff, 0x02, 11: 1, 12: 0xff, 13: target[13], 14: target[14], 15: target[15]}
	return finish(icmpPacket(netip.IPv6Unspecified(), netip.AddrFrom16(to), neighbourSolicitation, ip))
}

// icmpPacket returns an ICMPv6 packet about a target. Options may be appended before finish.
func icmpPacket(from, to netip.Addr, kind byte, target netip.Addr) []byte {
	b := make([]byte, ipv6Bytes+icmpBytes)
	b[0], b[6], b[7] = 6<<4, icmpv6, 255
	copy(b[8:], from.AsSlice())
	copy(b[24:], to.AsSlice())
	b[ipv6Bytes] = kind
	copy(b[ipv6Bytes+icmpTarget:], target.AsSlice())
	return b
}

// finish writes the length and the checksum.
func finish(b []byte) []byte {
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-ipv6Bytes))
	binary.BigEndian.PutUint16(b[ipv6Bytes+2:], checksum(b))
	return b
}

// checksum returns the checksum of an ICMPv6 packet whose checksum field is 0. It covers the pseudo
// header: addresses, length, next header.
func checksum(packet []byte) uint16 {
	sum := uint32(len(packet) - ipv6Bytes + icmpv6)
	for at := 8; at < len(packet); at += 2 {
		sum += uint32(binary.BigEndian.Uint16(packet[at:]))
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func isAdvertisement(b []byte, ip netip.Addr) bool {
	return len(b) >= ipv6Bytes+icmpBytes && b[6] == icmpv6 && b[ipv6Bytes] == neighbourAdvertisement &&
		netip.AddrFrom16([16]byte(b[ipv6Bytes+icmpTarget:])) == ip
}

func networkOrder(protocol uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, protocol))
}
