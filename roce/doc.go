// Package roce knows RoCEv2 frames as bytes, and the numbers in them.
//
// It has the layouts (one header per file, each with Decode and Append), the RC opcodes and the
// headers that follow each, 24-bit sequence arithmetic, the AETH syndrome and its two code tables,
// and the invariant CRC, in full and incrementally.
//
// The package does no I/O, reads no clock, logs nothing, keeps no reference to a buffer of its
// caller, and allocates nothing after start-up. It holds no state: package feedback knows what a
// PSN means to a queue pair, and package mft what a queue pair means to a group.
//
// There are two ways to look at a frame:
//
//   - [View] locates the headers of a received frame and reads or edits single fields in place.
//     The data path reads frames by it, and writes copies with [Edit].
//   - [BTH], [RETH], [AETH] and the rest decode into structs and append to buffers. Synthetic
//     packets, endpoints, printers and tests use them.
//
// Start reading at psn.go, then opcode.go, view.go, icrc.go and icrcdelta.go. Names follow the
// InfiniBand Architecture Specification volume 1. Where a rule comes from the Linux kernel, the
// comment names the file (rxe = drivers/infiniband/sw/rxe).
package roce
