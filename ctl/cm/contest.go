package cm

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	wire "github.com/rocast/rocast/roce/cm"
)

// contest is a question to the source of a run, because others ask for the receivers. A source
// that died without a word would keep them out until the probes find it. So the box asks it several
// times in a second: a host that is there answers from its kernel, or its packets move. Those that
// have asked wait meanwhile.
type contest struct {
	waiting   []*connection
	due       time.Duration // when the source is asked again; 0: it is not asked
	left      int           // how often it is asked yet
	isLate    bool          // a Count is under way that was asked before the others came
	isCounted bool          // it is known how many packets the source had sent when it was asked first
}

// contend lets a connection wait until the source of the run that is on has answered or not.
func (m *Machine) contend(c *connection) {
	r := m.run
	if r.waiting = append(r.waiting, c); r.due == 0 {
		r.left, r.isLate = m.limits.asks, r.control.counting
		m.askSource()
	}
}

// askSource asks the source of the run whether it is still there, or takes its silence for the
// answer.
func (m *Machine) askSource() {
	r := m.run
	if r.left > 0 {
		r.left, r.due = r.left-1, m.now+m.limits.ask
		m.do(Send{r.control.source.addr, *r.control.source.cached})
		m.count(r.control)
		return
	}
	waiting := r.waiting
	r.contest = contest{}
	for _, c := range waiting {
		if c.state == Waiting {
			r.waiting = waiting
			m.hangUp(r.control, fmt.Errorf("%v does not answer, and %v waits for its receivers", r.control.source, c.key.addr))
			return
		}
	}
}

// refuseWaiting refuses those that wait: the source has answered, so its run goes on.
func (m *Machine) refuseWaiting() {
	waiting := m.run.waiting
	m.run.contest = contest{}
	for _, c := range waiting {
		if c.state == Waiting {
			m.refuse(c)
		}
	}
}

// refuse refuses a connection because of the run that is on.
func (m *Machine) refuse(c *connection) {
	m.counts[TooMany]++
	says := m.run.holding(&m.limits, m.now)
	m.notify(Refused, c.key.addr, says)
	m.end(c, says, wire.NoResources)
}

// holding says whose run keeps others out, and when that ends.
func (r *run) holding(l *limits, now time.Duration) string {
	text := fmt.Sprintf("the run of %v has not ended", r.control.key.addr)
	if when := r.waits(r.control, l).text(now); when != "" {
		return text + "; " + when
	}
	return text + "; its group is being made"
}

// handOver serves the first of those that wait for the receivers of a run that has ended.
func (m *Machine) handOver(waiting []*connection, reason string) {
	for _, c := range waiting {
		switch {
		case c.state != Waiting: // it has given up
		case m.isDown:
			m.end(c, reason, wire.ConsumerDefined)
		case m.run != nil:
			m.refuse(c)
		default:
			m.admit(c)
		}
	}
}

// mayEnter returns why a REQ is not served now, although it could be; nil: it is, at once or when
// it has waited.
func (m *Machine) mayEnter(from netip.Addr) error {
	r := m.run
	all, own := m.config.most()
	switch says := m.tooMany(from, all, own); {
	case m.isDown:
		return errors.New("the service ends")
	case says != "":
		return errors.New(says)
	case !r.isBusy(from) || r.canBeAsked() && len(r.data) < MaxConnections:
		return nil
	case len(r.data) == MaxConnections:
		return fmt.Errorf("the run of %v has %d queue pairs, as many as there may be", r.control.key.addr, MaxConnections)
	}
	return errors.New(m.run.holding(&m.limits, m.now))
}
