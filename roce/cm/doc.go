// Package cm knows the messages by which hosts connect queue pairs (IBTA vol 1, chapter 12), as
// RDMA-CM sends them over RoCEv2: management datagrams (MADs) to queue pair 1.
//
//	| IP | UDP | BTH | DETH | MAD header 24 | message 232 bytes | ICRC |
//	                        <------ MADBytes -------------------->
//
// [Decode] reads a received frame, and [MAD.Append] writes what is behind the UDP header. Each
// message is a struct of its own, and all of them have a fixed length, so no field of a message can
// lie outside it: decode of a message shows its layout. docs/wire.md#rdma-cm has what a peer of the
// kernel's CM needs.
//
// The package does no I/O, reads no clock and holds no state.
package cm
