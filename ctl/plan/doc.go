// Package plan turns a group file into what the data path is given: how each member is reached, by which port and with which
// headers.
//
// It is a function of the file, the next hops, the ports and the chronicle. It asks no kernel and changes nothing.
//
// Read first: plan.go.
package plan
