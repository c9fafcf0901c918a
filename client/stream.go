package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/rocast/rocast/ctl/api"
)

// Sender sends the items of a stream by one way.
type Sender[T any] interface {
	// Send returns nil once every receiver has the item. If it returns an error, some receivers may
	// have it. It ends when ctx does.
	Send(ctx context.Context, item T) error
}

// GroupSender sends by a group, and sets the group and its queue pairs up.
type GroupSender[T any] interface {
	Sender[T]
	// Open makes the group usable and tries it: new queue pairs, the group, Client.WaitClear, and
	// data that all receivers acknowledge and that is no item.
	Open(ctx context.Context) error
	// Close ends what Open began, also if Open has failed. After it has returned nil, nothing that
	// was sent by the group arrives any more: packets may be on their way, or retained by a box,
	// so the queue pairs of the receivers must be gone, not only that of the source.
	Close(ctx context.Context) error
}

// Stream sends items to the receivers of a group: by multicast while that works, and by a
// connection to each receiver while it does not. See [Fallback] for when it changes.
//
// An item that has not got through by one way is sent again by the other, so a receiver may get it
// twice, but none arrives after a newer one: give the items numbers, and drop those that are not
// newer than the last. A receiver needs one completion queue for both ways, or puts the items of
// two queues in order.
//
// examples/replicate has both ways.
type Stream[T any] struct {
	Client    *Client // where the group's events come from
	Group     string
	Multicast GroupSender[T]
	Unicast   Sender[T]
	Pace      Pace
	// Within bounds a probe, and the end of the multicast way. 0: 10s
	Within time.Duration
	// Changed is called with the new way, and with its cause, when the stream changes its way; or
	// nil.
	Changed func(to Way, cause error)
}

const standardWithin = 10 * time.Second

// Run sends the items one after the other until there are no more, ctx ends, or an item gets
// through by neither way. It closes Multicast before it returns.
func (s *Stream[T]) Run(ctx context.Context, items iter.Seq[T]) error {
	ctx, cancel := context.WithCancel(ctx)
	r := &runner[T]{Stream: s, signals: make(chan heard), deaf: make(chan struct{}), within: s.Within}
	r.changed = sync.NewCond(&r.mu)
	if r.within == 0 {
		r.within = standardWithin
	}
	wake := context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changed.Broadcast()
	})
	defer wake()
	var helpers sync.WaitGroup
	helpers.Go(func() { r.decide(ctx) })
	helpers.Go(func() { r.listen(ctx) })
	err := r.sendAll(ctx, items)
	cancel()
	helpers.Wait()
	r.probing.Wait()
	if r.opened {
		err = errors.Join(err, r.close(ctx))
	}
	return err
}

// heard is a signal with its reason.
type heard struct {
	signal Signal
	cause  error
}

// runner is one Run. The goroutine of decide changes the way, and that of sendAll sends by it.
type runner[T any] struct {
	*Stream[T]
	signals chan heard
	deaf    chan struct{} // closed when nobody takes signals any more
	within  time.Duration
	probing sync.WaitGroup
	opened  bool // Open has been called since Close; used by decide and its probe

	mu      sync.Mutex
	changed *sync.Cond
	way     Way
	blocked bool               // until decide has looked at what has failed
	sending context.CancelFunc // ends the multicast Send that is under way; nil: there is none
	fatal   error
}

// sendAll sends each item by the way of the moment, and by the other way if that one is left.
func (r *runner[T]) sendAll(ctx context.Context, items iter.Seq[T]) error {
	for item := range items {
		for {
			way, sending, err := r.take(ctx)
			if err != nil {
				return err
			}
			if way == Unicast {
				err = r.Unicast.Send(sending, item)
			} else {
				err = r.Multicast.Send(sending, item)
				r.done(ctx, err)
			}
			if err == nil {
				break
			}
			if way == Unicast || ctx.Err() != nil {
				return err
			}
		}
	}
	return nil
}

// take waits until there is a way, and returns it with the context of the next item.
func (r *runner[T]) take(ctx context.Context) (Way, context.Context, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.blocked && r.fatal == nil && ctx.Err() == nil {
		r.changed.Wait()
	}
	if err := errors.Join(r.fatal, ctx.Err()); err != nil {
		return 0, nil, err
	}
	if r.way == Unicast {
		return Unicast, ctx, nil
	}
	sending, cancel := context.WithCancel(ctx)
	r.sending = cancel
	return Multicast, sending, nil
}

// done says that the item of take was sent by multicast, or was not.
func (r *runner[T]) done(ctx context.Context, err error) {
	r.mu.Lock()
	r.sending()
	r.sending = nil
	r.blocked = r.blocked || err != nil
	r.changed.Broadcast()
	r.mu.Unlock()
	if err != nil {
		r.signal(ctx, SendFailed, err)
	}
}

func (r *runner[T]) signal(ctx context.Context, s Signal, cause error) {
	select {
	case r.signals <- heard{s, cause}:
	case <-r.deaf:
	case <-ctx.Done():
	}
}

// decide does what the Fallback orders, until ctx is done or the stream cannot go on.
func (r *runner[T]) decide(ctx context.Context) {
	defer close(r.deaf)
	fallback := NewFallback(r.Pace)
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		var h heard
		select {
		case <-ctx.Done():
			return
		case h = <-r.signals:
		case <-tick.C:
		}
		order := fallback.Step(time.Now(), h.signal)
		if !r.follow(ctx, order, h) {
			return
		}
		if tick.Stop(); !order.Look.IsZero() {
			tick.Reset(time.Until(order.Look))
		}
	}
}

// follow does what is ordered, and returns whether the stream can go on. Only when nothing can
// arrive by the group any more does it go on by unicast.
func (r *runner[T]) follow(ctx context.Context, order Order, h heard) bool {
	r.mu.Lock()
	was := r.way
	unwanted := h.signal == ProbeWorked && order.Way == Unicast // the group became bad meanwhile
	if was == Multicast && order.Way == Unicast || unwanted {
		r.blocked = true
		for r.sending != nil {
			r.sending()
			r.changed.Wait()
		}
		r.mu.Unlock()
		err := r.close(ctx)
		r.mu.Lock()
		r.fatal = errors.Join(r.fatal, err)
	}
	r.way = order.Way
	if r.way == Unicast || h.signal == SendFailed {
		r.blocked = false
	}
	fatal := r.fatal
	r.changed.Broadcast()
	r.mu.Unlock()
	if fatal != nil || ctx.Err() != nil {
		return false
	}
	if order.Way != was && r.Changed != nil {
		r.Changed(order.Way, h.cause)
	}
	if order.Probe {
		r.probing.Go(func() { r.probe(ctx) })
	}
	return true
}

// probe tries the group.
func (r *runner[T]) probe(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, r.within)
	defer cancel()
	r.opened = true
	err := r.Multicast.Open(within)
	if err == nil {
		r.signal(ctx, ProbeWorked, nil)
		return
	}
	if failed := r.close(ctx); failed != nil {
		r.mu.Lock()
		r.fatal = failed
		r.changed.Broadcast()
		r.mu.Unlock()
	}
	r.signal(ctx, ProbeFailed, err)
}

// close ends the multicast way, also if ctx has ended.
func (r *runner[T]) close(ctx context.Context) error {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.within)
	defer cancel()
	if err := r.Multicast.Close(within); err != nil {
		return fmt.Errorf("the receivers could not be cut off from group %s, so what was sent by it may still arrive: %w", r.Group, err)
	}
	r.opened = false
	return nil
}

// listen passes on the daemon's events about the group. If the daemon does not answer, there is no
// signal: the group may run on without it.
func (r *runner[T]) listen(ctx context.Context) {
	before, _ := r.Client.EventsAfter(ctx, Cursor{}, r.Group, 0) // what happened before says nothing
	for events := range r.Client.Follow(ctx, before.Cursor, r.Group) {
		s, cause := verdict(events.Events)
		if events.Missed {
			s, cause = r.look(ctx, s, cause)
		}
		if s != Tick {
			r.signal(ctx, s, cause)
		}
	}
}

// look asks for the state of the group after events were missed: one of these may have been about
// the group. s and cause are the verdict of the other events. They count if the state is neither
// good nor bad.
func (r *runner[T]) look(ctx context.Context, s Signal, cause error) (Signal, error) {
	for {
		g, err := r.Client.Group(ctx, r.Group)
		switch {
		case isUnreachable(err):
			if pause(ctx, askAgainAfter) == nil {
				continue
			}
		case err != nil: // there is no such group yet, or no longer
		case g.GoesOn: // no event would have said that the group is degraded
			return WentWell, nil
		case g.State == api.Degraded || g.State == api.Failed:
			return WentBad, fmt.Errorf("group %s is %s: %s", r.Group, g.State, g.Reason)
		case g.State == api.Ready:
			return WentWell, nil
		}
		return s, cause
	}
}

// verdict returns the signal of the last event about the group as a whole, or Tick if there is
// none.
func verdict(events []Event) (s Signal, cause error) {
	for _, e := range events {
		switch e.Kind {
		case api.GroupDegraded:
			if e.GoesOn {
				s, cause = WentWell, nil
				continue
			}
			s, cause = WentBad, fmt.Errorf("group %s is degraded: %s", e.Group, e.Cause)
		case api.GroupRestored, api.GroupCreated:
			s, cause = WentWell, nil
		}
	}
	return s, cause
}
