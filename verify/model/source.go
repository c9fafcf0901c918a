package model

import "github.com/rocast/rocast/roce"

// source is the requester of rdma_rxe (docs/wire.md#requester). Packets are numbered from 0. The
// World defines the length of its messages.
type source struct {
	unacked uint8 // oldest unacknowledged packet
	next    uint8 // next packet to send
	sent    uint8 // packets ever sent
	idle    bool  // nothing was sent since the source went back: its oldest message waits in the posted state
	retried bool  // a NAK or a timeout made the source go back; until an ACK arrives, no other NAK does so
	rnrWait bool  // the RNR timer is running
	deaf    bool  // and a NAK made the source go back when it ends; the source takes no reply before
	status  status
	end     fatal // the error that ended the source
	ahead   uint8 // the first packet that was acknowledged while its message was partly sent again and the resend had not reached it; 0: none
	retries uint8 // go-backs without an ACK between them
}

type status uint8

const (
	running status = iota
	refused        // ended by a fatal NAK
	exceeded
)

// fatal is a fatal NAK and the packet that the NAK is about.
type fatal struct {
	syndrome roce.Syndrome
	packet   uint8
}

// message is a reply on its way to the source. The packet of an ACK may be -1: the ACK acknowledges
// nothing.
type message struct {
	packet   int8
	syndrome roce.Syndrome
}

// hear processes a reply as the loop of rxe's completer does. A reply about a later message first
// completes the oldest message, if the source has sent that message completely.
func (s *source) hear(w *World, m message) {
	if w.Relayed && m.syndrome.IsACK() { // a switch is no rxe: it takes what a receiver of its own says
		if s.status == running && m.packet >= int8(s.unacked) {
			s.unacked = uint8(m.packet) + 1
			s.next = max(s.next, s.unacked)
			s.progress()
		}
		return
	}
	for s.status == running && int(s.unacked) < w.Packets && !s.deaf {
		last := w.lastOf(s.unacked)
		switch {
		case s.idle || s.next <= w.firstOf(s.unacked):
			return // the oldest message waits for its resend
		case int(m.packet) <= int(last):
			s.hearInside(w, m)
			return
		case s.next <= last:
			return // the message is partly sent
		case s.unacked == w.read():
			s.retryUnlessRetried(w) // the data of the READ has not arrived
			return
		}
		s.unacked = last + 1
		s.progress()
	}
}

// hearInside processes a reply about the oldest message or an earlier one.
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
		s.ahead = packet // the packet waits for its resend
	}
}

// progress records progress that only an ACK can cause.
func (s *source) progress() { s.retried, s.retries = false, 0 }

func (s *source) retryUnlessRetried(w *World) {
	if !s.retried {
		s.retry(w)
	}
}

// retry makes the source go back. It does nothing if the resend has not yet passed the oldest
// unacknowledged packet. While the RNR timer runs, the source goes back only when that timer ends.
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
	if s.deaf = s.rnrWait; !s.deaf {
		s.goBack()
	}
}

func (s *source) goBack() {
	s.next, s.idle, s.rnrWait, s.deaf = s.unacked, true, false, false
}

func (s *source) canSend(w *World) bool { return s.status == running && int(s.next) < w.Packets }

// waits reports whether the retransmit timer is running.
func (s *source) waits(w *World) bool {
	return s.status == running && !s.rnrWait && s.next > s.unacked
}

// send returns the next packet to send.
func (s *source) send() uint8 {
	packet := s.next
	s.next++
	s.sent = max(s.sent, s.next)
	s.idle = false
	return packet
}

// done reports whether all packets are acknowledged.
func (s *source) done(w *World) bool { return s.status == running && int(s.unacked) == w.Packets }
