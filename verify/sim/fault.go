package sim

import "time"

// Fault is one kind of fault.
type Fault uint8

// Faults of single frames, at a rate of the link.
const (
	Loss      Fault = iota
	Duplicate       // the frame arrives twice
	Reorder         // a few others overtake it
	Late            // it arrives when its sender may have given up waiting
	Damage          // some of its bytes are changed
	QueueFull       // the queue of its link has no room for it
	Marked          // it is marked as having met congestion; nothing is wrong with it
)

// Faults that have a time: see Timed.
const (
	Burst         Fault = Marked + 1 + iota // most frames on the links of a host are lost
	Cut                                     // all frames on the links of a host are lost
	SlowHost                                // a host takes frames much slower than its link
	ReceiverCrash                           // a receiver takes nothing any more
	SwitchCrash                             // the switch stops, and comes back without state
	RNRStorm                                // the program of a receiver posts no receives
	KeyLost                                 // a receiver deregisters its memory
	Join                                    // a receiver becomes a member; its queue pair is ready when that ends
	Leave                                   // a receiver is no longer a member
	SourceChange                            // another member begins to send, perhaps too early
	SourceLeave                             // that member is no longer one, and its program ends
	CrossTraffic                            // frames of strangers fill the queue that data meets
	NextHop                                 // the switch sends to all members from another address
	Move                                    // in a tree: the cable of a receiver leads to another box
	MemoryChange                            // ranges that nobody uses come to the group's memory, or leave it
	OtherUplink                             // a host's frames come by the other port that its route leads to
	EdgeDies                                // the edge of a receiver maps nothing
	FarCrash                                // the far box stops, and comes back
	CopiesOwn                               // in a tree: the group's file at a box says that each receiver gets copies of its own

	numFaults
)

// firstTimed is the first fault that Timed can have.
const firstTimed = Burst

var faultNames = [numFaults]string{
	"loss", "duplicate", "reorder", "late", "damage", "queue-full", "marked",
	"burst", "cut", "slow-host", "receiver-crash", "switch-crash", "rnr-storm", "key-lost",
	"join", "leave", "source-change", "source-leave", "cross-traffic", "next-hop", "move", "memory-change", "other-uplink",
	"edge-dies", "far-crash", "copies-own",
}

func (f Fault) String() string { return faultNames[f] }

// Timed is a fault that begins when the first source has sent a certain packet; a SourceLeave
// begins when its own host has.
type Timed struct {
	Kind        Fault
	Host        int           // the host with the fault, 0: the source; unused with SwitchCrash
	AfterPacket int           // the fault begins when the source sends this packet first,
	Delay       time.Duration // or so much later
	For         time.Duration // 0: for ever, and of a Join: not at all; between the steps that control takes because of a Move
	To          int           // the box to which a Move leads
}

// Tally counts the faults of a run.
type Tally [numFaults]FaultCount

// FaultCount is how often one kind of fault happened.
type FaultCount struct {
	Times    uint64 // timed faults: that began
	Data     uint64 // data frames, and copies of them, with the fault
	Feedback uint64 // frames of receivers, and replies of the switch, with the fault
}

// Add adds the faults of another run.
func (t *Tally) Add(other *Tally) {
	for i := range t {
		t[i].Times += other[i].Times
		t[i].Data += other[i].Data
		t[i].Feedback += other[i].Feedback
	}
}
