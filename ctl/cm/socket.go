package cm

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/roce"
	wire "github.com/rocast/rocast/roce/cm"
)

// socket sends and receives messages of RDMA-CM and of control connections at one address, by the
// kernel's routes and neighbours. It is a raw socket, because the ICRC covers fields of the IP
// header.
//
// The kernel would answer datagrams to a UDP port at which nobody listens with an ICMP error. So a
// second socket listens there, and drops everything.
type socket struct {
	ip  netip.Addr
	raw *net.IPConn
	udp *net.UDPConn
	id  uint16 // of the last packet sent
	psn roce.PSN
}

const (
	srcPort    = 0xC000 // what RoCE senders begin with
	hopLimit   = 64
	etherBytes = 14
	ipv6Bytes  = 40
	maxPacket  = 4352 // with path MTU 4096
	lastRC     = 0x1F // opcodes of RC are up to here
	// sendBytes is room in the kernel for a REQ to each of 1024 receivers, four times.
	sendBytes = 4 << 20
)

// toBox passes UDP datagrams to RoCE's port that hold a UD SEND ONLY to queue pair 1, or a packet
// of RC. X is where the UDP header begins.
var toBox = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_IND, K: 2},       // UDP destination port
	{Code: unix.BPF_JMP | unix.BPF_JEQ, Jf: 7, K: roce.UDPPort}, //
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_IND, K: 8},       // opcode
	{Code: unix.BPF_JMP | unix.BPF_JGT, Jf: 4, K: lastRC},
	{Code: unix.BPF_JMP | unix.BPF_JEQ, Jf: 4, K: uint32(roce.OpUDSendOnly)},
	{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_IND, K: 12}, // destination QPN
	{Code: unix.BPF_ALU | unix.BPF_AND, K: 0xFFFFFF},
	{Code: unix.BPF_JMP | unix.BPF_JEQ, Jf: 1, K: uint32(wire.QPN)},
	{Code: unix.BPF_RET, K: maxPacket},
	{Code: unix.BPF_RET},
}

// A raw socket of IPv4 gets packets that begin with their IP header, and one of IPv6 gets them
// without.
var (
	behindIPv4 = unix.SockFilter{Code: unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH, K: 0}
	atFront    = unix.SockFilter{Code: unix.BPF_LDX | unix.BPF_IMM, K: 0}
)

var nothing = []unix.SockFilter{{Code: unix.BPF_RET}}

func openSocket(ip netip.Addr) (*socket, error) {
	family := "4"
	if ip.Is6() {
		family = "6"
	}
	udp, err := net.ListenUDP("udp"+family, net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, roce.UDPPort)))
	if err != nil {
		return nil, fmt.Errorf("listen on UDP %d, where RoCE arrives: %w; another service at this IP may use it", roce.UDPPort, err)
	}
	if err := control(udp, func(fd int) error { return attach(fd, nothing) }); err != nil {
		udp.Close()
		return nil, err
	}
	s, err := openRaw(ip)
	if err != nil {
		udp.Close()
		return nil, err
	}
	s.udp = udp
	return s, nil
}

// openRaw opens a socket without the second one.
func openRaw(ip netip.Addr) (*socket, error) {
	network := "ip4:udp"
	if ip.Is6() {
		network = "ip6:udp"
	}
	raw, err := net.ListenIP(network, &net.IPAddr{IP: ip.AsSlice()})
	if err != nil {
		return nil, fmt.Errorf("open a raw socket: %w", err)
	}
	s := &socket{ip: ip, raw: raw}
	if err := s.arrange(); err != nil {
		raw.Close()
		return nil, fmt.Errorf("set up a raw socket: %w", err)
	}
	return s, nil
}

func (s *socket) arrange() error {
	front, level, headerIncluded := behindIPv4, unix.IPPROTO_IP, unix.IP_HDRINCL
	if s.ip.Is6() {
		front, level, headerIncluded = atFront, unix.IPPROTO_IPV6, unix.IPV6_HDRINCL
	}
	return control(s.raw, func(fd int) error {
		if err := attach(fd, append([]unix.SockFilter{front}, toBox...)); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBytes); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
		return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, level, headerIncluded, 1))
	})
}

func attach(fd int, filter []unix.SockFilter) error {
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return os.NewSyscallError("setsockopt", unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program))
}

func control(conn syscall.Conn, do func(fd int) error) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = do(int(fd)) }); err != nil {
		return err
	}
	return failed
}

func (s *socket) close() {
	s.raw.Close()
	s.udp.Close()
}

// receive waits for a Heard or a Received. err is that of a packet, if there is one; lost: the
// socket is closed.
func (s *socket) receive() (event Event, err, lost error) {
	ip := roce.IPUDP{Src: s.ip, Dst: s.ip, HopLimit: hopLimit}
	frame := roce.AppendEthernet(make([]byte, 0, etherBytes+ipv6Bytes+maxPacket), roce.MAC{}, roce.MAC{}, ip.EtherType())
	if s.ip.Is6() {
		frame = ip.Append(frame, 0)[:etherBytes+ipv6Bytes]
	}
	n, _, _, from, lost := s.raw.ReadMsgIP(frame[len(frame):cap(frame)], nil)
	if lost != nil {
		return nil, nil, lost
	}
	if s.ip.Is6() { // the kernel keeps the header for itself; the ICRC covers its length and addresses
		binary.BigEndian.PutUint16(frame[etherBytes+4:], uint16(n))
		copy(frame[etherBytes+8:], from.IP.To16())
	}
	event, err = decode(frame[:len(frame)+n], sender(from))
	return event, err, nil
}

func sender(from *net.IPAddr) netip.Addr {
	addr, _ := netip.AddrFromSlice(from.IP)
	return addr.Unmap()
}

func decode(frame []byte, from netip.Addr) (Event, error) {
	var v roce.View
	if v.Decode(frame, len(frame)) == nil && v.Opcode.IsRC() {
		return decodeRC(frame, &v, from)
	}
	mad, err := wire.Decode(frame)
	if err != nil {
		return nil, err
	}
	return Heard{from, mad}, nil
}

// decodeRC reads a frame of a control connection.
func decodeRC(frame []byte, v *roce.View, from netip.Addr) (Event, error) {
	if !v.ICRCValid([][]byte{frame}) {
		return nil, wire.ErrICRC
	}
	var bth roce.BTH
	rest, err := bth.Decode(frame[v.BTH:])
	if err != nil {
		return nil, err
	}
	p := Packet{Opcode: v.Opcode, PSN: bth.PSN}
	switch v.Opcode {
	case roce.OpAck:
		if _, err := p.AETH.Decode(rest); err != nil {
			return nil, err
		}
	case roce.OpSendOnly:
		p.Payload = frame[v.Payload : v.Payload+v.PayloadBytes]
	}
	return Received{from, p, bth.DestQPN}, nil
}

// send is called by one goroutine at a time.
func (s *socket) send(to netip.Addr, mad *wire.MAD) error {
	s.psn = s.psn.Next()
	return s.write(to, mad.Append(nil, s.psn))
}

// transmit is called by one goroutine at a time.
func (s *socket) transmit(to netip.Addr, p *Packet) error {
	bth := roce.BTH{
		Opcode: p.Opcode, PKey: roce.DefaultPKey, DestQPN: p.QPN, PSN: p.PSN, AckReq: p.Opcode != roce.OpAck,
		PadCount: roce.PadFor(len(p.Payload)),
	}
	b := bth.Append(nil)
	switch p.Opcode {
	case roce.OpAck:
		b = p.AETH.Append(b)
	case roce.OpWriteOnly:
		b = (&roce.RETH{DMABytes: uint32(len(p.Payload))}).Append(b)
	}
	b = append(b, p.Payload...)
	return s.write(to, append(b, make([]byte, bth.PadCount)...))
}

// nextID returns the IP identification of the next packet. It is never 0: the kernel replaces 0,
// which would make the ICRC wrong.
func (s *socket) nextID() uint16 {
	s.id = max(s.id+1, 1)
	return s.id
}

// write sends a packet, which begins with its BTH. It does not wait for room in the kernel, where
// packets to hosts that are off stay for seconds: all other hosts would wait too.
func (s *socket) write(to netip.Addr, transport []byte) error {
	ip := roce.IPUDP{Src: s.ip, Dst: to, HopLimit: hopLimit, ID: s.nextID(), SrcPort: srcPort}
	frame := roce.AppendEthernet(nil, roce.MAC{}, roce.MAC{}, ip.EtherType())
	frame, err := roce.AppendICRC(append(ip.Append(frame, len(transport)), transport...))
	if err != nil {
		return err
	}
	var address unix.Sockaddr = &unix.SockaddrInet6{Addr: to.As16()}
	if to.Is4() {
		address = &unix.SockaddrInet4{Addr: to.As4()}
	}
	return control(s.raw, func(fd int) error {
		return os.NewSyscallError("sendto", unix.Sendto(fd, frame[etherBytes:], 0, address))
	})
}
