// Package dataplane takes frames in and gives verdicts and copies out.
//
// [Core] is the decision: a function of table, frame, port and time that fills
// a list of outputs. An output is an edit of the received frame ([Copy]) or a
// small frame of our own ([Reply]), never a buffer; who transmits applies it.
// The AF_XDP worker and the simulator both call it, so what is proven in
// simulation is what runs on the wire.
//
// [Worker] is the loop around it: one locked thread that receives a batch,
// decides, replicates in place port after port, and recycles. [Switch] is what
// control holds: it publishes tables to the worker by one pointer swap and
// asks it for snapshots between two batches.
//
// Per packet there is no allocation, lock, log, map write, clock read or system
// call. The package knows no netlink, no file and no API; ports are an
// interface ([Port]), real ones are in dataplane/afxdp, in-memory twins in
// dataplane/porttest.
//
// Read first: core.go, then copy.go, then worker.go.
package dataplane
