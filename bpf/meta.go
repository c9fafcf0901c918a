package bpf

import (
	"encoding/binary"
	"fmt"
)

// MetaBytes is the size of the metadata. It ends where the frame starts.
const MetaBytes = 16

// metaMagic is MAGIC of classifier.h.
const metaMagic = 0x726f6361

// Kind says what a frame means to its group.
type Kind uint8

const (
	// KindData: a request, or any opcode that is none of the other kinds. The dataplane counts
	// those that it does not take.
	KindData Kind = iota + 1
	// KindFeedback: READ responses, ACK and ATOMIC ACK (opcodes 0x0D to 0x12).
	KindFeedback
	// KindCNP: opcode 0x81.
	KindCNP
	// KindCM: a connection management datagram, opcode 0x64 to QP 1.
	KindCM
)

func (k Kind) String() string {
	switch k {
	case KindData:
		return "data"
	case KindFeedback:
		return "feedback"
	case KindCNP:
		return "cnp"
	case KindCM:
		return "cm"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Meta is the classifier's result for one frame.
type Meta struct {
	Group  uint32 // as given to PutGroup; GroupNone if only the address is known
	Kind   Kind
	IPv6   bool
	VLANs  uint8
	L3Off  uint8 // IP header, from the start of the frame
	BTHOff uint8 // the UDP header is the 8 bytes before it
}

// DecodeMeta reads the MetaBytes in front of a frame. The result is false if the classifier did not
// write them.
func DecodeMeta(b []byte) (Meta, bool) {
	if len(b) != MetaBytes || binary.LittleEndian.Uint32(b) != metaMagic {
		return Meta{}, false
	}
	flags := b[9]
	return Meta{
		Group:  binary.LittleEndian.Uint32(b[4:]),
		Kind:   Kind(b[8]),
		IPv6:   flags&1 != 0,
		VLANs:  flags >> 1 & 3,
		L3Off:  b[10],
		BTHOff: b[11],
	}, true
}
