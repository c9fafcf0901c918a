package nexthop

import "net/netip"

// kernel is what a hop is made from. Its twin in tests needs no root.
type kernel interface {
	route(to netip.Addr) (route, error)
	// neighbour returns the zero state for one the kernel has no entry for.
	neighbour(ifIndex int, ip netip.Addr) (neighbour, error)
	// solicit asks the kernel to find out a neighbour's MAC, or to see whether it still holds.
	solicit(ifIndex int, ip netip.Addr) error
	link(ifIndex int) (link, error)
	// bridgePort looks a MAC up in a bridge's FDB. vid is 0 where the bridge does not filter VLANs; the answer is 0 for an
	// unknown MAC and the bridge itself for its own.
	bridgePort(bridge int, mac MAC, vid uint16) (ifIndex int, err error)
	// vlans are the VLANs a bridge, or a port of it, is in.
	vlans(ifIndex int) ([]vlan, error)
}

type route struct {
	ifIndex int
	gateway netip.Addr // the zero Addr: on the link
	local   bool       // the address is the box's own
}

type neighbour struct {
	mac   MAC
	state neighbourState
}

type neighbourState uint8

const (
	absent     neighbourState = iota // the kernel has no entry
	incomplete                       // it is asking
	failed                           // nobody answered
	usable
)

type link struct {
	index         int
	name          string
	kind          string // as "ip -details link" names it: "bridge", "vlan"
	mac           MAC
	mtu           int
	master        int  // the bridge it is a port of
	vlanFiltering bool // of a bridge
	parent        int  // of a VLAN device
	tag           tag  // of a VLAN device
}

type vlan struct {
	vid      uint16
	pvid     bool // frames without a tag belong to it
	untagged bool // its frames leave without a tag
}
