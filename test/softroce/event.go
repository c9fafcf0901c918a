package softroce

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// Event is a line of the verbs program. The kind decides which fields are set (verbs/main.c).
type Event struct {
	Kind string `json:"event"`

	Local

	State string `json:"state"`

	Queue  string `json:"queue"` // of a completion: "send" or "recv"
	WRID   uint64 `json:"wr_id"` // the number of the message, from 0
	Status string `json:"status"`
	Opcode string `json:"opcode"`
	Imm    uint32 `json:"imm"`

	Count        int   `json:"count"`
	OK           int   `json:"ok"`
	Microseconds int64 `json:"us"`

	SHA256  string `json:"sha256"`
	Message string `json:"message"`
}

var errEnded = errors.New("the verbs program has ended")

// eventLog keeps the events of the program. next returns each event once.
type eventLog struct {
	mu     sync.Mutex
	events []Event
	taken  []bool
	change chan struct{} // closed and replaced at every event and at the end
	ended  bool
}

func newEventLog() *eventLog { return &eventLog{change: make(chan struct{})} }

func (l *eventLog) add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
	l.taken = append(l.taken, false)
	l.changed()
}

func (l *eventLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.changed()
}

func (l *eventLog) changed() {
	close(l.change)
	l.change = make(chan struct{})
}

// next returns the oldest event of these kinds that it has not returned yet.
func (l *eventLog) next(ctx context.Context, kinds ...string) (e Event, err error) {
	err = l.wait(ctx, func() bool {
		for i := range l.events {
			if !l.taken[i] && slices.Contains(kinds, l.events[i].Kind) {
				e, l.taken[i] = l.events[i], true
				return true
			}
		}
		return false
	})
	return e, err
}

// await returns all events that match as soon as there are n of them. next may still return them.
// On an error await returns the events that there are.
func (l *eventLog) await(ctx context.Context, match func(Event) bool, n int) (found []Event, err error) {
	err = l.wait(ctx, func() bool {
		found = found[:0]
		for _, e := range l.events {
			if match(e) {
				found = append(found, e)
			}
		}
		return len(found) >= n
	})
	return found, err
}

// wait returns when done returns true. It calls done under the lock, at first and after every
// change.
func (l *eventLog) wait(ctx context.Context, done func() bool) error {
	for {
		l.mu.Lock()
		ok, ended, change := done(), l.ended, l.change
		l.mu.Unlock()
		switch {
		case ok:
			return nil
		case ended:
			return errEnded
		}
		select {
		case <-change:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
