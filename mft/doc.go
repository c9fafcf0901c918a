// Package mft is the multicast forwarding table: the groups, the members and paths of each, and how
// the group of a frame is found.
//
// A [Table] is immutable. Control builds the next table with [Table.With], [Table.Without] and
// [Table.Replace], and publishes it with one atomic pointer swap. Readers of the old table are not
// disturbed. State that changes with packets (acknowledged PSNs, the active source) is not here:
// the data path keeps it beside the table, see package feedback.
//
// The package does no I/O, reads no clock, starts no goroutine and logs nothing.
//
// # Addresses
//
// What finds a group's frames depends on its addressing ([Group.Keys]), in the classifier's map as
// in the table:
//
//	addressing        data                       feedback                     other RoCE
//	group-ip          group IP, QPN              group IP, remote QPN         unknown-qpn
//	switch-ip         switch IP, QPN             switch IP, remote QPN        the kernel's
//	virtual-qpn       source IP, named IP, QPN   receiver's IP, source IP,    the kernel's
//	                                             remote QPN
//	member remoteIP   its remoteIP, remoteQPN    its remoteIP, remoteQPN      the kernel's
//	Mapping           member IP, address, QPN                                 the kernel's
//
// Other RoCE is what comes to the same address and is not the group's.
//
//   - With virtual-qpn both addresses are those of real hosts, so both are compared: other
//     connections of these hosts may use the group's QPN. One more entry takes what the host at
//     the named IP sends to the source's own QP, because the source would accept it as a merged
//     answer (wrong-qpn).
//   - With the other two the box speaks for the address, so no host may. RoCE that comes in from
//     it is dropped (classifier-drop_own_source), and so are fragments and packets with IP
//     options: rxe receives what the kernel has put together. ARP and all else goes to the
//     kernel.
//   - A new receiver's entries come before the table that has it, and those of a leaving one go
//     after: an answer that went to the kernel could reach the source as an acknowledgement for
//     all.
//   - A group of the CM proxy has the proxy's group IP and addressing switch-ip, so the datagrams
//     of RDMA-CM go to the kernel and to the proxy's socket (ctl/cm/socket.go). Boxes on the way
//     route them. A receiver behind another box has the group's IP and QPN as its peer; its own
//     box sends the copies from that IP, and does not drop what comes from there. The way from
//     each receiver to the IP must lead through its own box.
//
// # Memory
//
// The memory of a group is a table of ranges sorted by R_Key and VA (region.go), as MC-RDMA has
// it. Each path has, parallel to the ranges, what to add to the VA and the R_Key of a copy. Both
// are immutable and kept in chunks of up to 512: a change copies the chunks that it touches. A
// retained packet keeps its own RETH, so its range is found in the table of the moment when it is
// sent again; what was retained of a range that has left is given up (repair-lost-no-region).
// Boxes behind have a region before the box above.
//
// A table inside the stream is not read. In Gleam (2023) the source WRITEs a table of the
// receivers' VAs and R_Keys in front of each WRITE, and the switch uses the newest one. A source
// that goes back resends older WRITEs but not the tables in front of them, so an older WRITE would
// land where the newest table points. A restart would have no table, and in a tree every box would
// need one before the WRITE that follows in the same microsecond.
//
// Read first: group.go for the types, table.go for publishing and lookup, region.go for the
// translation of VA and R_Key.
package mft
