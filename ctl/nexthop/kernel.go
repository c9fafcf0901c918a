package nexthop

import (
	"fmt"
	"net/netip"
)

// kernel provides the data from which a hop is made. The test double needs no root.
type kernel interface {
	route(to netip.Addr) (route, error)
	// neighbour returns the zero state if the kernel has no entry.
	neighbour(ifIndex int, ip netip.Addr) (neighbour, error)
	// solicit asks the kernel to find the MAC of a neighbour, or to verify a known MAC.
	solicit(ifIndex int, ip netip.Addr) error
	// probe makes the kernel ask a usable neighbour at once whether it is still there. It does
	// nothing if the neighbour is not usable any more.
	probe(ifIndex int, ip netip.Addr) error
	// forget makes the kernel forget the MAC of a neighbour. It does nothing if there is no entry.
	forget(ifIndex int, ip netip.Addr) error
	link(ifIndex int) (link, error)
	// lowers returns the lower devices of a bond, by ifindex.
	lowers(bond int) ([]link, error)
	// bridgePort looks up a MAC in a bridge's FDB. vid is 0 if the bridge does not filter VLANs.
	// The result is 0 for an unknown MAC, and the bridge itself for the bridge's own MAC.
	bridgePort(bridge int, mac MAC, vid uint16) (ifIndex int, err error)
	// vlans returns the VLANs of a bridge or of a bridge port.
	vlans(ifIndex int) ([]vlan, error)
}

type route struct {
	ifIndex  int
	gateway  netip.Addr // the zero Addr if the address is on the link
	gateways Gateways   // all that the route has, of which the kernel has chosen one
	through  Interfaces // of all gateways, if there are several
	source   netip.Addr // of packets that the box itself sends; the zero Addr if the kernel names none
	local    bool       // the address belongs to the box
}

type neighbour struct {
	mac   MAC
	state neighbourState
}

type neighbourState uint8

const (
	absent     neighbourState = iota // the kernel has no entry
	incomplete                       // the kernel is asking
	failed                           // nobody answered
	usable
	fixed // usable and never asked: somebody has written it, or the link has no ARP
)

type link struct {
	index         int
	name          string
	kind          string // as "ip -details link" names it: "bridge", "vlan", "bond"
	mac           MAC
	mtu           int
	down          bool   // the administrator has set it down
	noCarrier     bool   // the cable or the far end is down
	master        int    // ifindex of the bridge that has this port
	vlanFiltering bool   // for a bridge
	mode          string // for a bond
	carries       bool   // for a lower device of a bond: the bond sends by it
	parent        int    // for a VLAN device
	tag           tag    // for a VLAN device
}

// broken returns a sentence that says why no frame passes, or "".
func (l link) broken() string {
	switch {
	case l.down:
		return fmt.Sprintf("%s is down; set it up with ip link set %s up", l.name, l.name)
	case l.noCarrier:
		return l.name + " has no carrier; is the cable plugged in, and the other end up?"
	}
	return ""
}

type vlan struct {
	vid      uint16
	pvid     bool // untagged frames belong to this VLAN
	untagged bool // frames of this VLAN leave without a tag
}
