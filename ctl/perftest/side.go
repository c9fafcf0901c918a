package perftest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// side is the TCP connection to one perftest process. Each side has a goroutine that reads from the
// connection, so that a hang-up is noticed even while no step waits for a message.
type side struct {
	name string // "client 10.77.0.1"
	addr netip.Addr
	conn net.Conn

	rest []byte        // received bytes that no step has taken yet
	in   chan []byte   // received chunks; closed when the side has hung up
	gone chan struct{} // closed before in is closed
	lost error         // why it cannot be read any more; is set before gone is closed
}

const (
	// chunkBytes bounds one read. It is longer than any message. chunkBytes and the capacity of in
	// bound the memory that a side can use by sending without end; further bytes stay in the
	// socket.
	chunkBytes  = 256
	writeWithin = 5 * time.Second // for one message; each message fits into the buffer of any socket
)

// keepAlive finds a host that dies within ten seconds. Its kernel would have answered.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: time.Second, Count: asks}

// asks is how many questions of the kernel to a host that is there are lost.
const asks = 5

// unacknowledged is how long the kernel repeats what the other host does not acknowledge. It asks
// no question meanwhile, and would repeat for a quarter of an hour.
var unacknowledged = 10 * time.Second

// unacknowledgedAsked is the same while another client waits.
const unacknowledgedAsked = time.Second

// ask lets the kernel ask the host at once whether the connection still stands there, if nothing
// was heard of it in the last second: setting the time makes the kernel look at it. After as many
// questions without an answer as asks says the connection ends. With a limit for what is not
// acknowledged the kernel would not go by that number, so it has one only if something is not.
func (s *side) ask() {
	s.control(func(fd int) {
		limit := time.Duration(0)
		if n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ); err == nil && n > 0 {
			limit = unacknowledgedAsked
		}
		limitUnacknowledged(fd, limit)
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 1) // fails if it has ended
	})
}

// control calls f with the socket of the connection, if it has one that is not closed.
func (s *side) control(f func(fd int)) {
	tcp, ok := s.conn.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return // it has ended
	}
	_ = raw.Control(func(fd uintptr) { f(int(fd)) }) // fails if it has ended
}

// limitUnacknowledged bounds how long the kernel repeats; 0: as long as it does for everybody.
func limitUnacknowledged(fd int, limit time.Duration) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds())) // fails if it has ended
}

// isSilent reports whether a side that is gone has not hung up, but answered no more. The kernel
// says that no route leads to a host if that has not told its MAC meanwhile.
func (s *side) isSilent() bool {
	return errors.Is(s.lost, syscall.ETIMEDOUT) || errors.Is(s.lost, syscall.EHOSTUNREACH)
}

func newSide(role string, conn net.Conn) *side {
	at := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(keepAlive) // without it a host that dies is found later
	}
	return &side{
		name: fmt.Sprintf("%s %v", role, at), addr: at, conn: conn,
		in: make(chan []byte, 1), gone: make(chan struct{}),
	}
}

// pump reads until the side hangs up, the connection is closed or ctx is done.
func (s *side) pump(ctx context.Context) {
	defer close(s.in)
	defer close(s.gone) // first: who sees that in is closed says why
	for {
		chunk := make([]byte, chunkBytes)
		n, err := s.conn.Read(chunk)
		if n > 0 {
			select {
			case s.in <- chunk[:n]:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			s.lost = err
			return
		}
	}
}

// write sends one message with a single write, because perftest reads a message with a single read
// and fails after a short read. Go sets TCP_NODELAY.
func (s *side) write(message []byte) error {
	s.conn.SetWriteDeadline(time.Now().Add(writeWithin))
	s.control(func(fd int) { limitUnacknowledged(fd, unacknowledged) })
	if _, err := s.conn.Write(message); err != nil {
		return hungUp{s}
	}
	return nil
}

// read returns a message of the given length. It fails if abort hangs up.
func (s *side) read(ctx context.Context, length int, within time.Duration, abort *side) ([]byte, error) {
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	var aborted <-chan struct{}
	if abort != nil {
		aborted = abort.gone
	}
	for len(s.rest) < length {
		select {
		case chunk, ok := <-s.in:
			if !ok {
				return nil, hungUp{s}
			}
			s.rest = append(s.rest, chunk...)
		case <-aborted:
			return nil, hungUp{abort}
		case <-timeout.C:
			return nil, fmt.Errorf("%s was silent for %v at its turn", s.name, within)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return s.take(length), nil
}

func (s *side) take(length int) []byte {
	message := s.rest[:length:length]
	s.rest = s.rest[length:]
	return message
}

// spokeUp reports whether the side has sent bytes that no step has taken.
func (s *side) spokeUp() bool { return len(s.rest) > 0 || len(s.in) > 0 }

// hungUp is the error of a connection that the other side has closed.
type hungUp struct{ side *side }

func (h hungUp) Error() string {
	select {
	case <-h.side.gone:
		if h.side.isSilent() {
			return h.side.name + " does not answer any more"
		}
	default:
	}
	return h.side.name + " hung up"
}

func isHungUp(err error) bool { return errors.As(err, new(hungUp)) }
