package endpoint

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/roce"
)

const (
	// socketBytes is the buffer size that is asked for in each direction: it holds some thousands
	// of frames, more than all windows of a test.
	socketBytes = 16 << 20

	// sendPatience is how long a send buffer may stay full before a frame is given up as lost.
	sendPatience = 100 * time.Millisecond
)

// socket is an AF_PACKET socket that receives the RoCEv2 frames of one interface. It belongs to the
// goroutine in receive, except for wake and the methods that are called with the mutex of the
// endpoint held.
type socket struct {
	file *os.File
	raw  syscall.RawConn
	rx   *batch
	tx   *batch

	readFn  func(fd uintptr) bool // read as a func value, made once so that no call allocates
	writeFn func(fd uintptr)      // the same for write
	arrived int
	readErr unix.Errno
	mayWait bool

	queued      int // frames in tx
	lost        uint64
	kernelDrops uint64
}

func openSocket(ifIndex int, ipv6 bool) (*socket, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	if err := prepare(fd, ifIndex, ipv6); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	s := &socket{file: os.NewFile(uintptr(fd), "packet socket"), rx: newBatch(), tx: newBatch(), mayWait: true}
	s.readFn, s.writeFn = s.read, s.write
	if s.raw, err = s.file.SyscallConn(); err != nil {
		s.file.Close()
		return nil, err
	}
	return s, nil
}

// prepare sets the filter before it binds the socket, so that no other frame gets in.
func prepare(fd, ifIndex int, ipv6 bool) error {
	protocol, filter := uint16(unix.ETH_P_IP), ipv4Filter
	if ipv6 {
		protocol, filter = unix.ETH_P_IPV6, ipv6Filter
	}
	if err := attachFilter(fd, filter); err != nil {
		return err
	}
	for _, option := range []struct{ force, plain int }{
		{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF}, {unix.SO_SNDBUFFORCE, unix.SO_SNDBUF},
	} {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, option.force, socketBytes) == nil {
			continue
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, option.plain, socketBytes); err != nil {
			return fmt.Errorf("buffer size: %w", err)
		}
	}
	return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bits.ReverseBytes16(protocol), Ifindex: ifIndex})
}

func (s *socket) close() { s.file.Close() }

// receive waits for frames, for the time that wakeAt has set, or for wake. It returns how many
// frames there are.
func (s *socket) receive() (frames int, err error) {
	s.arrived, s.readErr = 0, 0
	err = s.raw.Read(s.readFn)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, nil
	case err != nil:
		return 0, ErrClosed
	case s.readErr == unix.ENETDOWN: // reported once; the interface may come back
		return 0, nil
	case s.readErr != 0 && s.readErr != unix.EAGAIN:
		return 0, fmt.Errorf("packet socket: receive: %w", s.readErr)
	}
	return s.arrived, nil
}

func (s *socket) read(fd uintptr) (done bool) {
	n, errno := s.rx.receive(fd)
	if errno == unix.EAGAIN && s.mayWait {
		return false
	}
	if s.readErr = errno; errno == 0 {
		s.arrived = n
	}
	return true
}

func (s *socket) frame(i int) []byte { return s.rx.received(i) }

// wakeAt sets how long the next receive may wait: until next, for ever if that is zero, or not at
// all.
func (s *socket) wakeAt(next time.Time, wait bool) {
	s.mayWait = wait
	_ = s.file.SetReadDeadline(next)
}

var longAgo = time.Unix(1, 0)

// wake ends the wait of the present receive, or of the next one.
func (s *socket) wake() { _ = s.file.SetReadDeadline(longAgo) }

// buffer is where the next frame to be sent is built.
func (s *socket) buffer() []byte { return s.tx.buffers[s.queued] }

// send queues the frame that was built in buffer.
func (s *socket) send(bytes int) {
	s.tx.setBytes(s.queued, bytes)
	if s.queued++; s.queued == batchFrames {
		s.flush()
	}
}

// flush gives the queued frames to the kernel.
func (s *socket) flush() {
	if s.queued > 0 {
		_ = s.raw.Control(s.writeFn) // fails when the socket is closed; then the frames do not matter
		s.queued = 0
	}
}

func (s *socket) write(fd uintptr) {
	for first := 0; first < s.queued; {
		n, errno := s.tx.send(fd, first, s.queued)
		switch {
		case errno == 0:
			first += n
		case errno == unix.EAGAIN && waitWritable(fd):
		default: // this frame is lost, as on a wire
			s.lost++
			first++
		}
	}
}

func waitWritable(fd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	n, err := unix.Poll(fds, int(sendPatience.Milliseconds()))
	return n == 1 && err == nil
}

// drops returns how many frames did not fit the receive buffer, and how many could not be sent.
func (s *socket) drops() (received, sent uint64) {
	_ = s.raw.Control(func(fd uintptr) {
		if stats, err := unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
			s.kernelDrops += uint64(stats.Drops) // reading the counter resets it
		}
	})
	return s.kernelDrops, s.lost
}

// Offsets in an untagged Ethernet frame.
const (
	ipv4Protocol, ipv4Fragment = 23, 20
	ipv6NextHeader, ipv6Port   = 20, 56
)

// The filters take UDP port 4791 only; TCP and everything else of the namespace is not for the
// endpoint.
var (
	ipv4Filter = []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: ipv4Protocol},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 6, K: unix.IPPROTO_UDP},
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: ipv4Fragment},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jt: 4, K: 0x1FFF},
		{Code: unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH, K: 14}, // X = IPv4 header length
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_IND, K: 14 + 2},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: roce.UDPPort},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xFFFF},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	ipv6Filter = []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: ipv6NextHeader},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: unix.IPPROTO_UDP},
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: ipv6Port},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: roce.UDPPort},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xFFFF},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	dropFilter = []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
)

func attachFilter(fd int, program []unix.SockFilter) error {
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &fprog); err != nil {
		return fmt.Errorf("attach filter: %w", err)
	}
	return nil
}
