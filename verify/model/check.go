package model

import (
	"fmt"
	"slices"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// engine makes moves in states of one world. It holds what a move needs and no state keeps.
type engine struct {
	*World
	acts   []feedback.Action
	broken string // the first thing that a move did and must not
	tape   *tape  // nil: nobody listens
}

func (e *engine) fail(format string, args ...any) {
	if e.broken == "" {
		e.broken = fmt.Sprintf(format, args...)
	}
}

// step gives the group an event and delivers what it wants sent.
func (e *engine) step(s *state, ev feedback.Event) {
	var outcome feedback.Outcome
	e.acts, outcome = s.group.Step(s.now, ev, e.acts[:0])
	if r := &s.receivers[ev.Path]; heard(ev, outcome) {
		r.asked = r.asked || !ev.Syndrome.IsACK() && ev.PSN == e.psn(int8(r.expected))
	}
	e.tape.event(e.World, s, ev, outcome, e.acts)
	for i := range e.acts {
		switch a := &e.acts[i]; a.Kind {
		case feedback.Copy:
			e.forward(s, a)
		case feedback.Reply:
			e.checkReply(s, a)
			s.home.push(message{packet: int8(e.packet(a.PSN)), syndrome: a.Syndrome})
		case feedback.Notice:
			e.checkNotice(s, a)
		}
	}
}

// heard says whether the group took an answer. One that comes right after a restart, before any data, cannot be placed:
// it is as good as lost.
func heard(ev feedback.Event, o feedback.Outcome) bool {
	return ev.Kind == feedback.Response && o != feedback.NotTakingPart && o != feedback.OutsideWindow
}

func (e *engine) forward(s *state, a *feedback.Action) {
	r := &s.receivers[a.Path]
	packet := uint8(e.packet(a.PSN))
	if r.out {
		e.fail("packet %d is sent to a receiver that left", packet)
	}
	if !r.dead {
		r.down.push(packet)
	}
}

// checkReply is rule 1, and rule 6 for the MSN.
func (e *engine) checkReply(s *state, a *feedback.Action) {
	packet := int(e.packet(a.PSN))
	told := packet // packets up to here are acknowledged
	if !a.Syndrome.IsACK() {
		told--
	}
	has := e.has(s)
	// What only who left since had may have been told; an MSN does not go back.
	switch complete := max(e.complete[has], s.messages); {
	case told >= has && told > int(s.told):
		e.fail("%v %d is told, and %s has only up to %d", a.Syndrome, packet, e.who(), has-1)
	case packet > int(s.place):
		e.fail("%v %d is told while the source is at %d", a.Syndrome, packet, s.place)
	case packet >= int(s.src.sent):
		e.fail("%v %d is told and only %d packets were ever sent", a.Syndrome, packet, s.src.sent)
	case told < has && (a.MSN > complete || a.MSN < e.complete[told+1]):
		e.fail("%v %d is told with MSN %d; %s has %d messages", a.Syndrome, packet, a.MSN, e.who(), complete)
	}
	s.told, s.messages = max(s.told, int8(told)), max(s.messages, a.MSN)
}

// checkHeard is rule 1 once more, where the source is: real rxe believes an ACK that is ahead of a resend, skips packets
// and may hang for good. A timeout while the ACK is on its way makes that happen with any peer.
func (e *engine) checkHeard(s *state) {
	if s.src.ahead > 0 && int(s.left.early) == e.Early {
		e.fail("the source hears ACK %d while it resends and has come to %d", s.src.ahead, s.src.next)
	}
}

// has is how many packets, in order, the counted receivers have: the f-th best with a quorum, else the last. What only
// an evicted one has counts no more, but for what was told before.
func (e *engine) has(s *state) int {
	var have [maxReceivers]int
	n := 0
	for i := range s.receivers[:e.Receivers] {
		if r := &s.receivers[i]; !r.gone {
			have[n] = int(r.expected)
			n++
		}
	}
	for i := 1; i < n; i++ { // best first
		for k := i; k > 0 && have[k] > have[k-1]; k-- {
			have[k], have[k-1] = have[k-1], have[k]
		}
	}
	if f := int(e.Policy.Ack); f > 0 {
		return have[f-1]
	}
	if n == 0 {
		return e.Packets
	}
	return have[n-1]
}

func (e *engine) who() string {
	if e.Policy.Ack != feedback.AckAll {
		return "the quorum"
	}
	return "the last receiver"
}

func (e *engine) checkNotice(s *state, a *feedback.Action) {
	r := &s.receivers[a.Path]
	switch a.Note {
	case feedback.NoteEvicted:
		r.out, r.gone, r.asked = true, true, false
	case feedback.NoteBehind:
		e.checkBehind(s, a.Path)
		r.out, r.asked = true, false
	case feedback.NoteFatal:
		if !r.dead {
			e.fail("receiver %d is reported dead and lives", a.Path)
		}
	}
}

// checkBehind is rule 9: a receiver is behind only if it can never get its next packet. Copies that are on a link while
// the switch restarts are exempt: a restart takes longer than they do, and a switch that met them afterwards would know
// nothing of them.
func (e *engine) checkBehind(s *state, i int) {
	r := &s.receivers[i]
	switch {
	case r.dead, r.overtaken:
	case int(r.expected) > int(s.told):
		e.fail("receiver %d is called behind, and packet %d is not acknowledged yet", i, r.expected)
	case slices.Contains(r.down.all(), r.expected):
		e.fail("receiver %d is called behind, and packet %d is on its way to it", i, r.expected)
	}
}

// checkEnd looks at a state in which nothing can happen any more.
func (e *engine) checkEnd(s *state) {
	switch {
	case s.src.status == refused:
		e.checkFatal(s)
	case s.src.status == exceeded:
		if !s.mayExceed() {
			e.fail("the source's QP died of its retry count")
		}
	case !s.src.done(e.World):
		e.fail("the source waits for packet %d, and nothing can happen", s.src.unacked)
	case e.has(s) < e.Packets:
		e.fail("the source has finished, and %s has only up to %d", e.who(), e.has(s)-1)
	default:
		e.checkForgotten(s)
	}
}

// mayExceed says whether somebody is dead and the switch may not know.
func (s *state) mayExceed() bool {
	for i := range s.receivers {
		if r := &s.receivers[i]; r.dead && !r.out {
			return true
		}
	}
	return false
}

// checkFatal wants a fatal NAK to be what a receiver said or what a READ is answered with, about the first packet that
// is not delivered to all. With a quorum the packet may be a later one, and too few receivers are a reason as well.
func (e *engine) checkFatal(s *state) {
	end := s.src.end
	if e.Read > 0 && end == (fatal{roce.NAKInvalidRequest, uint8(e.Read)}) {
		return
	}
	quorum, living := e.Policy.Ack != feedback.AckAll, 0
	for i := range s.receivers[:e.Receivers] {
		r := &s.receivers[i]
		if r.dead && end.syndrome == fatalSyndrome && (end.packet == r.expected || quorum && end.packet > r.expected) {
			return
		}
		if !r.dead && !r.out {
			living++
		}
	}
	if quorum && living < int(e.Policy.Ack) && end.syndrome == roce.NAKRemoteOperational {
		return
	}
	e.fail("the source ended with %v for packet %d, which nobody said", end.syndrome, end.packet)
}

// checkForgotten is rule 9: when the source has finished, a receiver that asked for a packet and did not get it is
// reported: at once, or as soon as the switch has seen enough of what the source sends next.
func (e *engine) checkForgotten(s *state) {
	if e.Policy.NeedsTimer() {
		for range 3 {
			e.tick(s)
		}
	}
	if e.Policy.Ack != feedback.AckAll && e.forgotten(s) >= 0 {
		e.goOn(s)
	}
	if i := e.forgotten(s); i >= 0 {
		e.fail("receiver %d asked for packet %d, never gets it, and is not reported", i, s.receivers[i].expected)
	}
}

// forgotten returns a receiver that waits for a packet it asked for and was not reported; -1 if there is none.
func (e *engine) forgotten(s *state) int {
	return slices.IndexFunc(s.receivers[:e.Receivers], func(r receiver) bool {
		return r.asked && !r.out && !r.dead && int(r.expected) < e.Packets
	})
}

// goOn lets the source send packets beyond the world's. Each is answered by the receivers that have all before it; the
// others send their NAK, unless they have.
func (e *engine) goOn(s *state) {
	const enough = 10
	e.takeAll(s)
	for packet := int8(e.Packets); packet < int8(e.Packets)+enough; packet++ {
		s.now += tickLength
		s.place = packet
		e.notices(s, feedback.Event{Kind: feedback.Data, PSN: e.psn(packet), AckReq: true, First: true, Last: true})
		for i := range s.receivers[:e.Receivers] {
			e.goOnAnswer(s, i, packet)
		}
	}
}

func (e *engine) goOnAnswer(s *state, i int, packet int8) {
	r := &s.receivers[i]
	a := answer{packet: packet, syndrome: roce.SyndromeUnlimited}
	switch {
	case r.dead || r.out:
		return
	case int(r.expected) == e.Packets:
	case r.naked:
		return
	default:
		a = r.says(e.World, int8(r.expected), roce.NAKSequence)
		r.naked, r.asked = true, true
	}
	e.notices(s, a.event(e.World, i))
}

// notices gives the group an event and looks only at what it reports.
func (e *engine) notices(s *state, ev feedback.Event) {
	e.acts, _ = s.group.Step(s.now, ev, e.acts[:0])
	for i := range e.acts {
		if a := &e.acts[i]; a.Kind == feedback.Notice {
			e.checkNotice(s, a)
		}
	}
}
