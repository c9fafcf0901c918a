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
// Read first: group.go for the types, table.go for publishing and lookup, region.go for the
// translation of VA and R_Key.
package mft
