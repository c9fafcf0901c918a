package sim

import (
	"fmt"
	"time"
)

// Invariant is something that must hold in every run.
type Invariant uint8

const (
	// Truth: no ACK, NAK or MSN tells a source that something is delivered that a counted receiver
	// lacks, and no message completes that was not acknowledged to the source; nobody but the
	// source hears the answers to its packets.
	Truth Invariant = iota
	// Place: no ACK or NAK is beyond the place of the source.
	Place
	// Memory: every receiver executes each stream in order; what it executed is at its target as it
	// was sent, and nothing else has changed.
	Memory
	// Damaged: a damaged frame has no effect, and an undamaged frame is not refused.
	Damaged
	// Conserved: a frame is delivered, lost for a reason, or on its way; a path gets at most one
	// copy of it.
	Conserved
	// Membership: a receiver joins or leaves the group, or falls behind, only for a reason that the
	// policy knows; a receiver that is called behind lacks something that it cannot get any more.
	Membership
	// Congestion: congestion marks survive copying; the source hears notifications of receivers and
	// no others, and those of the only congested receiver are not thinned out.
	Congestion
	// Credits: an acknowledged PSN and its MSN belong together; the source is granted no message
	// that a receiver has not granted, and no fewer than all receivers have.
	Credits
	// Repair: the source is told to go back to no packet that is retained and that repair has not
	// given up; what is retained stays within its bound.
	Repair
	// Links: each box of a tree forwards each new packet once, so that each link carries it once;
	// what is resent or repaired is counted apart.
	Links
	// Ends: the run ends in time, with everything delivered or with the error that was promised.
	Ends

	numInvariants
)

var invariantNames = [numInvariants]string{"truth", "place", "memory", "damaged", "conserved", "membership", "congestion", "credits", "repair", "links", "ends"}

func (i Invariant) String() string { return invariantNames[i] }

// Failure is an invariant that did not hold.
type Failure struct {
	Invariant Invariant
	At        time.Duration
	What      string
}

func (f *Failure) Error() string { return fmt.Sprintf("%v: %s (at %v)", f.Invariant, f.What, f.At) }

// fail notes the first failure, which ends the run.
func (w *world) fail(i Invariant, format string, args ...any) {
	if w.failure == nil {
		w.failure = &Failure{Invariant: i, At: w.now, What: fmt.Sprintf(format, args...)}
	}
}
