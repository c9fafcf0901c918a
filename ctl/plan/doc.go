// Package plan turns a group file into the group that the data path is given: it finds the port and
// the headers by which each member is reached.
//
// A plan is a function of the file, the next hops, the ports and the chronicle. This package makes
// no system call and changes no state.
//
// Read first: plan.go.
package plan
