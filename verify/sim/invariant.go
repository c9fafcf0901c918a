package sim

import (
	"fmt"
	"time"
)

// Invariant is what a run must never break.
type Invariant uint8

const (
	// Truth: nothing is acknowledged to a source, by ACK, NAK or MSN, that a counted receiver lacks; and no message completes
	// that the source was not told of.
	Truth Invariant = iota
	// Place: no ACK or NAK beyond the source's place.
	Place
	// Memory: every receiver executes each stream in its order, what it executed is where it belongs, as it was written, and
	// nothing else is.
	Memory
	// Damaged: a damaged frame moves nothing, an undamaged one is refused by nobody.
	Damaged
	// Conserved: a frame is delivered, lost for a reason, or on its way; a path gets one copy of it at most.
	Conserved
	// Membership: nobody leaves the group, or comes into it, but for a reason the policy knows.
	Membership
	// Congestion: marks survive copying; the source hears a receiver's notifications and no others, and those of a
	// receiver that alone is congested are not thinned out.
	Congestion
	// Credits: an acknowledged PSN and its MSN belong together; the source is granted no message for which a receiver may have no
	// receive, and no fewer than the receivers grant.
	Credits
	// Ends: the run ends in time, with everything delivered or with the error that was promised.
	Ends

	numInvariants
)

var invariantNames = [numInvariants]string{"truth", "place", "memory", "damaged", "conserved", "membership", "congestion", "credits", "ends"}

func (i Invariant) String() string { return invariantNames[i] }

// Failure is a broken invariant.
type Failure struct {
	Invariant Invariant
	At        time.Duration
	What      string
}

func (f *Failure) Error() string { return fmt.Sprintf("%v: %s (at %v)", f.Invariant, f.What, f.At) }

// fail notes the first broken invariant, which ends the run.
func (w *world) fail(i Invariant, format string, args ...any) {
	if w.failure == nil {
		w.failure = &Failure{Invariant: i, At: w.now, What: fmt.Sprintf(format, args...)}
	}
}
