// Package house holds the tests about the tree itself: which package may import which, what the
// pure packages never do, and whether the files that comments and documents name exist. It has no
// code of its own.
package house
