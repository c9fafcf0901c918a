package perftest

import (
	"time"

	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

const (
	// DefaultPort is perftest's own (-p).
	DefaultPort = 18515
	// MaxServices bounds the group IPs listened on at a time; one more is refused.
	MaxServices = 256
	// MaxReceivers bounds one service's; more are refused.
	MaxReceivers = mft.MaxPaths
	// MaxSessions bounds the runs a service remembers; older ones are forgotten.
	MaxSessions = 32
	// MaxClients bounds the clients of one service at a time: one whose run is on, and others that wait for its end. One more
	// is turned away.
	MaxClients = 16
)

// limits are the times a conversation is given, and the one perftest is known by. Tests choose their own.
type limits struct {
	version time.Duration // from connecting to the client's first message; ib_write_bw sleeps a second of it
	dial    time.Duration // for a receiver's host to accept
	answer  time.Duration // for any message that is due; setting up memory and queue pairs takes its time
	part    time.Duration // for the rest of a message that has begun
	grace   time.Duration // between the first side's hanging up and the last's
	watch   time.Duration // between two looks at the groups' counters
	idle    time.Duration // without a packet of the source or a message of the client, while a run is on
	remove  time.Duration // for the groups to be removed
	sleep   time.Duration // what ib_write_bw sleeps between connecting and speaking is not shorter
	cmPort  int           // where RoCE arrives
}

var usual = limits{
	version: 3 * time.Second,
	dial:    3 * time.Second,
	answer:  30 * time.Second,
	part:    5 * time.Second,
	grace:   2 * time.Second,
	watch:   500 * time.Millisecond,
	idle:    5 * time.Minute,
	remove:  5 * time.Second,
	sleep:   900 * time.Millisecond,
	cmPort:  roce.UDPPort,
}
