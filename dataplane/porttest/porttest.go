// Package porttest has in-memory twins of real ports: frames go in and out as byte slices, without
// root and without a kernel.
package porttest

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

const bufferBytes = 4096

// Net is a switch on in-memory ports.
type Net struct {
	Switch *dataplane.Switch
	// Ports are the first worker's queues, one for each port.
	Ports []*Port
	// Queues are the queues of every worker: Queues[worker][port].
	Queues [][]*Port
	// Pools are the workers'.
	Pools []*Pool
	// Pool is the first worker's.
	Pool *Pool
	// Waiters are the workers'.
	Waiters []*Waiter
	// FanOut is the engine in front of the workers, if there is one.
	FanOut *FanOut
	// Kernel holds the frames that belong to no group, which a classifier leaves to the kernel.
	Kernel [][]byte
	// OwnSource holds the frames that a classifier drops because they come from an address that
	// only the box sends from.
	OwnSource [][]byte
	// OnSteer, if set, is called for every key that is added to the classifier (there) or removed
	// from it. Frames are classified by the published table, whatever OnSteer returns.
	OnSteer func(k mft.Key, there bool) error
}

// New returns a switch with n ports and one worker. It moves frames when Poll is called.
func New(n int) *Net { return NewAt(n, nil) }

// NewFanOutAt is NewAt with a fan-out in front of the worker.
func NewFanOutAt(n int, now func() feedback.Tick) *Net {
	return NewFanOutWorkers(n, 1, now)
}

// NewFanOutWorkers is NewFanOutAt with several workers, each with a queue of every port. What the
// engine carries is sent by the first worker's queues.
func NewFanOutWorkers(n, workers int, now func() feedback.Tick) *Net {
	return newNet(n, workers, now, NewFanOut(), RepairChunks, nil)
}

// RepairChunks is how many buffers a worker retains for repair, unless NewRetaining says otherwise.
const RepairChunks = 1 << 12

// NewRetaining is NewAt with that many buffers to retain for repair, and with a fan-out unless it
// is nil.
func NewRetaining(n, chunks int, fanOut *FanOut, now func() feedback.Tick) *Net {
	return newNet(n, 1, now, fanOut, chunks, nil)
}

// NewAt is New with the given clock.
func NewAt(n int, now func() feedback.Tick) *Net { return newNet(n, 1, now, nil, RepairChunks, nil) }

// NewWorkers is New with several workers, each with a queue of every port.
func NewWorkers(n, workers int) *Net { return newNet(n, workers, nil, nil, RepairChunks, nil) }

// NewBounded is NewFanOutAt, or NewAt if there is no fan-out, with bounds for the queues of the
// ports.
func NewBounded(n int, fanOut *FanOut, now func() feedback.Tick, egress ...dataplane.Egress) *Net {
	return newNet(n, 1, now, fanOut, RepairChunks, egress)
}

func newNet(n, workers int, now func() feedback.Tick, fanOut *FanOut, repairChunks int, egress []dataplane.Egress) *Net {
	net := &Net{FanOut: fanOut}
	var configs []dataplane.WorkerConfig
	for range workers {
		pool, waiter := &Pool{}, &Waiter{}
		var queues []*Port
		config := dataplane.WorkerConfig{Pool: pool, Waiter: waiter}
		for range n {
			p := &Port{net: net, pool: pool, id: mft.PortID(len(queues))}
			queues, config.Ports = append(queues, p), append(config.Ports, p)
		}
		net.Queues, net.Waiters = append(net.Queues, queues), append(net.Waiters, waiter)
		net.Pools = append(net.Pools, pool)
		configs = append(configs, config)
	}
	net.Ports, net.Pool = net.Queues[0], configs[0].Pool.(*Pool)
	config := dataplane.Config{Workers: configs, Steering: steering{net}, Now: now, RepairChunks: repairChunks, Egress: egress}
	if fanOut != nil {
		config.FanOut = fanOut
	}
	net.Switch = dataplane.New(config)
	return net
}

// AddPort gives the running switch one more port.
func (n *Net) AddPort(bounds dataplane.Egress) mft.PortID {
	id := mft.PortID(len(n.Ports))
	var queues []dataplane.Port
	for i := range n.Queues {
		p := &Port{net: n, pool: n.Pools[i]}
		n.Queues[i], queues = append(n.Queues[i], p), append(queues, p)
	}
	n.Ports = n.Queues[0]
	n.Switch.TakePort(id, queues, bounds)
	return id
}

// Poll polls the workers until none of them finds a frame.
func (n *Net) Poll() {
	for moved := true; moved; {
		moved = false
		for _, w := range n.Switch.Workers() {
			moved = w.Poll() > 0 || moved
		}
	}
}

// Port is one queue of an in-memory port.
type Port struct {
	net  *Net
	pool *Pool
	id   mft.PortID
	in   []arrival
	// Out holds the frames that were sent, each in a new slice, until Take.
	Out [][]byte
	// Full makes Send lose all frames, as a dead link does.
	Full bool
	// Waiting is how many bytes the device of the port seems to have that it has not sent.
	Waiting int
	// Holds makes everything that is sent wait as well.
	Holds bool
	// Receiving, if set, is called before frames are received.
	Receiving func()
	// Keeps makes the port keep the buffers of frames that are sent for the last time, and read
	// them when Take is called, as a zero-copy device does.
	Keeps bool
	kept  []kept
}

// arrival is a frame that waits for the worker.
type arrival struct {
	frame []byte
	seen  bool // the engine has left it to the worker
}

// kept is a frame whose buffers the port has.
type kept struct {
	index     int // in Out
	fragments [][]byte
	chunks    []uint64
}

// Put makes a frame arrive. The slice is copied. The engine in front of the workers sees the frame
// when a worker receives it.
func (p *Port) Put(frame []byte) { p.in = append(p.in, arrival{frame: slices.Clone(frame)}) }

// PutPast makes a frame of a group arrive, and the engine sees it now, as in the kernel. If the
// engine does not carry it, it waits for a worker, whatever the engine does meanwhile.
func (p *Port) PutPast(frame []byte) {
	var f dataplane.Frame
	if p.load(&f, frame); p.carry(&f) {
		return
	}
	p.pool.Put(&f)
	p.in = append(p.in, arrival{slices.Clone(frame), true})
}

// Take returns the frames that were sent since the last call.
func (p *Port) Take() [][]byte {
	for _, k := range p.kept {
		p.Out[k.index] = slices.Concat(k.fragments...)
		p.pool.release(k.chunks)
	}
	out := p.Out
	p.Out, p.kept = nil, nil
	return out
}

// Receive is part of dataplane.Port.
func (p *Port) Receive(frames []dataplane.Frame) int {
	if p.Receiving != nil {
		p.Receiving()
	}
	n := 0
	for len(p.in) > 0 && n < len(frames) {
		a := p.in[0]
		p.in = p.in[1:]
		f := &frames[n]
		switch p.load(f, a.frame) {
		case dataplane.ToKernel:
			p.net.Kernel = append(p.net.Kernel, a.frame)
			p.pool.Put(f)
		case dataplane.OwnSource:
			p.net.OwnSource = append(p.net.OwnSource, a.frame)
			p.pool.Put(f)
		default:
			if a.seen || !p.carry(f) {
				n++
			}
		}
	}
	return n
}

// load makes b a frame of the port, as the classifier does.
func (p *Port) load(f *dataplane.Frame, b []byte) dataplane.Class {
	id, kind, class := dataplane.Classify(p.net.Switch.Table(), b)
	p.pool.Load(f, b, nil)
	f.Group, f.Kind, f.Port = id, kind, p.id
	return class
}

// carry sends what the engine in front of the workers makes of a frame that it takes.
func (p *Port) carry(f *dataplane.Frame) bool {
	var out dataplane.Outputs
	n := p.net
	if n.FanOut == nil || !n.FanOut.Carry(f, &out) && !n.FanOut.Answer(f, &out) {
		return false
	}
	for i := range out.Replies {
		r := &out.Replies[i]
		frame, err := r.Append(nil)
		if err != nil {
			panic("porttest: reply: " + err.Error()) // a group has one address family
		}
		to := n.Ports[r.Leg.Port]
		to.Out = append(to.Out, frame)
	}
	for i := range out.Copies {
		c := &out.Copies[i]
		start := c.Apply(f)
		n.Ports[c.Path.Port].Send([]dataplane.Outgoing{{Frame: f, Start: start, Bytes: f.Len() + f.Start - start}})
	}
	p.pool.Put(f)
	return true
}

// Send is part of dataplane.Port.
func (p *Port) Send(out []dataplane.Outgoing) int {
	if p.Full {
		return 0
	}
	for i := range out {
		f := out[i].Frame
		fragments := append([][]byte{f.Buf[out[i].Start : f.Start+len(f.Fragments[0])]}, f.Bytes()[1:]...)
		if p.Keeps && out[i].Last {
			f.Kept = true
			p.kept = append(p.kept, kept{len(p.Out), fragments, slices.Clone(f.Chunks[:f.FragmentCount])})
		}
		sent := slices.Concat(fragments...)
		if len(sent) != out[i].Bytes {
			panic(fmt.Sprintf("porttest: a frame of %d bytes is said to have %d", len(sent), out[i].Bytes))
		}
		p.Out = append(p.Out, sent)
		if p.Holds {
			p.Waiting += out[i].Bytes
		}
	}
	return len(out)
}

// Unsent is part of dataplane.Port.
func (p *Port) Unsent() int { return p.Waiting }

// Pool lends buffers of 4 KiB and counts those that are lent. As in real chunks there is headroom
// in front, so a path MTU of 4096 takes two.
type Pool struct {
	buffers [][]byte
	free    []uint64
	Lent    int
	Empty   bool // no buffer is free
}

const headroom = 256

func (p *Pool) lend() uint64 {
	p.Lent++
	if n := len(p.free); n > 0 {
		i := p.free[n-1]
		p.free = p.free[:n-1]
		return i
	}
	p.buffers = append(p.buffers, make([]byte, bufferBytes))
	return uint64(len(p.buffers) - 1)
}

// Load is part of dataplane.Pool.
func (p *Pool) Load(f *dataplane.Frame, head, rest []byte) bool {
	if p.Empty {
		return false
	}
	b := slices.Concat(head, rest)
	for f.FragmentCount = 0; f.FragmentCount == 0 || len(b) > 0; f.FragmentCount++ {
		i := f.FragmentCount
		f.Chunks[i] = p.lend()
		buf := p.buffers[f.Chunks[i]]
		n := copy(buf[headroom:], b)
		b = b[n:]
		f.Fragments[i] = buf[headroom : headroom+n]
	}
	f.Buf, f.Start = p.buffers[f.Chunks[0]], headroom
	return true
}

// Get is part of dataplane.Pool.
func (p *Pool) Get(f *dataplane.Frame) bool {
	if p.Empty {
		return false
	}
	f.Chunks[0] = p.lend()
	f.Buf, f.Start, f.FragmentCount = p.buffers[f.Chunks[0]], headroom, 0
	return true
}

// Put is part of dataplane.Pool.
func (p *Pool) Put(f *dataplane.Frame) {
	if !f.Kept {
		p.release(f.Chunks[:max(1, f.FragmentCount)])
	}
	f.FragmentCount, f.Kept = 0, false
}

func (p *Pool) release(chunks []uint64) {
	p.free = append(p.free, chunks...)
	p.Lent -= len(chunks)
}

// Waiter never blocks: the test that calls Poll knows when there is something to do.
type Waiter struct {
	Wakes atomic.Int32 // calls of Wake
	// Waiting, if set, is called by Wait.
	Waiting func()
	Naps    int           // calls of Nap
	Yields  int           // calls of Yield
	Napped  time.Duration // what the last one asked for
	Timeout time.Duration // what the last call of Wait asked for
}

// Wait is part of dataplane.Waiter.
func (w *Waiter) Wait(timeout time.Duration) {
	w.Timeout = timeout
	if w.Waiting != nil {
		w.Waiting()
	}
}

// Nap is part of dataplane.Waiter.
func (w *Waiter) Nap(timeout time.Duration) { w.Naps, w.Napped = w.Naps+1, timeout }

// Yield is part of dataplane.Waiter.
func (w *Waiter) Yield() { w.Yields++ }

// Wake is part of dataplane.Waiter.
func (w *Waiter) Wake() { w.Wakes.Add(1) }

type steering struct{ net *Net }

func (s steering) Steer(k mft.Key, _ mft.GroupID) error { return s.steer(k, true) }
func (s steering) Unsteer(k mft.Key) error              { return s.steer(k, false) }

func (s steering) steer(k mft.Key, there bool) error {
	if s.net.OnSteer == nil {
		return nil
	}
	return s.net.OnSteer(k, there)
}
