package xsk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Poller waits for frames on many sockets, or for another goroutine. Only Wake may be called from elsewhere than the
// sockets' thread.
type Poller struct {
	fds  []unix.PollFd // the first is wake's
	wake *os.File      // an eventfd, as a file so that Wake never writes to a number that was closed and used again
	fd   int
}

// NewPoller returns a poller that watches the sockets.
func NewPoller(sockets ...*Socket) (*Poller, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create eventfd: %w", err)
	}
	p := &Poller{wake: os.NewFile(uintptr(fd), "eventfd"), fd: fd}
	p.Watch(sockets...)
	return p, nil
}

// Watch replaces the sockets that are watched. A closed socket must not stay among them.
func (p *Poller) Watch(sockets ...*Socket) {
	p.fds = append(p.fds[:0], unix.PollFd{Fd: int32(p.fd), Events: unix.POLLIN})
	for _, s := range sockets {
		p.fds = append(p.fds, unix.PollFd{Fd: int32(s.fd), Events: unix.POLLIN})
	}
}

// Poll blocks until a frame is there, Wake was called or the time is over, and reports whether Wake was. It may return
// early without a reason. The scheduler is told, so a blocked worker does not hold up the program; looking at the rings
// (Receive) needs no Poll and is what a worker that spins does. In copy mode it also sends what is on the TX rings.
func (p *Poller) Poll(timeout time.Duration) (woken bool, err error) {
	limit := unix.NsecToTimespec(int64(max(timeout, 0)))
	_, err = unix.Ppoll(p.fds, &limit, nil)
	if errors.Is(err, unix.EINTR) {
		return false, nil // the runtime's own signals
	}
	if err != nil {
		return false, fmt.Errorf("poll %d sockets: %w", len(p.fds)-1, err)
	}
	if p.fds[0].Revents == 0 {
		return false, nil
	}
	var count [8]byte
	if _, err := unix.Read(p.fd, count[:]); err != nil {
		return false, fmt.Errorf("read eventfd: %w", err)
	}
	return true, nil
}

// Wake ends the Poll under way, or the next one. Any goroutine may call it.
func (p *Poller) Wake() error {
	_, err := p.wake.Write(binary.NativeEndian.AppendUint64(nil, 1))
	return err
}

// Close releases the eventfd, not the sockets.
func (p *Poller) Close() error { return p.wake.Close() }
