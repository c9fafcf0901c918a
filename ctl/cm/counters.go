package cm

// Counter names a reason for which a message changed nothing, or a REQ was refused.
type Counter uint8

const (
	Stranger Counter = iota
	OtherService
	OtherKind
	WrongAddress
	WrongMTU
	WrongReceivers
	WrongMemory
	TooMany
	Stale
	Repeated
	NoConnection
	OtherQPN
	Unexpected
	NotMAD
	WrongICRC
	NotSent
	counters
)

// counterTexts has for each Counter its name, and the sentence that docs/reference.md has about it.
var counterTexts = [counters]struct{ name, meaning string }{
	Stranger:       {"stranger", "A REQ came from a host that may not connect; it was refused as \"invalid service ID\" (8)."},
	OtherService:   {"other-service", "A REQ was for another port, or not for RDMA-CM; it was refused as \"invalid service ID\" (8)."},
	OtherKind:      {"other-kind", "A REQ asked for another transport than RC, and was refused as \"invalid transport\" (9); or a program asked for UD."},
	WrongAddress:   {"wrong-address", "A REQ's GIDs or IPs were not those of its sender and of the group; it was refused as \"invalid GID\" (12)."},
	WrongMTU:       {"wrong-mtu", "A REQ had a path MTU that does not exist; it was refused as \"invalid path MTU\" (26)."},
	WrongReceivers: {"wrong-receivers", "A REQ named receivers that the service does not have, or claimed more than it carries; it was refused as \"consumer defined\" (28)."},
	WrongMemory:    {"wrong-memory", "A receiver's REP said no memory, or memory beyond the end of the address space; the receiver was refused as \"consumer defined\" (28)."},
	TooMany:        {"too-many", "A REQ came while there were as many connections or handshakes as there may be, or while a run of perftest was on whose source is there; it was refused as \"no resources\" (3)."},
	Stale:          {"stale", "A REQ came from a queue pair that was connected already; it was refused as \"stale connection\" (10)."},
	Repeated:       {"repeated", "A message had arrived before, or came after its connection had ended."},
	NoConnection:   {"no-connection", "A message was for a connection that does not exist."},
	OtherQPN:       {"other-qpn", "A DREQ named another queue pair than that of its connection."},
	Unexpected:     {"unexpected", "A message did not fit the state of its connection."},
	NotMAD:         {"not-mad", "A datagram was no message of connection management: too short or too long, of another class, or with lengths that it does not have."},
	WrongICRC:      {"wrong-icrc", "A datagram had a wrong ICRC."},
	NotSent:        {"not-sent", "The kernel did not take a message that the box sent; it counts as lost."},
}

func (c Counter) String() string { return counterTexts[c].name }

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
