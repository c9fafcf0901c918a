package dataplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

// Steering tells the classifier in front of the ports which frames are groups'.
type Steering interface {
	Steer(k mft.Key, id mft.GroupID) error
	Unsteer(k mft.Key) error
}

// Config is what a Switch is made of.
type Config struct {
	Workers  []WorkerConfig // at least one
	Steering Steering
	// Now is the worker's clock; nil: the system's monotonic one.
	Now func() feedback.Tick
	// Busy: an idle worker spins. Else it blocks after a short while.
	Busy bool
}

// WorkerConfig is what one worker has to itself: its queues of every port, in
// the same order for all workers, and its buffers.
type WorkerConfig struct {
	Ports  []Port
	Pool   Pool
	Waiter Waiter
}

// Switch is what control holds: the published table and the workers.
type Switch struct {
	steering Steering
	busy     bool
	workers  []*Worker
	notes    chan Note
	table    atomic.Pointer[mft.Table]

	change sync.Mutex // one change of the table at a time
	// state says who may touch the workers' state: whoever holds stopped, or
	// the workers' threads while running.
	stopped sync.Mutex
	running bool
	ended   chan struct{}
}

// New returns a Switch with an empty table. It does nothing until Run.
func New(c Config) *Switch {
	s := &Switch{steering: c.Steering, busy: c.Busy, notes: make(chan Note, noteRoom), ended: make(chan struct{})}
	s.table.Store(new(mft.Table))
	if c.Now == nil {
		start := time.Now()
		c.Now = func() feedback.Tick { return feedback.Tick(time.Since(start)) }
	}
	for _, config := range c.Workers {
		s.workers = append(s.workers, newWorker(config, c.Now, &s.table, s.notes))
	}
	for i, w := range s.workers {
		w.index, w.peers, w.inbox, w.gave = i, s.workers, make([]*handover, len(s.workers)), make([]bool, len(s.workers))
		for k := range w.inbox {
			if k != i {
				w.inbox[k] = newHandover()
			}
		}
	}
	return s
}

// Run moves frames until ctx is done. It is called once.
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

// Workers are for those who drive the rounds themselves, tests and the
// simulator, instead of calling Run.
func (s *Switch) Workers() []*Worker { return s.workers }

// Table is the published table.
func (s *Switch) Table() *mft.Table { return s.table.Load() }

// Notes delivers news for the operator. What nobody takes in time is dropped.
func (s *Switch) Notes() <-chan Note { return s.notes }

// Add publishes g. Its traffic moves when Add has returned; after an error
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
	old := s.Table()
	s.table.Store(t)
	if err := s.steer(g.Keys(), t); err != nil {
		s.table.Store(old)
		err = errors.Join(fmt.Errorf("group %s: %w", g.Name, err), s.steer(g.Keys(), old))
		// The next group gets this ID: drop the merging state that frames have made meanwhile.
		s.do(s.owner(g.ID), func(w *Worker) { w.core.forget(g.ID) })
		return 0, err
	}
	return g.ID, nil
}

// fits checks that every leg is one of the ports.
func (s *Switch) fits(g *mft.Group) error {
	ports := len(s.workers[0].ports)
	for _, l := range g.Legs() {
		if l.Resolved() && int(l.Port) >= ports {
			return fmt.Errorf("%v is behind port %d and there are %d", l.Dst, l.Port, ports)
		}
	}
	return nil
}

// Replace publishes g in the place of the group id names: a next hop moved, or
// members came and went. What the members that stay acknowledged is kept; one
// that comes takes part from the next message on. What a member that left held
// back is sent before Replace returns.
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
		return fmt.Errorf("group %s: the policy of a live group cannot change; remove it and create it anew", g.Name)
	}
	before := s.Table()
	t, err := before.Replace(id, g)
	if err != nil {
		return fmt.Errorf("group %s: %w", g.Name, err)
	}
	// A group whose traffic has not begun has no merging state yet. Its members of now are to be in it from the start, unlike
	// those that come.
	s.adopt(old)
	come, gone := without(g.Keys(), old.Keys()), without(old.Keys(), g.Keys())
	// A receiver that joins gets no data before its answers are taken, and one that leaves answers until it gets none: an
	// answer that went to the kernel could reach the source as an acknowledgement of all receivers.
	err = s.steer(come, t)
	if err == nil {
		s.table.Store(t)
		err = s.steer(gone, t)
	}
	if err != nil {
		s.table.Store(before)
		return errors.Join(fmt.Errorf("group %s: %w", g.Name, err), s.steer(append(come, gone...), before))
	}
	s.adopt(g)
	return nil
}

// adopt makes g the version of its group that frames are merged by.
func (s *Switch) adopt(g *mft.Group) {
	s.do(s.owner(g.ID), func(w *Worker) { w.adopt(g) })
}

// Remove ends the group's traffic. Frames in flight find it gone.
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
	s.do(s.owner(id), func(w *Worker) { w.core.forget(id) })
	return err
}

// without returns the keys that others do not have.
func without(keys, others []mft.Key) []mft.Key {
	has := make(map[mft.Key]bool, len(others))
	for _, k := range others {
		has[k] = true
	}
	return slices.DeleteFunc(keys, func(k mft.Key) bool { return has[k] })
}

// steer makes the classifier agree with t about keys, as far as it can: in their order (mft.Group.Keys) where t has them,
// against it where it lacks them. Those that t lacks go first, or a change could not be taken back where the classifier is
// full. The error is the first one: each key would say the same.
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

func (s *Switch) owner(id mft.GroupID) *Worker { return s.workers[s.workers[0].owner(id)] }

// do runs f on the worker's thread between two batches, and returns when it
// has. After the worker has ended, or before it runs, f runs here.
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

// Do runs f on the thread of the i-th worker between two batches, and returns
// when it has. What a port is made of changes that way alone.
func (s *Switch) Do(i int, f func()) { s.do(s.workers[i], func(*Worker) { f() }) }

// finish runs what a worker that has ended left in its queue, until done.
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

// Counter is a named count since the start.
type Counter struct {
	Name  string
	Value uint64
}

// Counters returns the frames met by each reason, in the order of Reason, and
// what could not be sent.
func (s *Switch) Counters() []Counter {
	var counts [NumReasons]uint64
	unsent := uint64(0)
	for _, w := range s.workers {
		s.do(w, func(w *Worker) {
			for r, n := range w.counts {
				counts[r] += n
			}
			unsent += w.unsent
		})
	}
	return append(named(&counts), Counter{"unsent", unsent})
}

// PortCounters returns the counters of every port, by mft.PortID.
func (s *Switch) PortCounters() []PortCounters {
	sum := make([]PortCounters, len(s.workers[0].stats))
	for _, w := range s.workers {
		s.do(w, func(w *Worker) {
			for i := range sum {
				sum[i].add(&w.stats[i])
			}
		})
	}
	return sum
}

// GroupState is one group's merging state and counters at one moment.
type GroupState struct {
	feedback.Snapshot
	Counters []Counter
}

// GroupState returns the state of the group id names; false if it is gone. It changes nothing: a group whose traffic has not
// begun is shown as it will begin.
func (s *Switch) GroupState(id mft.GroupID) (GroupState, bool) {
	s.change.Lock() // the state is that of the published version
	defer s.change.Unlock()
	g := s.Table().Group(id)
	if g == nil {
		return GroupState{}, false
	}
	var state *GroupState
	s.do(s.owner(id), func(w *Worker) {
		if st := w.core.stateOf(id); st != nil {
			state = &GroupState{Snapshot: st.merge.Snapshot(), Counters: named(&st.counts)}
		}
	})
	if state == nil {
		st := newState(g)
		state = &GroupState{Snapshot: st.merge.Snapshot(), Counters: named(&st.counts)}
	}
	return *state, true
}

func named(counts *[NumReasons]uint64) []Counter {
	counters := make([]Counter, NumReasons)
	for r := range counters {
		counters[r] = Counter{Reason(r).String(), counts[r]}
	}
	return counters
}
