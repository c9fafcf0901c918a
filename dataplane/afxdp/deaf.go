package afxdp

import (
	"encoding/binary"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/dataplane"
)

// stackFrames counts the frames that an interface gives to the kernel's network stack. A driver may
// take an XDP program and never run it, as virtio_net does without mergeable buffers at an MTU
// above 1500: then frames come here that the classifier has not seen. nil: nothing is counted.
type stackFrames struct {
	fd    int
	since time.Time
}

// countAfter is when counting begins. Before that, frames come that arrived before the classifier
// was attached.
const countAfter = 100 * time.Millisecond

// countStackFrames returns nil where the daemon may not look.
func countStackFrames(ifIndex int) *stackFrames {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	everyProtocol := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1), // what does not fit is counted too
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: everyProtocol, Ifindex: ifIndex}),
	)
	if err != nil {
		unix.Close(fd)
		return nil
	}
	return &stackFrames{fd: fd, since: time.Now()}
}

// some reports whether a frame has come since the last call.
func (s *stackFrames) some() bool {
	if s == nil {
		return false
	}
	n, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if time.Since(s.since) < countAfter {
		return false
	}
	late := s.since.IsZero() // the first call after countAfter forgets what came before
	s.since = time.Time{}
	return late && err == nil && n.Packets > 0
}

func (s *stackFrames) close() {
	if s != nil {
		unix.Close(s.fd)
	}
}

var errUnheard = errors.New("its driver takes rocast's XDP program and does not run it, so that no frame of a group gets to rocast; " +
	"set mode: generic in the config")

// isDeaf reports whether frames come by an open port, of which the classifier has seen none.
func (s *Switch) isDeaf(f *iface) bool {
	if f.stack != nil && s.sees(f.xdp) {
		f.stack.close()
		f.stack = nil
	}
	return f.stack.some()
}

// mendDeaf opens a port in generic mode, where the kernel runs the program and not the driver. A
// port that is deaf there too, or has to be in native mode, fails until its interface is another
// one.
func (s *Switch) mendDeaf(f *iface, now seen) {
	generic := s.attach == bpf.ModeAuto && f.xdp.Mode() == bpf.ModeNative
	if !generic {
		s.shut(f, dataplane.PortFailed, errUnheard)
		f.failure = failure{as: now, again: time.Now().AddDate(100, 0, 0)}
		return
	}
	f.generic = now.ifIndex
	s.shut(f, dataplane.PortFailed, nil)
	s.warnOnce(dataplane.Warning{Port: f.info.Name, Text: "the port works in generic mode, because its driver takes an XDP " +
		"program and does not run it"})
}
