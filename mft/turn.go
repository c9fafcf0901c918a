package mft

import (
	"net/netip"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// Turn is where the members stand with the first packet of one member's turn as the source. It is
// what a restart has to know of all turns before: each member's queue pairs count for themselves.
type Turn struct {
	Source QP     // zero: the group's Source, which only sends
	First  Sender // that Source, if it only sends
	// Members are those with a path. One that has joined since may be missing: it begins with the
	// first PSN of its path.
	Members []Standing
}

// QP names a member's queue pair.
type QP struct {
	IP        netip.Addr
	RemoteQPN roce.QPN
}

// Standing is where a member with a path stands.
type Standing struct {
	QP
	Expects  roce.PSN // what its QP expects with the first packet of the turn, or when it receives again
	Messages roce.MSN // how many messages it has received
	Sender
}

// Sender is the place of a member's own stream.
type Sender struct {
	NextPSN  roce.PSN // what the member sends next
	Messages roce.MSN // how many it has sent
	Round    feedback.Round
	HadTurn  bool // everything below NextPSN was acknowledged when its turn ended
	Ended    bool // it heard the NAK that ends its QP: its further packets are refused
}

// Member returns where a member stands, or nil.
func (t *Turn) Member(qp QP) *Standing {
	for i := range t.Members {
		if t.Members[i].QP == qp {
			return &t.Members[i]
		}
	}
	return nil
}

// Sender returns the place of the stream of the turn's source, or nil if that is no member.
func (t *Turn) Sender() *Sender {
	if t.Source == (QP{}) {
		return &t.First
	}
	if m := t.Member(t.Source); m != nil {
		return &m.Sender
	}
	return nil
}
