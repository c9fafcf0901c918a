// Package roce is the wire: RoCEv2 frames as bytes, and the numbers in them.
//
// It knows the layouts (one header per file, each with Decode and Append), the RC opcodes
// and which headers follow each, 24-bit sequence arithmetic, the AETH syndrome and its two code
// tables, and the invariant CRC, in full and incrementally.
//
// It never does I/O, reads a clock, logs, keeps a reference to a caller's buffer, or allocates
// after start-up. It holds no state: what a PSN means to a queue pair is package feedback's business,
// what a queue pair means to a group is package mft's.
//
// Two ways to look at a frame:
//
//   - [View] locates the headers of a received frame and reads or edits single fields in place.
//     The data path uses nothing else.
//   - [BTH], [RETH], [AETH] and the rest decode into structs and append to buffers. Synthetic
//     packets, endpoints, printers and tests use them.
//
// Start reading at psn.go, then opcode.go, view.go, icrc.go and icrcdelta.go. Names follow the InfiniBand
// Architecture Specification volume 1; where a rule was learned from the Linux kernel, the comment
// names its file (rxe = drivers/infiniband/sw/rxe).
package roce
