package xsk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Poller waits for frames on many sockets, or for a call of Wake. Only Wake may be called by other
// threads than the sockets' own.
type Poller struct {
	fds []unix.PollFd // the first one is that of wake
	// wake is an eventfd. As an os.File it is never written to after Close, when its number may
	// belong to another file.
	wake *os.File
	fd   int

	frequent bool // a frame or Wake ended the last wait
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

// Watch replaces the sockets that are watched. None of them may be closed.
func (p *Poller) Watch(sockets ...*Socket) {
	p.fds = append(p.fds[:0], unix.PollFd{Fd: int32(p.fd), Events: unix.POLLIN})
	for _, s := range sockets {
		p.fds = append(p.fds, unix.PollFd{Fd: int32(s.fd), Events: unix.POLLIN})
	}
}

// shortWait is how long a wait may hold up Go's scheduler: a stop of all goroutines, for the
// garbage collector, waits for it.
const shortWait = time.Millisecond

// Poll blocks until a frame is there, Wake was called or the time is over, and reports whether Wake
// was called. It may return early without a reason. A worker that spins needs no Poll: Receive
// looks at the rings. In copy mode Poll also sends the descriptors on the TX rings.
//
// Go's scheduler knows of the wait, so other goroutines run meanwhile. Where a frame or Wake ended
// the wait before, so that this one may be short too, the scheduler knows of it only after
// shortWait.
func (p *Poller) Poll(timeout time.Duration) (woken bool, err error) {
	timeout = max(timeout, 0)
	if p.frequent {
		short := min(timeout, shortWait)
		n, err := waitRaw(p.fds, short)
		if n > 0 || err != nil {
			return p.woken(err)
		}
		timeout -= short
	}
	limit := unix.NsecToTimespec(int64(timeout))
	n, err := unix.Ppoll(p.fds, &limit, nil)
	p.frequent = n > 0
	return p.woken(err)
}

// Nap is Poll without the sockets: no frame ends it, and it costs less. Go's scheduler does not
// know of it, so timeout must not exceed a millisecond.
func (p *Poller) Nap(timeout time.Duration) (woken bool, err error) {
	_, err = waitRaw(p.fds[:1], timeout)
	return p.woken(err)
}

// Yield lets other threads of the CPU run that are ready to. It does not block, so it bypasses Go's
// scheduler.
func Yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// woken reports how a wait of this result ended.
func (p *Poller) woken(err error) (bool, error) {
	if errors.Is(err, unix.EINTR) {
		return false, nil // a signal of the Go runtime
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

// Wake ends the Poll or Nap that is running, or the next one if none is. Any goroutine may call it.
func (p *Poller) Wake() error {
	_, err := p.wake.Write(binary.NativeEndian.AppendUint64(nil, 1))
	return err
}

// Close releases the eventfd, not the sockets.
func (p *Poller) Close() error { return p.wake.Close() }
