// Package server answers package api's requests on a Unix socket.
//
// The peer's credentials (SO_PEERCRED) decide its rights; the request itself does not:
//
//	root, or the daemon's own user    everything
//	a member of the socket's group    everything, but sees no R_Key
//	anyone else                       reads, and sees no R_Key; the socket's mode 0660 normally prevents the connection
//
// Errors are sent as api.Error in JSON, also for paths that do not exist. Bodies and headers have
// size limits, requests have time limits, and the number of bodies in memory is limited.
//
// Read first: server.go.
package server
