package cm

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/rocast/rocast/ctl/groupip"
	"github.com/rocast/rocast/roce"
	wire "github.com/rocast/rocast/roce/cm"
)

// run is one run of perftest with -R. Its first connection is the control connection, on which the
// programs exchange parameters by SENDs, in both directions, before and after the transfer. The box
// itself is the peer of every host there: it answers each host as a NIC would, and passes on what
// a [Talk] makes of the messages. So no group is needed for it, and no receiver's SEND
// enters the data path. The further connections are the queue pairs of the transfer. The group of
// each is made when the receivers' keys are known, and the source has its answer when the group is
// there.
type run struct {
	talk    Talk
	control *connection
	data    []*connection
	answers map[*side][]byte // of the receivers to the source's newest message; nil: it has its answer
	held    []byte           // an answer that waits for a group
	// transfers: a group was made. The source may take any time then, as long as it sends packets.
	transfers bool
	// listens: until then the receivers' programs may be about to listen again, because another run
	// has just ended. 0: none has.
	listens   time.Duration
	datagrams *datagrams // nil: the source has not asked for UD
	contest
}

// Talk is what the sides of one run of perftest say to each other. It knows the messages and does
// no I/O; its errors are sentences that say which side is to do what.
type Talk interface {
	// Connected notes that a queue pair of the source is connected, with the group QPN as its peer.
	Connected(client, group roce.QPN)
	// ExpectsConnections reports whether the source connects its queue pairs now.
	ExpectsConnections() bool
	// Ask takes a message of the source, and returns what every receiver is to hear.
	Ask(message []byte) (forward []byte, err error)
	// Answer takes the answers of all receivers to the newest message, in the order in which
	// NewTalk was told the receivers, and returns the answer for the source. keys is not nil if the
	// group of a queue pair has to be there before the source has that answer.
	Answer(answers [][]byte) (answer []byte, keys *groupip.Keys, err error)
}

// NewTalk returns the Talk of a run that begins.
type NewTalk func(groupIP, source netip.Addr, receivers []netip.Addr) Talk

// Received is a packet of a host on a connection on which the box talks.
type Received struct {
	From   netip.Addr
	Packet Packet
	QPN    roce.QPN // to which it was sent
}

// Transmit asks for a packet to be sent from the group IP.
type Transmit struct {
	To     netip.Addr
	Packet Packet
}

type lineKey struct {
	from netip.Addr
	qpn  roce.QPN // of the box
}

// enter makes a connection part of a run, if the programs are perftest's. The first one begins it.
func (m *Machine) enter(c *connection) {
	switch {
	case m.config.Memory != Perftest:
	case m.run == nil:
		m.run = &run{talk: m.talk(m.config.GroupIP, c.key.addr, m.config.Receivers), control: c}
		if m.runEnded > 0 {
			m.run.listens = m.runEnded + m.limits.listen
		}
	default:
		m.run.data = append(m.run.data, c)
	}
}

// canBeAsked reports whether the source would answer a question whether it is still there: it has
// been offered the connection.
func (r *run) canBeAsked() bool { return r.control.state >= Offered }

// unanswered returns a receiver whose answer the source waits for.
func (r *run) unanswered() *side {
	for _, s := range r.control.receivers {
		if r.answers[s] == nil {
			return s
		}
	}
	return nil
}

// isBusy reports whether a REQ comes while the receivers' programs serve somebody else, or do not
// expect it. A run remembers its connections until it ends, so it cannot have any number of them.
func (r *run) isBusy(from netip.Addr) bool {
	return r != nil && (r.control.key.addr != from || r.control.state != Established || !r.talk.ExpectsConnections() ||
		len(r.data) == MaxConnections)
}

// isControl reports whether the programs talk on a connection.
func (r *run) isControl(c *connection) bool { return r != nil && r.control == c }

// offer answers the source without a group.
func (m *Machine) offer(c *connection) {
	if m.run.isControl(c) {
		m.openLine(c.source, c.rep.StartingPSN, c.req.StartingPSN)
		for _, r := range c.receivers {
			m.openLine(r, c.req.StartingPSN, r.rep.StartingPSN)
		}
	} else {
		m.run.talk.Connected(c.source.qpn, c.qpn)
		for _, s := range c.sides {
			m.data[lineKey{s.addr, c.qpn}] = s
		}
	}
	c.state, c.deadline, c.mra = Offered, 0, 0
	m.insist(c.source, c.rep, m.limits.tries)
}

// received takes a packet of the control connection. What comes again is answered again, even after
// the connection has ended: the program at the other end may wait for that before it disconnects.
func (m *Machine) received(e Received) {
	s := m.lines[lineKey{e.From, e.QPN}]
	switch {
	case s != nil && e.Packet.isTalk():
	case e.Packet.Opcode.IsResponse():
		m.counts[NoConnection]++
		return
	default:
		m.stray(m.data[lineKey{e.From, e.QPN}])
		return
	}
	c := s.conn
	if s.isSource && c.state == Offered && e.Packet.Opcode == roce.OpSendOnly {
		m.hearRTU(s) // it is connected if it sends; its RTU was lost
	}
	packets, message, isAlive := s.line.hear(m.now, e.Packet)
	m.transmit(s, packets)
	if s.isSource && m.run.isControl(c) {
		m.lives(c)
	}
	switch {
	case message != nil && s.isSource && c.state >= Ending:
		m.transmit(s, s.line.send(m.now, make([]byte, unwanted))) // it would wait for an answer
	case !m.run.isControl(c) || c.state != Established:
	case !isAlive:
		m.hangUp(c, fmt.Errorf("%v ended its queue pair", s))
	case message != nil && s.isSource:
		m.hangUp(c, m.ask(message))
	case message != nil:
		m.hangUp(c, m.answer(s, message))
	}
}

// ask passes a message of the source on to the receivers.
func (m *Machine) ask(message []byte) error {
	r := m.run
	if r.answers != nil {
		return fmt.Errorf("%v spoke before its turn", r.control.source)
	}
	forward, err := r.talk.Ask(message)
	if err != nil {
		return err
	}
	r.answers = map[*side][]byte{}
	for _, s := range r.control.receivers {
		if s.at != open {
			return fmt.Errorf("%v has disconnected too early", s)
		}
		m.transmit(s, s.line.send(m.now, forward))
	}
	r.control.deadline = m.now + m.limits.asking
	return nil
}

// answer takes a receiver's answer. The last one makes the answer for the source.
func (m *Machine) answer(s *side, message []byte) error {
	r := m.run
	if r.answers == nil || r.answers[s] != nil {
		return fmt.Errorf("%v spoke before its turn; it does not run the same perftest as the source", s)
	}
	if r.answers[s] = message; len(r.answers) < len(r.control.receivers) {
		return nil
	}
	var all [][]byte
	for _, s := range r.control.receivers {
		all = append(all, r.answers[s])
	}
	held, keys, err := r.talk.Answer(all)
	if err != nil {
		return err
	}
	r.held, r.control.deadline = held, 0
	if keys != nil {
		return m.makeFor(keys)
	}
	m.answerSource()
	return nil
}

func (m *Machine) answerSource() {
	r := m.run
	s := r.control.source
	m.transmit(s, s.line.send(m.now, r.held))
	r.answers, r.held = nil, nil
	m.run.goesOn(m.now, &m.limits)
}

// goesOn puts off the end of a run in which it is the source's turn.
func (r *run) goesOn(now time.Duration, l *limits) {
	if r == nil || r.answers != nil || r.control.state != Established {
		return
	}
	r.control.deadline = now + l.asking
	if r.transfers {
		r.control.deadline = now + l.idle
	}
}

// makeFor makes the group of a queue pair whose keys are known.
func (m *Machine) makeFor(keys *groupip.Keys) error {
	for _, c := range m.run.data {
		if c.source.qpn != keys.Client || c.state >= Ending {
			continue
		}
		if c.state == Offered {
			m.hearRTU(c.source) // as in received
		}
		c.keys = keys
		m.order(c)
		return nil
	}
	return fmt.Errorf("%v names queue pair %#x, which is not connected any more", m.run.control.source, uint32(keys.Client))
}

// hangUp ends the run; nothing is wrong if err is nil.
func (m *Machine) hangUp(c *connection, err error) {
	if err == nil {
		return
	}
	for _, to := range c.sides {
		if to.at == open {
			m.transmit(to, to.line.send(m.now, make([]byte, unwanted)))
		}
	}
	if m.run.isControl(c) {
		for _, d := range m.run.data {
			if d.state >= Ending { // the host may have given the QPN to another program
				continue
			}
			for _, s := range d.sides {
				m.fail(s)
			}
		}
	}
	m.end(c, err.Error(), wire.ConsumerDefined)
}

// unwanted is the length of a message that is too long for any receive of perftest. A program that
// waits for a message does not notice that its peer disconnects, but it does notice that its
// receive fails.
const unwanted = 256

// late says why a run ends in which a side is silent at its turn. Its host may be dead, or its
// program stopped.
func (r *run) late(l *limits) error {
	switch {
	case r.answers != nil:
		return fmt.Errorf("%v was silent for %v at its turn", r.unanswered(), l.asking)
	case r.transfers:
		return fmt.Errorf("%v has sent nothing for %v, and others may wait for its receivers", r.control.source, l.idle)
	}
	return fmt.Errorf("%v was silent for %v at its turn", r.control.source, l.asking)
}

// isEarly reports whether a receiver's program refuses because it does not listen yet: a program of
// perftest listens again when it has answered on the control connection, and the source may connect
// before it does. The kernel keeps nothing of a REQ for which it has no listener, so the same REQ
// is sent again. When a run has just ended, its receivers' programs may be started again.
func (r *run) isEarly(s *side, rej *wire.REJ, now time.Duration) bool {
	switch {
	case r == nil || s.at != asked || rej.Reason != wire.InvalidServiceID:
		return false
	case r.isControl(s.conn):
		return now < r.listens
	}
	return s.tries > 0
}

// quits takes a receiver out of a control connection. After the transfer each receiver disconnects
// when it is through, and the source may still wait for the last answer: the source ends the run.
// Without any receiver there is no run, and nothing for which others would wait.
func (m *Machine) quits(s *side) {
	switch r := m.run; {
	case r.answers != nil && r.answers[s] == nil:
		m.hangUp(s.conn, fmt.Errorf("%v disconnected before the run was over", s))
	case s.conn.count(open) == 0:
		m.end(s.conn, "every receiver has disconnected", wire.ConsumerDefined)
	}
}

// leave ends a run with its control connection.
func (m *Machine) leave(c *connection) {
	if !m.run.isControl(c) {
		return
	}
	r := m.run
	if m.run = nil; !c.isRefused { // its programs have ended
		m.runEnded = m.now
	}
	for _, d := range r.data {
		m.end(d, c.reason, wire.ConsumerDefined)
	}
	m.handOver(r.waiting, c.reason)
}
