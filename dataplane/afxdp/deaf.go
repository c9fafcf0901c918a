package afxdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
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

// The two ways in which a port that is open gives no frame to rocast.
const (
	notRun  = "its driver takes rocast's XDP program and does not run it"
	notKept = "the kernel drops what the XDP program redirects to its sockets"
)

// isDeaf says why frames that come by an open port do not get to the workers; "": they do, or none
// comes.
func (s *Switch) isDeaf(f *iface) string {
	if f.stack != nil && s.sees(f.xdp) {
		f.stack.close()
		f.stack = nil
	}
	if f.stack.some() {
		return notRun
	}
	if f.loses(time.Now()) {
		return notKept
	}
	return ""
}

// hearing is what was seen of the sockets of a port.
type hearing struct {
	frames uint64    // the sum of xsk.Socket.Heard
	since  time.Time // when the first look found that frames were redirected and not heard; zero: none did
}

// lostFor is how long frames have to be redirected, and none of them heard, until a port is deaf. A
// frame that was redirected just now is with its socket long before.
const lostFor = 100 * time.Millisecond

// loses reports whether the classifier redirects frames to the sockets of a port, and the kernel
// gives them none.
func (f *iface) loses(now time.Time) bool {
	var heard uint64
	for _, socket := range slices.Concat(f.sockets...) {
		n, err := socket.Heard()
		if err != nil {
			return false
		}
		heard += n
	}
	return f.hearing.look(f.xdp.Redirected(), heard, now)
}

// look is one look at a port: whether the classifier redirected a frame since the look before, and
// what the sockets have heard.
func (h *hearing) look(redirected bool, heard uint64, now time.Time) (deaf bool) {
	switch {
	case heard != h.frames:
		*h = hearing{frames: heard}
	case redirected && h.since.IsZero():
		h.since = now
	case redirected:
		return now.Sub(h.since) >= lostFor
	}
	return false
}

// openGeneric opens a port in generic mode, in which the kernel instead of the driver runs the
// program, and frames that are redirected arrive. A port that is deaf there too, or has to be in
// native mode, fails until its interface is another one.
func (s *Switch) openGeneric(f *iface, now seen, why string) {
	if generic := s.attach == bpf.ModeAuto && f.xdp.Mode() == bpf.ModeNative; generic {
		s.fallBack(f, now, why)
		return
	}
	remedy := ""
	if f.xdp.Mode() == bpf.ModeNative {
		remedy = "; set mode: generic in the config"
	}
	s.shut(f, dataplane.PortFailed, fmt.Errorf("%s, so that no frame of a group gets to rocast%s", why, remedy))
	f.failure = failure{as: now, again: time.Now().AddDate(100, 0, 0)}
}

// fallBack closes a port, which is then opened in generic mode.
func (s *Switch) fallBack(f *iface, now seen, why string) {
	f.generic, f.fallback = now.ifIndex, why
	s.shut(f, dataplane.PortFailed, nil)
	s.warnOnce(dataplane.Warning{Port: f.info.Name, Text: "the port works in generic mode", Detail: why})
}
