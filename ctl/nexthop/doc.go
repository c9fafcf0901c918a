// Package nexthop finds out how a frame reaches a host: through which port, with which Ethernet header.
//
// The kernel decides. For every tracked address the package asks it for the route, the neighbour behind it and, where the
// route leads to a bridge or a VLAN device, for what lies below: the bridge's forwarding entry (FDB) for the neighbour's
// MAC, the VLAN tags. It then follows the kernel's notifications and says which addresses are reached differently now.
//
//	address ──route──▶ interface, next hop ──neighbour──▶ MAC ──bridge FDB, VLAN──▶ port, tags
//
// It never sends ARP or ND itself: it asks the kernel to (NTF_USE; NUD_PROBE where the kernel is content with what it has and
// a bridge is not), and goes on asking now and then, because the frames rocast carries are ones the kernel does not see. For
// the same reason a hop that was known stays known when an entry merely grew old and was removed; it changes when the kernel
// says something else, not when it says nothing.
//
// Read first: hop.go, then resolve.go for the way down, tracker.go for what happens on a change.
package nexthop
