// Package address adds the groups' IPs to the box while the groups exist: the kernel then answers
// ARP and ND for them, and terminates TCP to them.
//
// An IP is added as /32 (/128) to the interfaces through which a group's members are reached, and
// removed after the last group that needs it is gone. Addresses that the box had before are never
// removed. The package recognizes the addresses that a crash left behind, because it writes a note
// file before it adds an address:
//
//	DIR/BOOT-ID/IP@INTERFACE
//
// A note from an earlier boot is ignored, since addresses do not survive a reboot. A note alone is
// not proof: the address must also carry the mark of package address (IFA_PROTO 114, "proto" in ip
// -details addr; kernel >= 5.18).
//
// A network manager may remove addresses that it did not add; the package adds them again.
//
// It also asks the hosts for the held addresses, again and again: another host may have taken one.
//
// Read first: owner.go.
package address
