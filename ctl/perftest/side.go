package perftest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// side is the TCP connection to one perftest process. A goroutine of its own reads from it, so that a hang-up is noticed
// while nobody waits for a message.
type side struct {
	name string // "client 10.77.0.1"
	addr netip.Addr
	conn net.Conn

	rest []byte        // what came and has not been taken
	in   chan []byte   // what comes; closed when the side has hung up
	gone chan struct{} // closed just after in
}

const (
	// chunkBytes bounds one read: more than any message. With what in holds it bounds the memory that a side which
	// talks without end can take; the rest waits in its own socket.
	chunkBytes  = 256
	writeWithin = 5 * time.Second // of a message that fits into any socket's buffer
)

func newSide(role string, conn net.Conn) *side {
	at := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	return &side{
		name: fmt.Sprintf("%s %v", role, at), addr: at, conn: conn,
		in: make(chan []byte, 1), gone: make(chan struct{}),
	}
}

// pump reads until the side hangs up, the connection is closed or ctx is done.
func (s *side) pump(ctx context.Context) {
	defer close(s.gone)
	defer close(s.in)
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
			return
		}
	}
}

// write sends one message with one write: the other end takes it with a single read and fails if that is short. Go sets
// TCP_NODELAY.
func (s *side) write(message []byte) error {
	s.conn.SetWriteDeadline(time.Now().Add(writeWithin))
	if _, err := s.conn.Write(message); err != nil {
		return hungUp{s}
	}
	return nil
}

// read takes a message of a length that is known. It gives up when abort is closed.
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
			return nil, fmt.Errorf("%s was silent for %v when it was its turn", s.name, within)
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

// spokeUp says whether the side has sent something that nobody has taken.
func (s *side) spokeUp() bool { return len(s.rest) > 0 || len(s.in) > 0 }

// hungUp is the end of a connection by the other side.
type hungUp struct{ side *side }

func (h hungUp) Error() string { return h.side.name + " hung up" }

func isHungUp(err error) bool { return errors.As(err, new(hungUp)) }
