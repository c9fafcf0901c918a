package scale

import (
	"fmt"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
)

// fail notes the first failure, which ends the run.
func (n *Net) fail(format string, args ...any) {
	if n.failure == nil {
		n.failure = fmt.Errorf("scale: at %d ps: "+format, append([]any{int64(n.now)}, args...)...)
	}
}

// checkReply fails if a box acknowledges a packet that a receiver below it lacks, or messages that
// one lacks.
func (g *Group) checkReply(n *Net, b *box, a *feedback.Action) {
	acknowledged := a.PSN
	if !a.Syndrome.IsACK() {
		acknowledged = acknowledged.Prev()
	}
	for _, i := range b.below {
		if r := &g.receivers[i]; !acknowledged.Before(r.psn) || a.MSN.Sub(r.msn) > 0 {
			n.fail("%s: box %s acknowledges packet %#x and %d messages; receiver %d expects packet %#x and has %d messages",
				g.name, b.name(), acknowledged, a.MSN, i, r.psn, r.msn)
			return
		}
	}
}

// checkCompleted fails if a message completes that a receiver lacks.
func (n *Net) checkCompleted(c *conn) {
	if c.group == nil {
		if int(c.receiver.msn) < c.completed {
			n.fail("connection %d: %d messages completed, and the receiver has %d", c.number, c.completed, c.receiver.msn)
		}
		return
	}
	for i := range c.group.receivers {
		if r := &c.group.receivers[i]; int(r.msn) < c.completed {
			n.fail("%s: %d messages completed, and receiver %d has %d", c.group.name, c.completed, i, r.msn)
			return
		}
	}
}

// resent returns how many packets a requester sent again.
func (c *conn) resent() uint64 { return c.qp.Counters().Get(rnic.FramesRetransmitted) }

// checkConserved fails if a packet vanished or appeared: on a link, or between a host and its link.
// Nothing is on its way.
func (n *Net) checkConserved() error {
	for i := range n.links {
		if l := &n.links[i]; l.flying != 0 || l.offered != l.delivered+l.lost+l.dropped {
			return fmt.Errorf("scale: link %d: %d packets in, %d out, %d lost, %d dropped, %d in flight",
				i, l.offered, l.delivered, l.lost, l.dropped, l.flying)
		}
	}
	sent, taken := make([]uint64, n.Hosts()), make([]uint64, n.Hosts())
	for _, c := range n.conns {
		sent[c.host] += c.sent
		if c.group == nil {
			taken[n.hostAt(c.there[len(c.there)-1])] += c.taken
		}
	}
	for _, g := range n.groups {
		for i := range g.receivers {
			taken[g.receivers[i].host] += g.receivers[i].taken
		}
	}
	for h := range sent {
		if up := n.links[hostLink(h)].data; sent[h] != up {
			return fmt.Errorf("scale: host %d sent %d packets, and its link had %d", h, sent[h], up)
		}
		l := &n.links[hostLink(h)+down]
		if l.data < taken[h] || l.data-taken[h] > l.lost+l.dropped {
			return fmt.Errorf("scale: host %d took %d packets of %d; its link lost %d", h, taken[h], l.data, l.lost+l.dropped)
		}
	}
	return nil
}

// hostAt returns the host at the end of a link downwards.
func (n *Net) hostAt(link int32) int { return int(link-down) / 2 }
