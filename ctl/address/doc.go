// Package address makes the box own the groups' IPs while the groups live: the kernel then answers ARP and ND for them, and
// terminates TCP to them.
//
// An IP is added as /32 (/128) to the interfaces by which a group's members are reached, and taken off when the last group
// that needs it is gone. What the box had before is never taken off. What a crash left behind is known again: every
// address the package is about to add is first noted as a file
//
//	DIR/BOOT-ID/IP@INTERFACE
//
// A note of another boot is of no interest, since addresses do not outlive one. A note alone is not believed: the address
// must also carry the mark of package address (IFA_PROTO 114, "proto" in ip -details addr; kernel >= 5.18).
//
// Somebody else's network manager may take off what it did not add; the package puts it back.
//
// Read first: owner.go.
package address
