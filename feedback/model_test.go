package feedback

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rocast/rocast/roce"
)

// TestEveryLossIsRepaired joins the step function to a requester and responders that react as
// rdma_rxe does (docs/wire.md#requester): the requester resends from its oldest unacknowledged
// packet and ignores NAKs until an ACK arrives, a responder sends one NAK for a gap. The links lose
// packets at random. After every event nothing may be acknowledged that a receiver lacks, nor
// anything beyond the source's place, and in the end every receiver has everything.
func TestEveryLossIsRepaired(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for step := 0; !w.done(); step++ {
			if step > 200_000 {
				t.Fatalf("no end: source at %+v", w.src)
			}
			w.step()
		}
	})
}

const (
	modelWindow  = 24 // packets a model source has unacknowledged at most
	modelMessage = 7  // packets of a message; the last one asks for an ACK
)

type world struct {
	t     *rapid.T
	g     *Group
	first roce.PSN
	total int // packets to deliver
	loss  int // per cent, on every link

	src       requester
	receivers []responder
	up        []Event   // source to switch
	down      [][]Event // switch to receiver
	back      [][]Event // receiver to switch
	home      []Action  // switch to source
	acts      []Action
	now       Tick
	retained  map[roce.PSN]Event // with repair, as the caller does it
}

// requester is the source, in packets from 0.
type requester struct {
	unacked int // oldest unacknowledged packet
	next    int // next packet to send
	sent    int // packets ever sent
	retry   bool
}

type responder struct {
	expected int
	naked    bool
}

func newWorld(t *rapid.T) *world {
	w := &world{
		t:     t,
		total: rapid.IntRange(1, 120).Draw(t, "packets"),
		loss:  rapid.SampledFrom([]int{0, 2, 10, 30}).Draw(t, "loss"),
		first: roce.PSN(rapid.SampledFrom([]uint32{0, 1000, 0xFFFFF0}).Draw(t, "first")),
	}
	n := rapid.IntRange(1, 4).Draw(t, "receivers")
	w.receivers = make([]responder, n)
	w.down, w.back = make([][]Event, n), make([][]Event, n)
	w.g = New(Config{
		Paths: n, FirstPSN: w.first,
		Policy: Policy{
			Nak:            rapid.SampledFrom([]NakPolicy{NakHold, NakLower}).Draw(t, "nak"),
			Repair:         rapid.SampledFrom([]RepairPolicy{RepairOff, RepairLocal}).Draw(t, "repair"),
			RepairWindow:   rapid.SampledFrom([]int{0, 12}).Draw(t, "repair-window"),
			RepairAttempts: rapid.SampledFrom([]int{0, 1}).Draw(t, "repair-attempts"),
		},
	})
	w.retained = map[roce.PSN]Event{}
	return w
}

func (w *world) psn(n int) roce.PSN { return w.first.Add(int32(n)) }
func (w *world) n(p roce.PSN) int   { return int(p.Sub(w.first)) }
func (w *world) done() bool         { return w.src.unacked == w.total }

func (w *world) lost() bool { return w.loss > 0 && rapid.IntRange(1, 100).Draw(w.t, "lost") <= w.loss }

// step lets one randomly chosen actor act. The source's timer runs out only when nothing else can
// happen: it is the slowest of all.
func (w *world) step() {
	quiet := len(w.up) == 0 && len(w.home) == 0
	for i := range w.receivers {
		quiet = quiet && len(w.down[i]) == 0 && len(w.back[i]) == 0
	}
	if early := w.g.Waiting() && rapid.IntRange(0, 9).Draw(w.t, "early") == 0; early || quiet && !w.canSend() && w.g.Waiting() {
		w.now += RepairPeriod * Tick(rapid.IntRange(1, 100).Draw(w.t, "time"))
		w.toSwitch(Event{Kind: Timer})
		return
	}
	if quiet && !w.canSend() {
		w.src.next, w.src.retry = w.src.unacked, false
		return
	}
	switch i := rapid.IntRange(0, 2+2*len(w.receivers)).Draw(w.t, "actor"); {
	case i == 0:
		if w.canSend() {
			w.send()
		}
	case i == 1:
		if ev, ok := pop(&w.up); ok {
			w.toSwitch(ev)
		}
	case i == 2:
		if a, ok := pop(&w.home); ok {
			w.toSource(a)
		}
	case i < 3+len(w.receivers):
		r := i - 3
		if ev, ok := pop(&w.down[r]); ok {
			w.toReceiver(r, ev)
		}
	default:
		r := i - 3 - len(w.receivers)
		if ev, ok := pop(&w.back[r]); ok {
			w.toSwitch(ev)
		}
	}
}

func (w *world) canSend() bool {
	return w.src.next < w.total && w.src.next < w.src.unacked+modelWindow
}

func (w *world) send() {
	n := w.src.next
	w.src.next++
	w.src.sent = max(w.src.sent, w.src.next)
	w.put(&w.up, Event{
		Kind: Data, PSN: w.psn(n),
		AckReq: n%modelMessage == modelMessage-1 || n == w.total-1 || n == w.src.unacked+modelWindow-1,
	})
}

func (w *world) put(q *[]Event, ev Event) {
	if w.lost() {
		return
	}
	*q = append(*q, ev)
}

func (w *world) toSwitch(ev Event) {
	var outcome Outcome
	w.acts, outcome = w.g.Step(w.now, ev, w.acts[:0])
	if outcome == Forwarded {
		w.retained[ev.PSN] = ev
	}
	for _, a := range w.acts {
		switch a.Kind {
		case Repair:
			again, ok := w.retained[a.PSN]
			if !ok {
				w.t.Fatalf("%d is sent again and not retained", w.n(a.PSN))
			}
			again.AckReq = again.AckReq || a.AckReq
			w.put(&w.down[a.Path], again)
		case Copy:
			w.put(&w.down[a.Path], ev)
		case Reply:
			w.truth(a)
			if !w.lost() {
				w.home = append(w.home, a)
			}
		}
	}
	for i := 0; i < len(w.g.legs); i++ {
		if l := &w.g.legs[i]; l.state != legDirect && !l.running {
			w.t.Fatalf("path %d is under repair, and no timer runs: %+v", i, l)
		}
	}
	for psn := range w.retained {
		if psn.Before(w.g.Oldest()) {
			delete(w.retained, psn)
		}
	}
}

// truth checks rule 1.
func (w *world) truth(a Action) {
	acked := w.n(a.PSN)
	if !a.Syndrome.IsACK() {
		acked--
	}
	for i := range w.receivers {
		if w.receivers[i].expected <= acked {
			w.t.Fatalf("%v %d sent to the source, and receiver %d has only up to %d", a.Syndrome, w.n(a.PSN), i, w.receivers[i].expected-1)
		}
	}
	if w.n(a.PSN) > w.n(w.g.source.pos) {
		w.t.Fatalf("%v %d sent to the source while it is at %d", a.Syndrome, w.n(a.PSN), w.n(w.g.source.pos))
	}
}

func (w *world) toSource(a Action) {
	n := w.n(a.PSN)
	if n >= w.src.sent {
		w.t.Fatalf("the source hears of %d and sent only %d packets", n, w.src.sent)
	}
	if a.Syndrome.IsACK() {
		if n >= w.src.next {
			return // its packet waits to be resent: rxe drops such an ACK
		}
		if n >= w.src.unacked {
			w.src.unacked, w.src.retry = n+1, false
		}
		return
	}
	if n < w.src.unacked {
		return
	}
	w.src.unacked = n
	if !w.src.retry {
		w.src.retry, w.src.next = true, n
	}
}

func (w *world) toReceiver(r int, ev Event) {
	rc, n := &w.receivers[r], w.n(ev.PSN)
	answer := Event{Kind: Response, Path: r, Syndrome: roce.SyndromeUnlimited}
	switch {
	case n == rc.expected:
		rc.expected++
		rc.naked = false
		if !ev.AckReq {
			return
		}
		answer.PSN = ev.PSN
	case n < rc.expected:
		answer.PSN = w.psn(rc.expected - 1)
	case rc.naked:
		return
	default:
		rc.naked = true
		answer.PSN, answer.Syndrome = w.psn(rc.expected), roce.NAKSequence
	}
	w.put(&w.back[r], answer)
}

func pop[T any](q *[]T) (v T, ok bool) {
	if len(*q) == 0 {
		return v, false
	}
	v, *q = (*q)[0], (*q)[1:]
	return v, true
}

func TestStepAllocatesNothing(t *testing.T) {
	const paths = 8
	for _, policy := range []Policy{{}, {Ack: 3}, {Repair: RepairLocal}} {
		g := New(Config{Policy: policy, Paths: paths})
		acts := make([]Action, 0, paths+3)
		psn := roce.PSN(0)
		got := testing.AllocsPerRun(1000, func() {
			acts, _ = g.Step(0, Event{Kind: Data, PSN: psn, AckReq: true}, acts[:0])
			for i := range paths {
				acts, _ = g.Step(0, Event{Kind: Response, Path: i, PSN: psn, Syndrome: roce.SyndromeUnlimited}, acts[:0])
			}
			psn = psn.Next()
		})
		if diff := cmp.Diff(0.0, got); diff != "" {
			t.Error(diff)
		}
	}
}

func BenchmarkStep(b *testing.B) {
	const paths = 3
	g := New(Config{Paths: paths})
	acts := make([]Action, 0, paths+3)
	psn := roce.PSN(0)
	for b.Loop() {
		acts, _ = g.Step(0, Event{Kind: Data, PSN: psn, AckReq: true}, acts[:0])
		for i := range paths {
			acts, _ = g.Step(0, Event{Kind: Response, Path: i, PSN: psn, Syndrome: roce.SyndromeUnlimited}, acts[:0])
		}
		psn = psn.Next()
	}
}
