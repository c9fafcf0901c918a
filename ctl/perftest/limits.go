package perftest

import (
	"time"

	"github.com/rocast/rocast/roce"
)

const (
	// DefaultPort is the default port of perftest itself (-p).
	DefaultPort = 18515
	// MaxSessions bounds the runs that a service remembers. The service forgets older runs.
	MaxSessions = 128
	// MaxClients bounds the clients that one service has at the same time: one client whose run is
	// on, and the clients that wait for the end of that run. One more client is turned away.
	MaxClients = 64
	// MaxOfAClient bounds those of them that have the same address.
	MaxOfAClient = 4
)

// limits are the timeouts of a conversation. Tests choose shorter ones.
type limits struct {
	version time.Duration // from the connection to the client's first message; ib_write_bw sleeps for one second of this time
	again   time.Duration // between two tries to accept a client
	dial    time.Duration // for the host of a receiver to accept the connection
	answer  time.Duration // for any message that is due; setting up memory and queue pairs takes time
	part    time.Duration // for the rest of a message whose beginning has arrived
	grace   time.Duration // from the first side's hang-up to the last side's hang-up
	last    time.Duration // from the last receiver's hang-up to the client's
	ask     time.Duration // between two questions to the client of a run while another client waits
	watch   time.Duration // between two reads of the groups' counters
	idle    time.Duration // during a run: without a packet of the source or a message of the client
	remove  time.Duration // for the groups to be removed
	sleep   time.Duration // ib_write_bw sleeps at least this long between connecting and its first message
	cmPort  int           // UDP port at which RoCE arrives
}

var usual = limits{
	version: 3 * time.Second,
	again:   time.Second,
	dial:    3 * time.Second,
	answer:  30 * time.Second,
	part:    5 * time.Second,
	grace:   2 * time.Second,
	last:    250 * time.Millisecond,
	ask:     200 * time.Millisecond,
	watch:   500 * time.Millisecond,
	idle:    5 * time.Minute,
	remove:  5 * time.Second,
	sleep:   900 * time.Millisecond,
	cmPort:  roce.UDPPort,
}
