// Package mft is the multicast forwarding table: which groups exist, which
// members and paths each has, and how a frame of a group is found.
//
// A [Table] is immutable. Control builds the next one aside with
// [Table.With] and [Table.Without] and publishes it with one atomic pointer
// swap; whoever reads the old one goes on reading it undisturbed. What changes
// per packet (acknowledged PSNs, the active source) is not here: the data path
// keeps it beside the table, see package feedback.
//
// The package does no I/O, reads no clock, starts no goroutine and logs
// nothing.
//
// Read first: group.go for the shapes, table.go for publishing and lookup,
// region.go for the translation of VA and R_Key.
package mft
