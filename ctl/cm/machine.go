package cm

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/rocast/rocast/ctl/groupfile"
	wire "github.com/rocast/rocast/roce/cm"
)

// Action is something that the caller of [Machine.Step] has to do: a Send, a Transmit, a Make, a
// Count, a Leave or a Remove.
type Action any

// Send asks for a message to be sent from the group IP.
type Send struct {
	To  netip.Addr
	MAD wire.MAD
}

// Make asks for a group to be made. Its outcome comes back as Made.
type Make struct {
	Connection uint64
	File       *groupfile.File
}

// Remove asks for a group to be removed. A group may be removed while it is being made: then the
// caller removes it when it is made.
type Remove struct {
	Connection uint64
	Group      string
}

// Leave asks for a receiver that has disconnected to be taken out of a group that goes on.
type Leave struct {
	Connection uint64
	Group      string
	Receiver   netip.Addr
}

// Removed is what the box saw of a group before a Remove: which member was in trouble, why, and
// since when; "": nothing was.
type Removed struct {
	Connection uint64
	Saw        string
}

// Event is what happened: a Heard, a Received, a Made, a Removed, a Counted, a Down, a Lost, or nil
// when only time has passed.
type Event any

// Heard is a message to the group IP.
type Heard struct {
	From netip.Addr
	MAD  wire.MAD
}

// Made is the outcome of a Make.
type Made struct {
	Connection uint64
	Err        error
}

// Down ends every connection, and no other one is made.
type Down struct{ Reason string }

// Lost says that a group was removed, though not by a Remove.
type Lost struct{ Group string }

// Machine decides what the box answers at one group IP. It does no I/O and reads no clock. What it
// has to know of the network it asks its caller.
type Machine struct {
	config Config
	talk   NewTalk
	book
	post
	run *run // nil: none is on
	// runEnded is when the newest run has ended; 0: none has.
	runEnded time.Duration
	isDown   bool
}

// Ways knows how hosts are reached. Its methods return at once.
type Ways interface {
	// Hold follows the way to a host until Release has been called as often, so that a group with
	// the host is made without asking the kernel for it. The error says why packets of a path MTU
	// do not reach the host; nil: they do, as far as is known.
	Hold(host netip.Addr, pathMTU int) error
	Release(host netip.Addr)
}

func newMachine(c Config, ways Ways, talk NewTalk, s seed, l limits, start time.Time) *Machine {
	return &Machine{config: c, talk: talk, book: newBook(ways, s), post: post{limits: l, start: start}}
}

// Step takes what happened at a time, which is counted from the machine's start and never goes
// back, and returns what to do, in this order.
func (m *Machine) Step(now time.Duration, event Event) []Action {
	m.now, m.actions, m.news, m.notes = now, nil, nil, nil
	switch e := event.(type) {
	case Heard:
		m.hear(e)
	case Received:
		m.received(e)
	case Made:
		m.made(e)
	case Removed:
		m.removed(e)
	case Counted:
		m.counted(e)
	case Down:
		m.isDown = true
		for _, c := range m.all() {
			m.end(c, e.Reason, wire.ConsumerDefined)
		}
	case Lost:
		for _, c := range m.all() {
			if c.group == e.Group && c.state < Ending {
				c.group = ""
				m.end(c, "its group was removed", wire.ConsumerDefined)
			}
		}
	}
	if at, ok := m.Next(); ok && at <= now {
		for _, c := range inOrder(m.busy) {
			m.tick(c)
		}
		for len(m.over) > 0 && m.isDue(m.over[0].deadline) {
			m.forgetOldest()
		}
	}
	return m.actions
}

// Next returns when Step has to be called at the latest; false: only an event changes anything.
func (m *Machine) Next() (at time.Duration, ok bool) {
	earlier := func(t time.Duration) {
		if t > 0 && (!ok || t < at) {
			at, ok = t, true
		}
	}
	if len(m.over) > 0 {
		earlier(m.over[0].deadline)
	}
	for _, c := range m.busy {
		earlier(c.deadline)
		earlier(c.mra)
		earlier(c.probe)
		for _, s := range c.sides {
			earlier(s.due)
			if s.line.isOn(c.state) {
				earlier(s.line.due)
			}
		}
	}
	if m.run != nil {
		earlier(m.run.due)
		earlier(m.run.udDue())
	}
	return at, ok
}

// close forgets every connection. No other Step follows.
func (m *Machine) close() {
	for _, c := range m.all() {
		m.forget(c)
	}
}

func (s *side) settle(to at) { s.at, s.retry, s.due = to, nil, 0 }

func (m *Machine) hear(e Heard) {
	switch message := e.MAD.Message.(type) {
	case *wire.REQ:
		m.hearREQ(e.From, e.MAD.TID, message)
	case *wire.REP:
		if s := m.find(e.From, message.Pair); s != nil {
			m.hearREP(s, message)
			return
		}
		m.disown(e, message)
	case *wire.RTU:
		m.withSide(e, message.Pair, func(s *side) { m.hearRTU(s) })
	case *wire.MRA:
		m.withSide(e, message.Pair, func(s *side) { m.hearMRA(s, message) })
	case *wire.REJ:
		m.hearREJ(e, message)
	case *wire.DREQ:
		m.hearDREQ(e, message)
	case *wire.DREP:
		m.withSide(e, message.Pair, func(s *side) { m.hearDREP(s) })
	case *wire.SIDRREQ:
		m.hearSIDR(e, message)
	case *wire.SIDRREP:
		m.hearUD(e.From, message)
	case *wire.LAP:
		m.withSide(e, message.Pair, func(s *side) {
			m.counts[Unexpected]++
			m.do(Send{s.addr, wire.MAD{Header: e.MAD.Header, Message: &wire.APR{Pair: s.pair, Status: wire.PathUnsupported}}})
		})
	default: // the answer to what the box never sends: APR
		m.counts[Unexpected]++
	}
}

func (m *Machine) withSide(e Heard, pair wire.Pair, then func(*side)) {
	if s := m.find(e.From, pair); s != nil {
		then(s)
		return
	}
	m.counts[NoConnection]++
}

// disown refuses the answer to a REQ that nobody knows, as when the daemon was started again
// meanwhile. The receiver's program would repeat its answer for a minute, and wait.
func (m *Machine) disown(e Heard, rep *wire.REP) {
	m.counts[NoConnection]++
	if m.config.knows(e.From) {
		rej := &wire.REJ{Pair: swap(rep.Pair), Answers: wire.AnswersREP, Reason: wire.InvalidCommID}
		m.do(Send{e.From, wire.MAD{Header: e.MAD.Header, Message: rej}})
	}
}

// hearREP takes the answer of a receiver.
func (m *Machine) hearREP(s *side, rep *wire.REP) {
	c := s.conn
	switch {
	case s.isSource:
		m.counts[Unexpected]++
	case s.at == asked && rep.QPN <= wire.QPN:
		m.counts[Unexpected]++
	case s.at == asked && m.config.Memory == PrivateData && !isMemory(readRegion(rep.PrivateData[:])):
		m.counts[WrongMemory]++
		s.pair.Remote = rep.Local
		m.say(s, m.rej(s, wire.AnswersREP, wire.ConsumerDefined))
		m.leaves(s, wire.ConsumerDefined, "says nothing of its memory: the private data of its answer has to begin with VA, R_Key and length")
	case s.at == asked:
		s.settle(answered)
		s.pair.Remote, s.rep, s.qpn = rep.Local, rep, rep.QPN
		m.weigh(c)
	case s.at == gone: // it came too late
		s.pair.Remote = rep.Local
		m.say(s, m.rej(s, wire.AnswersREP, wire.ConsumerDefined))
	case s.at == open: // the RTU was lost
		m.again(s)
	case s.at == closing: // so was the DREQ, before which it needs the RTU
		m.counts[Repeated]++
		m.confirm(s)
	default:
		m.counts[Repeated]++
	}
}

// hearRTU: the source is connected, so the receivers may be.
func (m *Machine) hearRTU(s *side) {
	c := s.conn
	switch {
	case !s.isSource || c.state < Offered:
		m.counts[Unexpected]++
		return
	case c.state >= Ending: // the REP was sent again, and so is this answer
		m.counts[Repeated]++
		return
	case c.state == Established: // also the answer to a probe
		m.lives(c)
		return
	}
	m.connect(c)
	m.lives(c)
}

// connect notes that the source is connected, and tells the receivers.
func (m *Machine) connect(c *connection) {
	c.state, c.deadline, c.probe = Established, 0, m.now+m.run.interval(c, &m.limits)
	m.run.goesOn(m.now, &m.limits)
	m.isNews(c)
	c.source.settle(open)
	for _, r := range c.receivers {
		if r.at == answered {
			r.settle(open)
			m.say(r, &wire.RTU{Pair: r.pair})
		}
	}
}

// hearMRA: the other side needs more time. It has that instead of one more copy of the message, so
// that it cannot hold up a handshake for ever.
func (m *Machine) hearMRA(s *side, mra *wire.MRA) {
	if s.isSource {
		isAnswer := m.run.isControl(s.conn) && m.run.due > 0
		m.lives(s.conn)
		if isAnswer { // and not to the REP that is sent again by its own clock
			return
		}
	}
	if s.retry == nil || s.tries == 0 {
		m.counts[Unexpected]++
		return
	}
	s.tries--
	s.due = m.now + m.limits.again + min(m.limits.patience, timeout(mra.ServiceTimeout))
}

// timeout is the time that five bits stand for: 4.096 us, doubled so often.
func timeout(code uint8) time.Duration { return 4096 << code }

func (m *Machine) hearREJ(e Heard, rej *wire.REJ) {
	s := m.find(e.From, rej.Pair)
	if s == nil && rej.Pair.Remote == 0 && rej.Reason == wire.Timeout && rej.InfoBytes >= 8 {
		// The source gives up before it knows a comm ID of the box: it names its CA GUID.
		if c := m.byKey[sourceKey{e.From, rej.Pair.Local, be64(rej.Info[:])}]; c != nil {
			s = c.source
		}
	}
	switch {
	case s == nil:
		m.counts[NoConnection]++
	case s.conn.state >= Ending:
		s.settle(gone)
		m.finish(s.conn)
	case s.at == gone:
		m.counts[Repeated]++
	case m.run.isEarly(s, rej, m.now):
		s.due = m.now + m.limits.early
		if m.run.isControl(s.conn) { // it is a time that is bounded, not the number of copies
			s.isDeaf = true
			s.tries++
		}
	case s.isSource:
		s.settle(gone)
		m.end(s.conn, fmt.Sprintf("the source gave up (%v)", rej.Reason), wire.ConsumerDefined)
	default:
		s.refuses, s.private = rej.Reason == wire.ConsumerDefined, rej.PrivateData
		m.leaves(s, rej.Reason, fmt.Sprintf("refuses (%v)", rej.Reason))
	}
}

func (m *Machine) hearDREQ(e Heard, dreq *wire.DREQ) {
	s := m.find(e.From, dreq.Pair)
	switch {
	case s == nil: // the answer to an earlier DREQ was lost, and the connection is forgotten
		m.counts[NoConnection]++
		if m.config.knows(e.From) {
			m.do(Send{e.From, wire.MAD{Header: e.MAD.Header, Message: &wire.DREP{Pair: swap(dreq.Pair)}}})
		}
		return
	case dreq.RemoteQPN != s.conn.qpn:
		m.counts[OtherQPN]++
		return
	case s.conn.state < Offered:
		m.counts[Unexpected]++
		return
	}
	if s.isSource && s.conn.state == Offered { // it was connected; its RTU was lost
		m.connect(s.conn)
	}
	m.do(Send{s.addr, wire.MAD{Header: e.MAD.Header, Message: &wire.DREP{Pair: s.pair}}})
	wasAt := s.at
	switch s.settle(gone); {
	case s.conn.state >= Ending:
		m.finish(s.conn)
	case s.isSource:
		m.end(s.conn, "the source disconnected", wire.ConsumerDefined)
	case wasAt != gone:
		m.leaves(s, wire.ConsumerDefined, "disconnected")
	}
}

func (m *Machine) hearDREP(s *side) {
	switch s.at {
	case closing:
	case gone: // the DREQ was sent again, and so is this answer
		m.counts[Repeated]++
		return
	default:
		m.counts[Unexpected]++
		return
	}
	s.settle(gone)
	m.finish(s.conn)
}

// leaves takes a receiver out of a connection, and ends the connection if too few are left.
func (m *Machine) leaves(s *side, why wire.Reason, how string) {
	c := s.conn
	s.settle(gone)
	s.why, s.cause = why, fmt.Sprintf("%v %s", s, how)
	switch {
	case c.state == Asking:
		m.weigh(c)
		return
	case m.run.isControl(c) && c.state == Established:
		m.quits(s)
		return
	}
	if c.count(answered, open) < m.config.needed(len(c.receivers)) {
		m.endAs(c, s)
		return
	}
	m.takeOut(s)
}

// takeOut takes a receiver that is gone out of the group, which goes on without it.
func (m *Machine) takeOut(s *side) {
	c := s.conn
	if !s.isMember || c.making {
		return
	}
	c.adds("it goes on although " + s.cause)
	m.do(Leave{c.id, c.group, s.addr})
}

// knows reports whether a host may be a side of a connection.
func (c *Config) knows(addr netip.Addr) bool {
	return c.Allows(addr) || slices.Contains(c.Receivers, addr)
}

func swap(p wire.Pair) wire.Pair { return wire.Pair{Local: p.Remote, Remote: p.Local} }

func be64(b []byte) (n uint64) {
	for _, v := range b[:8] {
		n = n<<8 | uint64(v)
	}
	return n
}
