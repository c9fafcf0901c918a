package feedback

import "github.com/rocast/rocast/roce"

// EventKind says where an event comes from.
type EventKind uint8

const (
	// Data: a request packet of the source that the group carries.
	// Uses PSN, AckReq.
	Data EventKind = iota
	// Refuse: a request of the source that no group can carry, READ for
	// instance; Syndrome is the fatal NAK it is to be answered with.
	// Uses PSN, Syndrome.
	Refuse
	// Response: what a receiver answers. Uses Path, PSN, Syndrome, MSN,
	// MigReq.
	Response
)

// Event is one packet that concerns the group.
type Event struct {
	Kind     EventKind
	AckReq   bool
	MigReq   bool
	Syndrome roce.Syndrome
	Path     int
	PSN      roce.PSN
	MSN      roce.MSN
}

// ActionKind says what the caller has to do.
type ActionKind uint8

const (
	// Copy: send the event's packet to Path.
	Copy ActionKind = iota
	// Reply: send the source an acknowledge packet. Uses PSN, MSN,
	// Syndrome, MigReq.
	Reply
	// Fatal: Path's receiver gave the fatal NAK Syndrome for PSN; tell the
	// operator. At most once per path.
	Fatal
)

// Action is one thing to do, in the order given.
type Action struct {
	Kind     ActionKind
	MigReq   bool
	Syndrome roce.Syndrome
	Path     int
	PSN      roce.PSN
	MSN      roce.MSN
}

// Outcome says what an event did; the data path counts it under its name.
type Outcome uint8

const (
	// OutsideWindow: a PSN too far from what the group sent; nothing moved.
	OutsideWindow Outcome = iota
	// BeyondSent: feedback for a packet that was never forwarded (rule 1);
	// nothing moved.
	BeyondSent
	// Stale: feedback older than what the path already acknowledged.
	Stale
	// Duplicate: an ACK that says what is known.
	Duplicate
	// Swallowed: a NAK that the go-back under way serves (rule 4), or the
	// sequence NAK behind an RNR NAK (rule 5).
	Swallowed
	// Held: a NAK that waits for the minimum (rules 4, 5, 7).
	Held
	// Absorbed: the path moved, the minimum did not (rule 2).
	Absorbed
	// Merged: the source was told.
	Merged
	// Forwarded: a packet sent for the first time.
	Forwarded
	// Resent: a packet sent again to the paths that lack it (rule 3).
	Resent
	// Filtered: a resent packet that everyone has (rule 3).
	Filtered
	// Refused: a request no group can carry, or one behind it (rule 11).
	Refused

	NumOutcomes
)

var outcomeNames = [NumOutcomes]string{
	"outside-window", "beyond-sent", "stale", "duplicate", "swallowed", "held",
	"absorbed", "merged", "forwarded", "resent", "filtered", "refused",
}

func (o Outcome) String() string { return outcomeNames[o] }
