// Package server answers package api's requests on a Unix socket.
//
// Who may do what is decided by the peer's credentials (SO_PEERCRED), not by anything it says:
//
//	root, or the daemon's own user    everything
//	a member of the socket's group    everything, but sees no R_Key
//	anyone else                       reads, and sees no R_Key; the socket's mode 0660 keeps them out to begin with
//
// Errors leave as api.Error in JSON, also for paths that do not exist. Bodies, headers and times are bounded.
//
// Read first: server.go.
package server
