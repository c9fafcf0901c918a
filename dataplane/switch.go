package dataplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Steering tells the classifier in front of the ports which frames belong to groups.
type Steering interface {
	Steer(k mft.Key, id mft.GroupID) error
	Unsteer(k mft.Key) error
}

// Config describes a Switch.
type Config struct {
	Workers  []WorkerConfig // at least one
	Steering Steering
	FanOut   FanOut // nil: none
	NoFanOut error  // why there is none yet although it is asked for; nil: it is not
	// RepairChunks is how many chunks each worker may retain for repair: its pool has them in
	// addition to all others. 0: no group can have repair on.
	RepairChunks int
	// Egress bounds the queues of the ports, by mft.PortID; a port beyond its end has no bounds.
	Egress []Egress
	// Now is the workers' clock, which goes on over a restart. nil: the system's monotonic clock,
	// which begins with the Switch.
	Now func() feedback.Tick
	// Busy: an idle worker keeps polling. Otherwise it blocks after a short while.
	Busy bool
}

// WorkerConfig is what one worker has to itself: its queues of every port, in the same order for
// all workers, and its buffers.
type WorkerConfig struct {
	Ports  []Port
	Pool   Pool
	Waiter Waiter
}

// Switch is what control uses: the published table and the workers.
type Switch struct {
	steering Steering
	busy     bool
	workers  []*Worker
	owners   *owners
	notes    chan Note
	table    atomic.Pointer[mft.Table]

	change   sync.Mutex // held while the table or the ports change
	ports    atomic.Int32
	reserved bool // the workers have records of retained packets
	captures captures
	// The workers' threads own the workers' state while running is true. Otherwise the holder of
	// the lock stopped owns it.
	stopped sync.Mutex
	running bool
	ended   chan struct{}
}

// New returns a Switch with an empty table. It moves no frames until Run.
func New(c Config) *Switch {
	s := &Switch{
		steering: c.Steering, busy: c.Busy, owners: newOwners(len(c.Workers)), notes: make(chan Note, noteRoom),
		ended: make(chan struct{}),
	}
	s.table.Store(new(mft.Table))
	var ahead uint32
	if c.Now == nil {
		start := time.Now()
		c.Now = func() feedback.Tick { return feedback.Tick(time.Since(start)) }
		ahead = uint32(start.UnixNano() / int64(feedback.AskPeriod))
	}
	s.ports.Store(int32(len(c.Workers[0].Ports)))
	for _, config := range c.Workers {
		s.workers = append(s.workers, newWorker(config, c, &s.table, s.notes))
	}
	for i, w := range s.workers {
		w.index, w.owners, w.core.ahead = i, s.owners, ahead
		w.peers, w.inbox, w.gave = s.workers, make([]*handoff, len(s.workers)), make([]bool, len(s.workers))
		for k := range w.inbox {
			if k != i {
				w.inbox[k] = newHandoff(handoffFrames)
			}
		}
	}
	return s
}

// Run moves frames until ctx is done. It must be called only once.
func (s *Switch) Run(ctx context.Context) {
	s.stopped.Lock()
	s.running = true
	s.stopped.Unlock()
	defer func() {
		s.stopped.Lock()
		s.running = false
		close(s.ended)
		s.stopped.Unlock()
	}()
	var wg sync.WaitGroup
	for _, w := range s.workers {
		wg.Go(func() { w.run(ctx, s.busy) })
	}
	wg.Wait()
}

// Workers returns the workers, for tests and the simulator, which call Worker.Poll themselves
// instead of Run.
func (s *Switch) Workers() []*Worker { return s.workers }

// Table returns the published table.
func (s *Switch) Table() *mft.Table { return s.table.Load() }

// Notes delivers events for the operator. Notes that are not received in time are dropped.
func (s *Switch) Notes() <-chan Note { return s.notes }

// Add publishes g and sets its ID. Its frames are forwarded when Add has returned. After an error
// nothing has changed.
func (s *Switch) Add(g *mft.Group) (mft.GroupID, error) {
	s.change.Lock()
	defer s.change.Unlock()
	if err := s.fits(g); err != nil {
		return 0, fmt.Errorf("group %s: %w", g.Name, err)
	}
	t, err := s.Table().With(g)
	if err != nil {
		return 0, fmt.Errorf("group %s: %w", g.Name, err)
	}
	s.reserve(g)
	old := s.Table()
	s.table.Store(t)
	if err := s.steer(g.Keys(), t); err != nil {
		s.table.Store(old)
		err = errors.Join(fmt.Errorf("group %s: %w", g.Name, err), s.steer(g.Keys(), old))
		// The next group gets this ID: drop the merging state that frames have made meanwhile.
		s.forget(g.ID)
		return 0, err
	}
	return g.ID, nil
}

// ErrRetention: the workers cannot retain what the group's policy asks for.
var ErrRetention = errors.New("too little memory to retain packets for repair")

// retentionError is an ErrRetention that has a sentence of its own.
type retentionError struct{ error }

func (retentionError) Is(target error) bool { return target == ErrRetention }

// Retains checks that the worker that gets a group with this policy can retain as many packets as
// the policy asks for: repair-window of them, or as many as repair-bytes allows where these are
// fewer. A path MTU of 4096 takes two buffers for each. The error is an ErrRetention.
func (s *Switch) Retains(p feedback.Policy, pathMTU int) error {
	if p.Repair == feedback.RepairOff {
		return nil
	}
	room, window := s.workers[0].core.repair.room, cmp.Or(p.RepairWindow, feedback.DefaultRepairWindow)
	bytes, packet := p.RepairBytes, mft.PacketBytes(pathMTU)
	byWindow := bytes == 0 || bytes >= window*packet
	switch most := room * mft.BufferBytes / packet; {
	case room == 0:
		return retentionError{errors.New("repair: local needs memory, and rocastd.yaml says repairMemory: 0; write a size " +
			"there, or repair: off into the group file")}
	case window > most && byWindow:
		return retentionError{fmt.Errorf("repair-window is %d packets, and the repairMemory of a forwarding thread has room "+
			"for %d of them; write %d or less, or a larger repairMemory into rocastd.yaml", window, most, most)}
	case bytes > room*mft.BufferBytes:
		kib := room * mft.BufferBytes >> 10
		return retentionError{fmt.Errorf("repair-bytes is %dKiB, and the repairMemory of a forwarding thread is %dKiB; write "+
			"%dKiB or less, or a larger repairMemory into rocastd.yaml", bytes>>10, kib, kib)}
	}
	return nil
}

// reserve makes the records of retained packets for each worker when the first group with repair is
// added: 5 MB, for which no packet has to wait.
func (s *Switch) reserve(g *mft.Group) {
	if g.Policy.Repair == feedback.RepairOff || s.reserved {
		return
	}
	for _, w := range s.workers {
		r := newRetention(w.core.repair.room)
		s.do(w, func(w *Worker) { w.core.repair.retained = r })
	}
	s.reserved = true
}

// fits checks that every leg leaves by an existing port, and that a worker can retain the group's
// packets.
func (s *Switch) fits(g *mft.Group) error {
	if err := s.Retains(g.Policy, g.PathMTU); err != nil {
		return err
	}
	ports := int(s.ports.Load())
	for _, l := range g.Legs() {
		if l.Resolved() && int(l.Port) >= ports {
			return fmt.Errorf("%v is behind port %d, and there are only %d ports", l.Dst, l.Port, ports)
		}
	}
	return nil
}

// TakePort gives every worker its queues of a port, in the order of the workers, while they move
// frames. The counters of the port begin again. id is that of a port that no group uses any more,
// or the number of the ports so far: then there is one more.
func (s *Switch) TakePort(id mft.PortID, queues []Port, bounds Egress) {
	s.change.Lock()
	defer s.change.Unlock()
	for i, w := range s.workers {
		s.do(w, func(w *Worker) { w.take(id, queues[i], bounds) })
	}
	s.ports.Store(max(s.ports.Load(), int32(id)+1))
}

// Replace publishes g in place of the group with this ID: a next hop has changed, or members have
// joined or left. What remaining members have acknowledged is kept. A new receiver takes part from
// the next message on. What a member that left held back is sent before Replace returns. After an
// error nothing has changed.
func (s *Switch) Replace(id mft.GroupID, g *mft.Group) error {
	s.change.Lock()
	defer s.change.Unlock()
	old := s.Table().Group(id)
	if old == nil {
		return fmt.Errorf("group %s is gone", g.Name)
	}
	if err := s.fits(g); err != nil {
		return fmt.Errorf("group %s: %w", g.Name, err)
	}
	if g.Policy != old.Policy {
		return fmt.Errorf("group %s: the policy of a running group cannot change; remove the group and create it again",
			g.Name)
	}
	before := s.Table()
	t, err := before.Replace(id, g)
	if err != nil {
		return fmt.Errorf("group %s: %w", g.Name, err)
	}
	// A group without traffic has no merging state yet. Its present members take part from the
	// start, unlike those that join with g.
	if newcomers(old, g) {
		s.adopt(old)
	}
	come, gone := without(g.Keys(), old.Keys()), without(old.Keys(), g.Keys())
	// New entries come before the new table, and old ones go after it: the answer of a receiver
	// without an entry would go to the kernel, which may deliver it to the source as if all
	// receivers had answered.
	err = s.steer(come, t)
	if err == nil {
		s.table.Store(t)
		err = s.steer(gone, t)
	}
	if err != nil {
		s.table.Store(before)
		return errors.Join(fmt.Errorf("group %s: %w", g.Name, err), s.steer(append(come, gone...), before))
	}
	if s.owners.of(id) < 0 {
		s.EndBatches() // one of them may have the first frame of the group, for the old version
	}
	if s.owners.of(id) >= 0 {
		s.adopt(g)
	}
	return nil
}

// EndBatches returns when every worker has ended the batch that it was busy with. From then on no
// worker uses what was published before, for instance an older table.
func (s *Switch) EndBatches() {
	for _, w := range s.workers {
		s.do(w, func(*Worker) {})
	}
}

// adopt switches the merging of a group to version g.
func (s *Switch) adopt(g *mft.Group) {
	s.do(s.workers[s.owners.claim(g.ID, -1)], func(w *Worker) { w.adopt(g) })
}

// Remove ends the group's traffic. Frames in flight are counted as GroupGone.
func (s *Switch) Remove(id mft.GroupID) error {
	s.change.Lock()
	defer s.change.Unlock()
	g := s.Table().Group(id)
	if g == nil {
		return nil
	}
	t := s.Table().Without(id)
	err := s.steer(g.Keys(), t)
	s.table.Store(t)
	s.forget(id)
	return err
}

// forget drops the merging state of a group that the published table lacks. Any worker may still be
// busy with a batch of frames that it looks up in the table before.
func (s *Switch) forget(id mft.GroupID) {
	for _, w := range s.workers {
		s.do(w, func(w *Worker) { w.forget(id) })
	}
	s.owners.release(id)
}

// without returns the keys that are not among others.
func without(keys, others []mft.Key) []mft.Key {
	has := make(map[mft.Key]bool, len(others))
	for _, k := range others {
		has[k] = true
	}
	return slices.DeleteFunc(keys, func(k mft.Key) bool { return has[k] })
}

// steer makes the classifier agree with t about keys, as far as possible. Keys that t lacks are
// removed first, in reverse order, so that there is room to undo a change when the classifier is
// full; then those that t has are added, in order (mft.Group.Keys). The error is the first one,
// because further ones say the same.
func (s *Switch) steer(keys []mft.Key, t *mft.Table) (first error) {
	note := func(err error) {
		if first == nil {
			first = err
		}
	}
	for _, k := range slices.Backward(keys) {
		if _, ok := t.Find(k); !ok {
			note(s.steering.Unsteer(k))
		}
	}
	for _, k := range keys {
		if id, ok := t.Find(k); ok {
			note(s.steering.Steer(k, id))
		}
	}
	return first
}

// do runs f on the worker's thread between two batches, and returns afterwards. While the workers
// do not run, f runs on the calling thread.
func (s *Switch) do(w *Worker, f func(w *Worker)) {
	s.stopped.Lock()
	if !s.running {
		defer s.stopped.Unlock()
		f(w)
		return
	}
	s.stopped.Unlock()
	done := make(chan struct{})
	task := func() { f(w); close(done) }
	select {
	case w.todo <- task:
		w.wait.Wake()
	case <-s.ended:
		s.do(w, f)
		return
	}
	select {
	case <-done:
	case <-s.ended:
		s.finish(w, done)
	}
}

// UseFanOut lets the workers use an engine from now on. If it is nil, why says why there is none.
func (s *Switch) UseFanOut(f FanOut, why error) {
	for _, w := range s.workers {
		s.do(w, func(w *Worker) { w.core.engine.fanOut, w.core.engine.none = f, why })
	}
}

// Do runs f on the thread of the i-th worker between two batches, and returns afterwards. Parts of
// a port change only this way.
func (s *Switch) Do(i int, f func()) { s.do(s.workers[i], func(*Worker) { f() }) }

// finish runs the functions that a worker left in its queue when it ended, until done.
func (s *Switch) finish(w *Worker, done <-chan struct{}) {
	s.stopped.Lock()
	defer s.stopped.Unlock()
	for {
		select {
		case <-done:
			return
		case task := <-w.todo:
			task()
		}
	}
}

// Counter is a named count since the start of the daemon.
type Counter struct {
	Name  string
	Value uint64
}

// EndFanOut takes all groups back from the engine, whose memory is about to go. Run must have
// returned.
func (s *Switch) EndFanOut() {
	for _, w := range s.workers {
		s.do(w, func(w *Worker) {
			for holders := &w.core.engine.holders; len(holders.groups) > 0; {
				w.core.giveUpSlot(w.now(), holders.groups[0], &w.out)
			}
			w.flush()
			w.core.PutBack()
		})
	}
}

// Counters returns the number of received frames for each reason, in the order of Reason, and the
// number of frames that could not be sent. ACKs that the engine merged are not among them.
func (s *Switch) Counters() []Counter {
	var counts [NumReasons]uint64
	unsent := uint64(0)
	var fan FanOutCounts
	var repair RepairCounts
	var naks nakCounts
	for _, w := range s.workers {
		s.do(w, func(w *Worker) {
			w.core.lookAtAll(w.now(), &w.out)
			w.flush()
			fan.add(&w.core.engine.counts)
			repair.add(&w.core.repair.counts)
			naks.add(&w.core.naks)
			for r, n := range w.counts {
				counts[r] += n
			}
			unsent += w.unsent
		})
	}
	counts[feedback.Forwarded] += fan.Carried
	return repair.named(append(naks.named(named(&counts)), Counter{"unsent", unsent},
		Counter{"fan-out-armed", fan.Armed}, Counter{"fan-out-disarmed", fan.Disarmed},
		Counter{"fan-out-carried", fan.Carried}, Counter{"fan-out-refused", fan.Refused}))
}

// PortCounters returns the counters of every port, indexed by mft.PortID.
func (s *Switch) PortCounters() []PortCounters {
	sum := make([]PortCounters, s.ports.Load())
	for _, w := range s.workers {
		s.do(w, func(w *Worker) {
			for i := range sum {
				sum[i].Add(w.stats[i])
			}
		})
	}
	return sum
}

// GroupState is a snapshot of a group's merging state and counters.
type GroupState struct {
	feedback.Snapshot
	Group     *mft.Group // the published version, in whose order the paths and receivers are
	Turns     uint32     // number of turns that have begun since the group is here
	Source    mft.QP     // the present source, if it has a path; zero: it only sends, or has left the group
	Counters  []Counter
	Engine    EngineState
	Traffic   Traffic
	Receivers []Receiver // of each path
	// Since is, of each path, the PSN of the present source with which the receiver's QP expected
	// its first PSN. Of a receiver that has joined in the present turn that is its first packet. It
	// means nothing while the receiver is joining.
	Since    []roce.PSN
	Refused  Refused  // data of members that was refused
	LastTurn LastTurn // of the source that has no path
	Repaired []uint64 // with repair on: packets that each path was sent again in the last minute
	Retained int      // with repair on: bytes of packet memory that it takes now
	// Shares are the states of Group.Shares, and Edges those of the paths' edges. nil: no path
	// shares a leg.
	Shares []ShareState
	Edges  []EdgeState
}

// GroupState returns the state of the group with this ID, or false if there is none. What the
// kernel has carried meanwhile is merged first, so that the state is the current one. Apart from
// that nothing changes: a group without traffic is shown in its initial state.
func (s *Switch) GroupState(id mft.GroupID) (GroupState, bool) {
	s.change.Lock() // so that the state is that of the published version
	defer s.change.Unlock()
	g := s.Table().Group(id)
	if g == nil {
		return GroupState{}, false
	}
	var state *GroupState
	s.do(s.workers[max(0, s.owners.of(id))], func(w *Worker) {
		state = w.core.GroupState(w.now(), g, &w.out)
		w.flush()
	})
	state.Group = g
	return *state, true
}

// GroupState returns the state of a group, and what has to be sent because of what the kernel has
// carried. The state has the version of the group that the core has adopted. If the core does not
// have the group yet, the state is that with which g begins.
func (c *Core) GroupState(now feedback.Tick, g *mft.Group, out *Outputs) *GroupState {
	st := c.stateOf(g.ID)
	if st == nil {
		st = newState(g)
	} else {
		c.look(now, st, out)
	}
	return c.groupState(now, st)
}

func (c *Core) groupState(now feedback.Tick, st *state) *GroupState {
	s := &GroupState{
		Group: st.group, Turns: st.begun,
		Snapshot: st.merge.Snapshot(), Counters: st.naks.named(named(&st.counts)),
		Engine: c.engine.report(st, c.taps.capture(st.group.ID)), Traffic: st.traffic, Refused: st.refused,
	}
	s.Traffic.Mapped = st.mapped.packets
	s.Receivers, s.Since, s.LastTurn = st.receivers(&s.Snapshot), st.since(), st.turnSoFar(onlySends)
	if st.active >= 0 {
		s.Source = st.group.Paths[st.active].QP()
	}
	s.Shares, s.Edges = st.sharing.states(now, st)
	if st.held != nil {
		s.Repaired, s.Retained = st.held.recent.last(now), st.held.used*mft.BufferBytes
	}
	return s
}

func named(counts *[NumReasons]uint64) []Counter {
	counters := make([]Counter, NumReasons)
	for r := range counters {
		counters[r] = Counter{Reason(r).String(), counts[r]}
	}
	return counters
}
