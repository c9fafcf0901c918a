// Package dataplane receives frames, decides about them, and sends copies and merged answers.
//
// [Core] is the decision: a function of table, frame, port and time that fills a list of outputs.
// An output is an edit of the received frame ([Copy]) or a small frame of our own ([Reply]), never
// a buffer; the caller applies it. The AF_XDP worker and the simulator both call Core, so the code
// that is tested in simulation is the code that runs on the wire.
//
// [Worker] is the loop around Core: one locked thread that receives a batch, decides, replicates in
// place port after port, and gives the buffers back. [Switch] is what control uses: it publishes
// tables to the workers by one pointer swap and asks them for snapshots between two batches.
//
// Per packet there is no allocation, lock, log, map write, clock read or system call. The package
// knows no netlink, no file and no API. Ports are an interface ([Port]): dataplane/afxdp has the
// real ones, dataplane/porttest in-memory twins.
//
// Read first: core.go, then copy.go, then worker.go.
package dataplane
