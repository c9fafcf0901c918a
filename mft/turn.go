package mft

import (
	"net/netip"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// Turn says where the members' queue pairs stand when one member's turn as the source begins. Each
// queue pair counts its packets over all turns, so a restart needs this.
type Turn struct {
	Source QP     // zero: the group's Source, which only sends
	First  Sender // that Source, if it only sends
	// Members are the members that have a path. A member that joined later may be missing: it
	// begins with the first PSN of its path.
	Members []Standing
}

// QP names a member's queue pair.
type QP struct {
	IP        netip.Addr
	RemoteQPN roce.QPN
}

// Join is where a member with a path has joined.
type Join struct {
	QP
	PSN roce.PSN // the first packet of the source that it got
}

// Part says how a member with a path takes part.
type Part struct {
	QP
	Part feedback.Part
}

// Standing is where a member with a path stands.
type Standing struct {
	QP
	Expects  roce.PSN // what its QP expects for the first packet of the next turn in which it receives, or of this one
	Messages roce.MSN // how many messages it has received
	Sender
}

// Sender says where a member's own stream stands.
type Sender struct {
	NextPSN  roce.PSN // what the member sends next
	Messages roce.MSN // how many it has sent
	Round    feedback.Round
	HadTurn  bool // everything below NextPSN was acknowledged when its turn ended
	Ended    bool // it heard the NAK that ends its QP: its packets are refused
	Forced   bool // it lost its turn by force and has no other one: its packets are refused, but it receives
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

// Sender returns where the stream of the turn's source stands, or nil if the source is no member.
func (t *Turn) Sender() *Sender {
	if t.Source == (QP{}) {
		return &t.First
	}
	if m := t.Member(t.Source); m != nil {
		return &m.Sender
	}
	return nil
}
