// Package ctltest holds in-memory replacements of the parts that package ctl uses: a data path,
// next hops and addresses. With them the whole daemon runs without root and without a network.
package ctltest
