// Command fanout measures replication from one source to three receivers, as copies per second that
// arrive. rocast, which rewrites addresses, QPN, PSN, RETH and ICRC of every copy, is compared with
// forwarders that rewrite nothing. All of them take turns in one run:
//
//	rocast    the product's switch, opened as the daemon opens it
//	bare      AF_XDP in user space with the same rings; it does not look at the frames
//	bridge    the kernel's bridge, which floods
//	mirred    tc mirred, the kernel's own replication
//
// Everything runs in network namespaces over veth. A veth carries about a million packets per
// second and core, whatever the program does (ARCHITECTURE.md), so the ratios are the result. The
// absolute figures are not.
//
//	source ns ── p0 ┬ box ┬ p1 ── receiver ns (counts and drops in XDP)
//	 generator      │     ├ p2 ── receiver ns
//	                └     └ p3 ── receiver ns
package main
