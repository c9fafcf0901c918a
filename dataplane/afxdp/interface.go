package afxdp

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/xsk"
	"github.com/rocast/rocast/roce"
)

// iface is a configured interface. Control owns it: the workers know nothing
// but the sockets in their ports.
type iface struct {
	info dataplane.PortInfo // as last looked at
	room int                // chunks that one worker's queues may receive into

	xdp     *bpf.Port       // nil: not open
	sockets [][]*xsk.Socket // by worker
	as      seen            // what it was opened as
	past    xsk.Stats       // of the sockets there were before
	failure failure
}

// seen is what the kernel says of an interface.
type seen struct {
	ifIndex int
	mac     roce.MAC
	mtu     int
	up      bool
	queues  queues
}

// errGone: no interface has the name.
var errGone = errors.New("no interface has this name; `ip link` lists those there are")

// ErrConfig is what an error of Open is when every Open with the same Config
// would repeat it on the interfaces as they are.
var ErrConfig = errors.New("the interfaces do not have what the config asks for")

// misfit marks an error as ErrConfig and keeps its sentence.
type misfit struct{ error }

func (misfit) Is(target error) bool { return target == ErrConfig }
func (m misfit) Unwrap() error      { return m.error }

// look reads what the kernel knows of an interface.
func look(name string) (seen, error) {
	link, err := netlink.LinkByName(name)
	if notFound := (netlink.LinkNotFoundError{}); errors.As(err, &notFound) || errors.Is(err, unix.ENODEV) {
		return seen{}, errGone
	} else if err != nil {
		return seen{}, err
	}
	a := link.Attrs()
	if len(a.HardwareAddr) != len(roce.MAC{}) {
		return seen{}, misfit{errors.New("it is not an Ethernet interface; name one towards hosts")}
	}
	now := seen{ifIndex: a.Index, mac: roce.MAC(a.HardwareAddr), mtu: a.MTU}
	// Drivers that do not tell have the state "unknown".
	now.up = a.Flags&net.FlagUp != 0 && (a.OperState == netlink.OperUp || a.OperState == netlink.OperUnknown)
	if now.queues, err = countQueues(name); errors.Is(err, unix.ENODEV) {
		return seen{}, errGone // meanwhile
	}
	return now, err
}

// carries refuses an interface on which some worker could not send or receive:
// worker i sends by queue i, and the kernel loses without a word what is sent by
// a queue that is not there.
func (now seen) carries(name string, workers int) error {
	q := now.queues
	if has := min(q.rx, q.tx); has < workers {
		return misfit{fmt.Errorf("it has %d RX and %d TX queues for %d workers; `ethtool -L %s combined %d` (or rx %d tx %d) gives it more, or use fewer workers",
			q.rx, q.tx, workers, name, workers, workers, workers)}
	}
	if q.rx > bpf.QueuesMax {
		return misfit{fmt.Errorf("it has %d RX queues and %d can be served; reduce them with `ethtool -L %s combined %d`", q.rx, bpf.QueuesMax, name, bpf.QueuesMax)}
	}
	return nil
}

// note takes over what may change while the port stays open.
func (f *iface) note(now seen) {
	f.info.IfIndex, f.info.MAC, f.info.MTU, f.info.Queues = now.ifIndex, now.mac, now.mtu, now.queues.rx
}

// obtained notes what the interface got, by one of its sockets.
func (f *iface) obtained(s *xsk.Socket) {
	o := s.Obtained()
	f.info.Attach, f.info.Mode, f.info.MultiBuffer = f.xdp.Mode().String(), o.Mode.String(), o.MultiBuffer
}

// outdated says whether an open port has to be opened again: another interface
// has its name, its device went away in between, or it has other queues.
func (f *iface) outdated(now seen) bool {
	return f.as.ifIndex != now.ifIndex || f.as.queues != now.queues || f.sockets[0][0].Lost()
}
