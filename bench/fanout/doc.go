// Command fanout measures 1-to-3 replication: copies per second that arrive at
// three receivers, for rocast (every copy rewritten: addresses, QPN, PSN, RETH
// and ICRC) beside forwarders that rewrite nothing, in the same run and in
// turn:
//
//	rocast    the product's switch, as the daemon opens it
//	bare      AF_XDP in user space, the same rings, no look at the frame
//	bridge    the kernel's bridge, flooding
//	mirred    tc mirred, the kernel's own replication
//
// Everything runs in network namespaces over veth. veth carries about a million
// packets per second and core whatever the program (ARCHITECTURE.md), so the
// ratios are the result and the absolute figures are not.
//
//	source ns ── p0 ┬ box ┬ p1 ── receiver ns (counts and drops in XDP)
//	 generator      │     ├ p2 ── receiver ns
//	                └     └ p3 ── receiver ns
package main
