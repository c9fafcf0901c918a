package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rocast/rocast/ctl/api"
)

// lab is a group and receivers in memory. Packets of the group may be on their way for a while, and
// arrive until the receivers' queue pairs are gone.
type lab struct {
	t      *testing.T
	random *rand.Rand

	mu      sync.Mutex
	up      bool          // the group works
	hangs   bool          // a group that does not work gives no answer, until the context ends
	session int           // of queue pairs; 0: there is none
	opens   int           // calls of Open
	got     [3][]int      // what each receiver has got, repeats included
	closing error         // what Close returns
	alone   error         // what the unicast sender returns
	events  chan []Event  // for the stream
	missed  chan []any    // the same, with answers to the next questions for the group: api.Group or *api.Error
	state   []any         // those answers
	turns   []string      // what Changed heard
	slow    time.Duration // of a multicast Send
}

func newLab(t *testing.T) *lab {
	return &lab{t: t, up: true, random: rand.New(rand.NewPCG(7, 7)), events: make(chan []Event), missed: make(chan []any), slow: time.Millisecond}
}

// arrive gives an item to receiver i.
func (l *lab) arrive(i, item int) {
	l.got[i] = append(l.got[i], item)
}

// groupSender sends by the lab's group.
type groupSender struct{ *lab }

func (g groupSender) Open(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.session != 0 {
		g.t.Error("opened twice")
	}
	g.opens++
	g.session = g.opens
	if !g.up {
		return errors.New("no answer to the test")
	}
	return nil
}

func (g groupSender) Close(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.session = 0
	return errors.Join(g.closing, ctx.Err())
}

func (g groupSender) Send(ctx context.Context, item int) error {
	g.mu.Lock()
	session, up := g.session, g.up
	if session == 0 {
		g.t.Error("it sends without queue pairs")
	}
	delays := []int{g.random.IntN(3), g.random.IntN(3), g.random.IntN(3)}
	g.mu.Unlock()
	for i, delay := range delays {
		if !up && delay == 0 {
			continue // lost
		}
		late := time.Duration(delay) * g.slow
		if !up {
			late *= 1000
		}
		time.AfterFunc(late, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.session == session {
				g.arrive(i, item)
			}
		})
	}
	if up {
		<-time.After(3 * g.slow)
		return nil
	}
	if g.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return errors.New("retries exceeded")
}

// aloneSender sends to each receiver.
type aloneSender struct{ *lab }

func (a aloneSender) Send(ctx context.Context, item int) error {
	<-time.After(2 * time.Millisecond)
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.got {
		a.arrive(i, item)
	}
	return errors.Join(a.alone, ctx.Err())
}

// daemon answers questions for events.
func (l *lab) daemon() http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/groups/g1" {
			next := l.state[0]
			if l.state = l.state[1:]; next == nil {
				panic(http.ErrAbortHandler)
			}
			if e, ok := next.(*api.Error); ok {
				refuse(w, e)
				return
			}
			answer(w, next)
			return
		}
		list := Events{Cursor: Cursor{Run: "r"}}
		if r.URL.Query().Get("wait") != "0" {
			select {
			case list.Events = <-l.events:
			case l.state = <-l.missed:
				list.Events, list.Missed = []Event{{Kind: api.GroupDegraded, Group: "g1", Cause: "an old one"}}, true
			case <-r.Context().Done():
			}
		} else {
			list.Events = []Event{{Kind: api.GroupDegraded}} // what was before
		}
		answer(w, list)
	}
}

func (l *lab) stream() *Stream[int] {
	return &Stream[int]{
		Client: inMemory(l.t, l.daemon), Group: "g1", Multicast: groupSender{l}, Unicast: aloneSender{l},
		Changed: func(to Way, cause error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.turns = append(l.turns, strings.TrimSuffix(fmt.Sprint(to, ": ", cause), ": <nil>"))
		},
	}
}

func (l *lab) set(up bool) { l.mu.Lock(); l.up = up; l.mu.Unlock() }

// items yields numbers from 1, and calls before with each.
func items(all int, before func(n int)) iter.Seq[int] {
	return func(yield func(int) bool) {
		for n := 1; n <= all; n++ {
			if before != nil {
				before(n)
			}
			if !yield(n) {
				return
			}
		}
	}
}

// check compares what the receivers have with the stream of all items. A receiver drops what is not
// newer than the last.
func (l *lab) check(all int) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, got := range l.got {
		var applied []int
		for _, n := range got {
			if len(applied) > 0 && n < applied[len(applied)-1] {
				l.t.Fatalf("receiver %d gets %d after %d", i, n, applied[len(applied)-1])
			}
			if len(applied) == 0 || n > applied[len(applied)-1] {
				applied = append(applied, n)
			}
		}
		if len(applied) != all || !slices.IsSorted(applied) {
			l.t.Errorf("receiver %d has %d items of %d", i, len(applied), all)
		}
	}
	if l.session != 0 {
		l.t.Error("the group was left open")
	}
}

func TestAStreamFallsBackAndReturns(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t)
			l.hangs = hangs
			cause := "retries exceeded"
			if hangs {
				cause = "group g1 is degraded: a receiver is silent"
			}
			err := l.stream().Run(t.Context(), items(20000, func(n int) {
				switch n {
				case 5000:
					l.set(false)
					if hangs {
						go func() { l.events <- []Event{{Kind: api.GroupDegraded, Group: "g1", Cause: "a receiver is silent"}} }()
					}
				case 10000:
					l.set(true)
				}
			}))
			if err != nil {
				t.Error(err)
			}
			l.check(20000)
			if want := []string{"multicast", "unicast: " + cause, "multicast"}; !slices.Equal(l.turns, want) {
				t.Errorf("turns %q, want %q", l.turns, want)
			}
		})
	}
}

// The group fails and works again at any time, and says so or not. Nothing is lost or comes late.
func TestAFlappingGroupLosesAndDoublesNothing(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t)
			l.random = rand.New(rand.NewPCG(seed, 1))
			s := l.stream()
			s.Pace = Pace{First: 50 * time.Millisecond, Most: time.Second, Settled: time.Second}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				random := rand.New(rand.NewPCG(seed, 2))
				for ctx.Err() == nil {
					<-time.After(time.Duration(random.IntN(400)) * time.Millisecond)
					l.set(random.IntN(2) == 0)
					kind := []api.EventKind{api.GroupDegraded, api.GroupRestored, api.GroupCreated, api.MemberStalled}[random.IntN(4)]
					select {
					case l.events <- []Event{{Kind: kind}}:
					case <-time.After(10 * time.Millisecond):
					case <-ctx.Done():
					}
				}
			}()
			if err := s.Run(ctx, items(5000, nil)); err != nil {
				t.Error(err)
			}
			stop()
			<-done
			l.check(5000)
			if len(l.turns) < 6 {
				t.Errorf("turns %q", l.turns)
			}
		})
	}
}

// While a program has nothing to send, a group that is degraded is left, and tried again, all the
// same.
func TestAnIdleStreamChangesItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		err := l.stream().Run(t.Context(), items(3, func(n int) {
			<-time.After(5 * time.Second)
			if n == 2 {
				l.events <- []Event{{Kind: api.GroupDegraded, Group: "g1", Cause: "x"}}
				<-time.After(500 * time.Millisecond)
				l.mu.Lock()
				if l.session != 0 {
					t.Error("it is still open")
				}
				l.mu.Unlock()
			}
		}))
		if want := []string{"multicast", "unicast: group g1 is degraded: x", "multicast"}; err != nil || !slices.Equal(l.turns, want) {
			t.Errorf("turns %q, %v", l.turns, err)
		}
		l.check(3)
	})
}

// Nothing more is sent by a group by which an item has failed, whatever is heard before that.
func TestAFailedItemBlocksUntilItIsLookedAt(t *testing.T) {
	r := &runner[int]{Stream: newLab(t).stream(), way: Multicast, blocked: true}
	r.changed = sync.NewCond(&r.mu)
	for _, c := range []struct {
		signal Signal
		want   bool
	}{{WentWell, true}, {Tick, true}, {SendFailed, false}} {
		if r.follow(t.Context(), Order{Way: Multicast}, heard{signal: c.signal}); r.blocked != c.want {
			t.Errorf("signal %d: blocked %t", c.signal, r.blocked)
		}
	}
}

// A group that becomes bad while it is probed is closed again.
func TestABadProbeIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		s := l.stream()
		s.Multicast = slowOpen{groupSender{l}}
		err := s.Run(t.Context(), items(2000, func(n int) {
			if n == 5 {
				l.events <- []Event{{Kind: api.GroupDegraded}}
			}
		}))
		if err != nil || l.opens != 2 || !slices.Equal(l.turns, []string{"multicast"}) {
			t.Errorf("opened %d times, turns %q, %v", l.opens, l.turns, err)
		}
		l.check(2000)
	})
}

type slowOpen struct{ groupSender }

func (s slowOpen) Open(ctx context.Context) error {
	<-time.After(100 * time.Millisecond)
	return s.groupSender.Open(ctx)
}

// If the receivers cannot be cut off, going on by unicast could bring old data after new data.
func TestAStreamEndsIfTheGroupCannotBeClosed(t *testing.T) {
	const want = "the receivers could not be cut off from group g1, so what was sent by it may still arrive: no answer"
	for _, when := range []string{"probe", "send", "event while it sends"} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t)
			l.closing, l.up, l.hangs = errors.New("no answer"), when != "probe", strings.HasPrefix(when, "event")
			err := l.stream().Run(t.Context(), items(5000, func(n int) {
				if n == 2000 {
					l.set(false)
					if l.hangs {
						go func() { l.events <- []Event{{Kind: api.GroupDegraded}} }()
					}
				}
			}))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", when, err)
			}
			for i, got := range l.got {
				if len(got) > 2001 || when == "probe" && len(got) > 2 {
					t.Errorf("%s: receiver %d got %d items", when, i, len(got))
				}
			}
		})
	}
}

func TestAStreamEndsWithItsContextAndIfNoWayIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		ctx, cancel := context.WithCancel(t.Context())
		err := l.stream().Run(ctx, items(5000, func(n int) {
			if n == 100 {
				cancel()
			}
		}))
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if l.session != 0 {
			t.Error("the group was left open")
		}

		l = newLab(t)
		l.up, l.alone = false, errors.New("receiver b does not answer")
		if err := l.stream().Run(t.Context(), items(5, nil)); err == nil || err.Error() != "receiver b does not answer" {
			t.Error(err)
		}
	})
}

// A stream that waits for its way hears that its context ends.
func TestAStreamThatWaitsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		s := l.stream()
		s.Within = time.Minute
		s.Multicast = stuckClose{groupSender{l}}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		err := s.Run(ctx, items(1<<30, func(n int) {
			if n == 100 {
				l.set(false)
			}
		}))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

type stuckClose struct{ groupSender }

func (s stuckClose) Close(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Where the daemon has forgotten events, the stream asks how the group is.
func TestAStreamThatHasMissedEventsAsks(t *testing.T) {
	is := func(state string) api.Group {
		return api.Group{GroupSummary: api.GroupSummary{Name: "g1", State: state, Reason: "x"}}
	}
	quorum := is(api.Degraded)
	quorum.GoesOn = true
	gone, later := api.Errorf(api.NotFound, "there is no group"), api.Errorf(api.Unavailable, "too many programs wait")
	for about, c := range map[string]struct {
		answers []any
		want    string // the next turn; "": there is none
	}{
		"degraded":                   {[]any{is(api.Degraded)}, "unicast: group g1 is degraded: x"},
		"failed":                     {[]any{is(api.Failed)}, "unicast: group g1 is failed: x"},
		"ready":                      {[]any{is(api.Ready)}, ""},
		"without a receiver":         {[]any{quorum}, ""},
		"waiting":                    {[]any{is(api.Waiting)}, "unicast: group g1 is degraded: an old one"},
		"no such group":              {[]any{gone}, "unicast: group g1 is degraded: an old one"},
		"no answer yet":              {[]any{nil, later, is(api.Degraded)}, "unicast: group g1 is degraded: x"},
		"no answer, then it is well": {[]any{nil, later, is(api.Ready)}, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t)
			err := l.stream().Run(t.Context(), items(3, func(n int) {
				<-time.After(5 * time.Second)
				if n == 2 {
					l.missed <- c.answers
				}
			}))
			want := []string{"multicast", c.want, "multicast"}
			if c.want == "" {
				want = want[:1]
			}
			if err != nil || !slices.Equal(l.turns, want) || len(l.state) > 0 {
				t.Errorf("%s: turns %q, %v; %d answers were not asked for", about, l.turns, err, len(l.state))
			}
			l.check(3)
		})
	}
}

// A group that was bad while it was probed, and is well by the time that the daemon is asked, is
// used.
func TestAProbeOutlivesMissedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		s := l.stream()
		s.Multicast = slowOpen{groupSender{l}}
		err := s.Run(t.Context(), items(2000, func(n int) {
			switch n {
			case 5:
				l.events <- []Event{{Kind: api.GroupDegraded}}
			case 15:
				l.missed <- []any{api.Group{GroupSummary: api.GroupSummary{State: api.Ready}}}
			}
		}))
		if err != nil || l.opens != 1 || !slices.Equal(l.turns, []string{"multicast"}) {
			t.Errorf("opened %d times, turns %q, %v", l.opens, l.turns, err)
		}
		l.check(2000)
	})
}

// The last event about the group as a whole counts.
func TestWhatEventsSayOfAGroup(t *testing.T) {
	for _, c := range []struct {
		kinds string
		want  Signal
	}{
		{"", Tick}, {"member-stalled port-down", Tick}, {"degraded", WentBad}, {"restored", WentWell}, {"group-created", WentWell},
		{"degraded group-removed group-created member-joined", WentWell}, {"restored degraded member-joined", WentBad},
	} {
		var list []Event
		for _, kind := range strings.Fields(c.kinds) {
			list = append(list, Event{Kind: EventKind(kind), Group: "g1", Cause: "x"})
		}
		s, cause := verdict(list)
		if s != c.want || (cause != nil) != (s == WentBad) {
			t.Errorf("%s: %v, %v", c.kinds, s, cause)
		}
	}
}

// An event about a group that goes on without a receiver is no reason to leave the group, and one
// to come back.
func TestAnEventOfAGroupThatGoesOn(t *testing.T) {
	bad, fine := Event{Kind: api.GroupDegraded}, Event{Kind: api.GroupDegraded, GoesOn: true}
	for _, c := range []struct {
		events []Event
		want   Signal
	}{{[]Event{fine}, WentWell}, {[]Event{fine, bad}, WentBad}, {[]Event{bad, fine}, WentWell}} {
		if s, cause := verdict(c.events); s != c.want || (cause != nil) != (s == WentBad) {
			t.Errorf("%+v: %v, %v", c.events, s, cause)
		}
	}
}
