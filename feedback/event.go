package feedback

import "github.com/rocast/rocast/roce"

// EventKind says where an event comes from.
type EventKind uint8

const (
	// Data: a request packet of the source that the group carries.
	// Uses PSN, AckReq, First, Last.
	Data EventKind = iota
	// Refuse: a request of the source that no group can carry, READ for
	// instance; Syndrome is the fatal NAK it is to be answered with.
	// Uses PSN, Syndrome.
	Refuse
	// Response: what a receiver answers. Uses Path, PSN, Syndrome, MSN,
	// MigReq.
	Response
	// CNP: a receiver's congestion notification. Uses Path.
	CNP
	// Timer: time has passed. Comes every few milliseconds to groups whose
	// policy needs it (Policy.NeedsTimer).
	Timer
)

// Event is one packet that concerns the group, or the passing of time.
type Event struct {
	Kind     EventKind
	AckReq   bool
	First    bool // first packet of a message
	Last     bool // last packet of a message
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
	// PassCNP: send the source a congestion notification.
	PassCNP
	// Join: Path takes part from the event's packet on; its PSN is what the
	// path's first one maps to, and MSN what its MSN 0 does.
	Join
	// Notice: tell the operator what Note says about Path. Syndrome is the
	// fatal NAK, if one was the reason.
	Notice
)

// Note is news about a receiver. Each is told once.
type Note uint8

const (
	// NoteFatal: its QP ended with a fatal NAK.
	NoteFatal Note = iota
	// NoteSilent: it makes no progress while others do.
	NoteSilent
	// NoteEvicted: it is no longer waited for and gets no more data.
	NoteEvicted
	// NoteBehind: it lacks what the source no longer has (quorum); resynchronise
	// it and let it join again.
	NoteBehind
	// NoteJoined: it takes part from now on.
	NoteJoined
	// NoteSource: the member is the source from here on (rule 12).
	NoteSource
)

var noteNames = [...]string{"fatal", "silent", "evicted", "behind", "joined", "source"}

func (n Note) String() string { return noteNames[n] }

// Action is one thing to do, in the order given.
type Action struct {
	Kind     ActionKind
	Note     Note
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
	// NotTakingPart: feedback of a path that was evicted, is behind, or has
	// not joined; nothing moved.
	NotTakingPart
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
	// Evicted: the receiver left the group for its fatal NAK (rule 7).
	Evicted
	// Behind: a NAK for what the source was already told is acknowledged
	// (rule 9).
	Behind
	// CNPPassed and CNPFiltered: see CNPPolicy (rule 10).
	CNPPassed
	CNPFiltered

	NumOutcomes
)

var outcomeNames = [NumOutcomes]string{
	"outside-window", "beyond-sent", "not-taking-part", "stale", "duplicate", "swallowed", "held",
	"absorbed", "merged", "forwarded", "resent", "filtered", "refused", "evicted", "behind",
	"cnp-passed", "cnp-filtered",
}

func (o Outcome) String() string { return outcomeNames[o] }
