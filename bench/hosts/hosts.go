package hosts

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/bench/lab"
	"github.com/rocast/rocast/bench/workload"
	"github.com/rocast/rocast/dataplane/xsk"
)

// Options describe the packets of the source, and the changes that the forwarder makes.
type Options struct {
	Workload *workload.Workload
	Hot      bool // packets go to only a few of the groups
	CPU      int  // the hosts' thread runs on it
	// Rewriting says which parts of a copy the forwarder changes. Merges says that it merges the
	// receivers' answers into one; otherwise it brings all of them to the source.
	Rewriting workload.Rewriting
	Merges    bool
	Window    int // packets unacknowledged at most; 0: Window
}

const (
	batch = 32
	// flushPatience is the time after which frames are lost that the kernel does not take, as on a
	// full link.
	flushPatience = 5 * time.Millisecond
	// stallAfter is the time without progress after which the source goes back, like an RC timeout.
	stallAfter = 100 * time.Millisecond
)

// Hosts are the source and the receivers. One goroutine may call their methods, unless a method
// says that any goroutine may call it.
type Hosts struct {
	Options
	work  chan func()
	ended chan struct{}

	umem      *xsk.UMEM
	source    *nic
	receivers []*nic

	// Only the hosts' thread uses these.
	*requester
	template  *template
	slots     [][]slot // by queue: buffers of a batch
	used      []int    // by queue: number of slots that hold a frame of this batch
	answers   []uint64 // chunks for a batch of responses
	descs     []xsk.Desc
	responses []xsk.Desc
	progress  time.Time // when a change of base was last seen
	retry     time.Time // when base last changed or the source went back
	seenBase  uint64
	answered  []uint64  // by receiver: answers that it has sent
	heard     []uint64  // by party: answers that have reached the source
	verifier  *verifier // set while every copy is compared

	stats struct{ sent, resent, backs, waited, answered, heard, longest atomic.Uint64 }
}

// slot is a buffer for one frame of the source.
type slot struct {
	fragments [][]byte
	descs     []xsk.Desc
}

// Stats count since the hosts were opened.
type Stats struct {
	Copies   []uint64 // by receiver: packets taken in order, each once
	Repeated uint64   // copies of packets that a receiver already had
	Beyond   uint64   // copies above a gap: a packet was lost
	Strange  uint64   // copies with a QPN that no receiver has
	Sent     uint64   // packets of the source, including Resent
	Resent   uint64
	WentBack uint64        // times that the source went back to its oldest unacknowledged packet
	Answered uint64        // answers of the receivers
	Heard    uint64        // answers that reached the source
	Waited   time.Duration // time that the source slept because its window was closed
	Longest  time.Duration // longest time without a new acknowledgement, since ResetLongest
}

// Open opens the hosts of a lab. Close closes them.
func Open(l *lab.Lab, o Options) (*Hosts, error) {
	if o.Window == 0 {
		o.Window = Window
	}
	h := &Hosts{Options: o, work: make(chan func()), ended: make(chan struct{})}
	parties := 1
	if !o.Merges {
		parties = o.Workload.Receivers
	}
	h.answered, h.heard = make([]uint64, o.Workload.Receivers), make([]uint64, parties)
	h.requester = newRequester(o.Workload.Groups, o.Hot, l.Queues, parties, o.Window)
	started := make(chan error)
	go h.thread(started)
	err := <-started
	if err == nil {
		err = h.do(func() error { return h.open(l) })
	}
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// thread runs the functions that do hands it, on one thread of one CPU. The thread is not ended
// with the hosts: if it has started a forwarder before, the kernel would kill the forwarder with it
// (PR_SET_PDEATHSIG refers to a thread).
func (h *Hosts) thread(started chan<- error) {
	defer close(h.ended)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	started <- errors.Join(unix.SchedGetaffinity(0, &before), lab.Pin(0, h.CPU), sharpenTimers())
	for f := range h.work {
		f()
	}
	_ = errors.Join(unix.SchedSetaffinity(0, &before), resetTimers()) // an error affects only other work of this process
}

func (h *Hosts) do(f func() error) (err error) {
	done := make(chan struct{})
	h.work <- func() {
		defer close(done)
		err = f()
	}
	<-done
	return err
}

func (h *Hosts) open(l *lab.Lab) (err error) {
	w := h.Workload
	multiBuffer := w.FrameBytes() > xsk.FrameBytes
	nics := 1 + w.Receivers
	if h.umem, err = xsk.NewUMEM(nics*l.Queues*ringDescs + 2*batch*l.Queues + ringDescs); err != nil {
		return err
	}
	if h.source, err = openSource(h.umem, l.Ends[0], l.Queues, multiBuffer); err != nil {
		return err
	}
	for r := range w.Receivers {
		n, err := openReceiver(h.umem, l.Ends[1+r], l.Queues, multiBuffer, w, h.Rewriting, r)
		if err != nil {
			return err
		}
		h.receivers = append(h.receivers, n)
	}
	return h.prepare(l.Queues)
}

// prepare makes the buffers into which the loop writes frames.
func (h *Hosts) prepare(queues int) (err error) {
	if h.template, err = newTemplate(h.Workload); err != nil {
		return err
	}
	h.slots, h.used = make([][]slot, queues), make([]int, queues)
	for q := range h.slots {
		for range batch {
			s, err := h.newSlot()
			if err != nil {
				return err
			}
			h.slots[q] = append(h.slots[q], s)
		}
	}
	h.answers = make([]uint64, ringDescs)
	if n := h.umem.Alloc(h.answers); n < len(h.answers) {
		return errors.New("the hosts' memory is too small for their answers")
	}
	h.descs = make([]xsk.Desc, ringDescs)
	h.responses = make([]xsk.Desc, 0, ringDescs)
	return nil
}

func (h *Hosts) newSlot() (s slot, err error) {
	const contd = 1 // XDP_PKT_CONTD
	for rest := h.template.blank; len(rest) > 0; {
		var addr [1]uint64
		if h.umem.Alloc(addr[:]) == 0 {
			return s, errors.New("the hosts' memory is too small for the source's frames")
		}
		n := min(len(rest), xsk.FrameBytes)
		fragment := h.umem.Bytes(addr[0], uint32(n))
		copy(fragment, rest)
		rest = rest[n:]
		d := xsk.Desc{Addr: addr[0], Len: uint32(n)}
		if len(rest) > 0 {
			d.Options = contd
		}
		s.fragments, s.descs = append(s.fragments, fragment), append(s.descs, d)
	}
	return s, nil
}

// setModes sets the mode of all receivers.
func (h *Hosts) setModes(mode uint32) error {
	for _, n := range h.receivers {
		if err := n.setMode(mode); err != nil {
			return err
		}
	}
	return nil
}

// Stats reads the counters. Any goroutine may call it.
func (h *Hosts) Stats() Stats {
	s := Stats{
		Sent: h.stats.sent.Load(), Resent: h.stats.resent.Load(), WentBack: h.stats.backs.Load(),
		Answered: h.stats.answered.Load(), Heard: h.stats.heard.Load(),
		Waited: time.Duration(h.stats.waited.Load()), Longest: time.Duration(h.stats.longest.Load()),
	}
	for _, n := range h.receivers {
		seen := n.seen()
		s.Copies = append(s.Copies, seen.Taken)
		s.Repeated += seen.Repeated
		s.Beyond += seen.Beyond
		s.Strange += seen.Strange
	}
	return s
}

// ResetLongest sets Stats.Longest to zero. Any goroutine may call it.
func (h *Hosts) ResetLongest() { h.stats.longest.Store(0) }

// Close closes sockets and detaches the programs.
func (h *Hosts) Close() error {
	var errs []error
	if h.source != nil {
		errs = append(errs, h.source.close())
	}
	for _, n := range h.receivers {
		errs = append(errs, n.close())
	}
	if h.umem != nil {
		errs = append(errs, h.umem.Close())
	}
	close(h.work)
	<-h.ended
	return errors.Join(errs...)
}

// untrue returns the error for an ACK of a packet that a receiver lacks.
type untrue struct {
	group    int
	told     uint32
	receiver int
	has      uint32
}

func (e *untrue) Error() string {
	return fmt.Sprintf("the source of group %d got an ACK for %d packets, but receiver %d has only %d",
		e.group, e.told, e.receiver, e.has)
}
