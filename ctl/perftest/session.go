package perftest

import (
	"net/netip"
	"time"
)

// State is how far a run is.
type State uint8

const (
	Handshaking State = iota // the sides are exchanging what they need
	Running                  // its groups are there
	Ended                    // over; Reason says why if that was not on purpose
	Refused                  // no group can carry it; Reason says why
)

var stateNames = [...]string{"handshaking", "running", "ended", "refused"}

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

// Service is a group IP that is listened on. It has a session in a state before Ended, or waits for a client.
type Service struct {
	Config
	Sessions []Session // oldest first
}
