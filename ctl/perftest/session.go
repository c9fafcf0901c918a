package perftest

import (
	"net/netip"
	"time"
)

// State is the state of a run.
type State uint8

const (
	Handshaking State = iota // the sides exchange their parameters
	Waiting                  // waits for the end of the previous run: the server of a receiver accepts one client at a time
	Running                  // the groups of the run exist
	Ended                    // over; if the end was not normal, Reason has the cause
	Refused                  // no group can carry the run; Reason has the cause
)

var stateNames = [...]string{"handshaking", "waiting", "running", "ended", "refused"}

func (s State) String() string { return stateNames[s] }

// Session is the record of one run.
type Session struct {
	Client  netip.Addr
	Began   time.Time
	Ended   time.Time // zero while the run is not over
	State   State
	Reason  string    // one sentence
	Ends    time.Time // when the run ends if what Unless says does not happen; zero: it is not known
	Unless  string
	Version string   // perftest version of the client
	QPs     int      // queue pairs of the client
	PathMTU int      // bytes; 0 until the sides have agreed on a path MTU
	Groups  []string // names of the groups, while the run is running
}

// IsOver reports whether the run is in state Ended or Refused.
func (s State) IsOver() bool { return s >= Ended }

// Service is a group IP on which perftest clients are served.
type Service struct {
	Config
	Sessions []Session // oldest first
}
