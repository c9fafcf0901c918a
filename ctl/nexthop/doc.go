// Package nexthop finds out how a frame reaches a host: through which port, with which Ethernet
// header.
//
// The kernel decides. For every tracked address the package asks the kernel for the route and for
// the neighbour behind the route. If the route leads to a bridge or a VLAN device, the package also
// asks for the VLAN tags and for the bridge's forwarding entry (FDB) for the neighbour's MAC. It
// then follows the kernel's notifications and reports the addresses whose next hop changed.
//
//	address ──route──▶ interface, next hop ──neighbour──▶ MAC ──bridge FDB, VLAN──▶ port, tags
//
// The package never sends ARP or ND itself. It asks the kernel to send them: with NTF_USE, or with
// NUD_PROBE when the kernel's entry is complete but the bridge's entry is missing. When a host is
// silent (Doubt), the kernel has to forget its entry first, and so asks by broadcast. The package
// repeats the requests regularly, because the kernel does not see the frames that rocast carries.
// For the same reason a known hop stays known when its entry was removed only because of age. A hop
// changes when the kernel reports something different, not when the kernel reports nothing.
//
// Read first: hop.go, then resolve.go for the walk down, then tracker.go for the handling of
// changes.
package nexthop
