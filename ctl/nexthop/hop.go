package nexthop

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/rocast/rocast/roce"
)

// MAC is an Ethernet address.
type MAC [6]byte

func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// Hop says how a frame reaches an address, or why this is not known. Hops can be compared with ==.
type Hop struct {
	Port      int // ifindex of the port; 0: not known
	PortName  string
	PortMTU   int
	L2        [22]byte         // the whole Ethernet header, VLAN tags and EtherType included
	L2Bytes   uint8            // number of bytes used in L2: 14, 18 or 22
	Priority  roce.TagPriority // of the VLAN tags; it is not in L2
	Interface int              // ifindex in the route: a port, or a bridge or VLAN device above a port; 0: no route
	Down      bool             // the port is known but passes no frames; Reason says why
	Own       bool             // the address belongs to the box, so there is no port
	Silent    bool             // the host does not answer the kernel, and the other fields say where it was last
	// Gateways are the next hops of the route. With equal-cost paths there are several, and the
	// other fields describe the one that the kernel has chosen.
	Gateways Gateways
	// Uplinks are the ports of all next hops of a route that has several. Frames of the host may
	// come by each of them, because the other end of the route chooses for itself.
	Uplinks Interfaces
	// Source is the address that the box sends from to the address, if the kernel names one.
	Source netip.Addr
	// Reason is a sentence that says why the port is unknown. If the port is known, Reason says why
	// it may be wrong, or is "".
	Reason string
}

// Known reports whether frames can be sent.
func (h Hop) Known() bool { return h.Port != 0 }

// Interfaces is a set of ifindexes that can be compared with ==.
type Interfaces struct{ sorted string }

// InterfacesOf returns the set of the ifindexes.
func InterfacesOf(ifIndexes ...int) Interfaces {
	ifIndexes = slices.Sorted(slices.Values(ifIndexes))
	var words []string
	for _, ifIndex := range slices.Compact(ifIndexes) {
		words = append(words, strconv.Itoa(ifIndex))
	}
	return Interfaces{strings.Join(words, " ")}
}

// Has reports whether an ifindex is in the set.
func (s Interfaces) Has(ifIndex int) bool {
	return slices.Contains(strings.Fields(s.sorted), strconv.Itoa(ifIndex))
}

// Gateways is a set of addresses that can be compared with ==.
type Gateways struct{ sorted string }

// GatewaysOf returns the set of the addresses.
func GatewaysOf(addrs ...netip.Addr) Gateways {
	addrs = slices.Clone(addrs)
	slices.SortFunc(addrs, netip.Addr.Compare)
	var words []string
	for _, addr := range slices.Compact(addrs) {
		words = append(words, addr.String())
	}
	return Gateways{strings.Join(words, " ")}
}

// Has reports whether an address is in the set.
func (g Gateways) Has(addr netip.Addr) bool {
	return addr.IsValid() && slices.Contains(strings.Fields(g.sorted), addr.String())
}
