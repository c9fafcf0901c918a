package afxdp

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/xsk"
	"github.com/rocast/rocast/mft"
)

// frameOverhead is the size of an Ethernet header with two VLAN tags. A link's MTU does not include
// it.
const frameOverhead = 22

// Config names the interfaces and says how they are used.
type Config struct {
	// Ports are interface names in the calling thread's network namespace. An interface that does
	// not exist yet is opened by Switch.Refresh when it exists.
	Ports []string
	// Mode is the way that frames take to user space. The zero value is ModeCopy.
	Mode Mode
	Busy bool // an idle worker spins and does not block
	// Workers is the number of forwarding threads; 0 is one. Each has queues of its own of every
	// port, so every port needs at least as many queues.
	Workers int
	// FanOut lets the kernel carry the plain packets of groups, where it can.
	FanOut bool
	// RepairMemory is how many bytes all workers together may retain for repair.
	RepairMemory uint64
	// Egress bounds the queues of the ports, in the order of Ports. nil: it bounds none.
	Egress []dataplane.Egress

	// Tests replace these to imitate another kernel. nil: this kernel.
	multiBuffer func() error
	noRoom      func(*bpf.Port) bool
	sees        func(*bpf.Port) bool
	loadFanOut  func(c *bpf.Classifier, t bpf.Tables, retained int) (*bpf.FanOut, error)
	openSocket  func(*xsk.UMEM, int, uint32, xsk.SocketConfig) (*xsk.Socket, error)
}

// Mode is the AF_XDP mode that is asked for.
type Mode string

const (
	ModeCopy     Mode = "copy" // the default: native XDP where the driver has it, generic elsewhere
	ModeZeroCopy Mode = "zero-copy"
	ModeGeneric  Mode = "generic"
)

// Switch is a dataplane.Switch on real interfaces.
type Switch struct {
	*dataplane.Switch
	classifier   *bpf.Classifier
	wantsFanOut  bool                        // Config.FanOut
	fanOut       atomic.Pointer[fanOut]      // nil: the kernel carries nothing
	noFanOut     error                       // why nothing, although wantsFanOut; mu guards it
	loadFanOut   func() (*bpf.FanOut, error) // nil: it is not asked for, or was loaded
	attach       bpf.AttachMode
	socket       xsk.SocketConfig
	workers      []*worker
	repairChunks int // that each worker may retain

	mu           sync.Mutex   // for control; no worker locks it
	interfaces   []*iface     // by PortID
	reserve      atomic.Int32 // chunks of each worker that no port has: room for ports that AddPorts opens
	verdicts     bpf.Counters
	warned       map[dataplane.Warning]bool
	warnings     []dataplane.Warning // Refresh returns them
	singleBuffer string              // why socket.MultiBuffer is not set
	unprobed     error               // why the probe for multi-buffer could not run
	noRoom       func(*bpf.Port) bool
	sees         func(*bpf.Port) bool
	openSocket   func(*xsk.UMEM, int, uint32, xsk.SocketConfig) (*xsk.Socket, error)
}

// worker is what belongs to one thread.
type worker struct {
	umem    *xsk.UMEM
	poller  *xsk.Poller
	ports   []*port
	sockets [][]*xsk.Socket // by port
}

// Open opens the ports whose interfaces exist. It returns an error and leaves nothing behind if one
// of them cannot be opened. See ErrConfig.
func Open(c Config) (*Switch, error) {
	s := &Switch{warned: map[dataplane.Warning]bool{}}
	if err := s.open(c); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Switch) open(c Config) error {
	now, err := s.survey(&c)
	if err != nil {
		return err
	}
	s.reserve.Store(int32(reserve(s.interfaces, c.Workers)))
	s.chooseBuffers(c)
	if err := s.load(c); err != nil {
		return err
	}
	s.planFanOut(c)
	s.startWith(c)
	for i, f := range s.interfaces {
		if f.info.State == dataplane.PortGone {
			continue
		}
		err := s.openPort(f, now[i])
		if c.Mode == ModeZeroCopy && (errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL)) {
			err = misfit{err} // the driver has no zero-copy, or the device cannot do it as it is
		}
		if err != nil {
			return fmt.Errorf("open port %s: %w", f.info.Name, err)
		}
	}
	s.publishDevices()
	return nil
}

// find looks the interfaces up and refuses those that cannot be ports.
func (s *Switch) find(c Config) (now []seen, err error) {
	now = make([]seen, len(c.Ports))
	for i, name := range c.Ports {
		f := newIface(mft.PortID(i), name)
		s.interfaces = append(s.interfaces, f)
		now[i], err = look(name)
		if errors.Is(err, errGone) {
			continue
		}
		if err == nil {
			err = now[i].check(name, c.Workers)
		}
		if err != nil {
			return nil, fmt.Errorf("open port %s: %w", name, err)
		}
		f.note(now[i])
		f.info.State, f.info.Reason = linkState(now[i]), ""
	}
	return now, nil
}

// chooseBuffers decides for all ports whether frames may have several buffers, because the first
// socket of a UMEM decides it for all. An interface that does not exist yet may need several.
func (s *Switch) chooseBuffers(c Config) {
	s.singleBuffer = "no port had an MTU that needs more when rocastd started; restart rocastd"
	wanted := false
	for _, f := range s.interfaces {
		wanted = wanted || f.info.State == dataplane.PortGone || f.info.MTU+frameOverhead > xsk.FrameBytes
	}
	if !wanted {
		return
	}
	if c.multiBuffer == nil {
		c.multiBuffer = xsk.MultiBuffer.Supported
	}
	err := c.multiBuffer()
	if errors.Is(err, errors.ErrUnsupported) {
		s.singleBuffer = fmt.Sprintf("this kernel lacks %v", err)
		return
	}
	s.socket.MultiBuffer, s.unprobed = true, err
}

// load loads the classifier, and makes the workers' memory meanwhile: after a crash sources wait
// for both. Sockets belong to the network namespace of the calling thread, and programs to none.
func (s *Switch) load(c Config) error {
	loaded := make(chan error)
	go func() {
		var err error
		s.classifier, err = bpf.Load()
		loaded <- err
	}()
	err := s.makeWorkers(c)
	return errors.Join(<-loaded, err)
}

// makeWorkers makes workers whose ports have no sockets yet.
func (s *Switch) makeWorkers(c Config) error {
	chunks := spareChunks + s.repairChunks + int(s.reserve.Load())
	for _, f := range s.interfaces {
		chunks += f.room
	}
	for range c.Workers {
		w := &worker{}
		s.workers = append(s.workers, w)
		var err error
		if w.umem, err = xsk.NewUMEM(chunks); err != nil {
			return err
		}
		if w.poller, err = xsk.NewPoller(); err != nil {
			return err
		}
		for range s.interfaces {
			w.ports, w.sockets = append(w.ports, &port{umem: w.umem}), append(w.sockets, nil)
		}
	}
	return nil
}

// startWith makes the switch of the workers.
func (s *Switch) startWith(c Config) {
	config := dataplane.Config{Steering: steering{s.classifier}, Busy: c.Busy, NoFanOut: s.noFanOut, RepairChunks: s.repairChunks, Egress: c.Egress}
	for _, w := range s.workers {
		config.Workers = append(config.Workers, w.config())
	}
	s.Switch = dataplane.New(config)
	for i, w := range s.workers {
		for _, p := range w.ports {
			p.withheld = s.withheld(i)
		}
	}
}

// withheld returns port.withheld for the ports of the i-th worker.
func (s *Switch) withheld(i int) func() int {
	w := s.Switch.Workers()[i]
	return func() int { return w.RepairRoom() + int(s.reserve.Load()) }
}

// use replaces the sockets of a port, also among those that the worker waits for.
func (w *worker) use(port mft.PortID, sockets []*xsk.Socket) {
	w.sockets[port] = sockets
	w.ports[port].use(sockets)
	w.poller.Watch(slices.Concat(w.sockets...)...)
}

func (w *worker) config() dataplane.WorkerConfig {
	c := dataplane.WorkerConfig{Pool: pool{w}, Waiter: waiter{w.poller}}
	for _, p := range w.ports {
		c.Ports = append(c.Ports, p)
	}
	return c
}

// reap takes back the chunks that the ports' devices have sent, and returns their number.
func (w *worker) reap() (chunks int) {
	for _, p := range w.ports {
		if p.gives {
			chunks += p.reap()
		}
	}
	return chunks
}

// close fails while a port is open.
func (w *worker) close() error {
	var errs []error
	if w.poller != nil {
		errs = append(errs, w.poller.Close())
	}
	if w.umem != nil {
		errs = append(errs, w.umem.Close())
	}
	return errors.Join(errs...)
}

// split returns how the mode is asked for when the XDP program is attached, and when sockets are
// opened.
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

// Close closes every port. Run must have returned.
func (s *Switch) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Switch != nil {
		s.EndFanOut()
	}
	var errs []error
	for _, f := range s.interfaces {
		errs = append(errs, s.release(f))
	}
	for _, w := range s.workers {
		errs = append(errs, w.close())
	}
	if s.classifier != nil {
		errs = append(errs, s.classifier.Close())
	}
	return errors.Join(errs...)
}

// Audit returns an error if a chunk is lost. Run must have returned.
func (s *Switch) Audit() error {
	var errs []error
	for _, w := range s.workers {
		errs = append(errs, w.umem.Audit())
	}
	return errors.Join(errs...)
}

// Ports describes the ports as Refresh found them last, with their counters as they are now.
func (s *Switch) Ports() []dataplane.PortInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	counters := s.PortCounters()
	var infos []dataplane.PortInfo
	for i, f := range s.interfaces {
		if f.free {
			continue
		}
		info := f.info
		info.PortCounters = counters[i]
		info.PortCounters.Add(s.carried(f))
		info.NoFanOut = s.noFanOutBy(i)
		d := dropped{kernel: f.past}
		for _, sockets := range f.sockets {
			d.addSockets(sockets)
		}
		for _, w := range s.workers {
			d.add(w.ports[i])
		}
		info.Kernel = d.counters()
		infos = append(infos, info)
	}
	addVLANs(infos)
	return infos
}

// addVLANs looks above the ports whose devices take tags out. The kernel is asked only if there are
// some.
func addVLANs(infos []dataplane.PortInfo) {
	var list []netlink.Link
	for i := range infos {
		if infos[i].TakesTags {
			if list == nil {
				list, _ = netlink.LinkList() // nothing is above a port after an error
			}
			infos[i].UnderVLAN = underVLAN(infos[i].IfIndex, list)
		}
	}
}

// carried is what the kernel's fan-out carried from and to a port.
func (s *Switch) carried(f *iface) dataplane.PortCounters {
	t, b := s.traffic(f.info.ID), &f.base
	return dataplane.PortCounters{
		RxFrames: t.RxFrames - b.RxFrames, RxBytes: t.RxBytes - b.RxBytes, TxFrames: t.TxFrames - b.TxFrames, TxBytes: t.TxBytes - b.TxBytes,
	}
}

// traffic is what the kernel's fan-out has carried by all ports that had the number.
func (s *Switch) traffic(id mft.PortID) (t bpf.Traffic) {
	f := s.fanOut.Load()
	if f == nil || int(id) >= bpf.SlotPorts {
		return t
	}
	t, _ = f.kernel.Traffic(uint32(id)) // zero after an error
	return t
}

// Verdicts returns the classifier's counters, by verdict.
func (s *Switch) Verdicts() (counters []dataplane.Counter) {
	verdicts, err := s.classifier.Counters()
	if err != nil {
		return nil
	}
	for v, n := range verdicts {
		counters = append(counters, dataplane.Counter{Name: "classifier-" + bpf.Verdict(v).String(), Value: n})
	}
	return counters
}

// Counters returns the workers' counters, by reason, and the classifier's, by verdict.
func (s *Switch) Counters() []dataplane.Counter {
	counters := append(s.Switch.Counters(), s.Verdicts()...)
	if s.wantsFanOut {
		var events [bpf.FanEvents]uint64
		if f := s.fanOut.Load(); f != nil {
			events, _ = f.kernel.Events()
		}
		for e, n := range events {
			counters = append(counters, dataplane.Counter{Name: "fan-out-" + bpf.FanEvent(e).String(), Value: n})
		}
	}
	return counters
}

// steering adapts the classifier to dataplane.Switch.
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
	return bpf.Key{Src: k.Src, Dst: k.Dst, QPN: uint32(k.QPN), Match: matches[k.Match]}
}

// matches translates the dataplane's matches into the classifier's.
var matches = [...]bpf.Match{
	mft.MatchDstQPN:  bpf.MatchDstQPN,
	mft.MatchPairQPN: bpf.MatchPairQPN,
	mft.MatchDst:     bpf.MatchDst,
	mft.MatchSrc:     bpf.MatchSrc,
}

// waiter adapts the poller to the worker.
type waiter struct{ poller *xsk.Poller }

// Wait ignores the poller's errors. The worker looks at its sockets after Wait in any case, and an
// error of a socket shows when the socket is used.
func (w waiter) Wait(timeout time.Duration) { _, _ = w.poller.Poll(timeout) }

func (w waiter) Nap(timeout time.Duration) { _, _ = w.poller.Nap(timeout) }

func (w waiter) Yield() { xsk.Yield() }

func (w waiter) Wake() { _ = w.poller.Wake() }
