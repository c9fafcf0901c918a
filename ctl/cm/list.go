package cm

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Connection is what the operator sees of a connection.
type Connection struct {
	Source    netip.Addr
	State     State
	IsRefused bool
	Reason    string // why it ended
	Group     string // name of the group; "": none was made
	Receivers int    // that are connected
	HoldsRun  bool   // programs of perftest talk on it: until it ends, the receivers serve no other source
	// Ends is when the connection ends if what Unless says does not happen. Zero: it does not end
	// by itself.
	Ends   time.Time
	Unless string
	Began  time.Time
	Ended  time.Time // zero while it is not over
}

// Service is a group IP at which the box answers RDMA-CM.
type Service struct {
	Config
	Connections []Connection // oldest first
	Counts      Counts
}

// List returns the services, sorted by group IP.
func (p *Proxy) List() (l []Service) {
	for _, s := range p.services.All() {
		l = append(l, s.list())
	}
	return l
}

func (s *service) list() Service {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := Service{Config: s.config, Counts: s.machine.counts, Connections: slices.Clone(s.machine.past)}
	for _, c := range s.machine.all() {
		l.Connections = append(l.Connections, s.machine.seen(c))
	}
	return l
}

// seen is what the operator sees of a connection that is not forgotten.
func (m *Machine) seen(c *connection) Connection {
	l := c.seen()
	w := m.run.waits(c, &m.limits)
	if l.HoldsRun, l.Unless = m.run.isControl(c), w.unless; w.ends > 0 {
		l.Ends = m.start.Add(w.ends)
	}
	return l
}

// seen is what the operator sees of the connection. Of one that is forgotten nothing else is kept.
func (c *connection) seen() Connection {
	return Connection{
		Source: c.key.addr, State: c.state, IsRefused: c.isRefused, Reason: cmp.Or(c.reason, c.note), Group: c.group, Receivers: c.count(open),
		Began: c.began, Ended: c.ended,
	}
}
