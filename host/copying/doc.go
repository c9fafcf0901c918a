// Package copying brings files from one host to many, over any ordered multicast of messages that
// nobody loses. It knows no RDMA: a Sender and a Receiver carry the messages, and a TCP connection
// from each receiver to the source carries the reports.
//
// The source reads its files in batches. It lists the entries of a batch, each receiver answers
// what it has of them, the source sends what at least one of them lacks, each file with its
// SHA-256, and each receiver answers which files it could not verify. Those are sent again.
//
// When all batches are through, a receiver that lacks some, because it came late or because the way
// has changed, gets them in a further pass over the same files; the others skip what they have. So
// the memory of both sides has a bound that does not depend on how much is copied.
//
// A receiver that lacks a file that others have can get it from one of these: the source names them
// instead of sending the file. Read fetch.go for who asks, and share.go for who gives.
//
// If the multicast fails, the source goes on by the TCP connections.
//
// Read Source.Run and Receiver.Run first. Target is what a receiver does on its disk.
package copying
