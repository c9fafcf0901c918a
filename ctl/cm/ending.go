package cm

import (
	"errors"
	"fmt"
	"slices"
	"time"

	wire "github.com/rocast/rocast/roce/cm"
)

// weigh goes on with a connection whose receivers are being asked, when it is known how.
func (m *Machine) weigh(c *connection) {
	has, open := c.count(answered), c.count(asked)
	switch {
	case has+open < m.config.needed(len(c.receivers)):
		m.endAs(c, c.refuser())
	case open == 0:
		m.make(c)
	case has >= m.config.needed(len(c.receivers)): // the others have a little longer
		c.deadline = min(c.deadline, m.now+m.limits.gather)
	}
}

// refuser returns the first receiver that is gone.
func (c *connection) refuser() *side {
	for _, r := range c.receivers {
		if r.at == gone {
			return r
		}
	}
	return nil
}

func (m *Machine) make(c *connection) {
	c.rep = c.merged(&m.config, m.seed.guid)
	if m.config.Memory == Perftest {
		m.offer(c)
		return
	}
	c.state, c.deadline = Making, 0
	m.order(c)
}

// order asks for the group of a connection.
func (m *Machine) order(c *connection) {
	file := c.groupFor(&m.config)
	for _, r := range c.joined() {
		r.isMember = true
	}
	c.making, c.group = true, file.Name
	m.do(Make{c.id, file})
}

// made goes on when the data path has the group. The connection is remembered until then. A run
// that waits for the group ends if there is none.
func (m *Machine) made(e Made) {
	c := m.conns[e.Connection]
	c.making = false
	if c.state == Over {
		m.remember(c, m.now+m.limits.remember)
	}
	err := e.Err
	switch {
	case err != nil:
		c.group = ""
		m.end(c, err.Error(), wire.NoResources)
	case c.state == Making:
		c.state, c.mra = Offered, 0
		m.insist(c.source, c.rep, m.limits.tries)
		for _, r := range c.receivers {
			if r.at == gone {
				m.takeOut(r)
			}
		}
	case c.state == Established:
		m.run.transfers = true
		m.answerSource()
	default: // it ended meanwhile
		m.unmake(c)
		err = errors.New(c.reason)
	}
	if r := m.run; r != nil && slices.Contains(r.data, c) { // and not of an earlier run
		m.hangUp(r.control, err)
	}
}

// unmake removes the group of a connection, if it has one.
func (m *Machine) unmake(c *connection) bool {
	if c.group == "" || c.making {
		return false
	}
	m.do(Remove{c.id, c.group})
	c.group = ""
	return true
}

// removed adds what the box saw of the group to the reason for which a connection has ended: the
// sides say only that they do not go on.
func (m *Machine) removed(e Removed) {
	c := m.conns[e.Connection]
	if c == nil {
		return
	}
	if e.Saw != "" {
		c.reason += "; before that the box saw: " + e.Saw
	}
	if c.untold {
		c.untold = false
		m.isNews(c)
	}
}

// endAs ends a connection because of one side. A source that has no answer yet hears the side's
// reason. It hears the side's private data if the side's program refuses: its meaning is theirs.
func (m *Machine) endAs(c *connection, s *side) {
	if s.refuses {
		c.refusal = &s.private
	}
	m.end(c, s.cause, s.why)
}

// end ends a connection: every side is told in the way that fits how far it is, and the group goes.
func (m *Machine) end(c *connection, reason string, why wire.Reason) {
	if c.state >= Ending {
		return
	}
	was := c.state
	c.state, c.reason, c.ended = Ending, reason, m.wall()
	c.deadline, c.mra, c.probe = 0, 0, 0
	switch s := c.source; {
	case s.at == gone:
	case was < Offered:
		if why == wire.Timeout { // a source that waits for a REP ignores this reason (docs/wire.md#rdma-cm)
			why = wire.NoResources
		}
		rej := m.rej(s, wire.AnswersREQ, why)
		if rej.PrivateData = inPrivate(reason); c.refusal != nil {
			rej.PrivateData = *c.refusal
		}
		m.say(s, rej)
		c.isRefused = true
	default: // it may or may not have the REP; if not, its next REQ is refused as stale
		m.disconnect(s)
	}
	for _, r := range c.receivers {
		switch r.at {
		case asked:
			r.settle(gone)
			m.say(r, m.rej(r, wire.AnswersOther, wire.Timeout))
		case answered:
			r.settle(gone)
			rej := m.rej(r, wire.AnswersREP, wire.ConsumerDefined)
			rej.PrivateData = inPrivate(reason)
			m.say(r, rej)
		case open:
			m.disconnect(r)
		}
	}
	if c.untold = m.unmake(c); !c.untold && was != Waiting { // a note tells of one that has only waited
		m.isNews(c)
	}
	m.finish(c)
	m.leave(c)
}

// disconnect tells a receiver once more that it is connected, with each copy of the DREQ: the
// first RTU may be lost. Without it a program of librdmacm that waits in rdma_accept takes the end
// for the beginning, and then waits for the end for ever (docs/wire.md#rdma-cm).
func (m *Machine) disconnect(s *side) {
	s.at = closing
	if s.isSource {
		m.seed.tid++
		s.tid = m.seed.tid
	} else {
		m.confirm(s)
	}
	m.insist(s, &wire.DREQ{Pair: s.pair, RemoteQPN: s.qpn}, m.limits.partings)
}

// finish keeps an ended connection for a while when every side is told.
func (m *Machine) finish(c *connection) {
	if c.state != Ending {
		return
	}
	for _, s := range c.sides {
		if s.at == closing {
			return
		}
	}
	if c.state = Over; !c.making {
		m.remember(c, m.now+m.limits.remember)
	}
}

// tick does what is due.
func (m *Machine) tick(c *connection) {
	for _, s := range c.sides {
		if m.isDue(s.due) {
			m.repeat(s)
		}
		if s.line.isOn(c.state) {
			packets, isAlive := s.line.tick(m.now)
			if m.transmit(s, packets); !isAlive && c.state == Established {
				m.hangUp(c, fmt.Errorf("%v does not answer", s))
			}
		}
	}
	if m.isDue(c.mra) {
		m.wait(c)
	}
	if m.isDue(c.probe) {
		m.ping(c)
	}
	if m.run.isControl(c) && m.isDue(m.run.due) {
		m.askSource()
	}
	if m.run.isControl(c) && m.isDue(m.run.udDue()) {
		m.askForUD()
	}
	if c.state == Over || !m.isDue(c.deadline) {
		return
	}
	if c.state == Established {
		m.hangUp(c, m.run.late(&m.limits))
		return
	}
	for _, r := range c.receivers { // Asking
		if r.at == asked && c.state == Asking {
			m.giveUp(r)
		}
	}
}

// repeat sends a message again that has no answer, or stops waiting for the answer.
func (m *Machine) repeat(s *side) {
	c := s.conn
	if s.tries > 0 {
		s.tries, s.due = s.tries-1, m.now+m.limits.again
		if s.at == closing && !s.isSource {
			m.confirm(s)
		}
		m.do(Send{s.addr, *s.retry})
		return
	}
	switch {
	case s.at == closing:
		s.settle(gone)
		m.finish(c)
	case s.isSource:
		s.settle(gone)
		m.end(c, "the source does not answer", wire.ConsumerDefined)
	default:
		m.giveUp(s)
	}
}

// giveUp goes on without a receiver that has not answered its REQ.
func (m *Machine) giveUp(s *side) {
	m.say(s, m.rej(s, wire.AnswersOther, wire.Timeout))
	m.leaves(s, wire.Timeout, "does not answer")
}

// ping asks the source whether it is still there: a host that is connected answers the REP again
// (docs/wire.md#rdma-cm). A host that dies says nothing, and its receivers would wait for ever.
// Packets that it has sent since the last question are as good as an answer.
func (m *Machine) ping(c *connection) {
	if c.unheard == m.limits.probes {
		m.lost(c, "the source does not answer any more")
		return
	}
	c.probe = m.now + m.run.interval(c, &m.limits)
	if c.unheard++; c.unheard == firstDoubt {
		m.notify(Silent, c.key.addr, m.run.waits(c, &m.limits).text(m.now))
	}
	m.do(Send{c.source.addr, *c.source.cached})
	m.count(c)
}

// firstDoubt is the probe with which a source counts as silent: one before it had no answer.
const firstDoubt = 2

// interval is the time between two probes. A run that nobody is in any more keeps all others out,
// so its source is asked more often.
func (r *run) interval(c *connection, l *limits) time.Duration {
	if r.isControl(c) {
		return l.inRun
	}
	return l.probe
}

// lost ends a connection whose source is dead. The programs of a run notice it only by a message.
func (m *Machine) lost(c *connection, reason string) {
	c.source.settle(gone)
	if m.run.isControl(c) {
		m.hangUp(c, errors.New(reason))
		return
	}
	m.end(c, reason, wire.ConsumerDefined)
}

// lives notes that the source of a connection was heard, or has sent packets.
func (m *Machine) lives(c *connection) {
	if c.unheard >= firstDoubt {
		m.notify(Returned, c.key.addr, "it answers again")
	}
	c.unheard = 0
	if m.run.isControl(c) {
		m.refuseWaiting()
	}
}
