package dataplane

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

const (
	// batchFrames is how many frames are received from a port at once.
	batchFrames = 64
	// armBatches is how many batches of a port a worker handles in a row when a group is to be
	// armed. It is more than the window of most sources. Other ports wait meanwhile, so no batch
	// begins after armTime: 512 frames for 64 receivers would take ten times as long.
	armBatches = 8
	armTime    = feedback.Tick(4 * time.Millisecond)
	// copyRoom is how many copies are collected before they are sent. One frame may add
	// mft.MaxPaths, so the copies are sent early when there is less room.
	copyRoom = 4 * mft.MaxPaths
	// portLanes is how many ranks there are at a port: of paths, and of legs that paths share.
	portLanes = mft.MaxPaths + mft.MaxShares
	// replyRoom is how many replies are sent at once.
	replyRoom = 3 * batchFrames
	// noteRoom is how many notes may wait. Further ones are dropped; the counters still count.
	noteRoom = 64
	// spinSettled is how long a worker spins after its last frame before it blocks, when every
	// receiver has acknowledged everything.
	spinSettled = feedback.Tick(50 * time.Microsecond)
	// spinInFlight is the same while a group has data in flight: longer than most round trips, so
	// that acknowledgements find the worker awake. It is about what a sleep and a wake-up cost: a
	// worker that spins much longer uses more CPU time than one that sleeps at once.
	spinInFlight = feedback.Tick(100 * time.Microsecond)
	// feedbackNap is how long feedback may wait for more while sources stream. It is short beside
	// the time that a window of packets takes: 128 (RXE_MAX_UNACKED_PSNS of rxe_req.c) take 250 us
	// at half a million packets a second.
	feedbackNap = 50 * time.Microsecond
	// waitTimeout bounds one block, so that a missed wake-up costs little. A worker blocks no
	// longer than Core.Pause allows.
	waitTimeout = 100 * time.Millisecond
)

// Worker processes frames to completion: it receives a batch, decides, sends all copies, and gives
// the buffers back. One thread owns it and everything it holds.
//
// Replication is in place. Copies are collected in lanes, one for each (port, rank of the path at
// that port); a frame occurs in a lane at most once. A lane's copies are written into the received
// buffers and sent before those of the next lane are written. So each path gets its frames in
// order, and no byte of payload is copied.
//
// With several workers each has its own queues of every port and its own buffers, and each group
// has one owner: only one thread has the merging state of a group, whichever queue its frames
// arrive on.
type Worker struct {
	ports []Port
	pool  Pool
	wait  Waiter
	now   func() feedback.Tick // read once in each Poll, and again when a batch follows another one
	core  *Core
	table *atomic.Pointer[mft.Table]
	todo  chan func()
	notes chan<- Note

	index    int
	owners   *owners
	peers    []*Worker     // all workers, by index
	inbox    []*handoff    // by index of the producer; nil: this worker
	gave     []bool        // by peer: it was given frames of this batch
	polled   feedback.Tick // the time of the last Poll, or of a later batch of it
	active   feedback.Tick // the time of the last Poll that found a frame
	sleeping atomic.Bool   // it may be in Wait, so producers have to wake it

	frames    []Frame
	replies   []Frame
	out       Outputs
	queue     []queued // parallel to out.Copies
	lanes     []lane   // port*portLanes + rank
	touched   []int    // lanes in use
	beginning uint32   // which of the lanes begins: see begin
	send      []Outgoing
	sending   int           // bytes of send
	queues    []egressQueue // by port

	event uint64 // of taps: the last one

	counts [NumReasons]uint64
	unsent uint64 // copies and replies without a next hop or a free buffer
	stats  []PortCounters
}

// PortCounters count the frames of one port.
type PortCounters struct {
	RxFrames, RxBytes uint64
	TxFrames, TxBytes uint64
	TxLost            uint64 // the port could not send them, or its queue was full
	// Of the copies: marked as having met congestion; lost because the queue was full; and repairs
	// that were put off because repairs had their share of the queue.
	Marked, QueueFull, RepairsPutOff uint64
}

// Add adds what d counted.
func (c *PortCounters) Add(d PortCounters) {
	c.RxFrames, c.RxBytes = c.RxFrames+d.RxFrames, c.RxBytes+d.RxBytes
	c.TxFrames, c.TxBytes = c.TxFrames+d.TxFrames, c.TxBytes+d.TxBytes
	c.TxLost += d.TxLost
	c.Marked, c.QueueFull = c.Marked+d.Marked, c.QueueFull+d.QueueFull
	c.RepairsPutOff += d.RepairsPutOff
}

type queued struct {
	frame  *Frame
	behind []Frame // of the same train
	next   int     // index into queue, -1: last
	event  uint64  // see Worker.event
}

type lane struct{ first, last int }

const emptyLane = -1

func newWorker(c WorkerConfig, all Config, table *atomic.Pointer[mft.Table], notes chan<- Note) *Worker {
	w := &Worker{
		pool: c.Pool, wait: c.Waiter, now: all.Now, core: NewCore(all.FanOut), table: table,
		todo: make(chan func(), 1), notes: notes,
		frames:  make([]Frame, batchFrames),
		replies: make([]Frame, replyRoom),
		out: Outputs{
			Copies:  make([]Copy, 0, copyRoom),
			Replies: make([]Reply, 0, replyRoom),
			Notes:   make([]Note, 0, noteRoom),
		},
		queue: make([]queued, 0, copyRoom),
		send:  make([]Outgoing, 0, batchFrames),
	}
	for i, p := range c.Ports {
		var bounds Egress
		if i < len(all.Egress) {
			bounds = all.Egress[i]
		}
		w.take(mft.PortID(i), p, bounds)
	}
	w.core.engine.none = all.NoFanOut
	w.core.RetainUpTo(all.RepairChunks, w.pool)
	return w
}

// take makes p the port with this ID, whose counters begin again. The ID is one that no leg of a
// group has, or the next one. Between two batches no lane is in use, so the lists may grow.
func (w *Worker) take(id mft.PortID, p Port, bounds Egress) {
	if int(id) == len(w.ports) {
		w.ports = append(w.ports, nil)
		w.stats = append(w.stats, PortCounters{})
		w.queues = append(w.queues, egressQueue{})
		w.core.engine.marks = append(w.core.engine.marks, false)
		w.lanes = append(w.lanes, slices.Repeat([]lane{{emptyLane, emptyLane}}, portLanes)...)
	}
	w.ports[id], w.stats[id], w.queues[id] = p, PortCounters{}, newEgressQueue(id, bounds)
	w.core.engine.marks[id] = bounds.KmaxBytes > 0
}

// run polls until ctx is done. It locks the thread, so that the worker has one of its own, whose
// raw system calls delay no other goroutine. The thread ends with the worker.
//
// A worker that spins gives way to other threads of its CPU: where the kernel's threads that take
// in packets (ksoftirqd, threaded NAPI) share the CPU, spinning keeps them from doing so.
func (w *Worker) run(ctx context.Context, busy bool) {
	runtime.LockOSThread()
	stop := context.AfterFunc(ctx, w.wait.Wake)
	defer stop()
	for ctx.Err() == nil {
		select {
		case f := <-w.todo:
			f()
		default:
		}
		switch {
		case w.Poll() > 0:
		case !busy && w.idle():
			w.sleep()
		default:
			w.wait.Yield()
		}
	}
}

// idle reports whether the worker has found no frame for as long as it spins. After a wait that
// ended without a frame it does not spin again.
func (w *Worker) idle() bool {
	spin := spinSettled
	switch {
	case w.core.flights[inFlight] > 0:
		spin = spinInFlight
	case w.core.flights[carried] > 0:
		spin = 0 // only feedback wakes the worker, and no copy waits for it
	}
	return w.polled-w.active >= spin
}

// sleep blocks until there is something to do. It polls once more after setting sleeping, because a
// peer that handed a frame off before that could not see it.
func (w *Worker) sleep() {
	w.sleeping.Store(true)
	if w.Poll() == 0 {
		w.block()
	}
	w.sleeping.Store(false)
}

// block waits for a frame, or naps while sources stream past the worker: it takes their feedback in
// batches, because being woken by each costs as much as tens of copies.
func (w *Worker) block() {
	nap := w.core.streaming && w.core.flights[inFlight] == 0
	w.core.streaming = false
	if nap {
		w.wait.Nap(feedbackNap)
		return
	}
	timeout := waitTimeout
	if pause := w.core.Pause(w.polled); pause > 0 {
		timeout = min(timeout, time.Duration(pause))
	}
	w.wait.Wait(timeout)
}

// Poll polls all ports and rings once. It returns the number of frames handled.
func (w *Worker) Poll() int {
	total := 0
	w.polled = w.now()
	for i := range w.ports {
		total += w.serve(mft.PortID(i), nil)
	}
	for _, h := range w.inbox {
		if h != nil {
			total += w.serve(mft.NoPort, h)
		}
	}
	if w.core.Tick(w.polled, &w.out) {
		w.flush()
	}
	w.core.PutBack()
	if len(w.core.replays) > 0 {
		w.replay()
	}
	if total > 0 {
		w.active = w.polled
	}
	return total
}

// serve handles a batch of a port, or what another worker has handed off, and returns the number of
// frames. If a group is to be armed then, serve first handles what else waits there: a frame of the
// group that waits while the group is armed ends the engine's turn at once, and a busy source
// always has some on their way. No feedback is handled meanwhile, so the source stops when its
// window is full.
func (w *Worker) serve(port mft.PortID, from *handoff) (total int) {
	begun := w.polled
	for range armBatches {
		n := w.receive(port, from)
		if n > 0 {
			w.handle(w.polled, w.frames[:n])
		}
		total += n
		if n == 0 || len(w.core.engine.armable) == 0 {
			break
		}
		if w.polled = w.now(); w.polled-begun >= armTime {
			break
		}
	}
	w.arm()
	return total
}

// receive fills w.frames from a handoff, or from a port if there is no handoff.
func (w *Worker) receive(port mft.PortID, from *handoff) int {
	if from != nil {
		return from.take(w.pool, w.frames)
	}
	n := w.ports[port].Receive(w.frames)
	w.arrived(port, w.frames[:n])
	return n
}

// arm arms the groups that are to be armed. All copies have been sent.
func (w *Worker) arm() {
	if len(w.core.engine.armable) == 0 {
		return
	}
	w.core.Arm(w.polled, &w.out)
	w.flush() // a group that lost its slot may have lost what a receiver needs
	w.core.PutBack()
}

// arrived sets the port of received frames and counts them.
func (w *Worker) arrived(port mft.PortID, frames []Frame) {
	stats := &w.stats[port]
	for i := range frames {
		frames[i].Port = port
		stats.RxFrames++
		stats.RxBytes += uint64(frames[i].Len())
	}
}

func (w *Worker) handle(now feedback.Tick, frames []Frame) {
	// A group is published before the classifier finds frames of it: a table that is loaded after
	// the frames were received has their groups.
	table := w.table.Load()
	for i, n := 0, 1; i < len(frames); i += n {
		f := &frames[i]
		n = 1
		if owner := w.owner(table, f); owner != w.index {
			w.handOff(f, w.peers[owner])
			continue
		}
		if cap(w.out.Copies)-len(w.out.Copies) < mft.MaxPaths {
			w.flush() // else the lists grow
		}
		behind := frames[i+1:]
		if len(w.core.taps) > 0 {
			behind = nil // captures show what became of each frame
		}
		before := len(w.out.Copies)
		r, more := w.core.HandleTrain(now, table, f, behind, &w.out)
		n += more
		w.counts[r] += uint64(n)
		if len(w.core.taps) > 0 {
			w.sawFrame(f, r)
		}
		for k := before; k < len(w.out.Copies); k++ {
			w.enqueue(f, behind[:more], k)
		}
		if len(w.out.Repairs) > 0 {
			w.flush()
		}
	}
	w.wakePeers()
	w.flush()
	w.core.PutBack()
	for i := range frames {
		w.pool.Put(&frames[i])
	}
}

// owner returns the index of the worker that has the merging state of the frame's group, or is to
// have it. The caller itself counts frames without a group.
func (w *Worker) owner(t *mft.Table, f *Frame) int {
	if len(w.peers) == 1 || t.Group(f.Group) == nil {
		return w.index
	}
	receiver := -1
	if f.Kind == KindData {
		receiver = w.index
	}
	return w.owners.claim(f.Group, receiver)
}

func (w *Worker) handOff(f *Frame, to *Worker) {
	r := OverMTU
	if f.Len() <= handoffBytes {
		if to.inbox[w.index].put(f) {
			w.gave[to.index] = true
			return
		}
		r = HandoffFull
	}
	w.counts[r]++
	w.core.astray.note(f, r)
	if len(w.core.taps) > 0 {
		w.sawFrame(f, r)
	}
}

// wakePeers wakes sleeping workers that were given frames of this batch: one system call for each
// worker, not for each frame.
func (w *Worker) wakePeers() {
	for i, gave := range w.gave {
		if gave && w.peers[i].sleeping.Load() {
			w.peers[i].wait.Wake()
		}
		w.gave[i] = false
	}
}

// adopt switches the merging of a group to version g, and sends what is due because of that.
func (w *Worker) adopt(g *mft.Group) {
	w.core.Adopt(w.now(), g, &w.out)
	w.flush()
	w.core.PutBack()
}

// forget drops the merging state of a group.
func (w *Worker) forget(id mft.GroupID) {
	w.core.Forget(id)
	w.core.PutBack()
}

// enqueue appends copy k, made of f and of each of the frames behind it, to its lane.
func (w *Worker) enqueue(f *Frame, behind []Frame, k int) {
	w.queue = append(w.queue, queued{})
	q := &w.queue[k]
	q.frame, q.behind, q.next, q.event = f, behind, emptyLane, w.event
	p := w.out.Copies[k].Path
	if !p.Resolved() {
		w.unsent += uint64(1 + len(behind)) // the receiver cannot be reached now; the source will resend
		if len(w.core.taps) > 0 {
			w.sawUnreachable(f, p)
		}
		return
	}
	n := int(p.Port)*portLanes + int(p.Rank)
	l := &w.lanes[n]
	if l.first == emptyLane {
		l.first = k
		w.touched = append(w.touched, n)
	} else {
		w.queue[l.last].next = k
	}
	l.last = k
}

// flush sends everything that was collected. Repairs go last, because a retained frame may be one
// whose copies were collected as well, and a frame occurs in a lane at most once.
func (w *Worker) flush() {
	w.sendCollected()
	repairs := w.out.Repairs
	w.out.Reset()
	for i := range repairs {
		if len(w.out.Copies) == cap(w.out.Copies) {
			w.sendCollected()
			w.out.Reset()
		}
		w.out.Copies = append(w.out.Copies, repairs[i].Copy)
		w.enqueue(repairs[i].Frame, nil, len(w.out.Copies)-1)
	}
	if len(repairs) > 0 {
		w.sendCollected()
		w.out.Reset()
	}
	if len(w.core.taps) > 0 {
		w.tapsPublish()
	}
}

// begin returns the index of the lane that is sent first. Where a port has several lanes, they take
// turns: when its queue is full, the last ones lose their copies. A plain counter would keep step
// with groups that take turns themselves. Multiples of the golden ratio do not (Knuth vol. 3, 6.4).
func (w *Worker) begin() int {
	if !slices.ContainsFunc(w.touched, func(n int) bool { return n%portLanes != 0 }) {
		return 0
	}
	w.beginning += 0x9E3779B9
	return int(uint64(w.beginning) * uint64(len(w.touched)) >> 32)
}

// sendCollected sends replies, the copies of all lanes, and notes.
func (w *Worker) sendCollected() {
	w.sendReplies()
	at, lanes := w.begin(), len(w.touched)
	for i := range lanes {
		n := w.touched[at]
		if at++; at == lanes {
			at = 0
		}
		port := mft.PortID(n / portLanes)
		last := i == lanes-1
		w.queues[port].looked = false
		for k := w.lanes[n].first; k != emptyLane; k = w.queue[k].next {
			w.sendTrain(port, &w.queue[k], &w.out.Copies[k], last)
		}
		w.transmit(port)
		w.lanes[n] = lane{emptyLane, emptyLane}
	}
	w.touched = w.touched[:0]
	w.queue = w.queue[:0]
	for _, n := range w.out.Notes {
		select {
		case w.notes <- n:
		default:
		}
	}
}

// sendTrain sends copy c of the frames of q by a port, for the last time if last is set.
func (w *Worker) sendTrain(port mft.PortID, q *queued, c *Copy, last bool) {
	fate := SentCopy
	if c.Retained {
		fate = SentRepair
	}
	unbounded := w.queues[port].admitsAll(fate)
	for i, f := -1, q.frame; ; f = &q.behind[i] {
		o := w.another(port)
		o.fill(f, int(f.Original.Bytes), c.Apply(f), last && !f.Kept)
		o.event, o.fate, o.first = q.event, fate, c.First
		if unbounded || w.admit(port, o) {
			w.sending += o.Bytes
		} else {
			w.dropLast(port, o)
		}
		if i++; i == len(q.behind) {
			return
		}
		c.OfNext()
	}
}

// dropLast removes the last frame from the list to be sent by port, because it was not admitted.
func (w *Worker) dropLast(port mft.PortID, o *Outgoing) {
	if len(w.core.taps) > 0 {
		w.sawOutgoing(port, o)
	}
	w.send = w.send[:len(w.send)-1]
}

// sendReplies sends our own frames, in order. They go before the copies because the source waits
// for them.
func (w *Worker) sendReplies() {
	for rest := w.out.Replies; len(rest) > 0; {
		n := min(len(rest), len(w.replies))
		w.sendSome(rest[:n])
		rest = rest[n:]
	}
}

// sendSome sends replies, at most as many as there are frames to write them to.
func (w *Worker) sendSome(replies []Reply) {
	port := mft.NoPort
	for i := range replies {
		r, f := &replies[i], &w.replies[i]
		if !r.Leg.Resolved() || !w.pool.Get(f) {
			w.unsent++
			f.FragmentCount = 0
			continue
		}
		if r.Leg.Port != port {
			w.transmit(port)
			port = r.Leg.Port
		}
		b, err := r.Append(f.Buf[f.Start:f.Start])
		if err != nil {
			panic("dataplane: reply on a leg of mixed address families: " + err.Error())
		}
		f.Fragments[0], f.FragmentCount, f.Group = b, 1, r.Group
		o := w.another(port)
		o.fill(f, len(b), f.Start, true)
		o.event, o.fate = cmp.Or(r.event, w.event), SentReply
		w.sending += o.Bytes
	}
	w.transmit(port)
	for i := range replies {
		if f := &w.replies[i]; f.FragmentCount > 0 {
			w.pool.Put(f)
		}
	}
}

// another makes room for one more frame that is sent by port. The caller sets every field: they are
// written where they lie, because a struct that is copied there costs several times as much.
func (w *Worker) another(port mft.PortID) *Outgoing {
	if len(w.send) == cap(w.send) {
		w.transmit(port) // the list is full
	}
	w.send = w.send[:len(w.send)+1]
	return &w.send[len(w.send)-1]
}

func (w *Worker) transmit(port mft.PortID) {
	if len(w.send) == 0 {
		return
	}
	stats := &w.stats[port]
	n := w.ports[port].Send(w.send)
	if len(w.core.taps) > 0 {
		w.sawSent(port, w.send, n)
	}
	w.queues[port].gave(w.sending)
	stats.TxFrames += uint64(n)
	stats.TxBytes += uint64(w.sending)
	for i := range w.send[n:] {
		stats.TxBytes -= uint64(w.send[n+i].Bytes)
	}
	w.sending = 0
	stats.TxLost += uint64(len(w.send) - n)
	w.send = w.send[:0]
}
