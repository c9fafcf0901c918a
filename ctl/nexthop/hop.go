package nexthop

import "net"

// MAC is an Ethernet address.
type MAC [6]byte

func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// Hop says how a frame reaches an address, or why this is not known. Hops can be compared with ==.
type Hop struct {
	Port      int // ifindex of the port; 0: not known
	PortName  string
	PortMTU   int
	L2        [22]byte // the whole Ethernet header, VLAN tags and EtherType included
	L2Bytes   uint8    // number of bytes used in L2: 14, 18 or 22
	Interface int      // ifindex in the route: a port, or a bridge or VLAN device above a port; 0: no route
	Down      bool     // the port is known but passes no frames; Reason says why
	Own       bool     // the address belongs to the box, so there is no port
	// Reason is a sentence that says why the port is unknown. If the port is known, Reason says why
	// it may be wrong, or is "".
	Reason string
}

// Known reports whether frames can be sent.
func (h Hop) Known() bool { return h.Port != 0 }
