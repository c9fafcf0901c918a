// Package neighbour is the way to other boxes: which of them the config names, and how their APIs
// are asked, with mutual TLS.
//
// Each box has a certificate with its name as first DNS name, signed by the CA that all boxes of a
// fabric share. The box that asks checks that the answering box has the name of the neighbour, and
// the answering box finds out which neighbour asks. The files are read again for each connection,
// so that a certificate can be replaced while the daemon runs.
//
// The package does not know what is asked: package api has the requests, package ctl sends them.
//
// Read first: config.go, then client.go.
package neighbour
