// Package control carries commands from the lab to the agent inside a guest. They go over one byte
// stream, a virtio serial port, so they use no address, route or packet of the guest.
//
// A stream is a sequence of frames. Each frame belongs to one process, which it names by number.
// The agent serves with [Serve], and the lab calls with [NewClient]. Every request to a guest is a
// process: the lab reads a file with cat.
//
// The package never retries, and never hides that the guest is gone. When the stream ends, every
// process that has not exited fails with [ErrLost].
//
// Start reading at frame.go, then server.go and client.go.
package control
