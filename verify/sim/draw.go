package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// The standard size of a scenario. Nine of ten seeds have it; everything else is drawn.
const (
	StandardReceivers = 3
	StandardPackets   = 256
)

// Random streams of one seed: for the scenario, and for what happens to its frames.
const (
	scenarioStream = 1
	frameStream    = 2
	crashStream    = 6 // whether members come and go around a crash, and another one sends
	confirmStream  = 8 // when a receiver that joins is ready
	edgeStream     = 7 // whether receivers share a leg
	farStream      = 9 // which receivers are behind the far box
	forceStream    = 5 // whether the source switches by force: the seeds without stay what they were
)

// Draw makes the scenario of a seed.
func Draw(seed uint64) Scenario {
	d := newDrawer(seed)
	receivers, packets := StandardReceivers, StandardPackets
	if d.oneIn(10) {
		receivers, packets = 1+d.IntN(8), 1+d.IntN(600)
	}
	s := d.scenario(seed, receivers, packets)
	if d.oneIn(8) {
		s.Removed = d.removed(&s)
	}
	drawer{rand.New(rand.NewPCG(seed, forceStream))}.force(&s)
	if e := (drawer{rand.New(rand.NewPCG(seed, edgeStream))}); e.oneIn(3) && s.mayShare() {
		e.edges(&s, packets)
	}
	return s
}

// manyChunks retains more than is on its way in most runs.
const manyChunks = 1 << 12

// needRepair gives a group repair that is refused without: one whose source switches by force, or
// with a quorum.
func (s *Scenario) needRepair() {
	if p := &s.Policy; s.has(SourceChange) && p.Repair == feedback.RepairOff && (p.Switch == feedback.SwitchForce || p.Ack != feedback.AckAll) {
		p.Repair, s.RepairChunks = feedback.RepairLocal, manyChunks
		if was := s.Removed; was != nil {
			was.RepairChunks = manyChunks // it is in the same switch
		}
	}
}

// force draws whether another member may become the source by force. The source before is not
// asked: it may wait in vain for an ACK.
func (d drawer) force(s *Scenario) {
	if s.has(SourceChange) && d.oneIn(3) {
		s.Policy.Switch, s.RetryCount = feedback.SwitchForce, uint8(3+d.IntN(4))
		s.needRepair()
	}
}

// MaxReceivers is the largest number for DrawReceivers: the first source may be a receiver too.
const MaxReceivers = mft.MaxPaths - 1

// DrawReceivers makes the scenario of a seed with this many receivers, from 1 to MaxReceivers. The
// more receivers there are, the fewer packets are sent, so that a run takes seconds.
func DrawReceivers(seed uint64, receivers int) Scenario {
	const copies = 16 << 10
	return newDrawer(seed).scenario(seed, receivers, min(StandardPackets, copies/receivers))
}

func newDrawer(seed uint64) drawer {
	return drawer{rand.New(rand.NewPCG(seed, scenarioStream))}
}

// scenario draws everything that is not given.
func (d drawer) scenario(seed uint64, receivers, packets int) Scenario {
	s := Scenario{Seed: seed, Hosts: make([]Host, 1+receivers)}
	d.policy(&s)
	d.network(&s)
	d.faults(&s)
	d.timed(&s, packets)
	d.members(&s, packets)
	d.programs(&s, packets)
	d.quorum(&s)
	if d.oneIn(4) {
		s.Policy.SilentAfter = d.between(s.ackTimeout(), 3*s.ackTimeout())
		s.Policy.Evict = d.oneIn(2)
	}
	d.patience(&s)
	d.congestion(&s, packets)
	d.flowControl(&s)
	s.FanOut = d.oneIn(2)
	d.engine(&s)
	if d.oneIn(6) {
		s.Timed = append(s.Timed, d.moment(NextHop, packets))
	}
	d.repair(&s)
	d.weights(&s)
	if s.Regions > 0 && d.oneIn(3) {
		for range 1 + d.IntN(4) {
			s.Timed = append(s.Timed, d.moment(MemoryChange, packets))
		}
	}
	if s.has(SwitchCrash) && d.oneIn(2) {
		s.StoreAfter = d.between(time.Microsecond, s.ackTimeout())
	}
	d.turns(&s)
	d.uplinks(&s, packets)
	s.Tagged = d.oneIn(8)
	s.TakesNext = d.oneIn(2)
	s.needRepair()
	return s
}

// turns draws how control stores turns, if there are any.
func (d drawer) turns(s *Scenario) {
	if !s.has(SourceChange) || !s.has(SwitchCrash) && d.oneIn(4) {
		return
	}
	s.Turns = Turns{Stored: true, Lag: pick[time.Duration](d, 0, d.between(time.Microsecond, s.ackTimeout()))}
	if d.oneIn(2) {
		s.Turns.LostNotes, s.Turns.Unstored = d.IntN(5), d.IntN(5)
	}
}

// uplinks draws which hosts have routes of equal cost to two ports, and when their frames come by
// the other one: for a time, or for ever.
func (d drawer) uplinks(s *Scenario, packets int) {
	if 2*len(s.Hosts) > mft.BlockPorts || !d.oneIn(6) {
		return
	}
	for i := range s.Hosts {
		if s.Hosts[i].Multipath = d.oneIn(2); !s.Hosts[i].Multipath {
			continue
		}
		for range d.IntN(4) {
			f := d.moment(OtherUplink, packets)
			f.Host = i
			if d.oneIn(2) {
				f.For = d.between(s.ackTimeout()/50, 3*s.ackTimeout())
			}
			s.Timed = append(s.Timed, f)
		}
	}
}

// repair draws whether the box repairs, and with which bounds.
func (d drawer) repair(s *Scenario) {
	if d.oneIn(2) {
		return
	}
	p := &s.Policy
	p.Repair, s.RepairChunks = feedback.RepairLocal, manyChunks
	if d.oneIn(4) {
		p.RepairWindow = pick(d, 1, 4, 16, 64)
	}
	if d.oneIn(4) {
		p.RepairBytes = pick(d, 1, 3, 10) * mft.PacketBytes(s.MTUBytes)
	}
	if d.oneIn(4) {
		s.RepairChunks = pick(d, 2, 8, 32)
	}
	if d.oneIn(4) {
		p.RepairAttempts = pick(d, 1, 2, 4)
	}
	if d.oneIn(4) {
		p.RepairTimerFloor = d.between(20*time.Microsecond, time.Millisecond)
		p.RepairTimerCap = d.between(p.RepairTimerFloor, 20*time.Millisecond)
	}
}

// engine draws how far the engine and the core are apart, if there is one.
func (d drawer) engine(s *Scenario) {
	if !s.FanOut || d.oneIn(4) {
		return
	}
	s.Engine = Engine{
		Lag: d.between(time.Microsecond, s.ackTimeout()/32), Batch: pick(d, 4, 64),
		Lingers: d.between(time.Microsecond, 5*time.Millisecond),
	}
	if d.oneIn(4) {
		*pick(d, &s.Engine.CarriedLate, &s.Engine.CopiedLate) = d.between(time.Microsecond, 100*time.Microsecond)
	}
}

type drawer struct{ *rand.Rand }

func (d drawer) oneIn(n int) bool { return d.IntN(n) == 0 }

func pick[T any](d drawer, from ...T) T { return from[d.IntN(len(from))] }

// between returns a time from low to high with a logarithm that is evenly distributed: small times
// are as likely as large ones.
func (d drawer) between(low, high time.Duration) time.Duration {
	l, h := math.Log(float64(low)), math.Log(float64(high))
	return time.Duration(math.Exp(l + d.Float64()*(h-l)))
}

// psn returns any PSN, and half of the time one just before the wrap.
func (d drawer) psn() roce.PSN {
	if d.oneIn(2) {
		return roce.PSN(0).Add(-int32(d.IntN(300)))
	}
	return roce.PSN(d.Uint32() & 0xFFFFFF)
}

func (d drawer) policy(s *Scenario) {
	s.Policy.Nak = pick(d, feedback.NakHold, feedback.NakLower)
	if d.oneIn(4) {
		s.Policy.OnFatal = feedback.FatalEvict
	}
	if d.oneIn(4) {
		s.Policy.Credits = feedback.CreditsMerge
	}
	s.Addressing = pick(d, mft.ByGroupIP, mft.ByGroupIP, mft.ByVirtualQPN, mft.BySwitchIP)
	s.IPv6 = d.oneIn(8)
	s.MTUBytes = 256
	if d.oneIn(16) {
		s.MTUBytes = pick(d, 512, 1024, 2048, 4096)
	}
	s.Regions = pick(d, 0, 1, 2)
}

func (d drawer) network(s *Scenario) {
	speed := pick[int64](d, 80, 320, 800, 8000)
	delay := d.between(500*time.Nanosecond, 50*time.Microsecond)
	s.eachLink(func(l *Link) {
		*l = Link{PicosPerByte: speed, Delay: delay, QueueBytes: pick(d, 64<<10, 256<<10)}
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
	})
	s.Timeout = uint8(9 + d.IntN(6)) // 2 to 67 ms
}

// faults draws the rates of faults of single frames. Each kind is on or off for the run, and then
// for each link.
func (d drawer) faults(s *Scenario) {
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

// timed draws the faults of hosts and of the switch.
func (d drawer) timed(s *Scenario, packets int) {
	for range pick(d, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3) {
		f := d.moment(pick(d, Burst, Cut, SlowHost, ReceiverCrash, SwitchCrash, RNRStorm, KeyLost), packets)
		f.Host = d.IntN(len(s.Hosts))
		f.For = d.between(s.ackTimeout()/50, 3*s.ackTimeout())
		switch f.Kind {
		case SwitchCrash:
			f.Host = 0
		case ReceiverCrash, KeyLost:
			f.For, f.Host = 0, 1+d.IntN(len(s.Hosts)-1)
		case RNRStorm:
			f.Host = 1 + d.IntN(len(s.Hosts)-1)
		}
		s.Timed = append(s.Timed, f)
	}
}

func (d drawer) moment(kind Fault, packets int) Timed {
	return Timed{Kind: kind, AfterPacket: d.IntN(packets), Delay: time.Duration(d.IntN(100_000))}
}

// members draws which hosts are receivers from the beginning, join, leave, and send beside the
// first source. With a crash of the switch three of four runs have one of these changes at most.
// The others have any of them, before the crash, in it and behind it.
func (d drawer) members(s *Scenario, packets int) {
	for i := range s.Hosts {
		h := &s.Hosts[i]
		h.SendPSN, h.RecvPSN, h.Receiver = d.psn(), d.psn(), i > 0
	}
	receivers := len(s.Hosts) - 1
	if s.has(SwitchCrash) && !(drawer{rand.New(rand.NewPCG(s.Seed, crashStream))}).oneIn(4) {
		if receivers > 1 && s.Addressing != mft.ByVirtualQPN && d.oneIn(2) {
			d.otherSource(s, packets, false)
		} else if receivers > 1 && d.oneIn(2) {
			d.joins(s, packets)
			s.Policy.Credits = feedback.CreditsUnlimited // they count from how many messages came before
		}
		return
	}
	rarely := 6
	if s.has(SwitchCrash) {
		rarely = 2
		s.Policy.Credits = feedback.CreditsUnlimited // as above
	}
	if receivers > 1 && d.oneIn(rarely) {
		d.joins(s, packets)
	}
	if receivers > 2 && d.oneIn(rarely) {
		f := d.moment(Leave, packets)
		f.Host = 1 + d.IntN(receivers)
		if !s.Hosts[f.Host].Outside {
			s.Timed = append(s.Timed, f)
		}
	}
	if receivers > 1 && s.Addressing != mft.ByVirtualQPN && d.oneIn(rarely) {
		d.otherSource(s, packets, true)
	}
}

// joins lets a receiver join later.
func (d drawer) joins(s *Scenario, packets int) {
	f := d.moment(Join, packets)
	f.Host, f.For = 1+d.IntN(len(s.Hosts)-1), s.confirmsAfter()
	s.Hosts[f.Host].Outside = true
	s.Timed = append(s.Timed, f)
}

// confirmsAfter draws how long a receiver that joins needs until its queue pair is ready. 0: it is
// ready before.
func (s *Scenario) confirmsAfter() time.Duration {
	d := drawer{rand.New(rand.NewPCG(s.Seed, confirmStream))}
	if d.oneIn(2) {
		return 0
	}
	return d.between(s.ackTimeout()/50, 3*s.ackTimeout())
}

// otherSource makes a receiver become the source later, and perhaps the first source a receiver. It
// may leave in its turn.
func (d drawer) otherSource(s *Scenario, packets int, mayLeave bool) {
	f := d.moment(SourceChange, packets)
	f.Host = 1 + d.IntN(len(s.Hosts)-1)
	s.Hosts[0].Receiver = d.oneIn(2)
	for i := range s.Timed {
		if k := s.Timed[i].Kind; s.Timed[i].Host == f.Host && (k == Join || k == Leave || k == ReceiverCrash || k == KeyLost) {
			return
		}
	}
	s.Timed = append(s.Timed, f)
	if mayLeave && d.oneIn(3) && s.staysWithout(f.Host) {
		leave := d.moment(SourceLeave, 1+packets/4)
		leave.Host = f.Host
		s.Timed = append(s.Timed, leave)
	}
}

// staysWithout reports whether the group always has another receiver than that one.
func (s *Scenario) staysWithout(host int) bool {
	for i := 1; i < len(s.Hosts); i++ {
		leaves := slices.ContainsFunc(s.Timed, func(f Timed) bool { return f.Kind == Leave && f.Host == i })
		if i != host && !s.Hosts[i].Outside && !leaves {
			return true
		}
	}
	return false
}

// programs draws what the sources send, and how well the receivers keep up.
func (d drawer) programs(s *Scenario, packets int) {
	d.messages(s, &s.Hosts[0], packets)
	for i := range s.Timed {
		if f := &s.Timed[i]; f.Kind == SourceChange {
			d.messages(s, &s.Hosts[f.Host], 1+packets/4)
		}
	}
	if d.oneIn(16) {
		m := s.Hosts[0].Messages
		m[d.IntN(len(m))].Op = rnic.Read
	}
	d.targets(s)
	d.receives(s)
}

// messages draws the program of one source: most messages are short, some are longer than the
// window of a requester.
func (d drawer) messages(s *Scenario, h *Host, packets int) {
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
		h.Messages = append(h.Messages, d.message(s, pick(d, mix...), n))
	}
	h.Outstanding = pick(d, 1, 4, 16, 64)
	if d.oneIn(5) {
		h.Think = d.between(time.Microsecond, time.Millisecond)
	}
}

// message draws a message of n packets.
func (d drawer) message(s *Scenario, op rnic.Operation, n int) Message {
	m := Message{Op: op, Imm: d.Uint32(), Bytes: (n-1)*s.MTUBytes + 1 + d.IntN(s.MTUBytes), From: d.IntN(len(page) / 2)}
	if n == 1 && d.oneIn(50) {
		m.Bytes = 0
	}
	return m
}

// targets gives each WRITE its target, one behind the other; a few WRITEs overwrite others.
func (d drawer) targets(s *Scenario) {
	longest := 0
	s.MemoryBytes = 2
	for i := range s.Hosts {
		for k := range s.Hosts[i].Messages {
			m := &s.Hosts[i].Messages[k]
			longest = max(longest, m.Bytes)
			if !m.isSend() {
				s.MemoryBytes += m.Bytes
			}
		}
	}
	if s.Regions == 2 {
		s.MemoryBytes = max(s.MemoryBytes, 2*longest)
	}
	next := 0
	for i := range s.Hosts {
		for k := range s.Hosts[i].Messages {
			if m := &s.Hosts[i].Messages[k]; !m.isSend() {
				next = d.target(s, m, next)
			}
		}
	}
}

// target gives m the target next, or some other one, inside one region. It returns the target that
// follows m.
func (d drawer) target(s *Scenario, m *Message, next int) int {
	m.Target = next
	if d.oneIn(8) {
		m.Target = d.IntN(s.MemoryBytes)
	}
	if half := s.MemoryBytes / 2; s.Regions == 2 && m.Target < half && m.Target+m.Bytes > half {
		m.Target = half
	}
	if m.Target+m.Bytes > s.MemoryBytes {
		m.Target = 0
	}
	return m.Target + m.Bytes
}

// receives draws how many receives the programs keep posted, and how soon they post again.
func (d drawer) receives(s *Scenario) {
	all := 1
	for i := range s.Hosts {
		all += len(s.Hosts[i].Messages)
	}
	hurry := d.oneIn(2)
	for i := range s.Hosts {
		h := &s.Hosts[i]
		h.Receives, h.RNRTimer = all, roce.RNRTimer(1+d.IntN(14))
		if d.oneIn(50) {
			h.RNRTimer = 0 // the longest time
		}
		if !hurry && d.oneIn(2) {
			h.Receives = min(all, pick(d, 1, 4, 16, 64))
			h.RepostAfter = d.between(time.Microsecond, 100*time.Microsecond)
		}
	}
}

// congestion draws where packets are marked as having met congestion, and when the traffic of
// strangers fills queues.
func (d drawer) congestion(s *Scenario, packets int) {
	if !d.oneIn(3) {
		return
	}
	s.CNPInterval = pick(d, 4*time.Microsecond, 50*time.Microsecond)
	if d.oneIn(4) {
		s.Policy.CNP = feedback.CNPAll
	}
	if d.oneIn(3) {
		s.Policy.CNPInterval = d.between(s.CNPInterval/4, 4*s.CNPInterval)
	}
	s.eachLink(func(l *Link) {
		if d.oneIn(2) {
			l.KminBytes = l.QueueBytes / pick(d, 8, 64)
			l.KmaxBytes, l.MarkPercent = l.KminBytes+l.QueueBytes/pick(d, 4, 32), pick(d, 1, 10, 100)
			l.CrossBytes = l.QueueBytes / pick(d, 2, 8, 32)
		}
	})
	for range d.IntN(4) {
		f := d.moment(CrossTraffic, packets)
		f.Host, f.For = d.IntN(len(s.Hosts)), d.between(s.ackTimeout()/50, 3*s.ackTimeout())
		s.Timed = append(s.Timed, f)
	}
}

// flowControl draws which hosts keep end-to-end credits: all of them, most of the time.
func (d drawer) flowControl(s *Scenario) {
	if d.oneIn(2) {
		return
	}
	some := d.oneIn(4)
	for i := range s.Hosts {
		s.Hosts[i].FlowControl = !some || d.oneIn(2)
	}
}

// quorum draws a quorum of no more receivers than there always are.
func (d drawer) quorum(s *Scenario) {
	rarely := 5
	if s.has(SourceChange) {
		rarely = 2 // what the quorum went on without, the next source has to wait for
	}
	if always := s.always(); always > 0 && d.oneIn(rarely) {
		s.Policy.Ack = feedback.AckPolicy(1 + d.IntN(always))
	}
}

// always returns how many receivers there are at any time.
func (s *Scenario) always() (n int) {
	for i := range s.Hosts {
		if h := &s.Hosts[i]; h.Receiver && !h.Outside && len(h.Messages) == 0 {
			n++
		}
	}
	if s.has(Leave) {
		n--
	}
	return n
}

// weights draws for how many receivers each host stands in a quorum, and another quorum that fits.
func (d drawer) weights(s *Scenario) {
	if s.Policy.Ack == feedback.AckAll || d.oneIn(2) {
		return
	}
	always, heaviest := 0, 0
	for i := range s.Hosts {
		h := &s.Hosts[i]
		h.Weight = 1 + d.IntN(4)
		if h.Receiver && !h.Outside && len(h.Messages) == 0 {
			always, heaviest = always+h.Weight, max(heaviest, h.Weight)
		}
	}
	if s.has(Leave) {
		always -= heaviest
	}
	s.Policy.Ack = feedback.AckPolicy(1 + d.IntN(max(1, always)))
}

// patience draws the retry counts, and how long the run may take. A source must not wait for ever
// if it may wait in vain:
//   - for a receiver that never answers again;
//   - for the answer to a READ that was not refused before the switch crashed: afterwards the
//     switch cannot know that everything below the READ was delivered;
//   - for its turn, if the source before it failed or left the group, or if no receiver is left in
//     its turn.
//
// With a quorum, a source may wait for ever when receivers and the switch have crashed: then the
// switch has to report the receivers that can never follow.
func (d drawer) patience(s *Scenario) {
	fewer := s.has(Leave) || s.Policy.Evict || s.Policy.Ack != feedback.AckAll
	s.RetryCount, s.RNRRetry = retryForEver, retryForEver
	if s.has(ReceiverCrash, KeyLost) || s.reads() && s.has(SwitchCrash, SourceChange) ||
		fewer && s.has(Leave, SourceChange) || s.has(SourceLeave) || d.oneIn(4) {
		s.RetryCount = uint8(3 + d.IntN(4))
	}
	if s.Policy.Ack != feedback.AckAll && s.has(ReceiverCrash) && s.has(SwitchCrash) && !s.reads() && d.oneIn(2) {
		s.RetryCount = retryForEver // even if too few receivers are left, see hangs
	}
	if d.oneIn(8) && !(s.has(SourceChange) && s.RetryCount == retryForEver) {
		s.RNRRetry = uint8(2 + d.IntN(5))
	}
	s.Limit = s.longEnough()
}

// longEnough returns a time in which every run ends.
func (s *Scenario) longEnough() time.Duration {
	messages := 100
	for i := range s.Hosts {
		messages += len(s.Hosts[i].Messages)
	}
	return 10*time.Second + 300*s.ackTimeout() + s.longestRNR()*time.Duration(messages)
}
