package model

import (
	"fmt"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// World defines the worlds that a search explores: the policy, the traffic, and a budget of faults.
type World struct {
	Policy    feedback.Policy
	Receivers int
	Packets   int
	Message   int      // packets in a message; the last packet requests an ACK
	Asks      []int    // packets inside a message that also request an ACK
	First     roce.PSN // PSN of packet 0
	Read      int      // the packet that is a READ, which is a message of its own; 0: none
	Unlimited bool     // the source retries forever; otherwise retries limits its retries
	Late      int      // the first packet of the message from which on the last receiver may join; 0: it is there from the beginning
	Switches  bool     // the receivers are switches: they acknowledge a packet that they have with its own PSN
	Needed    bool     // receiver 0 is the switch above, and never leaves
	Relayed   bool     // the source is a switch: it takes an ACK of what it has sent wherever it is in its round
	Shares    bool     // a new packet goes to all receivers that take data by one shared copy, also to those under repair

	// Another member may become the source before the source has sent everything (takeover.go).
	Takes  int  // how often it tries
	Member bool // receiver 0 is the first source, and takes part again behind that
	Next   bool // receiver 1 is the next source
	Lacks  bool // receiver 1 is a switch below that cannot settle what its own receivers have
	Beside int  // receivers of the quorum beside the next source, at a switch below
	Left   bool // receiver 0 is the switch above, which has gone on without this one

	// Number of faults of each kind in a run.
	Losses   int // losses of a packet or an answer, on any link
	Doubles  int // answers that arrive twice, or replies that the source hears twice
	Delays   int // answers that later answers overtake
	Early    int // timeouts of the source while answers are on their way
	NotReady int // messages for which a receiver has no WQE at the start
	Fatals   int // packets that a receiver answers with a fatal NAK, which ends its QP
	Deaths   int // receivers that die without an answer
	Crashes  int // crashes of the switch; the switch keeps only its configuration
	Stale    int // crashes after which a packet that is acknowledged arrives first, because it was long on its way
	Ticks    int // timer events of the switch while another move is possible

	Forgets int // times that the switch loses the oldest packet that it retains for repair

	Armed int // times that the switch hands the group to the engine in front of it (fanout.go)

	layout
}

// String returns a name that contains all values that differ from the defaults.
func (w World) String() string {
	p := w.Policy
	text := fmt.Sprintf("ack %v, nak %v", p.Ack, p.Nak)
	if p.OnFatal != feedback.FatalFail {
		text += fmt.Sprintf(", fatal %v", p.OnFatal)
	}
	if p.SilentAfter > 0 {
		text += ", evict the silent"
	}
	if p.Repair != feedback.RepairOff {
		text += fmt.Sprintf(", repair, attempts %d, window %d", p.RepairAttempts, p.RepairWindow)
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
	if w.Late > 0 {
		text += fmt.Sprintf(", one receiver from %d", w.Late)
	}
	if w.Switches {
		text += ", to switches"
	}
	if w.Needed {
		text += ", one of them above"
	}
	if w.Relayed {
		text += ", from a switch"
	}
	if w.Shares {
		text += ", which share copies"
	}
	for _, t := range []struct {
		is   bool
		what string
	}{
		{p.Switch == feedback.SwitchForce, "by force"}, {w.Member, "one is the source"}, {w.Next, "one is the next source"},
		{w.Lacks, "which lacks something"}, {w.Beside > 0, "beside others"}, {w.Left, "which goes on alone"},
	} {
		if t.is {
			text += ", " + t.what
		}
	}
	text += ";"
	for _, b := range []struct {
		n    int
		what string
	}{
		{w.Losses, "lost"}, {w.Doubles, "doubled"}, {w.Delays, "delayed"}, {w.Early, "early"}, {w.NotReady, "not ready"},
		{w.Fatals, "fatal"}, {w.Deaths, "dead"}, {w.Crashes, "crash"}, {w.Stale, "stale"}, {w.Ticks, "tick"}, {w.Armed, "armed"}, {w.Forgets, "forgotten"},
		{w.Takes, "taken"},
	} {
		if b.n > 0 {
			text += fmt.Sprintf(" %d %s", b.n, b.what)
		}
	}
	return text
}

// retries is the number of go-backs, without an ACK between them, that the source survives: one for
// each fault, and two for an early timeout, because ACKs that are on their way during the timeout
// may be stale when they arrive.
func (w *World) retries() uint8 {
	return uint8(w.Losses + w.Doubles + w.Delays + 2*w.Early + w.NotReady + w.Fatals + w.Deaths + w.Crashes + w.Ticks + w.Forgets)
}

// layout holds the beginning and the end of each message.
type layout struct {
	first, last [maxPackets]uint8
	asks        [maxPackets]bool
	complete    [maxPackets + 1]roce.MSN // number of complete messages, by the number of packets present
}

const (
	maxPackets   = 8
	maxReceivers = 3
	maxQueue     = 40 // packets on their way to a receiver, or replies on their way to the source
	maxAside     = 3  // delayed or duplicated answers of a receiver
)

// prepare computes the layout.
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

// read returns the packet that is a READ, or maxPackets if no packet is.
func (w *World) read() uint8 {
	if w.Read == 0 {
		return maxPackets
	}
	return uint8(w.Read)
}

func (w *World) psn(packet int8) roce.PSN  { return w.First.Add(int32(packet)) }
func (w *World) packet(psn roce.PSN) int32 { return psn.Sub(w.First) }

// state is the state of a world at one moment.
type state struct {
	group     *feedback.Group
	now       feedback.Tick
	src       source
	home      queue[message]
	receivers [maxReceivers]receiver
	place     int8     // the source's last packet that reached the switch; -1: none
	told      int8     // the highest packet whose acknowledgement the source was told
	messages  roce.MSN // the highest number of complete messages that the source was told
	few       bool     // the source's QP was ended, and too few receivers were left for a quorum then
	first     uint8    // the first packet of the source
	beside    uint8    // receivers that have what the source hears an ACK of, at its own switch
	left      budget
	fan       fan
}

// budget holds the faults that may still happen; see World.
type budget struct {
	losses, doubles, delays, early, notReady, fatals, deaths, crashes, stale, ticks, armed, forgets, takes uint8
}

// queue is a FIFO or a set of bounded length.
type queue[T any] struct {
	n  uint8
	at [maxQueue]T
}

func (q *queue[T]) push(v T) {
	q.at[q.n] = v // panics if the queue is full: the model must not exceed the bound
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
	s := &state{
		group: w.newGroup(feedback.Config{FirstPSN: w.First}),
		place: -1, told: -1,
		left: budget{
			losses: uint8(w.Losses), doubles: uint8(w.Doubles), delays: uint8(w.Delays), early: uint8(w.Early),
			notReady: uint8(w.NotReady), fatals: uint8(w.Fatals), deaths: uint8(w.Deaths), crashes: uint8(w.Crashes), stale: uint8(w.Stale),
			ticks: uint8(w.Ticks), armed: uint8(w.Armed), forgets: uint8(w.Forgets), takes: uint8(w.Takes),
		},
	}
	if w.Member {
		s.group.Away(0, 0)
		s.receivers[0].away = true
	}
	if w.Late > 0 {
		s.receivers[w.Receivers-1].joining = true
		w.letJoin(s)
	}
	return s
}

// newGroup returns the merging state of a switch that starts.
func (w *World) newGroup(c feedback.Config) *feedback.Group {
	c.Policy, c.Paths = w.Policy, w.Receivers
	for i := range w.Receivers {
		c.Weights = append(c.Weights, uint16(w.weight(i)))
	}
	g := feedback.New(c)
	if w.Needed {
		g.Need(0)
	}
	g.Relay(w.Relayed)
	for i := range w.Receivers {
		g.Share(i, w.Shares)
	}
	return g
}

// weight is for how many receivers a quorum counts a receiver.
func (w *World) weight(i int) int {
	if w.Next && i == 1 {
		return 1 + w.Beside
	}
	return 1
}

// isOpen reports whether a receiver has joined, and control has not stored that the source was told
// of everything before.
func (s *state) isOpen(r *receiver) bool { return int(r.from) > int(s.told)+1 }

// letJoin lets the last receiver join with a message, after a restart too: it was no crash then.
func (w *World) letJoin(s *state) {
	from := make([]int, w.Receivers)
	for i := range from {
		from[i] = i
	}
	from[w.Receivers-1] = -1
	s.group.Rearrange(from, nil, nil)
}

// copyFrom makes s a copy of from. Queue entries beyond the length of a queue keep their old
// values.
func (s *state) copyFrom(from *state) {
	group := s.group
	if group == nil {
		group = new(feedback.Group)
	}
	group.CopyFrom(from.group)
	*s = *from
	s.group = group
}
