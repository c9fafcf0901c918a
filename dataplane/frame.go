package dataplane

import (
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// MaxFragments bounds the buffers of one frame. A path MTU of 4096 takes two chunks of 4 KiB. Ports
// drop and count frames that need more than MaxFragments.
const MaxFragments = 4

// HeadroomBytes is the room that must be in front of a received frame: a copy may have one or two
// VLAN tags more than the received frame.
const HeadroomBytes = 8

// Kind is the classifier's view of a frame, by its opcode.
type Kind uint8

const (
	KindData     Kind = 1 + iota // a request
	KindFeedback                 // a response
	KindCNP
	KindCM // connection management, UD to QPN 1
)

// Frame is one received frame, or an empty one to write to. It refers to buffers that belong to a
// Pool.
type Frame struct {
	// Buf is the buffer of the first fragment with its headroom. The frame starts at Start. All
	// headers are in the first fragment.
	Buf   []byte
	Start int

	Group mft.GroupID // found by the classifier; mft.NoGroup: only the IP is a group's
	Port  mft.PortID  // on which the frame arrived
	Kind  Kind
	// Kept is set by a port that keeps the buffers after Outgoing.Last, or by the core when it
	// retains the packet. Put resets it.
	Kept bool

	// Set by the core, as View is, for the caller that applies its outputs.
	Region   int // index of the range of the group's memory that the packet addresses; -1: none
	Original roce.Original

	FragmentCount int
	// Chunks name the fragments' buffers to the Pool and the ports.
	Chunks [MaxFragments]uint64

	// An ordinary copy of a frame of one fragment reads only the fields above, up to the first
	// chunk. They are two cache lines, which the CPU has to fetch again for each copy, because the
	// kernel uses the caches in between. Marks, repairs and captures read more.

	View roce.View
	// Fragments are the frame's bytes in order; Fragments[0] is Buf[Start:Start+len(Fragments[0])].
	Fragments [MaxFragments][]byte
	_         [32]byte // padding: every frame of a list begins at the start of a cache line, if the first one does
}

// Head is the first fragment.
func (f *Frame) Head() []byte { return f.Fragments[0] }

// Bytes returns the fragments in order.
func (f *Frame) Bytes() [][]byte { return f.Fragments[:f.FragmentCount] }

// Len returns the number of bytes in all fragments of the frame.
func (f *Frame) Len() int {
	if f.FragmentCount == 1 { // most are
		return len(f.Fragments[0])
	}
	n := 0
	for _, b := range f.Bytes() {
		n += len(b)
	}
	return n
}
