// Package relaying says how programs bring messages to many hosts without multicast: which host
// passes a message on to which, and in which slices. It sends nothing: the simulator does that over
// soft NICs, and the benchmark over real interfaces.
package relaying

import "math/bits"

// Shape says which host passes the messages on to which: it returns the host from which a receiver
// gets them. Host 0 is the source, and a receiver gets messages from a host with a lower number.
type Shape func(receiver int) (from int)

// Unicast: the source sends every message to each receiver.
func Unicast(int) int { return 0 }

// Chain: each host sends to the next one.
func Chain(receiver int) int { return receiver - 1 }

// Binomial is the binomial tree: in each round, every host that has the message sends it to a host
// that lacks it.
func Binomial(receiver int) int { return receiver &^ (1 << (bits.Len(uint(receiver)) - 1)) }

// Cut says how equal messages are cut into slices. A host passes a slice on as soon as the host has
// all of it. All slices of a transfer are numbered from 0.
type Cut struct {
	MessageBytes int
	Slices       int // of each message, at least 1
	Posted       int // messages for which each host has room
}

// Room is how many bytes of memory each host needs.
func (c *Cut) Room() int { return c.Posted * c.MessageBytes }

// Message returns the message to which a slice belongs.
func (c *Cut) Message(slice int) int { return slice / c.Slices }

// Offset returns where a slice is in the memory of each host.
func (c *Cut) Offset(slice int) int {
	return c.Message(slice)%c.Posted*c.MessageBytes + slice%c.Slices*c.MessageBytes/c.Slices
}

// Bytes returns the length of a slice.
func (c *Cut) Bytes(slice int) int {
	piece := slice % c.Slices
	return (piece+1)*c.MessageBytes/c.Slices - piece*c.MessageBytes/c.Slices
}
