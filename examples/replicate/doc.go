// Package replicate is an example of a program that uses package client: it replicates a stream of
// items to three receivers, by a group while that works ([Group]) and by a connection to each
// receiver while it does not ([Each]). client.Stream decides which.
//
// A program makes a [Device] of its verbs library; nothing else here knows one. The test has soft
// RDMA NICs in network namespaces, and a box with rocastd between them. In the middle it kills
// rocastd, and starts it again; then it cuts the link of a receiver, and mends it:
//
//	go test -v ./examples/replicate
package replicate
