// Package ctltest holds the in-memory twins of what package ctl works with: a data path, next hops and addresses. With them
// the whole daemon runs without root and without a network.
package ctltest
