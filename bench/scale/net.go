package scale

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/internal/rnic"
)

// Config is what a network is made from. Everything in it is the same for all links, hosts and
// groups.
type Config struct {
	Shape
	Seed     uint64
	Rate     int64 // bits per second of every link
	Delay    time.Duration
	MTUBytes int
	// MessageBytes is the length of the messages in which a transfer is posted.
	MessageBytes int

	// Loss is the chance that a packet is lost on a link between two switches. The papers discard
	// packets in the middle switches.
	Loss float64
	// LossEverywhere extends Loss to the links of hosts.
	LossEverywhere bool

	QueueBytes int              // a packet that finds more bytes waiting is dropped
	Marks      dataplane.Egress // where queues mark packets

	CNPInterval time.Duration
	RateControl rnic.RateControl
	Timeout     uint8 // local ACK timeout of requesters: 4.096 us * 2^Timeout
}

// Papers returns the parameters that the experiments have in common. The papers state 100 or 200
// Gb/s, go-back-N and DCQCN; the bounds of the marks are those that MC-RDMA states for 100 Gb/s
// (section VII-C), and the delay of a link is MC-RDMA's (section VII-E). The steps in which a rate
// rises are those of DCQCN's paper, which are for 40 Gb/s, in proportion to the line rate.
func Papers(s Shape, rate int64) Config {
	dcqcn := rnic.DCQCN(rate)
	const stepsAre = 40_000_000_000
	dcqcn.Additive, dcqcn.Hyper = dcqcn.Additive*rate/stepsAre, dcqcn.Hyper*rate/stepsAre
	return Config{
		Shape: s, Seed: 1, Rate: rate, Delay: 500 * time.Nanosecond, MTUBytes: 4096, MessageBytes: 1 << 20, QueueBytes: 4 << 20,
		Marks:       dataplane.Egress{KminBytes: 50_000, KmaxBytes: 500_000, MarkPercent: 1},
		CNPInterval: 50 * time.Microsecond, RateControl: dcqcn, Timeout: 14,
	}
}

// link is one direction of a cable, with the queue in front of it.
type link struct {
	idleAt Time // when the queue will be empty
	loss   uint32

	// Every packet that was offered is counted in one of the other four.
	offered, delivered, lost, dropped, flying uint64

	data    uint64 // of those offered, packets of requesters
	marked  uint64
	longest Time // that a packet waited
}

// nic is the sending side of a host.
type nic struct {
	ready   []int32 // connections that may have a packet to send, in turn
	todo    []slice // what the program of the host passes on
	sending bool    // a pump event is scheduled
}

// Net is a network while a run lasts.
type Net struct {
	Config
	now      Time
	calendar *calendar
	random   rand.PCG
	links    []link
	nics     []nic
	conns    []*conn
	groups   []*Group
	relays   []*Relay
	begins   []func()
	load     map[[2]site]int // groups that use a way from one switch to the next

	picosPerByte Time
	zeros        []byte // what all messages carry
	buf          [rnic.MaxFrameBytes]byte
	answerBuf    [256]byte

	events  uint64
	hash    uint64
	failure error
}

const bitsPerByte = 8

// New returns a network without flows.
func New(c Config) (*Net, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.Rate <= 0 || c.Loss < 0 || c.Loss >= 1 || c.QueueBytes <= 0 || c.MessageBytes <= 0 {
		return nil, fmt.Errorf("rate %d, loss %g, queue %d or message %d is out of range", c.Rate, c.Loss, c.QueueBytes, c.MessageBytes)
	}
	n := &Net{
		Config: c, calendar: newCalendar(), links: make([]link, c.Links()), nics: make([]nic, c.Hosts()),
		picosPerByte: Time(int64(Second) * bitsPerByte / c.Rate), zeros: make([]byte, c.MessageBytes), hash: hashBasis,
		load: map[[2]site]int{},
	}
	n.random.Seed(c.Seed, 0)
	for i := range n.links {
		if c.LossEverywhere || c.betweenSwitches(int32(i)) {
			n.links[i].loss = uint32(c.Loss * (1 << 32))
		}
	}
	return n, nil
}

// At makes f run at a time, between two events.
func (n *Net) At(t Time, f func()) {
	n.begins = append(n.begins, f)
	n.calendar.add(event{at: t, kind: begin, index: int32(len(n.begins) - 1)})
}

// Now returns the simulated time.
func (n *Net) Now() Time { return n.now }

func (n *Net) duration() time.Duration { return time.Duration(n.now / Nanosecond) }

// Run lets events happen until a time, or until there are none, which over says. The error says
// which invariant does not hold.
func (n *Net) Run(until Time) (over bool, err error) {
	for n.failure == nil {
		e, ok := n.calendar.next()
		if !ok {
			return true, nil
		}
		if e.at > until {
			n.calendar.putBack(&e)
			return false, nil
		}
		n.now = e.at
		n.events++
		n.mix(&e)
		n.handle(&e)
	}
	return false, n.failure
}

// Finish lets everything that is on its way arrive, and checks that nothing is missing. It fails if
// that is not over at a time.
func (n *Net) Finish(limit Time) error {
	over, err := n.Run(limit)
	if err == nil && !over {
		err = fmt.Errorf("scale: not over after %.1f s: %s", limit.Seconds(), n.progress())
	}
	if err != nil {
		return err
	}
	return n.checkConserved()
}

func (n *Net) handle(e *event) {
	switch e.kind {
	case arrive:
		n.arrived(e.index, &e.packet)
	case pump:
		n.nics[e.index].sending = false
		n.pump(int(e.index))
	case expire:
		n.expired(n.conns[e.index])
	case tick:
		n.ticked(n.groups[e.packet.flow], &n.groups[e.packet.flow].boxes[e.index])
	case begin:
		n.begins[e.index]()
	}
}

// send offers a packet to a link.
func (n *Net) send(at int32, p *packet) {
	l := &n.links[at]
	l.offered++
	if p.kind == data {
		l.data++
	}
	waiting := max(l.idleAt-n.now, 0)
	bytes := int(waiting / n.picosPerByte)
	if bytes > n.QueueBytes {
		l.dropped++
		return
	}
	l.longest = max(l.longest, waiting)
	l.idleAt = n.now + waiting + Time(p.bytes)*n.picosPerByte
	if p.kind == data && !p.marked && bytes > n.Marks.KminBytes && n.Marks.Marks(bytes, uint32(n.random.Uint64()>>32)) {
		p.marked = true
		l.marked++
	}
	if l.loss > 0 && uint32(n.random.Uint64()>>32) < l.loss {
		l.lost++
		return
	}
	l.flying++
	n.calendar.add(event{at: l.idleAt + Time(n.Delay)*Nanosecond, kind: arrive, index: at, packet: *p})
}

// arrived takes a packet at the end of a link.
func (n *Net) arrived(at int32, p *packet) {
	l := &n.links[at]
	l.flying--
	l.delivered++
	if p.group {
		n.groups[p.flow].arrived(n, p)
	} else {
		n.passOn(p)
	}
}

// hashBasis and hashPrime are those of FNV-1a for 64 bits.
const (
	hashBasis = 14695981039346656037
	hashPrime = 1099511628211
)

func (n *Net) mix(e *event) {
	h := (n.hash ^ uint64(e.at)) * hashPrime
	n.hash = (h ^ uint64(e.kind)<<56 ^ uint64(e.index)<<24 ^ uint64(e.packet.psn)) * hashPrime
}

// Hash is equal for two runs in which the same happened.
func (n *Net) Hash() uint64 { return n.hash }

// Events returns the number of events so far.
func (n *Net) Events() uint64 { return n.events }

func (n *Net) progress() string {
	text := ""
	for _, g := range n.groups {
		text += fmt.Sprintf("%s: %d of %d messages; ", g.name, g.source.completed, g.source.messages)
	}
	return text
}
