package feedback

import "github.com/rocast/rocast/roce"

// EventKind is what happened.
type EventKind uint8

const (
	// Data is a request packet of the source that the group carries. It uses PSN, AckReq, First and
	// Last.
	Data EventKind = iota
	// Refuse is a request of the source that no group can carry, for instance a READ. Syndrome is
	// the fatal NAK that answers it. It uses PSN and Syndrome.
	Refuse
	// Response is the answer of a receiver. It uses Path, PSN, Syndrome, MSN, MigReq and Nobody.
	Response
	// CNP is the congestion notification of a receiver. It uses Path.
	CNP
	// Carried is new packets of the source that an engine copied to every active path while the
	// group was Plain. PSN is that of the last packet, MSN the number of messages that ended with
	// these packets, and Last reports whether the last packet ended one. AckReq reports whether any
	// of them asked for an ACK, and Asked is the last one that did. It uses all of these.
	Carried
	// Train is new packets of the source that came one after the other while the group was Plain,
	// up to the Horizon. It stands for one Data event for each of them, and uses PSN, MSN, Last,
	// AckReq, FirstAsked and Asked as Carried does. See Event.Add.
	Train
	// Timer says that time has passed. It comes every TimerPeriod to groups whose policy needs it
	// (Policy.NeedsTimer), and when it is Due while the group is Waiting.
	Timer
	// Lost says that the caller no longer has the retained packets up to PSN: it needed the memory,
	// or a packet was damaged when it came. It uses PSN.
	Lost
)

// Event is one packet that concerns the group, or the passing of time.
type Event struct {
	Kind     EventKind
	AckReq   bool
	First    bool // first packet of a message
	Last     bool // last packet of a message
	MigReq   bool
	Nobody   bool // the path leads to another box, which says that no receiver is left behind it
	Syndrome roce.Syndrome
	Path     int
	PSN      roce.PSN
	MSN      roce.MSN
	Asked    roce.PSN
	// FirstAsked is the first packet of a Train that asked for an ACK, if any did.
	FirstAsked roce.PSN
}

// Add adds the next packet to a Train. Before the first packet, PSN is that of the packet before.
func (ev *Event) Add(ackReq, last bool) {
	ev.PSN = ev.PSN.Next()
	if ackReq && !ev.AckReq {
		ev.AckReq, ev.FirstAsked = true, ev.PSN
	}
	if ackReq {
		ev.Asked = ev.PSN
	}
	if ev.Last = last; last {
		ev.MSN = ev.MSN.Add(1)
	}
}

// ActionKind is what the caller must do.
type ActionKind uint8

const (
	// Copy sends the event's packet to Path, or those of a Train, of which PSN is the first.
	Copy ActionKind = iota
	// Reply sends the source an acknowledge packet with PSN, MSN, Syndrome and MigReq.
	Reply
	// PassCNP sends the source a congestion notification.
	PassCNP
	// Join maps Path's spaces onto the source's: PSN is what the first PSN that the path's QP
	// expects maps to, and MSN what its MSN 0 maps to.
	Join
	// Notice reports Note about Path to the operator. Syndrome is the fatal NAK, if one was the
	// reason.
	Notice
	// Repair sends Path the retained packet PSN. AckReq reports whether the copy asks for an ACK;
	// otherwise the copy asks if the packet did as received.
	Repair
	// Question asks Path what it has acknowledged, by a packet with PSN that it has executed.
	Question
)

// Note is a report about a receiver. Each is made once.
type Note uint8

const (
	// NoteFatal: the receiver's QP ended with a fatal NAK.
	NoteFatal Note = iota
	// NoteSilent: the receiver makes no progress while others do.
	NoteSilent
	// NoteEvicted: the receiver left the group; it gets no more data and is not waited for.
	NoteEvicted
	// NoteBehind: the receiver lacks what the source no longer has. It gets no more data.
	// Resynchronise it by other means and let it join again.
	NoteBehind
	// NoteJoined: the receiver takes part from now on.
	NoteJoined
	// NoteSource: the member is the source from now on (rule 12).
	NoteSource
	// NoteRepairing: for a second the receiver has got all its data by repair, because its link
	// keeps losing packets or because it is slow. The note is made once until the receiver has
	// caught up.
	NoteRepairing
	// NoteWaits: the member is to be the source, and control has to store that first.
	NoteWaits
	// NoteEdgeLost and NoteEdgeWorks are made by the data path, which knows legs that are shared:
	// shared copies do not reach the receiver, which gets copies of its own; and they do again.
	NoteEdgeLost
	NoteEdgeWorks
)

var noteNames = [...]string{
	NoteFatal: "fatal", NoteSilent: "silent", NoteEvicted: "evicted",
	NoteBehind: "behind", NoteJoined: "joined", NoteSource: "source",
	NoteRepairing: "repairing", NoteWaits: "waits",
	NoteEdgeLost: "edge-lost", NoteEdgeWorks: "edge-works",
}

// EndsData reports whether the receiver of a note gets no data any more.
func (n Note) EndsData() bool { return n == NoteFatal || n == NoteEvicted || n == NoteBehind }

func (n Note) String() string { return noteNames[n] }

// Action is one thing to do. Actions are performed in the order in which Step appends them.
type Action struct {
	Kind     ActionKind
	Note     Note
	MigReq   bool
	AckReq   bool
	Nobody   bool // the NAK that ends the source says that no receiver is left; another box takes notice of that
	Syndrome roce.Syndrome
	Cause    Cause // of a reply that is a NAK or an RNR NAK
	Path     int
	PSN      roce.PSN
	MSN      roce.MSN
}

// Outcome is what an event did. The data path counts it under its name.
type Outcome uint8

const (
	// OutsideWindow: the PSN is too far from what the group sent. Nothing moved.
	OutsideWindow Outcome = iota
	// BeyondSent: feedback for a packet that was never forwarded (rule 1). Nothing moved.
	BeyondSent
	// NotTakingPart: feedback of a path that was evicted, is dead, is behind or has not joined.
	// Nothing moved.
	NotTakingPart
	// Stale: feedback older than what the path has acknowledged.
	Stale
	// Duplicate: an ACK of what the path has acknowledged.
	Duplicate
	// Swallowed: a NAK whose packet the source sends again anyway (rule 4), the sequence NAK behind
	// an RNR NAK (rule 5), or a NAK that may be older than the packet's last copy (rule 9).
	Swallowed
	// Held: a NAK that waits for the floor (rules 4, 5, 7).
	Held
	// Absorbed: the path moved, the floor did not (rule 2).
	Absorbed
	// Merged: the source was sent a reply.
	Merged
	// Forwarded: a packet that was sent for the first time.
	Forwarded
	// Resent: a packet that was sent again to the paths that lack it (rule 3).
	Resent
	// Filtered: a resent packet that every path has (rule 3).
	Filtered
	// Refused: a request that no group can carry, or a packet behind one (rule 11).
	Refused
	// Evicted: the receiver left the group because of its fatal NAK (rule 7).
	Evicted
	// Behind: a NAK that proves that the receiver lacks what the source has let go of (rule 9).
	Behind
	// CNPPassed and CNPFiltered: see CNPPolicy (rule 10).
	CNPPassed
	CNPFiltered
	// Repaired: a response for which the path is sent retained packets again (rule 14).
	Repaired
	// Gap: a packet behind one that was lost on its way from the source. It is not forwarded
	// (rule 14).
	Gap

	NumOutcomes
)

var outcomeNames = [NumOutcomes]string{
	OutsideWindow: "outside-window", BeyondSent: "beyond-sent", NotTakingPart: "not-taking-part",
	Stale: "stale", Duplicate: "duplicate", Swallowed: "swallowed", Held: "held", Absorbed: "absorbed",
	Merged: "merged", Forwarded: "forwarded", Resent: "resent", Filtered: "filtered", Refused: "refused",
	Evicted: "evicted", Behind: "behind", CNPPassed: "cnp-passed", CNPFiltered: "cnp-filtered",
	Repaired: "repaired", Gap: "gap",
}

func (o Outcome) String() string { return outcomeNames[o] }
