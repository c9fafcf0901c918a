package perftest

import (
	"net/netip"
	"time"
)

// State is how far a run is.
type State uint8

const (
	Handshaking State = iota // the sides are exchanging what they need
	Waiting                  // for the end of the run before: a receiver's server takes one client at a time
	Running                  // its groups are there
	Ended                    // over; Reason says why if that was not on purpose
	Refused                  // no group can carry it; Reason says why
)

var stateNames = [...]string{"handshaking", "waiting", "running", "ended", "refused"}

func (s State) String() string { return stateNames[s] }

// Session is what is known of one run.
type Session struct {
	Client  netip.Addr
	Began   time.Time
	Ended   time.Time // zero until it is
	State   State
	Reason  string   // one sentence
	Version string   // the client's perftest
	QPs     int      // the client's queue pairs
	PathMTU int      // bytes; 0 until it is agreed on
	Groups  []string // names, while running
}

// IsOver says whether the run is in one of the last two states.
func (s State) IsOver() bool { return s >= Ended }

// Service is a group IP that is listened on.
type Service struct {
	Config
	Sessions []Session // oldest first
}
