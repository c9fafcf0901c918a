package sim

import "time"

// Fault is one kind of trouble.
type Fault uint8

// Trouble that befalls single frames, at a rate of the link.
const (
	Loss      Fault = iota
	Duplicate       // the frame arrives twice
	Reorder         // it is overtaken by a few others
	Late            // it arrives when its sender may have given up waiting
	Damage          // some of its bytes are changed
	QueueFull       // it finds no room at its link
	Marked          // it is marked as having met congestion, which is no trouble
)

// Trouble that has a time: see Timed.
const (
	Burst         Fault = Marked + 1 + iota // most frames of a host's link are lost, both ways
	Cut                                     // all are
	SlowHost                                // a host takes frames at a fraction of its link's speed
	ReceiverCrash                           // a receiver is gone for good
	SwitchCrash                             // the switch is gone, comes back, and knows its groups but not their state
	RNRStorm                                // a receiver's program gives no receives back
	KeyLost                                 // a receiver deregisters its memory
	Join                                    // a receiver becomes a member
	Leave                                   // a receiver is a member no longer
	SourceChange                            // another member begins to send, too early or not
	CrossTraffic                            // strangers' frames fill the queue that data meets on its way to or from a host

	numFaults
)

// firstTimed is the first kind that Timed can have.
const firstTimed = Burst

var faultNames = [numFaults]string{
	"loss", "duplicate", "reorder", "late", "damage", "queue-full", "marked",
	"burst", "cut", "slow-host", "receiver-crash", "switch-crash", "rnr-storm", "key-lost",
	"join", "leave", "source-change", "cross-traffic",
}

func (f Fault) String() string { return faultNames[f] }

// Timed is a fault that begins when the source has come to a certain packet.
type Timed struct {
	Kind        Fault
	Host        int           // whom it befalls, 0: the source; not of SwitchCrash
	AfterPacket int           // it begins when the first source sends this packet for the first time,
	Delay       time.Duration // or so long after
	For         time.Duration // 0: for good
}

// Tally counts what was injected.
type Tally [numFaults]FaultCount

// FaultCount is what one kind of fault did.
type FaultCount struct {
	Times    uint64 // timed faults: how often it began
	Data     uint64 // frames of the source, and copies of them, that it hit
	Feedback uint64 // frames of receivers, and answers of the switch, that it hit
}

// Add adds what another run did.
func (t *Tally) Add(other *Tally) {
	for i := range t {
		t[i].Times += other[i].Times
		t[i].Data += other[i].Data
		t[i].Feedback += other[i].Feedback
	}
}
