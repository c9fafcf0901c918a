package chronicle

import (
	"fmt"

	"github.com/rocast/rocast/roce"
)

// Standing says how a receiver takes part in a running group. It is empty for a receiver that has
// taken part since the source's first packet.
type Standing string

const (
	Joining Standing = "joining" // came with an update; takes part from the source's next message on
	Joined  Standing = "joined"  // takes part since some PSN
	Evicted Standing = "evicted" // the group no longer waits for it
	Behind  Standing = "behind"  // lacks data that the source no longer has
	// Lost: it was joining when the daemon crashed, so it is unknown whether its QP received a
	// packet.
	Lost Standing = "lost"
)

var standings = []Standing{Joining, Joined, Evicted, Behind, Lost}

// IsOut reports whether the receiver no longer takes part.
func (s Standing) IsOut() bool { return s == Evicted || s == Behind || s == Lost }

// Before is what is known of the source's packets before the first one of a receiver that joined.
type Before string

const (
	Open         Before = "open"         // the source may still wait for an acknowledgement of some
	Acknowledged Before = "acknowledged" // they were acknowledged to the source
)

// Record is what is known of one receiver.
type Record struct {
	Standing Standing `json:"standing"`
	// PSN is a PSN of the source: the first one that the receiver got, or, if it is out, the first
	// one that it lacks.
	PSN roce.PSN `json:"psn"`
	// Before is what is known of the packets before PSN, of a receiver that has joined. A quorum
	// does not count it for those.
	Before Before `json:"before,omitempty"`
	// since is the source's PSN at which the receiver joined in an earlier run of the daemon. It is
	// nil if the receiver did not join later, and is kept when the receiver is put out.
	since *roce.PSN
}

func (r *Record) isOpen() bool { return r.Standing == Joined && r.Before != Acknowledged }

// Advice says why a receiver no longer takes part, and how it can join again. ofService: the group
// is one of rocast cm or perftest, which nobody can update.
func (r *Record) Advice(ofService bool) string {
	if ofService {
		return r.Why() + "; to let it join again, let the programs connect again"
	}
	return r.Why() + "; to let it join again, group update without it, then with it and the psn its QP expects"
}

// Why says why a receiver no longer takes part.
func (r *Record) Why() string {
	switch r.Standing {
	case Evicted:
		return fmt.Sprintf("evicted: it lacks the source's PSN %d and what follows", r.PSN)
	case Behind:
		return fmt.Sprintf("behind: it lacks the source's PSN %d, which the source no longer has", r.PSN)
	}
	return "lost: it was joining when the daemon crashed, so it is unknown which packets its QP received"
}
