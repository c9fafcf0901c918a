package model

import (
	"github.com/rocast/rocast/feedback"
)

// fan is the engine in front of the switch, as dataplane/fanout.go uses it: while it is armed, the
// source's next new packet is copied to all receivers of the block, and the group hears of it
// before its next event.
type fan struct {
	armed bool
	// The switch will take the group back before its next event, or as soon as it gets to that:
	// until then the engine still carries packets.
	taking bool
	next   uint8 // the packet that the engine carries next
}

// sendMoves appends what can become of the source's next packet. Where the switch is about to take
// the group back the packet may come before or after that.
func (e *engine) sendMoves(s *state, ms []move) []move {
	if e.mayCarry(s) {
		ms = append(ms, move{kind: carries})
		if !s.fan.taking {
			return ms
		}
	}
	return append(ms, move{kind: sends})
}

// mayCarry says whether the engine would carry the source's next packet.
func (e *engine) mayCarry(s *state) bool {
	return s.fan.armed && s.src.canSend(e.World) && s.src.next == s.fan.next && s.src.next != e.read()
}

// carry lets the source send its next packet while the engine is armed.
func (e *engine) carry(s *state, f fate) {
	packet := s.src.send()
	if f == isLost {
		s.left.losses--
		return
	}
	s.place = int8(packet)
	s.fan.next++
	for i := range s.receivers[:e.Receivers] {
		if r := &s.receivers[i]; r.inBlock && !r.dead {
			r.down.push(packet)
		}
	}
}

// arm hands the group to the engine.
func (e *engine) arm(s *state) {
	s.left.armed--
	s.fan = fan{armed: true, next: e.known(s)}
	for i := range s.receivers[:e.Receivers] {
		s.receivers[i].inBlock = s.group.Part(i) == feedback.PartActive
	}
}

// sync tells the group what the engine has carried.
func (e *engine) sync(s *state) {
	known, next := e.known(s), s.fan.next
	if !s.fan.armed || known == next {
		return
	}
	ev := feedback.Event{
		Kind: feedback.Carried, PSN: e.psn(int8(next - 1)), Last: next-1 == e.lastOf(next-1), MSN: e.complete[next] - e.complete[known],
	}
	for n := known; n < next; n++ {
		if e.asks[n] {
			ev.AckReq, ev.Asked = true, e.psn(int8(n))
		}
	}
	e.take(s, ev)
}

// known is the packet behind those that the group knows.
func (e *engine) known(s *state) uint8 { return uint8(e.packet(s.group.NextPSN())) }

// settle decides, after an event, whether the engine may go on.
func (e *engine) settle(s *state) {
	if !s.fan.armed {
		return
	}
	paths := 0
	for i := range s.receivers[:e.Receivers] {
		if s.receivers[i].inBlock {
			paths++
		}
	}
	s.fan.taking = s.group.Plain() != paths
}

// takeBack ends the engine's turn.
func (e *engine) takeBack(s *state) {
	e.sync(s)
	s.fan = fan{}
	for i := range s.receivers {
		s.receivers[i].inBlock = false
	}
}
