package cm

import (
	"errors"
	"fmt"
	"time"

	"github.com/rocast/rocast/ctl/groupip"
	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/feedback"
)

const (
	// MaxHandshakes bounds the connections of a group IP that are being made, and maxOfASource
	// those of them that have the same source: one that does not go on keeps no other one out. One
	// more is refused with "no resources".
	MaxHandshakes = 512
	maxOfASource  = 64
	// MaxConnections bounds the connections of a group IP, with those that are remembered after
	// their end. One source has the part shareOfASource of them at most. One more is refused with
	// "no resources".
	MaxConnections = 1024
	shareOfASource = 4
	// maxSides bounds the memory of the connections of a group IP that has many receivers: 64
	// connections to 1024 receivers.
	maxSides = 1 << 16
	// MaxPast bounds the ended connections that `rocast cm ls` has.
	MaxPast = 32
)

// limits are the times of a handshake. Tests choose shorter ones.
type limits struct {
	again time.Duration // between two copies of a message without an answer
	tries int           // copies of a REQ or a REP
	// partings are the copies of a DREQ. A host that hears none keeps its connection, and its
	// program waits for ever. Linux insists as long, with 16 copies 4.3 s apart
	// (drivers/infiniband/core/cma.c).
	partings int
	asking   time.Duration // for all receivers to answer
	early    time.Duration // until a receiver is asked again that has to come to the point where it listens
	listen   time.Duration // for the receivers' programs to listen again when a run has ended
	gather   time.Duration // for the others, when a quorum has answered; two lost messages take nobody out
	patience time.Duration // the most that a receiver may ask for by an MRA
	remember time.Duration // for which late messages of an ended connection find their answer
	probe    time.Duration // between two questions to the source of a connection
	inRun    time.Duration // the same for the source of a run, which keeps others out
	probes   int           // without an answer before the source counts as dead
	ask      time.Duration // between two questions to the source of a run while somebody waits for its receivers
	asks     int           // without an answer before it counts as dead then
	idle     time.Duration // of a run that transfers: without a packet or a message of the source
	goodbye  time.Duration // for the sides to hear that the service ends
}

var usual = limits{
	again: time.Second, tries: 8, partings: 67, early: 100 * time.Millisecond, asking: 30 * time.Second, gather: 2500 * time.Millisecond, patience: 20 * time.Second,
	remember: 10 * time.Second, probe: 10 * time.Second, inRun: 2 * time.Second, probes: 6, goodbye: 2 * time.Second,
	ask: 200 * time.Millisecond, asks: 5, idle: 5 * time.Minute,
	listen: 3 * time.Second,
}

// Config describes one group IP at which the box answers RDMA-CM. The programs of the receivers
// listen on Port.
type Config struct {
	groupip.Config
	// Choose: the private data of a source's REQ names the receivers that it connects to. Receivers
	// are those that it may name.
	Choose bool
	Memory Memory
}

// Memory says of where the proxy learns the receivers' memory, to which the source may WRITE.
type Memory uint8

const (
	NoMemory Memory = iota
	// PrivateData: the private data of the receivers' answers begins with VA, R_Key and length.
	PrivateData
	// Perftest: the programs are perftest's, run with -R, and say it to each other.
	Perftest
	// ByRegions: the groups begin without memory, and somebody adds its regions while they run.
	ByRegions
)

var memoryNames = [...]string{"", "private-data", "perftest", "regions"}

// String is "" for no memory.
func (m Memory) String() string { return memoryNames[m] }

// needed returns the number of receivers without which there is no connection to so many.
func (c *Config) needed(receivers int) int {
	if c.Policy.Ack == feedback.AckAll {
		return receivers
	}
	return int(c.Policy.Ack)
}

// most returns how many connections there may be, and how many of one source.
func (c *Config) most() (all, own int) {
	all = min(MaxConnections, maxSides/len(c.Receivers))
	return all, max(1, all/shareOfASource)
}

// check refuses what no group IP can have.
func (c *Config) check() error {
	if err := c.Check(); err != nil {
		return err
	}
	switch {
	case c.Port == 0:
		return errors.New("there is no port; name the one on which the receivers' programs listen")
	case c.needed(len(c.Receivers)) > len(c.Receivers):
		return fmt.Errorf("ack waits for %d receivers and there are %d; write a smaller number, or name more receivers", c.needed(0), len(c.Receivers))
	case c.Memory == Perftest && c.Policy.Ack != feedback.AckAll:
		return errors.New("ack is a quorum, and perftest waits for every receiver; leave ack out")
	case c.Memory == Perftest && c.Choose:
		return errors.New("choose is set, and perftest's requests name no receivers; leave choose out")
	case c.Choose && !c.GroupIP.Is4():
		return fmt.Errorf("choose is set, and a request names receivers by IPv4 addresses, but group IP %v is an IPv6 address; leave choose out", c.GroupIP)
	}
	return nil
}

// ReadConfig reads one item of the daemon's config, which may have the policy keys of a group file:
//
//	cm:
//	  - {groupIP: 10.77.0.100, port: 7174, receivers: [10.77.0.2, 10.77.0.3], ack: quorum 1, memory: private-data}
func ReadConfig(v yamldoc.Value) (Config, error) {
	var c Config
	err := c.Read(v, "the programs that listen", yamldoc.Field{Key: "memory", Set: c.readMemory},
		yamldoc.Field{Key: "choose", Set: yamldoc.Into(&c.Choose, yamldoc.Value.Bool)})
	if err == nil {
		if mistake := c.check(); mistake != nil {
			err = v.Errorf("is refused: %v", mistake)
		}
	}
	return c, err
}

func (c *Config) readMemory(v yamldoc.Value) error {
	text, err := v.Text()
	if err != nil {
		return err
	}
	for m := PrivateData; m <= ByRegions; m++ {
		if text == m.String() {
			c.Memory = m
			return nil
		}
	}
	return v.Errorf("is %q; write %v, %v or %v, or leave memory out", text, PrivateData, Perftest, ByRegions)
}
