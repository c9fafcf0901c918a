// Package client is rocast's API for Go programs: groups and their members, events, progress, and
// the loop by which a program falls back to one connection for each receiver while a group does not
// work, and returns to the group later.
//
// A [Client] talks to the daemon over its Unix socket. The types of requests and answers are those
// of package ctl/api; the names that a program writes most often are here too.
//
// Read first: client.go.
package client
