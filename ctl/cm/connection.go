package cm

import (
	"net/netip"
	"time"

	"github.com/rocast/rocast/ctl/groupip"
	"github.com/rocast/rocast/roce"
	wire "github.com/rocast/rocast/roce/cm"
)

// State is the state of a connection.
type State uint8

const (
	Waiting     State = iota // the source of the run that is on is asked whether it is still there
	Asking                   // the receivers have been asked
	Making                   // they have answered, and the group is being made
	Offered                  // the source has been sent a REP
	Established              // the source has confirmed the REP
	Ending                   // the sides are told
	Over                     // only remembered, so that late messages find their answer
)

var stateNames = [...]string{"waiting", "asking", "making", "offered", "established", "ending", "over"}

func (s State) String() string { return stateNames[s] }

// isHandshake reports whether the connection is not established yet.
func (s State) isHandshake() bool { return s < Established }

// at says how far one side of a connection is.
type at uint8

const (
	asked    at = iota // a receiver that has not answered its REQ; the source, until it has confirmed
	answered           // a receiver whose REP is here
	open               // the side is connected
	closing            // the side has been sent a DREQ
	gone               // the side is not connected, or not any more
)

// side is the box's end of one host's part in a connection.
type side struct {
	conn     *connection
	addr     netip.Addr
	isSource bool
	at       at
	pair     wire.Pair // Local is the box's comm ID
	tid      uint64
	rep      *wire.REP // a receiver's
	qpn      roce.QPN
	why      wire.Reason // for which a receiver is gone
	cause    string      // the same for the operator
	private  [148]byte   // of its REJ, if its program refuses
	refuses  bool        // its program does
	isDeaf   bool        // the receiver's program does not listen yet
	isMember bool        // the receiver is in the group, or will be

	retry  *wire.MAD     // sent again until it is answered; nil: nothing is
	tries  int           // left
	due    time.Duration // when it is sent next; 0: it is not
	cached *wire.MAD     // answers a message that arrives again
	line   *line         // on a control connection; else nil
	failed time.Duration // when its queue pair was ended last; see Machine.fail
}

// guid is the CA GUID of the box's end. Each end has another one: a kernel tells connections of one
// QPN apart by it (cm.c), all sides of a connection have the group's QPN as their peer, and two of
// them may be in one kernel.
func (s *side) guid(seed uint64) uint64 { return seed ^ uint64(s.pair.Local) }

// String is how reasons name the side.
func (s *side) String() string {
	if s.isSource {
		return "source " + s.addr.String()
	}
	return "receiver " + s.addr.String()
}

// connection is one connection of a source with its receivers.
type connection struct {
	id        uint64
	key       sourceKey
	req       *wire.REQ
	state     State
	source    *side
	receivers []*side
	sides     []*side       // source and receivers
	qpn       roce.QPN      // of the group: every side has it as its peer
	rep       *wire.REP     // merged from those of the receivers
	group     string        // name of the group; "": none was made
	keys      *groupip.Keys // of a queue pair of perftest
	making    bool          // the group may come into being after the connection has ended

	deadline  time.Duration // of the state; 0: none
	mra       time.Duration // when the source is asked to wait
	probe     time.Duration // when the source is asked whether it is still there
	unheard   int           // probes without an answer
	packets   uint64        // of the source, when they were counted last
	wrong     uint64        // requests of the receivers, when they were counted last
	asked     bool          // there were more of them than when they were counted before
	counting  bool          // the packets are being counted
	began     time.Time
	reason    string     // why it ended
	untold    bool       // that it has ended, until it is known what the box saw of its group
	note      string     // what the operator is to know of it; "": nothing
	refusal   *[148]byte // private data of the REJ for the source; nil: the reason, as text
	ended     time.Time
	isRefused bool
}

// sourceKey is what makes a REQ the same as another one (cm.c).
type sourceKey struct {
	addr   netip.Addr
	commID uint32
	guid   uint64
}

// adds adds to what the operator is to know of the connection.
func (c *connection) adds(note string) {
	if c.note != "" {
		note = c.note + "; " + note
	}
	c.note = note
}

// causes says why receivers are gone.
func (c *connection) causes() (l []string) {
	for _, r := range c.receivers {
		if r.at == gone {
			l = append(l, r.cause)
		}
	}
	return l
}

// count returns the number of receivers that are in one of the states.
func (c *connection) count(in ...at) (n int) {
	for _, r := range c.receivers {
		for _, p := range in {
			if r.at == p {
				n++
			}
		}
	}
	return n
}
