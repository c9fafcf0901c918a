package cm

// Counter names a reason for which a message changed nothing, or a REQ was refused.
type Counter uint8

const (
	Stranger       Counter = iota // REQ of a host that is not allowed
	OtherService                  // REQ for another port, or not for RDMA-CM
	OtherKind                     // REQ of a transport other than RC, or SIDR_REQ
	WrongAddress                  // REQ whose GIDs or IPs are not those of its sender and of the group
	WrongMTU                      // REQ with a path MTU that does not exist
	WrongReceivers                // REQ that names receivers which the service does not have, or more than it carries
	WrongMemory                   // REP without memory, or with memory beyond the end of the address space
	TooMany                       // REQ beyond the bounds
	Stale                         // REQ of a queue pair that is connected already
	Repeated                      // message that has arrived before, or comes after its connection has ended
	NoConnection                  // message for a connection that does not exist
	OtherQPN                      // DREQ that names another queue pair
	Unexpected                    // message that does not fit the state of its connection
	NotMAD                        // datagram that is no message of connection management
	WrongICRC                     // datagram with a wrong ICRC
	NotSent                       // message that the kernel did not take
	counters
)

var counterNames = [counters]string{"stranger", "other-service", "other-kind", "wrong-address", "wrong-mtu", "wrong-receivers", "wrong-memory", "too-many", "stale", "repeated",
	"no-connection", "other-qpn", "unexpected", "not-mad", "wrong-icrc", "not-sent"}

func (c Counter) String() string { return counterNames[c] }

// Counts has the number of messages for each Counter.
type Counts [counters]uint64

// Named returns the counts that are not 0.
func (c *Counts) Named() map[string]uint64 {
	named := map[string]uint64{}
	for i, n := range c {
		if n > 0 {
			named[Counter(i).String()] = n
		}
	}
	return named
}
