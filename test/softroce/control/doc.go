// Package control carries commands from the lab to the agent inside a guest over one byte stream, a virtio serial port:
// no address, route or packet of the guest is spent on it.
//
// A stream is a sequence of frames, each belonging to one process by number. The agent serves with [Serve], the lab
// calls with [NewClient]. Everything a story asks of a guest is a process: a file is read with cat.
//
// What it never does: retry, or hide that the guest is gone. When the stream ends every process that had not exited
// fails with [ErrLost].
//
// Start reading at frame.go, then server.go and client.go.
package control
