package model

import "github.com/rocast/rocast/feedback"

// checkSuccession lets another member take its turn when the source has finished, as often as its
// queue pair would try. No fault happens any more. The member must become the source. The receivers
// that take part from then on must have everything: PSNs of the next source map onto those that a
// receiver lacks. A receiver that can still be repaired must take part. A switch that has restarted
// since may not know what the source has sent, or whether its last message has ended. Then it lets
// nobody become the source.
func (e *engine) checkSuccession(before *state) {
	if int(before.left.crashes) < e.Crashes && (!before.group.Settled() || before.group.Inside()) {
		return
	}
	if before.group.MayAsk() {
		return // the next source's packets then lead to Ask and not to Claim: checkTakeOver
	}
	if e.Takes > 0 {
		return // checkTakeOver
	}
	if e.Late > 0 {
		return // the worlds of before have the same, and a turn begins with who has joined
	}
	s := &e.succession
	s.copyFrom(before)
	e.disarm(s)
	e.deliver(s)
	oldest, next := s.group.Oldest(), feedback.SourceSwitch{PSN: e.psn(int8(e.Packets)), OldPath: -1, NewPath: -1}
	for tries := 0; !s.group.MaySwitch(s.now, next); tries++ {
		if tries == 3 {
			e.fail("the source has finished, and no other member can become the source")
			return
		}
		retained := s.group.Oldest()
		e.acts = s.group.Claim(s.now, e.acts[:0])
		e.perform(s, feedback.Event{Kind: feedback.Timer}, e.acts, retained, retained)
		e.deliver(s)
		if !s.group.MaySwitch(s.now, next) {
			e.tick(s)
			e.deliver(s)
		}
	}
	for _, a := range s.group.SwitchSource(next, e.acts[:0]) {
		r := &s.receivers[a.Path]
		needs := e.psn(min(int8(r.expected), int8(e.Packets)-1)) // the newest packet shows what it has
		if e.Policy.Repair != feedback.RepairOff && !r.dead && !needs.Before(oldest) {
			e.fail("receiver %d is left behind, and packet %d is retained", a.Path, e.packet(needs))
		}
	}
	for i := range s.receivers[:e.Receivers] {
		if r := &s.receivers[i]; s.group.Part(i) == feedback.PartActive && int(r.expected) < e.Packets {
			e.fail("receiver %d takes part when another member is the source, and lacks packet %d", i, r.expected)
		}
	}
	for sent := range 3 {
		e.checkReturn(s, sent, hasEnded)
		e.checkReturn(s, sent, isInside)
		e.checkReturn(s, sent, isIdle)
		e.checkReturn(s, sent, isLate)
		if sent > 0 {
			e.checkReturn(s, sent, isBack)
			e.checkReturn(s, sent, isDeaf)
		}
		if e.Policy.Repair != feedback.RepairOff {
			e.checkReturn(s, sent, hasRetried)
			e.checkReturn(s, sent, isResting)
		}
		if e.Policy.Switch == feedback.SwitchForce {
			e.checkReturn(s, sent, wasShort)
			e.checkReturn(s, sent, isSlow)
		}
	}
	e.checkReturn(s, 2, oldComes)
}

// deliver lets the receivers take what is on its way to them, and the switch hears their answers,
// until nothing is on its way.
func (e *engine) deliver(s *state) {
	for again := true; again; {
		again = false
		for i := range e.Receivers {
			for r := &s.receivers[i]; r.down.n > 0; {
				if a, answered := r.take(e.World, r.down.remove(0), takes); answered {
					e.step(s, a.event(e.World, i))
					again = true
				}
			}
		}
	}
}
