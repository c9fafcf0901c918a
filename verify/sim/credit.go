package sim

import (
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/roce"
)

// grant is what a receiver last said about end-to-end credits, as far as the switch took it.
type grant struct {
	acked     int  // the packet that was acknowledged with it, in PSNs of the receiver
	ack       bool // an ACK said so: a NAK grants nothing
	unlimited bool // the receiver keeps no credits
	upTo      int  // messages, of all sources, counted as the receiver counts executed ones
	atLeast   int  // what a switch that keeps credits as a code may make of upTo
}

// noGrant is the grant of a receiver that the switch has not heard.
var noGrant = grant{acked: nowhere}

// note takes the credits of an ACK. The credits of an ACK that is older than the newest one do not
// count.
func (g *grant) note(acked int, a roce.AETH) {
	if acked < g.acked {
		return
	}
	g.acked = acked
	if !a.Syndrome.IsACK() {
		g.upTo = max(g.upTo, int(a.MSN)) // what the receiver has executed needs no grant any more
		g.atLeast = int(a.MSN) + int(floorOfCredits(g.atLeast-int(a.MSN)))
		return
	}
	g.ack = true
	n, limited := a.Syndrome.CreditCode().Credits()
	g.unlimited, g.upTo = !limited, int(a.MSN)+int(n)
	g.atLeast = g.upTo
}

// checkCredits compares what ACK a grants to source h with what the receivers grant.
func (w *world) checkCredits(h *host, a roce.AETH) {
	n, limited := a.Syndrome.CreditCode().Credits()
	if w.s.Policy.Credits != feedback.CreditsMerge {
		if limited {
			w.fail(Credits, "%v is granted %v, although no credits are to be merged", h, a.Syndrome)
		}
		return
	}
	upTo, lowest, any, silent := int(a.MSN)+int(n), 0, false, false
	for i := range w.hosts {
		r := &w.hosts[i]
		if r == h || !r.counts() || r.grant.unlimited {
			continue
		}
		if !r.grant.ack {
			silent = true // a receiver that has sent no ACK limits nothing
			continue
		}
		// The receiver counts messages of other sources too, and none from before it joined.
		others := h.plan.messagesBefore(r.next[h.number]) - r.executed()
		granted, atLeast := r.grant.upTo+others, r.grant.atLeast+others
		if !any || atLeast < lowest {
			lowest, any = atLeast, true
		}
		if r.behind || r.qp.State() != rnic.StateReady {
			continue // it gets no data
		}
		if !limited || n > 0 && upTo > granted { // less than no credits cannot be said
			w.fail(Credits, "%v is granted %v from message %d on; %v grants messages up to %d", h, a.Syndrome, a.MSN, r, granted)
		}
	}
	// A receiver that has left limits the source until the core has seen that it left.
	if limited && any && !silent && !w.membersChanged && h.number == w.active && n < floorOfCredits(lowest-int(a.MSN)) {
		w.fail(Credits, "%v is granted %v from message %d on; all receivers grant messages up to %d", h, a.Syndrome, a.MSN, lowest)
	}
}

// executed returns how many messages the receiver has executed, which is what its MSN counts.
func (h *host) executed() int { return int(h.qp.Counters().Get(rnic.MessagesReceived)) }

// floorOfCredits returns the most that a credit code can say without granting more than n.
func floorOfCredits(n int) uint32 {
	credits, _ := roce.CreditCodeFor(uint32(max(n, 0))).Credits()
	return credits
}

// noteGrant notes what feedback frame d of receiver h grants.
func (w *world) noteGrant(h *host, d *dataplane.Frame, acked int) {
	if d.View.Opcode == roce.OpAck {
		h.grant.note(acked, d.View.AETH(d.Head()))
	}
}
