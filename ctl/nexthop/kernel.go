package nexthop

import (
	"fmt"
	"net/netip"
)

// kernel is what a hop is made from. Its twin in tests needs no root.
type kernel interface {
	route(to netip.Addr) (route, error)
	// neighbour returns the zero state for one the kernel has no entry for.
	neighbour(ifIndex int, ip netip.Addr) (neighbour, error)
	// solicit asks the kernel to find out a neighbour's MAC, or to see whether it still holds.
	solicit(ifIndex int, ip netip.Addr) error
	// probe makes the kernel ask a usable neighbour at once whether it is still there. Nothing happens to one that is not
	// usable any more.
	probe(ifIndex int, ip netip.Addr) error
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
	fixed // usable, and never asked: the administrator wrote it down, or the link has no ARP
)

type link struct {
	index         int
	name          string
	kind          string // as "ip -details link" names it: "bridge", "vlan"
	mac           MAC
	mtu           int
	down          bool // by the administrator
	noCarrier     bool // or by the cable, or by who is at its other end
	master        int  // the bridge it is a port of
	vlanFiltering bool // of a bridge
	parent        int  // of a VLAN device
	tag           tag  // of a VLAN device
}

// broken is a sentence that says why nothing gets through, or "".
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
	pvid     bool // frames without a tag belong to it
	untagged bool // its frames leave without a tag
}
