package sim

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/rocast/rocast/bench/rnic"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// The standard scenario: what nine of ten seeds are, all else being drawn.
const (
	StandardReceivers = 3
	StandardPackets   = 256
)

// Streams of one seed's randomness: the scenario, and what happens to its frames.
const (
	scenarioStream = 1
	frameStream    = 2
)

// Draw makes a scenario of a seed.
func Draw(seed uint64) Scenario {
	d := drawer{rand.New(rand.NewPCG(seed, scenarioStream))}
	s := Scenario{Seed: seed}
	receivers, packets := StandardReceivers, StandardPackets
	if d.oneIn(10) {
		receivers, packets = 1+d.IntN(8), 1+d.IntN(600)
	}
	s.Receivers = make([]Host, receivers)
	d.policy(&s)
	d.program(&s, packets)
	d.network(&s)
	d.troubles(&s)
	d.receives(&s)
	d.timed(&s, packets)
	d.patience(&s)
	return s
}

type drawer struct{ *rand.Rand }

func (d drawer) oneIn(n int) bool { return d.IntN(n) == 0 }

func pick[T any](d drawer, from ...T) T { return from[d.IntN(len(from))] }

// between is log-uniform: as many small values as large ones.
func (d drawer) between(low, high time.Duration) time.Duration {
	l, h := math.Log(float64(low)), math.Log(float64(high))
	return time.Duration(math.Exp(l + d.Float64()*(h-l)))
}

// psn is anywhere, half of the time just before the wrap.
func (d drawer) psn() roce.PSN {
	if d.oneIn(2) {
		return roce.PSN(0).Add(-int32(d.IntN(300)))
	}
	return roce.PSN(d.Uint32() & 0xFFFFFF)
}

func (d drawer) policy(s *Scenario) {
	s.Policy.Nak = pick(d, feedback.NakHold, feedback.NakLower)
	if d.oneIn(5) {
		s.Policy.Ack = feedback.AckPolicy(1 + d.IntN(len(s.Receivers)))
	}
	if d.oneIn(4) {
		s.Policy.OnFatal = feedback.FatalEvict
	}
	if d.oneIn(4) {
		s.Policy.Credits = feedback.CreditsMerge
	}
	if d.oneIn(3) {
		s.Policy.Speak = feedback.SpeakRNR
	}
	s.Addressing = pick(d, mft.ByGroupIP, mft.ByGroupIP, mft.ByVirtualQPN, mft.BySwitchIP)
	s.IPv6 = d.oneIn(8)
}

// program draws the messages: mostly short ones, some longer than a requester's window.
func (d drawer) program(s *Scenario, packets int) {
	s.MTUBytes = 256
	if d.oneIn(16) {
		s.MTUBytes = pick(d, 512, 1024, 2048, 4096)
	}
	s.FirstPSN = d.psn()
	operations := [][]rnic.Operation{
		{rnic.Write},
		{rnic.Write, rnic.WriteImm},
		{rnic.Send, rnic.SendImm},
		{rnic.Write, rnic.Write, rnic.WriteImm, rnic.Send, rnic.SendImm},
	}
	mix := operations[d.IntN(len(operations))]
	longest := pick(d, 1, 4, 40, packets)
	for left := packets; left > 0; {
		n := min(left, 1+d.IntN(longest))
		left -= n
		s.Messages = append(s.Messages, d.message(s, pick(d, mix...), n))
	}
	if d.oneIn(16) {
		s.Messages[d.IntN(len(s.Messages))].Op = rnic.Read
	}
	d.places(s)
	s.Outstanding = pick(d, 1, 4, 16, 64)
	if d.oneIn(5) {
		s.Think = d.between(time.Microsecond, time.Millisecond)
	}
}

// message draws one of n packets.
func (d drawer) message(s *Scenario, op rnic.Operation, n int) Message {
	m := Message{Op: op, Imm: d.Uint32(), Bytes: (n-1)*s.MTUBytes + 1 + d.IntN(s.MTUBytes)}
	if n == 1 && d.oneIn(50) {
		m.Bytes = 0
	}
	m.From = d.IntN(len(page) / 2)
	return m
}

// places puts the WRITEs into memory, one behind the other, a few over what others wrote.
func (d drawer) places(s *Scenario) {
	total, longest := 1, 0
	for i := range s.Messages {
		if m := &s.Messages[i]; m.isWrite() || m.Op == rnic.Read {
			total += m.Bytes
			longest = max(longest, m.Bytes)
		}
	}
	s.MemoryBytes = total
	s.Regions = pick(d, 0, 1, 2)
	half := total / 2
	if s.Regions == 2 && longest > half {
		s.Regions = 1
	}
	next := 0
	for i := range s.Messages {
		m := &s.Messages[i]
		if m.isSend() {
			continue
		}
		m.Place = next
		if d.oneIn(8) {
			m.Place = d.IntN(total - m.Bytes + 1)
		} else {
			next = (next + m.Bytes) % total
		}
		if m.Place+m.Bytes > total {
			m.Place, next = 0, m.Bytes
		}
		if s.Regions == 2 && m.Place < half && m.Place+m.Bytes > half {
			m.Place = half
		}
	}
}

func (d drawer) network(s *Scenario) {
	speed := pick[int64](d, 80, 320, 800, 8000)
	delay := d.between(500*time.Nanosecond, 50*time.Microsecond)
	link := func() Link {
		l := Link{PicosPerByte: speed, Delay: delay, QueueBytes: pick(d, 64<<10, 256<<10)}
		if d.oneIn(6) {
			l.PicosPerByte = pick[int64](d, 80, 320, 800, 8000)
		}
		if d.oneIn(6) {
			l.Delay = d.between(500*time.Nanosecond, 50*time.Microsecond)
		}
		if d.oneIn(12) {
			l.QueueBytes = pick(d, 4<<10, 16<<10)
		}
		l.QueueBytes = max(l.QueueBytes, 2*(s.MTUBytes+128))
		return l
	}
	s.Source.ToSwitch, s.Source.ToHost = link(), link()
	for i := range s.Receivers {
		r := &s.Receivers[i]
		r.FirstPSN = d.psn()
		r.ToSwitch, r.ToHost = link(), link()
	}
	s.Timeout = uint8(9 + d.IntN(6)) // 2 to 67 ms
}

// troubles draws the rates. Each kind is on or off for the run, and then for each link.
func (d drawer) troubles(s *Scenario) {
	d.rates(s, 4, func(l *Link) *float64 { return &l.Loss })
	d.rates(s, 2, func(l *Link) *float64 { return &l.Duplicate })
	d.rates(s, 2, func(l *Link) *float64 { return &l.Reorder })
	d.rates(s, 2, func(l *Link) *float64 { return &l.Late })
	d.rates(s, 2, func(l *Link) *float64 { return &l.Damage })
	s.eachLink(func(l *Link) { l.LateBy = 2 * s.ackTimeout() })
}

// rates sets one rate on some links, in n runs of six.
func (d drawer) rates(s *Scenario, n int, rate func(*Link) *float64) {
	if d.IntN(6) >= n {
		return
	}
	level := pick(d, 1e-4, 1e-3, 1e-3, 1e-2, 1e-2, 5e-2)
	s.eachLink(func(l *Link) {
		if d.oneIn(2) {
			*rate(l) = level
		}
	})
}

func (s *Scenario) eachLink(f func(*Link)) {
	f(&s.Source.ToSwitch)
	f(&s.Source.ToHost)
	for i := range s.Receivers {
		f(&s.Receivers[i].ToSwitch)
		f(&s.Receivers[i].ToHost)
	}
}

// receives draws how well the receivers' programs keep up.
func (d drawer) receives(s *Scenario) {
	hurry := d.oneIn(2)
	for i := range s.Receivers {
		r := &s.Receivers[i]
		r.Receives, r.RNRTimer = len(s.Messages), roce.RNRTimer(1+d.IntN(14))
		if d.oneIn(50) {
			r.RNRTimer = 0 // the longest
		}
		if !hurry && d.oneIn(2) {
			r.Receives = min(len(s.Messages), pick(d, 1, 4, 16, 64))
			r.RepostAfter = d.between(time.Microsecond, 100*time.Microsecond)
		}
	}
}

func (d drawer) timed(s *Scenario, packets int) {
	for range pick(d, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3) {
		f := Timed{
			Kind: firstTimed + Fault(d.IntN(int(numFaults-firstTimed))), Host: d.IntN(1 + len(s.Receivers)),
			AfterPacket: d.IntN(packets), Delay: time.Duration(d.IntN(100_000)), For: d.between(s.ackTimeout()/50, 3*s.ackTimeout()),
		}
		switch f.Kind {
		case SwitchCrash:
			f.Host = 0
		case ReceiverCrash, KeyLost:
			f.For = 0
			f.Host = 1 + d.IntN(len(s.Receivers))
		case RNRStorm:
			f.Host = 1 + d.IntN(len(s.Receivers))
		}
		s.Timed = append(s.Timed, f)
	}
}

// patience draws the retry counts, and how long the run may take. A receiver that is silent for good must not meet a source
// that waits for ever; nor may a READ that was not refused before the switch crashed, because after that nobody can say that all
// below it was delivered.
func (d drawer) patience(s *Scenario) {
	const forEver = 7
	s.RetryCount, s.RNRRetry = forEver, forEver
	if s.has(ReceiverCrash) || s.has(KeyLost) || s.reads() && s.has(SwitchCrash) || d.oneIn(4) {
		s.RetryCount = uint8(3 + d.IntN(4))
	}
	if d.oneIn(10) {
		s.RNRRetry = uint8(3 + d.IntN(4))
	}
	if d.oneIn(4) {
		s.Policy.SilentAfter = d.between(s.ackTimeout(), 3*s.ackTimeout())
		s.Policy.Evict = d.oneIn(2)
	}
	s.Limit = 10*time.Second + 300*s.ackTimeout() + s.longestRNR()*time.Duration(100+len(s.Messages))
}
