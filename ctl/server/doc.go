// Package server answers package api's requests on a Unix socket.
//
// The peer's credentials (SO_PEERCRED) decide its rights; the request itself does not:
//
//	root, or the daemon's own user    everything
//	a user in the socket's group      everything, but sees no R_Key
//	any other user                    reads, and sees no R_Key
//
// The socket's mode 0660 normally prevents connections of other users.
//
// Errors are sent as api.Error in JSON, also for paths that do not exist. Bodies and headers have
// size limits, requests have time limits, and the number of bodies in memory is limited.
//
// Read first: server.go.
package server
