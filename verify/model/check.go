package model

import (
	"fmt"
	"slices"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// engine makes moves in the states of one world. It holds the working data that is not part of a
// state.
type engine struct {
	*World
	acts    []feedback.Action
	members []int  // of the engine's block
	broken  string // the first violation that a move has caused
	tape    *tape  // nil: nothing is recorded

	succession state // that of checkSuccession
	old        bool  // tests only: a switch that restarts begins with the turn before the newest
}

func (e *engine) fail(format string, args ...any) {
	if e.broken == "" {
		e.broken = fmt.Sprintf(format, args...)
	}
}

// step gives the group an event, as the forwarding core does: behind what its engine has carried.
func (e *engine) step(s *state, ev feedback.Event) {
	if s.fan.taking {
		e.disarm(s)
	}
	e.sync(s)
	e.take(s, ev)
	e.reconsider(s)
}

// take gives the group an event and delivers the packets and replies that the group sends.
func (e *engine) take(s *state, ev feedback.Event) {
	var outcome feedback.Outcome
	retained, next := s.group.Oldest(), s.group.NextPSN()
	e.acts, outcome = s.group.Step(s.now, asTrain(s.group, ev), e.acts[:0])
	if r := &s.receivers[ev.Path]; heard(ev, outcome) {
		r.heardNAK = r.heardNAK || !ev.Syndrome.IsACK() && ev.PSN == e.psn(int8(r.expected))
	}
	e.tape.event(e.World, s, ev, outcome, e.acts)
	helps := retained
	if ev.Kind == feedback.Response && s.group.NextPSN() != next {
		// The first answer after a restart shows that more was forwarded before the restart. None
		// of that is retained, and what is retained has no holes.
		helps = s.group.Oldest()
	}
	e.perform(s, ev, e.acts, retained, helps)
	switch {
	case e.Shares && outcome == feedback.Forwarded:
		e.shareBeside(s, ev, e.acts)
	case e.Shares && outcome == feedback.BeyondSent && e.Crashes == 0:
		e.fail("what receiver %d has by a shared copy is refused", ev.Path)
	}
}

// shareBeside delivers the shared copy of a new packet to the receivers to which the packet is not
// due, because they are under repair.
func (e *engine) shareBeside(s *state, ev feedback.Event, acts []feedback.Action) {
	for i := range s.receivers[:e.Receivers] {
		part := s.group.Part(i)
		isDue := slices.ContainsFunc(acts, func(a feedback.Action) bool { return a.Kind == feedback.Copy && a.Path == i })
		if !isDue && (part == feedback.PartActive || part == feedback.PartUnknown) {
			e.forward(s, &feedback.Action{Path: i}, uint8(e.packet(ev.PSN)))
		}
	}
}

// asTrain returns ev as the data path gives it to the group: the next packet of a plain group is a
// train.
func asTrain(g *feedback.Group, ev feedback.Event) feedback.Event {
	if ev.Kind != feedback.Data || g.Plain() == 0 || ev.PSN != g.NextPSN() || ev.PSN.After(g.Horizon()) {
		return ev
	}
	train := feedback.Event{Kind: feedback.Train, PSN: ev.PSN.Prev()}
	train.Add(ev.AckReq, ev.Last)
	return train
}

// perform delivers the packets and replies that ev causes. Nothing below retained is retained, and
// nothing below helps was.
func (e *engine) perform(s *state, ev feedback.Event, acts []feedback.Action, retained, helps roce.PSN) {
	for i := range acts {
		switch a := &acts[i]; a.Kind {
		case feedback.Copy:
			e.forward(s, a, uint8(e.packet(a.PSN)))
		case feedback.Repair:
			e.repair(s, ev, a, retained)
		case feedback.Question:
			e.forward(s, a, question)
		case feedback.Reply:
			e.checkReply(s, a)
			e.checkHelpless(s, a, helps)
			s.home.push(message{packet: int8(e.packet(a.PSN)), syndrome: a.Syndrome})
		case feedback.Notice:
			e.checkNotice(s, a, helps)
		case feedback.Join:
			r := &s.receivers[a.Path]
			r.from = uint8(e.packet(a.PSN))
			r.expected, r.joining = r.from, false
		}
	}
}

// heard reports whether the group accepted an answer. The group cannot place an answer that arrives
// after a restart and before any data; such an answer is treated as lost.
func heard(ev feedback.Event, o feedback.Outcome) bool {
	return ev.Kind == feedback.Response && o != feedback.NotTakingPart && o != feedback.OutsideWindow
}

// repair sends a retained packet again. The switch has no packet below retained.
func (e *engine) repair(s *state, ev feedback.Event, a *feedback.Action, retained roce.PSN) {
	packet := uint8(e.packet(a.PSN))
	switch {
	case a.PSN.Before(retained), !a.PSN.Before(s.group.NextPSN()):
		e.fail("packet %d is sent again and not retained", packet)
	case ev.Kind == feedback.Response && ev.Path != a.Path:
		e.fail("the answer of receiver %d makes packet %d go to receiver %d", ev.Path, packet, a.Path)
	}
	if a.AckReq && !e.asks[packet] {
		packet |= asksAnyway
	}
	e.forward(s, a, packet)
}

// checkHelpless checks that the source hears a NAK only if the switch cannot help: for a packet
// that is not retained or was never forwarded, or that repair has given up. A source that is silent
// may hear one for the newest packet that came, when all receivers have it, and one that was called
// back may be called again to a packet that a quorum has: it is retained for the others.
func (e *engine) checkHelpless(s *state, a *feedback.Action, retained roce.PSN) {
	off := e.Policy.Repair == feedback.RepairOff
	if off || a.Syndrome.IsACK() || a.Syndrome.IsFatal() || a.PSN.Before(retained) || !a.PSN.Before(s.group.NextPSN()) {
		return
	}
	if a.Syndrome == roce.NAKSequence && a.PSN.Next() == s.group.NextPSN() && s.group.Settled() {
		return
	}
	paths, lower := s.group.Snapshot().Paths, e.Policy.Nak == feedback.NakLower
	if e.quorumHas(paths, a.PSN) {
		return
	}
	if !slices.ContainsFunc(paths, func(p feedback.PathSnapshot) bool {
		return p.Unmended && (lower || p.Acked.Next() == a.PSN) || lower && p.Acked.Next().Before(retained)
	}) {
		e.fail("%v %d is told, and the switch can repair that", a.Syndrome, e.packet(a.PSN))
	}
}

// quorumHas reports whether a quorum has acknowledged a packet. Without a quorum, such a packet is
// not retained.
func (e *engine) quorumHas(paths []feedback.PathSnapshot, psn roce.PSN) bool {
	has := 0
	for i, p := range paths {
		if !p.Acked.Before(psn) {
			has += e.weight(i)
		}
	}
	return e.Policy.Ack != feedback.AckAll && has >= int(e.Policy.Ack)
}

func (e *engine) forward(s *state, a *feedback.Action, packet uint8) {
	r := &s.receivers[a.Path]
	if r.out || r.away {
		e.fail("packet %d is sent to a receiver that left", packet&^asksAnyway)
	}
	if !r.dead {
		r.down.push(packet)
	}
}

// checkReply checks rule 1, and rule 6 for the MSN.
func (e *engine) checkReply(s *state, a *feedback.Action) {
	packet := int(e.packet(a.PSN))
	told := packet // packets up to this one are acknowledged
	if !a.Syndrome.IsACK() {
		told--
	}
	has := e.has(s)
	// The source may already know of messages that only a departed receiver had, because an MSN
	// never decreases. Where no packet is lost, the switch knows which messages the source has sent
	// again.
	complete := max(e.complete[has], s.messages)
	if e.Losses+e.Crashes == 0 && told < has {
		complete = max(e.complete[told+1], s.messages)
	}
	switch {
	case told >= has && told > int(s.told):
		e.fail("%v %d is told, and %s has only up to %d", a.Syndrome, packet, e.counted(), has-1)
	case packet > int(s.place) && !(e.Relayed && a.Syndrome.IsACK()):
		e.fail("%v %d is told while the source is at %d", a.Syndrome, packet, s.place)
	case packet >= int(s.src.sent):
		e.fail("%v %d is told and only %d packets were ever sent", a.Syndrome, packet, s.src.sent)
	case told < has && (a.MSN > complete || a.MSN < e.complete[told+1]):
		e.fail("%v %d is told with MSN %d; %s has %d messages", a.Syndrome, packet, a.MSN, e.counted(), complete)
	}
	s.told, s.messages = max(s.told, int8(told)), max(s.messages, a.MSN)
	s.few = s.few || a.Syndrome == roce.NAKRemoteOperational && e.tooFew(s)
}

// tooFew reports whether fewer receivers than the quorum are alive and get data.
func (e *engine) tooFew(s *state) bool {
	living := 0
	for i := range s.receivers[:e.Receivers] {
		if r := &s.receivers[i]; !r.dead && !r.out && !r.away && !r.joining && int(r.from) <= int(s.told)+1 {
			living += e.weight(i)
		}
	}
	return living < e.least(s)
}

// checkHeard checks rule 1 at the source. If an ACK is ahead of a resend, the real rxe accepts the
// ACK, skips packets and may hang forever. An early timeout while the ACK is on its way causes this
// with any peer, so runs with an early timeout are exempt.
func (e *engine) checkHeard(s *state) {
	if s.src.ahead > 0 && int(s.left.early) == e.Early {
		e.fail("the source hears ACK %d while it resends and has come to %d", s.src.ahead, s.src.next)
	}
}

// has returns how many packets, in order, the counted receivers have. With a quorum of f, this is
// the count of the f-th best receiver, otherwise the count of the slowest receiver. Packets that
// only an evicted receiver has do not count, except for acknowledgements that the source heard
// before the eviction.
func (e *engine) has(s *state) int {
	return e.hasWithout(s, func(r *receiver) bool { return r.gone })
}

// finished is has for a state in which nothing more can happen. There an acknowledgement that the
// source heard before a crash does not count for a receiver that was evicted before the crash.
func (e *engine) finished(s *state) int {
	return e.hasWithout(s, func(r *receiver) bool { return r.gone || r.left })
}

func (e *engine) hasWithout(s *state, left func(*receiver) bool) int {
	counted, weights := make([]*receiver, 0, maxReceivers), make([]int, 0, maxReceivers)
	for i := range s.receivers[:e.Receivers] {
		if r := &s.receivers[i]; !left(r) && !r.joining && !r.away {
			counted, weights = append(counted, r), append(weights, e.weight(i))
		}
	}
	need := e.least(s)
	if e.Policy.Ack == feedback.AckAll {
		need = max(need, len(counted))
	}
	for n := int(s.first); n < e.Packets; n++ {
		have := 0
		for i, r := range counted {
			// Who has joined lacks what was sent before. The quorum is one of others for that.
			if late := n < int(r.from) && e.Policy.Ack != feedback.AckAll && n > int(s.told); n < int(r.expected) && !late {
				have += weights[i]
			}
		}
		if have < need {
			return n
		}
	}
	return e.Packets
}

func (e *engine) counted() string {
	if e.Policy.Ack != feedback.AckAll {
		return "the quorum"
	}
	return "the last receiver"
}

func (e *engine) checkNotice(s *state, a *feedback.Action, helps roce.PSN) {
	r := &s.receivers[a.Path]
	if out := a.Note == feedback.NoteEvicted || a.Note == feedback.NoteBehind; out && e.Needed && a.Path == 0 {
		e.fail("the switch above is left out")
	}
	switch a.Note {
	case feedback.NoteEvicted:
		r.out, r.gone, r.heardNAK = true, true, false
	case feedback.NoteBehind:
		e.checkBehind(s, a, helps)
		r.out, r.heardNAK = true, false
	case feedback.NoteFatal:
		if !r.dead {
			e.fail("receiver %d is reported dead and lives", a.Path)
		}
	}
}

// checkBehind checks rule 9: a receiver may be declared behind only if it can never get its next
// packet, neither from the source nor by repair. Nothing below helps was retained.
func (e *engine) checkBehind(s *state, a *feedback.Action, helps roce.PSN) {
	i := a.Path
	r := &s.receivers[i]
	switch {
	case e.Policy.Repair != feedback.RepairOff && !a.PSN.Before(helps):
		e.fail("receiver %d is called behind, and what it waits for is retained", i)
	case r.dead:
	case int(r.expected) > int(s.told):
		e.fail("receiver %d is called behind, and packet %d is not acknowledged yet", i, r.expected)
	case slices.ContainsFunc(r.down.all(), func(p uint8) bool { return p&^asksAnyway == r.expected }):
		e.fail("receiver %d is called behind, and packet %d is on its way to it", i, r.expected)
	}
}

// checkEnd checks a state in which nothing more can happen.
func (e *engine) checkEnd(s *state) {
	switch {
	case s.src.status == refused:
		e.checkFatal(s)
	case s.src.status == exceeded:
		if !e.mayExceed(s) {
			e.fail("the source's QP died of its retry count")
		}
	case e.stands(s):
	case !s.src.done(e.World):
		e.fail("the source waits for packet %d, and nothing can happen", s.src.unacked)
	case e.finished(s) < e.Packets:
		e.fail("the source has finished, and %s has only up to %d", e.counted(), e.finished(s)-1)
	default:
		e.checkSuccession(s)
		e.checkForgotten(s)
	}
	e.checkTakeOver(s)
}

// stands reports whether a source that retries for ever can get no further, and the switch cannot
// end it: a receiver is dead, and the switch does not know that, because nothing evicts it. Too few
// others have what the source was told, and those of them are reported that lack some of it and
// have asked for it.
func (e *engine) stands(s *state) bool {
	if !e.Unlimited || e.Policy.Ack == feedback.AckAll || s.group.Waiting() || s.home.n > 0 {
		return false
	}
	for i := range s.receivers[:e.Receivers] {
		if r := &s.receivers[i]; !r.dead && !r.out && r.expected < s.src.unacked && r.heardNAK {
			return false
		}
	}
	return e.noQuorum(s)
}

// noQuorum reports whether fewer receivers than the quorum are alive, get data, and have what the
// source has let go of.
func (e *engine) noQuorum(s *state) bool {
	able := 0
	for i := range s.receivers[:e.Receivers] {
		if r := &s.receivers[i]; !r.dead && !r.out && !r.away && !r.joining && r.from <= s.src.unacked && r.expected >= s.src.unacked {
			able += e.weight(i)
		}
	}
	return able < e.least(s)
}

// mayExceed reports whether a receiver is dead and the switch may not know that, or in doubt. A
// receiver in doubt is behind after eight packets, which the source may not live to send. Without
// an engine only lost packets of the uplink and restarts lead to doubt, and the source outlives
// both, unless a restart made the switch forget that no quorum is left.
func (e *engine) mayExceed(s *state) bool {
	for i := range s.receivers {
		switch r := &s.receivers[i]; {
		case r.out:
		case r.dead, e.Armed > 0 && r.heardNAK && int(r.expected) <= int(s.told):
			return true
		}
	}
	return int(s.left.crashes) < e.Crashes && e.noQuorum(s)
}

// checkFatal checks the fatal NAK that ended the source. The NAK must come from a receiver or be
// the answer to a READ, and it must be about the first packet that is not delivered to all
// receivers. With a quorum the packet may be a later one, and too few living receivers are a valid
// reason too: too few when the switch sent the NAK, because a crash makes it forget who left.
func (e *engine) checkFatal(s *state) {
	end := s.src.end
	if e.Read > 0 && end == (fatal{roce.NAKInvalidRequest, uint8(e.Read)}) {
		return
	}
	quorum := e.Policy.Ack != feedback.AckAll
	for i := range s.receivers[:e.Receivers] {
		r := &s.receivers[i]
		if r.dead && end.syndrome == fatalSyndrome && (end.packet == r.expected || quorum && end.packet > r.expected) {
			return
		}
	}
	if end.syndrome == roce.NAKRemoteOperational && s.few {
		return
	}
	e.fail("the source ended with %v for packet %d, which no receiver sent", end.syndrome, end.packet)
}

// checkForgotten checks rule 9 when the source has finished: a receiver that asked for a packet and
// did not get it must be reported, either immediately or when the switch has seen enough later
// packets of the source.
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

// forgotten returns a receiver that asked for a packet, did not get it and was not reported; -1:
// none.
func (e *engine) forgotten(s *state) int {
	return slices.IndexFunc(s.receivers[:e.Receivers], func(r receiver) bool {
		return r.heardNAK && !r.out && !r.dead && int(r.expected) < e.Packets
	})
}

// goOn lets the source send packets after the last packet of the world. A receiver that has all
// earlier packets acknowledges each of them; any other receiver sends its NAK once.
func (e *engine) goOn(s *state) {
	const enough = 10
	e.disarm(s)
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
		r.naked, r.heardNAK = true, true
	}
	e.notices(s, a.event(e.World, i))
}

// notices gives the group an event and checks only the notices that the group returns.
func (e *engine) notices(s *state, ev feedback.Event) {
	helps := s.group.Oldest()
	e.acts, _ = s.group.Step(s.now, ev, e.acts[:0])
	for i := range e.acts {
		switch a := &e.acts[i]; a.Kind {
		case feedback.Notice:
			e.checkNotice(s, a, helps)
		case feedback.Repair: // it arrives
			if r := &s.receivers[a.Path]; e.packet(a.PSN) == int32(r.expected) {
				r.expected++
				r.heardNAK = false
			}
		}
	}
}
