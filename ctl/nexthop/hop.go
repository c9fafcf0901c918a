package nexthop

import "net"

// MAC is an Ethernet address.
type MAC [6]byte

func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// Hop is how a frame reaches an address, or why nobody knows yet. Hops are equal when == says so.
type Hop struct {
	Port      int // ifindex of the port, 0: not known
	PortName  string
	PortMTU   int
	L2        [22]byte // the whole Ethernet header, VLAN tags and EtherType included
	L2Bytes   uint8    // of L2 that are used: 14, 18 or 22
	Interface int      // ifindex of the interface the route names: a port, or a bridge or VLAN above one; 0: no route
	Down      bool     // the port is known, and nothing gets through it: Reason says why
	Own       bool     // the address is the box's own; no port
	// Reason is a sentence that says why the port is not known; with a known port, what casts doubt on it; else "".
	Reason string
}

// Known says whether frames can be sent.
func (h Hop) Known() bool { return h.Port != 0 }
