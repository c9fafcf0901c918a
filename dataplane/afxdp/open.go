package afxdp

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/xsk"
	"github.com/rocast/rocast/mft"
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
	// Workers is the number of forwarding threads, 0 is one. Each has its own
	// queues of every port, so a port needs as many.
	Workers int
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
	interfaces []*iface
	workers    []*worker
}

// worker is what one thread has to itself.
type worker struct {
	umem   *xsk.UMEM
	poller *xsk.Poller
	ports  []*port
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
	c.Workers = max(c.Workers, 1)
	for i, name := range c.Ports {
		f, err := findInterface(mft.PortID(i), name)
		if err != nil {
			return err
		}
		if q := f.info.Queues; q < c.Workers {
			return fmt.Errorf("open port %s: it has %d queues for %d workers; `ethtool -L %s combined %d` gives it more, or use fewer workers",
				name, q, c.Workers, name, c.Workers)
		}
		s.interfaces = append(s.interfaces, f)
		if f.info.MTU+frameOverhead > xsk.FrameBytes {
			socket.MultiBuffer = true
		}
	}
	if s.classifier, err = bpf.Load(); err != nil {
		return err
	}
	for _, f := range s.interfaces {
		if f.xdp, err = s.classifier.OpenPort(f.info.IfIndex, attach); err != nil {
			return fmt.Errorf("open port %s: %w", f.info.Name, err)
		}
	}
	config := dataplane.Config{Steering: steering{s.classifier}, Busy: c.Busy}
	for i := range c.Workers {
		w := &worker{}
		s.workers = append(s.workers, w)
		if err := w.open(s.interfaces, i, c.Workers, socket); err != nil {
			return err
		}
		config.Workers = append(config.Workers, w.config())
	}
	for i, f := range s.interfaces {
		f.obtained(s.workers[0].ports[i].sockets[0])
	}
	s.Switch = dataplane.New(config)
	return nil
}

// open gives worker i of n its queues: every n-th of each interface.
func (w *worker) open(interfaces []*iface, i, n int, socket xsk.SocketConfig) (err error) {
	chunks := spareChunks
	for _, f := range interfaces {
		chunks += (f.info.Queues - i + n - 1) / n * queueDescs
	}
	if w.umem, err = xsk.NewUMEM(chunks); err != nil {
		return err
	}
	var sockets []*xsk.Socket
	for _, f := range interfaces {
		p := &port{umem: w.umem}
		w.ports = append(w.ports, p)
		for q := i; q < f.info.Queues; q += n {
			if err := p.openQueue(f, uint32(q), socket); err != nil {
				return fmt.Errorf("open port %s: %w", f.info.Name, err)
			}
		}
		sockets = append(sockets, p.sockets...)
	}
	w.poller, err = xsk.NewPoller(sockets...)
	return err
}

func (w *worker) config() dataplane.WorkerConfig {
	c := dataplane.WorkerConfig{Pool: pool{w.umem}, Waiter: waiter{w.poller}}
	for _, p := range w.ports {
		c.Ports = append(c.Ports, p)
	}
	return c
}

func (w *worker) close() error {
	var errs []error
	for _, p := range w.ports {
		errs = append(errs, p.close())
	}
	if w.poller != nil {
		errs = append(errs, w.poller.Close())
	}
	if w.umem != nil {
		errs = append(errs, w.umem.Close())
	}
	return errors.Join(errs...)
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

// Close detaches from every port. Run has to have returned. The classifier goes
// first, so that group frames go to the kernel and not to sockets that are gone.
func (s *Switch) Close() error {
	var errs []error
	for _, f := range s.interfaces {
		if f.xdp != nil {
			errs = append(errs, f.xdp.Close())
		}
	}
	for _, w := range s.workers {
		errs = append(errs, w.close())
	}
	if s.classifier != nil {
		errs = append(errs, s.classifier.Close())
	}
	return errors.Join(errs...)
}

// Audit says whether every chunk is accounted for. Run has to have returned.
func (s *Switch) Audit() error {
	var errs []error
	for _, w := range s.workers {
		errs = append(errs, w.umem.Audit())
	}
	return errors.Join(errs...)
}

// Ports describes the ports and reads their counters.
func (s *Switch) Ports() []dataplane.PortInfo {
	counters := s.PortCounters()
	infos := make([]dataplane.PortInfo, len(s.interfaces))
	for i, f := range s.interfaces {
		infos[i] = f.info
		infos[i].PortCounters = counters[i]
		var d dropped
		for _, w := range s.workers {
			d.add(w.ports[i])
		}
		infos[i].Kernel = d.counters()
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
