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
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// iface is a configured interface. Control owns it; the workers know only the sockets of their
// ports.
type iface struct {
	info dataplane.PortInfo // as Refresh found it last
	room int                // number of chunks that one worker's queues may receive into
	free bool               // no port has this PortID: RemovePorts was called for it
	base bpf.Traffic        // what the kernel's fan-out had carried for this PortID before

	xdp      *bpf.Port       // nil: not open
	sockets  [][]*xsk.Socket // by worker
	as       seen            // the interface at the time it was opened
	past     xsk.Stats       // counters of sockets that are closed
	failure  failure
	generic  int          // ifindex of the device whose driver does not do what rocast needs in native mode
	fallback string       // what that is
	stack    *stackFrames // nil: the classifier has seen a frame
	hearing  hearing

	transmit transmit
}

func newIface(id mft.PortID, name string) *iface {
	return &iface{info: dataplane.PortInfo{ID: id, Name: name, State: dataplane.PortGone, Reason: errGone.Error()}}
}

// seen is the state of an interface as the kernel reports it.
type seen struct {
	ifIndex int
	mac     roce.MAC
	mtu     int
	up      bool
	tags    bool // the device takes VLAN tags out of the frames that it receives
	queues  queues
}

var errGone = errors.New("no interface has this name; `ip link` lists the interfaces")

// ErrConfig is wrapped by an error of Open if Open with the same Config would fail again as long as
// the interfaces stay as they are.
var ErrConfig = errors.New("the interfaces do not have what the config asks for")

// misfit marks an error as ErrConfig and keeps its sentence.
type misfit struct{ error }

func (misfit) Is(target error) bool { return target == ErrConfig }
func (m misfit) Unwrap() error      { return m.error }

// look reads the state of an interface.
func look(name string) (seen, error) {
	link, err := netlink.LinkByName(name)
	if notFound := (netlink.LinkNotFoundError{}); errors.As(err, &notFound) || errors.Is(err, unix.ENODEV) {
		return seen{}, errGone
	} else if err != nil {
		return seen{}, err
	}
	if err := refuseUpper(link); err != nil {
		return seen{}, err
	}
	a := link.Attrs()
	if len(a.HardwareAddr) != len(roce.MAC{}) {
		return seen{}, misfit{errors.New("it is not an Ethernet interface; name an interface towards hosts")}
	}
	now := seen{ifIndex: a.Index, mac: roce.MAC(a.HardwareAddr), mtu: a.MTU, tags: takesTags(name, link.Type())}
	// The state is "unknown" if the driver does not report it.
	now.up = a.Flags&net.FlagUp != 0 && (a.OperState == netlink.OperUp || a.OperState == netlink.OperUnknown)
	if now.queues, err = countQueues(name); errors.Is(err, unix.ENODEV) {
		return seen{}, errGone // since LinkByName
	}
	return now, err
}

// check refuses an interface with too few or too many queues. Worker i sends through queue i, and
// the kernel drops silently what is sent through a queue that does not exist.
func (now seen) check(name string, workers int) error {
	q := now.queues
	if has := min(q.rx, q.tx); has < workers {
		return misfit{fmt.Errorf("it has %d RX and %d TX queues for %d workers; `ethtool -L %s combined %d` (or rx "+
			"%d tx %d) gives it more, or use fewer workers",
			q.rx, q.tx, workers, name, workers, workers, workers)}
	}
	if q.rx > bpf.QueuesMax {
		return misfit{fmt.Errorf("it has %d RX queues, and rocast serves at most %d; reduce them with `ethtool -L "+
			"%s combined %d`", q.rx, bpf.QueuesMax, name, bpf.QueuesMax)}
	}
	return nil
}

// note copies the part of the state that may change while the port stays open.
func (f *iface) note(now seen) {
	f.info.IfIndex, f.info.MAC, f.info.MTU, f.info.Queues, f.info.TakesTags = now.ifIndex, now.mac, now.mtu, now.queues.rx, now.tags
}

// obtained copies the modes that were obtained. All sockets of an interface have the same.
func (f *iface) obtained(s *xsk.Socket) {
	o := s.Obtained()
	f.info.Attach, f.info.Mode, f.info.MultiBuffer = f.xdp.Mode().String(), o.Mode.String(), o.MultiBuffer
}

// outdated reports whether an open port must be opened again: another interface has its name, its
// device was away, or the number of queues changed.
func (f *iface) outdated(now seen) bool {
	return f.as.ifIndex != now.ifIndex || f.as.queues != now.queues || f.sockets[0][0].Lost()
}
