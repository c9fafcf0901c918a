// Package house holds the tests about the tree itself: which package may import which, what the
// pure packages never do, whether the files that comments and documents name exist, and how long
// the sentences of documents are. It has no code of its own.
package house
