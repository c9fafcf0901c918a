package model

import (
	"slices"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/merger"
	"github.com/rocast/rocast/roce"
)

// fan is the engine in front of the switch, as dataplane/fanout.go uses it: while it is armed, the
// source's next new packet is copied to all receivers of the block, and the group hears of it
// before its next event. The same holds for the plain ACKs of these receivers, which the engine
// merges.
type fan struct {
	armed bool
	// The switch will take the group back before its next event, or as soon as it gets to that:
	// until then the engine still carries packets.
	taking bool
	next   uint8 // the packet that the engine carries next
	limit  uint8 // the last packet that it may carry, as far as the switch has told it
	merges bool  // the engine merges ACKs
	// While it does: what each receiver of the block has acknowledged, and what the source was
	// told.
	at   [maxReceivers]feedback.Progress
	told feedback.Progress
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

// mayCarry reports whether the engine would carry the source's next packet.
func (e *engine) mayCarry(s *state) bool {
	return s.fan.armed && s.src.canSend(e.World) && s.src.next == s.fan.next && s.src.next != e.read() && !e.beyond(s)
}

// beyond reports whether the engine must not carry its next packet, because it would overwrite one
// that a receiver may lack: it retains as many as the window has. While it merges, what the source
// was told moves that on.
func (e *engine) beyond(s *state) bool {
	moved := s.fan.merges && int(s.fan.next)-int(e.packet(s.fan.told.PSN)) <= e.Policy.RepairWindow
	return s.fan.next > s.fan.limit && !moved
}

// extend tells the engine how far it may carry.
func (e *engine) extend(s *state) {
	s.fan.limit = maxPackets
	if window := e.Policy.RepairWindow; e.Policy.Repair != feedback.RepairOff && window > 0 {
		s.fan.limit = uint8(min(int(e.packet(s.group.Oldest()))+window-1, maxPackets))
	}
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
	e.extend(s)
	e.resume(s)
}

// resume lets the engine merge, until sync.
func (e *engine) resume(s *state) {
	if _, ok := s.group.MayMerge(); !ok || s.group.AcksDecide() || !s.fan.armed || s.fan.taking {
		return
	}
	s.fan.merges = true
	s.fan.told, _ = s.group.Told()
	for k, i := range e.block(s) {
		s.fan.at[k] = s.group.Progress(i)
	}
}

// block returns the receivers of the block.
func (e *engine) block(s *state) []int {
	e.members = e.members[:0]
	for i := range s.receivers[:e.Receivers] {
		if s.receivers[i].inBlock {
			e.members = append(e.members, i)
		}
	}
	return e.members
}

// merge lets the engine take the answer of a receiver, if it may.
func (e *engine) merge(s *state, path int, a answer) bool {
	if !s.fan.merges || !a.syndrome.IsACK() || a.packet >= int8(s.fan.next) || !s.receivers[path].inBlock {
		return false
	}
	block := e.block(s)
	m := merger.Merger[feedback.Progress]{At: s.fan.at[:len(block)], Told: s.fan.told}
	tells, taken := m.ACK(slices.Index(block, path), feedback.Progress{PSN: e.psn(a.packet), MSN: roce.MSN(a.msn)})
	s.fan.told = m.Told
	if !taken {
		return false
	}
	e.acts = e.acts[:0]
	outcome := feedback.Absorbed
	if tells {
		e.acts = append(e.acts, feedback.Action{Kind: feedback.Reply, PSN: m.Told.PSN, MSN: m.Told.MSN, Syndrome: roce.SyndromeUnlimited})
		outcome = feedback.Merged
	}
	ev := a.event(e.World, path)
	e.tape.event(e.World, s, ev, outcome, e.acts)
	e.perform(s, ev, e.acts, s.group.Oldest(), s.group.Oldest())
	return true
}

// endMerge tells the group what the engine has merged.
func (e *engine) endMerge(s *state) {
	if !s.fan.merges {
		return
	}
	s.fan.merges = false
	var at []feedback.Answered
	for k, i := range e.block(s) {
		at = append(at, feedback.Answered{Path: i, Progress: s.fan.at[k]})
	}
	e.acts = s.group.Answered(s.now, at, s.fan.told, e.acts[:0])
	s.fan.at, s.fan.told = [maxReceivers]feedback.Progress{}, feedback.Progress{}
	if len(e.acts) > 0 {
		e.fail("what the engine has merged causes %+v", e.acts)
	}
}

// sync tells the group what the engine has carried and merged. The engine merges nothing more until
// resume.
func (e *engine) sync(s *state) {
	defer e.checkKept(s, s.group.Oldest())
	defer e.endMerge(s)
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

// checkKept checks that the engine has carried nothing for which the switch lets go of a packet
// that a receiver may lack. Before, the packets from was on were retained.
func (e *engine) checkKept(s *state, was roce.PSN) {
	oldest := s.group.Oldest()
	if e.Policy.Repair == feedback.RepairOff || !oldest.After(was) {
		return
	}
	for _, i := range e.block(s) {
		if s.group.Part(i) == feedback.PartActive && s.group.Progress(i).PSN.Next().Before(oldest) {
			e.fail("receiver %d may lack packet %d, and the engine has overwritten it", i, e.packet(s.group.Progress(i).PSN.Next()))
		}
	}
}

// known is the first packet that the group has not heard of.
func (e *engine) known(s *state) uint8 { return uint8(e.packet(s.group.NextPSN())) }

// reconsider decides, after an event, whether the engine may go on.
func (e *engine) reconsider(s *state) {
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
	e.extend(s)
	e.resume(s)
}

// disarm ends the engine's turn.
func (e *engine) disarm(s *state) {
	e.sync(s)
	s.fan = fan{}
	for i := range s.receivers {
		s.receivers[i].inBlock = false
	}
}
