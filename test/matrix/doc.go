// Package matrix runs cells of the matrix (internal/matrix) on the real daemon in network
// namespaces: a group as the cell says, data of which half has been written when the cell's event
// happens, and other sources after that. In the end every receiver has every byte, the queue pairs
// live, the daemon says what is true, and nothing is left behind.
//
//	go test ./test/matrix -cells 40 -seed 7
//	go test ./test/matrix -cell 'family=ipv6 event=kill' -seed 7
package matrix
