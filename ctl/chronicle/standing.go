package chronicle

import (
	"fmt"

	"github.com/rocast/rocast/roce"
)

// Standing is a receiver's position in a running group. A receiver that has taken part from the source's first packet on has
// none.
type Standing string

const (
	Joining Standing = "joining" // came with an update; takes part from the source's next message on
	Joined  Standing = "joined"  // takes part since some PSN
	Evicted Standing = "evicted" // the group no longer waits for it
	Behind  Standing = "behind"  // lacks data that the source no longer has
	// Lost: it was joining when the daemon crashed, so nobody knows whether its QP has received anything.
	Lost Standing = "lost"
)

// IsOut says whether the receiver takes part no longer.
func (s Standing) IsOut() bool { return s == Evicted || s == Behind || s == Lost }

// Record is what is known of one receiver.
type Record struct {
	Standing Standing `json:"standing"`
	PSN      roce.PSN `json:"psn"` // of the source: the first the receiver took part in, or the first it lacks
	update   int      // of a receiver that is joining: the update that brought it
	// apart: the published group lacks the receiver. A receiver whose part ended while the daemon runs stays in the
	// published group, where the data path knows that it is out.
	apart bool
	// since is where it joined in an earlier run of the daemon, nil if it did not; it stays when the part ends.
	since *roce.PSN
}

// Mend says why a receiver takes part no longer and how it can join again.
func (r *Record) Mend() string {
	const again = "; to let it join again, group update without it, then with it and the psn its QP expects"
	switch r.Standing {
	case Evicted:
		return fmt.Sprintf("evicted: it lacks the source's PSN %d and what follows%s", r.PSN, again)
	case Behind:
		return fmt.Sprintf("behind: it lacks the source's PSN %d, which the source no longer has%s", r.PSN, again)
	}
	return "lost: it was joining when the daemon crashed, so what its QP has received is not known" + again
}
