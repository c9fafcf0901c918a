package model

import (
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// receiver is the responder of rdma_rxe (docs/wire.md#responder) and what is on its way to it and back.
type receiver struct {
	expected  uint8
	naked     bool // sent a sequence NAK: says no other until a packet comes in order
	dead      bool // its QP is in error, or its host gone
	out       bool // the group declared it behind, or it is
	gone      bool // evicted
	asked     bool // the switch has heard it ask for its next packet, and has not sent it since
	overtaken bool // the switch restarted while packets were on their way to it
	down      queue[uint8]
	aside     queue[answer] // answers that were overtaken, or are to come twice
}

// answer is what a receiver says about a packet, which may be -1 for an ACK of nothing.
type answer struct {
	packet   int8
	msn      uint8
	syndrome roce.Syndrome
}

// Every RNR NAK carries this timer code, and a fatal NAK this reason: neither makes a difference to what is searched.
const (
	rnrSyndrome   roce.Syndrome = 0x20 | 14
	fatalSyndrome               = roce.NAKRemoteAccess
)

// response is how a receiver meets a packet that is next for it.
type response uint8

const (
	takes response = iota
	notReady
	dies // with a fatal NAK
)

// take makes the receiver take a packet. ok says whether it answers.
func (r *receiver) take(w *World, packet uint8, how response) (a answer, ok bool) {
	switch {
	case r.dead:
		return answer{}, false
	case packet > r.expected:
		if r.naked {
			return answer{}, false
		}
		r.naked = true
		return r.says(w, int8(r.expected), roce.NAKSequence), true
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
	r.asked = false
	return r.says(w, int8(packet), roce.SyndromeUnlimited), w.asks[packet]
}

func (r *receiver) says(w *World, packet int8, s roce.Syndrome) answer {
	return answer{packet: packet, msn: uint8(w.complete[r.expected]), syndrome: s}
}

// event is the answer as the switch sees it.
func (a answer) event(w *World, path int) feedback.Event {
	return feedback.Event{
		Kind: feedback.Response, Path: path, PSN: w.psn(a.packet), Syndrome: a.syndrome, MSN: roce.MSN(a.msn),
	}
}
