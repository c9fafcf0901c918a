// Package cm lets programs connect to a group as to a host, by RDMA-CM (rdma_connect).
//
// A [Proxy] answers the handshake at a group IP for the source, makes one with each receiver, and
// has the group made from what both say. A [Machine] is the handshakes as a step function: events
// in, actions out.
//
// The group has the proxy's group IP and addressing switch-ip. So the datagrams of RDMA-CM to that
// IP go to the kernel, and the kernel gives them to the proxy's socket (socket.go); it also has
// their routes and neighbours. A receiver behind another box is reached in the same way: the boxes
// between route the datagrams. The receiver's own box sends it the copies from the group IP, so the
// way from each receiver to that IP must lead through its own box.
//
// Programs of perftest with -R first make a control connection, on which both sides SEND their
// parameters. It belongs to no group: the box is the peer of every host there (line.go). Each
// message of the source goes to all receivers, and when all have answered the source gets one
// answer, in which the keys name the group's memory; a [Talk] knows these messages. The group of
// the transfer is made when the receivers' keys are known (run.go): the source cannot WRITE before.
// Such a program looks at nothing but messages and completions. So a run that is ended sends it a
// message that it cannot receive, and ends its queue pairs (stray.go). A program that waits to be
// asked for UD is asked first (datagram.go).
//
// Read first: config.go, then machine.go and connection.go. A Machine finds its connections in a
// book (book.go), and what a step sends and tells is in its post (post.go).
package cm
