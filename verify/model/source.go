package model

import "github.com/rocast/rocast/roce"

// source is the requester of rdma_rxe (docs/wire.md#requester), in packets from 0. Its messages have the World's length.
type source struct {
	unacked uint8 // oldest unacknowledged packet
	next    uint8 // next packet to send
	sent    uint8 // packets ever sent
	idle    bool  // nothing was sent since it went back: its oldest message is posted
	retried bool  // a NAK or a timeout made it go back: no further NAK does, until an ACK
	rnrWait bool  // the RNR timer runs
	status  status
	end     fatal // what ended it
	ahead   uint8 // the first packet acknowledged while a message is half sent again and has not come to it; 0: none
	retries uint8 // go-backs without an ACK between them
}

type status uint8

const (
	running status = iota
	refused        // by a fatal NAK
	exceeded
)

// fatal is a fatal NAK and the packet it is about.
type fatal struct {
	syndrome roce.Syndrome
	packet   uint8
}

// message is a reply on its way to the source. An ACK's packet may be -1: nothing.
type message struct {
	packet   int8
	syndrome roce.Syndrome
}

// hear takes a reply. It is the loop of rxe's completer: what lies beyond the oldest message completes that one first,
// if it was sent to its end.
func (s *source) hear(w *World, m message) {
	for s.status == running && int(s.unacked) < w.Packets {
		last := w.lastOf(s.unacked)
		switch {
		case s.idle || s.next <= w.firstOf(s.unacked):
			return // its oldest message waits to be sent again
		case int(m.packet) <= int(last):
			s.hearInside(w, m)
			return
		case s.next <= last:
			return // half sent
		case s.unacked == w.read():
			s.retryUnlessRetried(w) // its data never came
			return
		}
		s.unacked = last + 1
		s.progress()
	}
}

// hearInside takes a reply that is not about a later message than the oldest.
func (s *source) hearInside(w *World, m message) {
	packet := uint8(m.packet)
	switch {
	case int(m.packet) < int(s.unacked):
	case m.syndrome.IsACK():
		s.hearACK(w, packet)
	case m.syndrome.IsRNR():
		s.rnrWait = true
	case m.syndrome == roce.NAKSequence:
		s.unacked = packet
		s.retryUnlessRetried(w)
	default:
		s.status, s.end = refused, fatal{m.syndrome, packet}
	}
}

func (s *source) hearACK(w *World, packet uint8) {
	switch {
	case packet == w.read():
	case packet < s.next:
		s.unacked = packet + 1
		s.progress()
	case s.ahead == 0:
		s.ahead = packet // its packet waits to be sent again
	}
}

// progress is what only an ACK brings.
func (s *source) progress() { s.retried, s.retries = false, 0 }

func (s *source) retryUnlessRetried(w *World) {
	if !s.retried {
		s.retry(w)
	}
}

// retry makes the source go back, unless the resend has not come this far yet or the RNR timer runs, which will.
func (s *source) retry(w *World) {
	if !w.Unlimited {
		if s.retries == w.retries() {
			s.status = exceeded
			return
		}
		s.retries++
	}
	if s.next <= s.unacked {
		return
	}
	s.retried = true
	if !s.rnrWait {
		s.goBack()
	}
}

func (s *source) goBack() { s.next, s.idle, s.rnrWait = s.unacked, true, false }

func (s *source) canSend(w *World) bool { return s.status == running && int(s.next) < w.Packets }

// waits says whether the retransmit timer runs.
func (s *source) waits(w *World) bool {
	return s.status == running && !s.rnrWait && s.next > s.unacked
}

// send returns the next packet.
func (s *source) send() uint8 {
	packet := s.next
	s.next++
	s.sent = max(s.sent, s.next)
	s.idle = false
	return packet
}

// done says that everything is acknowledged.
func (s *source) done(w *World) bool { return s.status == running && int(s.unacked) == w.Packets }
