// Package captures holds recorded Soft-RoCE traffic for the tests of every package: embedded, so
// that a test binary carries it into whatever guest or namespace it runs in.
//
// It is never part of a daemon: only tests and benchmarks import it. testdata/README.md says what
// each capture shows; start there.
package captures
