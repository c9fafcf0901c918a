// Package events keeps what happened last for those who ask the API: groups, members, ports and
// neighbours. It knows neither what an event means nor who reads it.
package events

import (
	"context"
	"crypto/rand"
	"maps"
	"sync"
	"time"

	"github.com/rocast/rocast/ctl/api"
)

// Kept is how many events a Log keeps. All receivers of a group of the largest size may leave at
// once.
const Kept = 4096

// Log holds the last Kept events. Its methods may be called from any goroutine.
type Log struct {
	run string
	now func() time.Time

	mu     sync.Mutex
	ring   [Kept]api.Event                     // event n is at n modulo Kept
	last   uint64                              // the newest event; 0: there is none
	added  chan struct{}                       // closed by the next Add
	counts map[string]map[api.EventKind]uint64 // of the groups that exist, by name
}

// New returns an empty Log of a run of its own.
func New(now func() time.Time) *Log {
	return &Log{run: rand.Text(), now: now, added: make(chan struct{}), counts: map[string]map[api.EventKind]uint64{}}
}

// Begin begins to count the events of a group. A group that is counted already begins anew.
func (l *Log) Begin(group string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[group] = map[api.EventKind]uint64{}
}

// End ends what Begin began. A group whose events come late is not counted again.
func (l *Log) End(group string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.counts, group)
}

// Counts returns how often each kind of event happened to a group since Begin.
func (l *Log) Counts(group string) map[api.EventKind]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.counts[group])
}

// Add appends an event and gives it its number and time.
func (l *Log) Add(e api.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	e.Seq, e.Time = l.last, l.now()
	l.ring[l.last%Kept] = e
	if counts := l.counts[e.Group]; counts != nil {
		counts[e.Kind]++
	}
	close(l.added)
	l.added = make(chan struct{})
}

// After returns the events after a cursor. group selects the events of one group; "": all.
func (l *Log) After(at api.Cursor, group string) api.Events {
	answer, _ := l.after(at, group)
	return answer
}

// Wait is After that waits for an event until ctx is done.
func (l *Log) Wait(ctx context.Context, at api.Cursor, group string) api.Events {
	for {
		answer, added := l.after(at, group)
		if len(answer.Events) > 0 || answer.Missed {
			return answer
		}
		at = answer.Cursor
		select {
		case <-added:
		case <-ctx.Done():
			return answer
		}
	}
}

// after is After. It also returns the channel that is closed by the first event that is not in the
// answer.
func (l *Log) after(at api.Cursor, group string) (api.Events, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	answer := api.Events{Events: []api.Event{}, Cursor: api.Cursor{Run: l.run, Seq: l.last}}
	from := at.Seq
	if at.Run != l.run || from > l.last {
		answer.Missed, from = at.Run != "", 0
	}
	if oldest := l.last - min(l.last, Kept); from < oldest {
		answer.Missed, from = answer.Missed || at.Run != "", oldest
	}
	for n := from + 1; n <= l.last; n++ {
		if e := l.ring[n%Kept]; group == "" || e.Group == group {
			answer.Events = append(answer.Events, e)
		}
	}
	return answer, l.added
}
