package afxdp

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/xsk"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

const (
	// queueDescs is the size of every ring, and the chunks a queue keeps to
	// receive into. The kernel drops what arrives beyond it (rx-ring-full).
	queueDescs = 2048
	// spareChunks are for what is in the worker's hands and for its replies.
	spareChunks = 4096
	// frameOverhead is Ethernet with two VLAN tags, on top of a link's MTU.
	frameOverhead = 22
)

// Config says which interfaces to take and how.
type Config struct {
	Ports []string // interface names of the calling thread's network namespace
	// Mode is how frames get to user space; the zero value is ModeCopy. See
	// xsk.Mode: auto, zero-copy, copy, generic.
	Mode Mode
	Busy bool // an idle worker spins instead of blocking
}

// Mode is the AF_XDP mode asked for.
type Mode string

const (
	ModeCopy     Mode = "copy" // the default: native XDP where the driver has it, generic elsewhere
	ModeZeroCopy Mode = "zero-copy"
	ModeGeneric  Mode = "generic"
)

// Switch is a dataplane.Switch on real interfaces.
type Switch struct {
	*dataplane.Switch
	classifier *bpf.Classifier
	umem       *xsk.UMEM
	poller     *xsk.Poller
	ports      []*port
}

// Open attaches to the ports. Nothing is left behind after an error.
func Open(c Config) (*Switch, error) {
	s := &Switch{}
	if err := s.open(c); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Switch) open(c Config) (err error) {
	attach, socket, err := c.Mode.split()
	if err != nil {
		return err
	}
	if len(c.Ports) == 0 {
		return errors.New("no port to open: name at least one interface")
	}
	chunks := spareChunks
	for i, name := range c.Ports {
		p, err := findPort(mft.PortID(i), name)
		if err != nil {
			return err
		}
		s.ports = append(s.ports, p)
		chunks += p.info.Queues * queueDescs
		if p.info.MTU+frameOverhead > xsk.FrameBytes {
			socket.MultiBuffer = true
		}
	}
	if s.classifier, err = bpf.Load(); err != nil {
		return err
	}
	if s.umem, err = xsk.NewUMEM(chunks); err != nil {
		return err
	}
	var sockets []*xsk.Socket
	for _, p := range s.ports {
		if err := p.open(s.classifier, s.umem, attach, socket); err != nil {
			return fmt.Errorf("open port %s: %w", p.info.Name, err)
		}
		sockets = append(sockets, p.sockets...)
	}
	if s.poller, err = xsk.NewPoller(sockets...); err != nil {
		return err
	}
	s.Switch = dataplane.New(dataplane.Config{
		Ports: s.workerPorts(), Pool: pool{s.umem}, Waiter: waiter{s.poller},
		Steering: steering{s.classifier}, Busy: c.Busy,
	})
	return nil
}

// split says what a mode means for the XDP program and for the sockets.
func (m Mode) split() (bpf.AttachMode, xsk.SocketConfig, error) {
	c := xsk.SocketConfig{RxDescs: queueDescs, TxDescs: queueDescs, FillDescs: queueDescs, CompletionDescs: queueDescs}
	switch m {
	case "", ModeCopy:
		c.Mode = xsk.ModeCopy
		return bpf.ModeAuto, c, nil
	case ModeZeroCopy:
		c.Mode = xsk.ModeZeroCopy
		return bpf.ModeNative, c, nil
	case ModeGeneric:
		c.Mode = xsk.ModeGeneric
		return bpf.ModeGeneric, c, nil
	}
	return 0, c, fmt.Errorf("mode %q is not one of %q, %q, %q", m, ModeCopy, ModeZeroCopy, ModeGeneric)
}

func (s *Switch) workerPorts() []dataplane.Port {
	ports := make([]dataplane.Port, len(s.ports))
	for i, p := range s.ports {
		ports[i] = p
	}
	return ports
}

// Close detaches from every port. Run has to have returned.
func (s *Switch) Close() error {
	var errs []error
	for _, p := range s.ports {
		errs = append(errs, p.close())
	}
	if s.poller != nil {
		errs = append(errs, s.poller.Close())
	}
	if s.umem != nil {
		errs = append(errs, s.umem.Close())
	}
	if s.classifier != nil {
		errs = append(errs, s.classifier.Close())
	}
	return errors.Join(errs...)
}

// Audit says whether every chunk is accounted for. Run has to have returned.
func (s *Switch) Audit() error { return s.umem.Audit() }

// Ports describes the ports and reads their counters.
func (s *Switch) Ports() []dataplane.PortInfo {
	counters := s.PortCounters()
	infos := make([]dataplane.PortInfo, len(s.ports))
	for i, p := range s.ports {
		infos[i] = p.info
		infos[i].PortCounters = counters[i]
		infos[i].Kernel = p.kernelCounters()
	}
	return infos
}

// Counters are the worker's, by reason, and the classifier's, by verdict.
func (s *Switch) Counters() []dataplane.Counter {
	counters := s.Switch.Counters()
	verdicts, err := s.classifier.Counters()
	if err != nil {
		return counters
	}
	for v, n := range verdicts {
		counters = append(counters, dataplane.Counter{Name: "classifier-" + bpf.Verdict(v).String(), Value: n})
	}
	return counters
}

// findPort reads what the kernel knows of an interface.
func findPort(id mft.PortID, name string) (*port, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("open port %s: %w; `ip link` lists the interfaces there are", name, err)
	}
	a := link.Attrs()
	queues, err := rxQueues(name)
	if err != nil {
		return nil, fmt.Errorf("open port %s: %w", name, err)
	}
	p := &port{info: dataplane.PortInfo{ID: id, Name: name, IfIndex: a.Index, MTU: a.MTU, Queues: queues}}
	copy(p.info.MAC[:], a.HardwareAddr)
	if len(a.HardwareAddr) != len(roce.MAC{}) {
		return nil, fmt.Errorf("open port %s: it is not an Ethernet interface", name)
	}
	return p, nil
}

// steering is the classifier as dataplane.Switch wants it.
type steering struct{ classifier *bpf.Classifier }

func (s steering) Steer(k mft.Key, id mft.GroupID) error {
	return s.classifier.PutGroup(bpfKey(k), uint32(id))
}

func (s steering) Unsteer(k mft.Key) error {
	if err := s.classifier.DeleteGroup(bpfKey(k)); !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}

func bpfKey(k mft.Key) bpf.Key {
	return bpf.Key{Addr: k.Addr, QPN: uint32(k.QPN), Match: bpf.Match(k.Match)}
}

// waiter is the poller as the worker wants it.
type waiter struct{ poller *xsk.Poller }

// Wait ignores the poller's errors: it only bounds how long nothing is looked
// for, and what is wrong with a socket shows when it is used.
func (w waiter) Wait(timeout time.Duration) { _, _ = w.poller.Poll(timeout) }

func (w waiter) Wake() { _ = w.poller.Wake() }
