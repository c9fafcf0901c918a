package model

import (
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// receiver is the responder of rdma_rxe (docs/wire.md#responder), together with the queues to it
// and from it.
type receiver struct {
	expected uint8
	from     uint8         // the packet with which it has joined
	joining  bool          // it gets nothing yet
	naked    bool          // has sent a sequence NAK, and sends no other until a packet arrives in order
	dead     bool          // its QP is in the error state, or its host is gone
	out      bool          // the group declared it behind, or it must be declared behind
	gone     bool          // evicted
	left     bool          // it was evicted before a crash: an acknowledgement that the source heard until then does not count for it
	heardNAK bool          // the switch heard its NAK for its next packet, and has not sent that packet since
	inBlock  bool          // the engine sends to it
	away     bool          // it is the source
	stored   bool          // it was left behind at a source switch, which control has stored
	down     queue[uint8]  // packets, with asksAnyway
	aside    queue[answer] // answers that are delayed, or that will arrive a second time
}

// asksAnyway is the bit of a packet on its way to a receiver that says that this copy asks for an
// ACK, although the source's packet does not.
const asksAnyway = 0x80

// question stands for a packet that the receiver has executed before the first one of the world.
// The switch asks by it what the receiver has.
const question = 0x7F

// answer is a receiver's answer to a packet. Packet -1 is an ACK that acknowledges nothing.
type answer struct {
	packet   int8
	msn      uint8
	syndrome roce.Syndrome
}

// Every RNR NAK has this timer code, and every fatal NAK has this reason. Other values would not
// change the search.
const (
	rnrSyndrome   roce.Syndrome = 0x20 | 14
	fatalSyndrome               = roce.NAKRemoteAccess
)

// response is a receiver's response to the packet that it expects next.
type response uint8

const (
	takes response = iota
	notReady
	dies // answers with a fatal NAK
)

// take makes the receiver take a packet. ok reports whether the receiver answers.
func (r *receiver) take(w *World, packet uint8, how response) (a answer, ok bool) {
	asks := packet&asksAnyway != 0
	packet &^= asksAnyway
	switch {
	case r.dead:
		return answer{}, false
	case packet == question:
		return r.says(w, int8(r.expected)-1, roce.SyndromeUnlimited), true
	case packet > r.expected:
		if r.naked {
			return answer{}, false
		}
		r.naked = true
		return r.says(w, int8(r.expected), roce.NAKSequence), true
	case packet < r.expected && w.Switches:
		return r.says(w, int8(packet), roce.SyndromeUnlimited), asks || w.asks[packet]
	case packet < r.expected:
		return r.says(w, int8(r.expected)-1, roce.SyndromeUnlimited), true
	}
	r.naked = false
	switch how {
	case notReady:
		return r.says(w, int8(packet), rnrSyndrome), true
	case dies:
		r.dead = true
		return r.says(w, int8(packet), fatalSyndrome), true
	}
	r.expected++
	r.heardNAK = false
	return r.says(w, int8(packet), roce.SyndromeUnlimited), asks || w.asks[packet]
}

func (r *receiver) says(w *World, packet int8, s roce.Syndrome) answer {
	return answer{packet: packet, msn: uint8(w.complete[r.expected]), syndrome: s}
}

// event returns the answer as an event for the switch.
func (a answer) event(w *World, path int) feedback.Event {
	return feedback.Event{
		Kind: feedback.Response, Path: path, PSN: w.psn(a.packet), Syndrome: a.syndrome, MSN: roce.MSN(a.msn),
	}
}
