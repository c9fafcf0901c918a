// Package chronicle records those events of a running group's receivers that a restart needs.
//
// After a crash the data path knows nothing of a group. The group file lists its members; the
// chronicle records which receivers joined later and at which PSN, which receivers no longer take
// part, and whether another member than the first source has sent. It does no I/O: package store
// keeps its text beside the group file.
//
// Read first: chronicle.go.
package chronicle
