package model

import (
	"fmt"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// World is what a search explores: the policy, the traffic, and the budget of what may go wrong.
type World struct {
	Policy    feedback.Policy
	Receivers int
	Packets   int
	Message   int      // packets of a message; the last one asks for an ACK
	Asks      []int    // packets that ask although they end no message
	First     roce.PSN // PSN of packet 0
	Read      int      // this packet is a READ, a message of its own; 0: none
	Unlimited bool     // the source retries for ever; else as often as the mishaps below add up to

	// How often, in all.
	Losses   int // a packet or an answer is lost, on any leg
	Doubles  int // an answer arrives twice, or the source hears something twice
	Delays   int // an answer is overtaken by later ones
	Early    int // the source's timer runs out although answers are on their way
	NotReady int // a receiver has no WQE for the start of a message
	Fatals   int // a receiver answers a packet with a fatal NAK, and its QP is dead
	Deaths   int // a receiver dies without a word
	Crashes  int // the switch forgets everything but its configuration
	Ticks    int // a timer event of the switch comes although something else could happen

	layout
}

// String names the world by what makes it different.
func (w World) String() string {
	p := w.Policy
	text := fmt.Sprintf("ack %v, nak %v", p.Ack, p.Nak)
	if p.OnFatal != feedback.FatalFail {
		text += fmt.Sprintf(", fatal %v", p.OnFatal)
	}
	if p.Speak != feedback.SpeakOff {
		text += ", speak"
	}
	if p.SilentAfter > 0 {
		text += ", evict the silent"
	}
	w.prepare()
	text += fmt.Sprintf("; %d receivers, messages", w.Receivers)
	for p := 0; p < w.Packets; p = int(w.last[p]) + 1 {
		text += fmt.Sprintf(" %d", w.last[p]-w.first[p]+1)
	}
	if len(w.Asks) > 0 {
		text += fmt.Sprintf(" asking %v", w.Asks)
	}
	if w.Read > 0 {
		text += ", a READ"
	}
	if w.Unlimited {
		text += ", retrying for ever"
	}
	text += ";"
	for _, b := range []struct {
		n    int
		what string
	}{
		{w.Losses, "lost"}, {w.Doubles, "doubled"}, {w.Delays, "delayed"}, {w.Early, "early"}, {w.NotReady, "not ready"},
		{w.Fatals, "fatal"}, {w.Deaths, "dead"}, {w.Crashes, "crash"}, {w.Ticks, "tick"},
	} {
		if b.n > 0 {
			text += fmt.Sprintf(" %d %s", b.n, b.what)
		}
	}
	return text
}

// retries is how many go-backs, without an ACK between them, the source survives: one for each thing that goes wrong, and
// two for a timeout that comes too early, because ACKs on their way then may be stale when they arrive.
func (w *World) retries() uint8 {
	return uint8(w.Losses + w.Doubles + w.Delays + 2*w.Early + w.NotReady + w.Fatals + w.Deaths + w.Crashes + w.Ticks)
}

// layout is where messages begin and end.
type layout struct {
	first, last [maxPackets]uint8
	asks        [maxPackets]bool
	complete    [maxPackets + 1]roce.MSN // messages complete when so many packets are there
}

const (
	maxPackets   = 8
	maxReceivers = 3
	maxQueue     = 40 // packets on their way to a receiver, replies on their way to the source
	maxAside     = 3  // answers of a receiver that wait aside
)

// prepare fills in the layout.
func (w *World) prepare() {
	w.layout = layout{}
	start := 0
	for p := range w.Packets {
		ends := (p-start+1)%w.Message == 0 || p == w.Packets-1 || w.Read > 0 && (p == w.Read-1 || p == w.Read)
		w.complete[p+1] = w.complete[p]
		if !ends {
			continue
		}
		w.complete[p+1]++
		for q := start; q <= p; q++ {
			w.first[q], w.last[q] = uint8(start), uint8(p)
		}
		w.asks[p] = true
		start = p + 1
	}
	for _, p := range w.Asks {
		w.asks[p] = true
	}
}

func (w *World) firstOf(packet uint8) uint8 { return w.first[packet] }
func (w *World) lastOf(packet uint8) uint8  { return w.last[packet] }

// read is the packet that is a READ, or none.
func (w *World) read() uint8 {
	if w.Read == 0 {
		return maxPackets
	}
	return uint8(w.Read)
}

func (w *World) psn(packet int8) roce.PSN  { return w.First.Add(int32(packet)) }
func (w *World) packet(psn roce.PSN) int32 { return psn.Sub(w.First) }

// state is one moment of a world.
type state struct {
	group     *feedback.Group
	now       feedback.Tick
	src       source
	home      queue[message]
	receivers [maxReceivers]receiver
	place     int8     // the last packet of the source that the switch saw; -1: none
	told      int8     // the highest packet the source was told is acknowledged
	messages  roce.MSN // and the most messages
	left      budget
}

// budget is what may still go wrong; see World.
type budget struct {
	losses, doubles, delays, early, notReady, fatals, deaths, crashes, ticks uint8
}

// queue is a FIFO, or a set, of bounded length.
type queue[T any] struct {
	n  uint8
	at [maxQueue]T
}

func (q *queue[T]) push(v T) {
	q.at[q.n] = v // the bound is a mistake of the model: panics
	q.n++
}

func (q *queue[T]) remove(k int) T {
	v := q.at[k]
	copy(q.at[k:q.n-1], q.at[k+1:q.n])
	q.n--
	return v
}

func (q *queue[T]) all() []T { return q.at[:q.n] }

func (w *World) start() *state {
	return &state{
		group: feedback.New(feedback.Config{Policy: w.Policy, Paths: w.Receivers, FirstPSN: w.First}),
		place: -1, told: -1,
		left: budget{
			losses: uint8(w.Losses), doubles: uint8(w.Doubles), delays: uint8(w.Delays), early: uint8(w.Early),
			notReady: uint8(w.NotReady), fatals: uint8(w.Fatals), deaths: uint8(w.Deaths), crashes: uint8(w.Crashes),
			ticks: uint8(w.Ticks),
		},
	}
}

// copyFrom makes s a copy of from. Entries of queues beyond their length stay whatever they were.
func (s *state) copyFrom(from *state) {
	group := s.group
	if group == nil {
		group = new(feedback.Group)
	}
	group.CopyFrom(from.group)
	*s = *from
	s.group = group
}
