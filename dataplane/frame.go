package dataplane

import (
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// MaxFragments bounds the buffers of one frame. A path MTU of 4096 takes two
// chunks of 4 KiB; ports drop and count what needs more.
const MaxFragments = 4

// HeadroomBytes must lie in front of a received frame: a copy may leave with
// one or two VLAN tags more than its original carried.
const HeadroomBytes = 8

// Kind is what the classifier takes a frame for, by its opcode.
type Kind uint8

const (
	KindData     Kind = 1 + iota // a request
	KindFeedback                 // a response
	KindCNP
	KindCM // connection management, UD to QPN 1
)

// Frame is one received frame, or a blank one to write. It is a view of
// buffers that belong to a Pool.
type Frame struct {
	Group mft.GroupID // what the classifier found; mft.NoGroup: only the IP is a group's
	Kind  Kind
	Port  mft.PortID // where it came in

	// Buf is the buffer of the first fragment, headroom included; the frame
	// starts at Start. All headers are in the first fragment.
	Buf   []byte
	Start int
	// Fragments are the frame's bytes in order; Fragments[0] is
	// Buf[Start:Start+len(Fragments[0])].
	Fragments     [MaxFragments][]byte
	FragmentCount int
	// Chunks name the fragments' buffers to the Pool and the ports.
	Chunks [MaxFragments]uint64
	// Kept is set by a port that keeps the buffers after Outgoing.Last, and
	// reset by Put.
	Kept bool

	// Filled in by the core for those who apply its outputs.
	View    roce.View
	Headers roce.MaskedHeaders // as received
	ICRC    uint32             // as received
	// HopLimit is the copies': one less than received.
	HopLimit uint8
}

// Head is the first fragment.
func (f *Frame) Head() []byte { return f.Fragments[0] }

// Bytes returns the fragments in order.
func (f *Frame) Bytes() [][]byte { return f.Fragments[:f.FragmentCount] }

// Len is the number of bytes of the frame.
func (f *Frame) Len() int {
	n := 0
	for _, b := range f.Bytes() {
		n += len(b)
	}
	return n
}
