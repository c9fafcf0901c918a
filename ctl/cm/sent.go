package cm

import "errors"

// Packets are signs of life, as answers by RDMA-CM are: a host whose RDMA-CM is silent, as behind a
// filter, may still send.

// Count asks how many packets the members of groups have sent. The sums come back as Counted.
type Count struct {
	Connection uint64
	Groups     []string
}

// Counted is the outcome of a Count.
type Counted struct {
	Connection uint64
	Packets    uint64 // of the sources
	Wrong      uint64 // requests of receivers, which no group carries
}

// groups names those that carry what the source of a connection sends. The groups of a run are
// those of all its queue pairs.
func (r *run) groups(of *connection) (l []string) {
	conns := []*connection{of}
	if r.isControl(of) {
		conns = r.data
	}
	for _, c := range conns {
		if c.state == Established && c.group != "" {
			l = append(l, c.group)
		}
	}
	return l
}

// count asks how many packets the source of a connection has sent, unless they are being counted.
func (m *Machine) count(c *connection) {
	if groups := m.run.groups(c); !c.counting && len(groups) > 0 {
		c.counting = true
		m.do(Count{c.id, groups})
	}
}

// counted takes how many packets the source of a connection has sent: it is there if these are more
// than before. Where others wait for its receivers, the first count that was asked since they came
// says only what it had sent before. A queue pair repeats a request that is not answered, so that
// there are more of them in two counts in a row: a single frame, damaged or from a stranger, ends
// no run.
func (m *Machine) counted(e Counted) {
	c := m.conns[e.Connection]
	if c == nil || c.state != Established {
		return
	}
	hasSent, isControl := e.Packets > c.packets, m.run.isControl(c)
	c.counting, c.packets = false, e.Packets
	again := c.asked
	c.wrong, c.asked = e.Wrong, e.Wrong > c.wrong
	if isControl && again && c.asked {
		m.hangUp(c, errBothWays)
		return
	}
	if hasSent && isControl {
		m.run.goesOn(m.now, &m.limits)
	}
	switch {
	case isControl && m.run.due > 0 && m.run.isLate:
		m.run.isLate = false
	case isControl && m.run.due > 0 && !m.run.isCounted:
		m.run.isCounted = true
	case hasSent:
		m.lives(c)
	}
}

// errBothWays: nothing in what the sides of a run say to each other shows such a test.
var errBothWays = errors.New("the receivers send data too, as latency tests and -b make them; a group carries one direction only, so run " +
	"ib_write_bw or ib_send_bw without -b")
