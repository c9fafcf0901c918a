// Package chronicle records what happened to the receivers of a running group, as far as a restart has to know it.
//
// After a crash the data path knows nothing of a group. The group file says who its members are; the chronicle says which
// receivers joined later and where, which ones take part no longer, and whether another member than the first source has
// sent. It does no I/O: package store keeps its text beside the group file.
//
// Read first: chronicle.go.
package chronicle
