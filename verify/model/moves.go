package model

import (
	"slices"

	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// move is one possible next event.
type move struct {
	kind     moveKind
	fate     fate
	response response
	receiver uint8
	index    uint8 // index in a queue; of a crash, the old packet that comes first afterwards, plus one
}

type moveKind uint8

const (
	sends     moveKind = iota // the source sends its next packet, and it reaches the switch
	hears                     // the source hears the oldest reply
	answers                   // a receiver takes the packets up to index, and its answer to the last of them reaches the switch
	drops                     // a packet on its way to a receiver is lost
	overtook                  // a delayed or duplicated answer reaches the switch
	rnrEnds                   // the source's RNR timer runs out
	quiet                     // nothing else can happen: the switch's timer runs out, then the source's timer
	early                     // the source's retransmit timer runs out
	ticks                     // the switch's timer runs out
	crashes                   // the switch crashes; with isLost it also misses the answers of that time
	perishes                  // a receiver dies
	arms                      // the switch hands the group to its engine
	carries                   // the source sends its next packet, and the engine sends it to all receivers
	forgets                   // the switch loses the oldest packet that it retains
	takesOver                 // another member sends its next packet, and may become the source
)

// fate is the fate of a packet or an answer after it was sent.
type fate uint8

const (
	arrives fate = iota
	isLost
	isDelayed
	isDoubled
)

// tickLength is longer than any time that the merging uses.
const tickLength = feedback.Tick(2 * time.Second)

// moves appends the moves that are possible in s.
func (e *engine) moves(s *state, ms []move) []move {
	if s.src.status != running {
		return ms
	}
	from := len(ms)
	if s.src.canSend(e.World) {
		ms = e.sendMoves(s, ms)
	}
	if s.home.n > 0 {
		ms = append(ms, move{kind: hears})
	}
	if s.src.rnrWait {
		ms = append(ms, move{kind: rnrEnds})
	}
	for i := range s.receivers[:e.Receivers] {
		ms = e.receiverMoves(s, uint8(i), ms)
	}
	if len(ms) == from {
		if (s.src.waits(e.World) || s.group.Waiting() && !e.deadAlone(s)) && !e.stands(s) {
			ms = append(ms, move{kind: quiet})
		}
	} else {
		ms = e.mishaps(s, ms)
	}
	if e.mayTakeOver(s) {
		ms = append(ms, move{kind: takesOver})
	}
	if s.left.armed > 0 && !s.fan.armed && s.group.Plain() > 0 {
		ms = append(ms, move{kind: arms})
	}
	return ms
}

// receiverMoves appends the answers of receiver i that can reach the switch next.
func (e *engine) receiverMoves(s *state, i uint8, ms []move) []move {
	r := s.receivers[i]
	for k := range r.down.n {
		next := !r.dead && r.down.at[k]&^asksAnyway == r.expected
		if next && s.left.notReady > 0 && r.expected == e.firstOf(r.expected) {
			ms = append(ms, move{kind: answers, receiver: i, index: k, response: notReady})
		}
		if next && s.left.fatals > 0 {
			ms = append(ms, move{kind: answers, receiver: i, index: k, response: dies})
		}
		if _, answered := r.take(e.World, r.down.at[k], takes); answered {
			ms = append(ms, move{kind: answers, receiver: i, index: k})
			break
		}
	}
	for k := range r.aside.n {
		ms = append(ms, move{kind: overtook, receiver: i, index: k})
	}
	return ms
}

// mishaps appends the faults that the budget still allows. Faults happen only if at least one other
// move is possible.
func (e *engine) mishaps(s *state, ms []move) []move {
	for _, m := range ms {
		for _, f := range e.fates(s, m) {
			m.fate = f
			ms = append(ms, m)
		}
	}
	for i := range s.receivers[:e.Receivers] {
		r := &s.receivers[i]
		if s.left.losses > 0 {
			ms = e.packetLosses(r, uint8(i), ms)
		}
		if s.left.deaths > 0 && !r.dead {
			ms = append(ms, move{kind: perishes, receiver: uint8(i)})
		}
	}
	if s.left.early > 0 && s.src.waits(e.World) && !s.src.idle {
		ms = append(ms, move{kind: early})
	}
	if s.left.ticks > 0 {
		ms = append(ms, move{kind: ticks})
	}
	if s.left.forgets > 0 && s.group.Oldest().Before(s.group.NextPSN()) {
		ms = append(ms, move{kind: forgets})
	}
	if s.left.crashes > 0 {
		ms = append(ms, move{kind: crashes}, move{kind: crashes, fate: isLost})
		if e.mayCarry(s) {
			ms = append(ms, move{kind: crashes, fate: isDelayed})
		}
		for old := uint8(1); s.left.stale > 0 && old <= s.src.unacked; old++ {
			ms = append(ms, move{kind: crashes, index: old}, move{kind: crashes, fate: isLost, index: old})
		}
	}
	return ms
}

func (e *engine) fates(s *state, m move) (f []fate) {
	switch m.kind {
	case sends, carries, overtook:
		if s.left.losses > 0 {
			f = append(f, isLost)
		}
	case hears:
		if s.left.losses > 0 {
			f = append(f, isLost)
		}
		if s.left.doubles > 0 {
			f = append(f, isDoubled)
		}
	case answers:
		if s.left.losses > 0 {
			f = append(f, isLost)
		}
		if s.left.delays > 0 {
			f = append(f, isDelayed)
		}
		if s.left.doubles > 0 {
			f = append(f, isDoubled)
		}
	}
	return f
}

// packetLosses appends the losses of packets up to the first packet that gets an answer. The
// packets behind it can be lost later.
func (e *engine) packetLosses(r *receiver, i uint8, ms []move) []move {
	taker := *r
	for k := range r.down.n {
		ms = append(ms, move{kind: drops, receiver: i, index: k})
		if _, answered := taker.take(e.World, r.down.at[k], takes); answered {
			break
		}
	}
	return ms
}

// make makes the move m in s.
func (e *engine) make(s *state, m move) {
	e.tape.move(e.World, s, m)
	r := &s.receivers[m.receiver]
	switch m.kind {
	case sends:
		e.sends(s, m.fate)
	case hears:
		e.hears(s, m.fate)
	case answers:
		e.answers(s, m)
	case overtook:
		e.arrive(s, m, r.aside.remove(int(m.index)))
	case drops:
		s.left.losses--
		r.down.remove(int(m.index))
	case rnrEnds:
		s.src.goBack()
	case quiet:
		e.quiet(s)
	case early:
		s.left.early--
		s.src.retry(e.World)
	case ticks:
		s.left.ticks--
		e.tick(s)
	case forgets:
		s.left.forgets--
		e.step(s, feedback.Event{Kind: feedback.Lost, PSN: s.group.Oldest()})
	case crashes:
		e.crash(s, m)
	case perishes:
		s.left.deaths--
		r.dead, r.down.n = true, 0
	case arms:
		e.arm(s)
	case carries:
		e.carry(s, m.fate)
	case takesOver:
		e.takeOver(s)
	}
}

// crash makes the switch forget its state: the receivers that it declared behind, the receivers
// that asked for a packet, and the receivers that it evicted. The switch would evict those
// receivers again. The source hears all replies that are on their way before the switch is back.
// With isLost, the receivers also take their packets, and their answers are lost. With isDelayed,
// the engine carries one more packet while the switch is dead. With an index, a copy of a packet
// that is acknowledged arrives first when the switch is back.
func (e *engine) crash(s *state, m move) {
	s.left.crashes--
	if m.fate == isDelayed {
		e.carry(s, arrives)
	}
	s.fan = fan{}
	for s.home.n > 0 {
		e.hears(s, arrives)
	}
	s.few = s.few && s.src.status == refused
	if m.fate == isLost {
		e.takeAll(s)
	}
	for i := range s.receivers {
		r := &s.receivers[i]
		r.left = r.left || r.gone
		r.out, r.gone, r.heardNAK, r.inBlock = r.stored, r.stored && e.Policy.Ack == feedback.AckAll, false, false
	}
	var joined []feedback.Joined
	if last := &s.receivers[e.Receivers-1]; s.isOpen(last) {
		joined = []feedback.Joined{{Path: e.Receivers - 1, PSN: e.psn(int8(last.from))}}
	}
	s.group = e.restored(s, joined)
	if s.receivers[e.Receivers-1].joining {
		e.letJoin(s)
	}
	if m.index > 0 {
		s.left.stale--
		e.step(s, e.data(m.index-1))
	}
}

// restored returns the merging state of a switch that begins again with the turn in which it has
// crashed. Control knows whose turn that is and who was left behind when it began.
func (e *engine) restored(s *state, joined []feedback.Joined) *feedback.Group {
	c := feedback.Config{FirstPSN: e.psn(int8(s.first)), Restored: true, Joined: joined}
	for i := range s.receivers[:e.Receivers] {
		part := feedback.PartActive
		if s.receivers[i].stored {
			part = feedback.PartBehind
		}
		c.Parts = append(c.Parts, part)
	}
	g := e.newGroup(c)
	switch {
	case s.first > 0 && e.Next:
		g.Away(1, e.Beside)
	case s.first == 0 && e.Member:
		g.Away(0, 0)
	}
	return g
}

func (e *engine) sends(s *state, f fate) {
	packet := s.src.send()
	if f == isLost {
		s.left.losses--
		return
	}
	s.place = int8(packet)
	s.fan.taking = s.fan.armed // whatever the engine does not carry disarms it
	e.step(s, e.data(packet))
}

// data returns the event of a packet of the source.
func (e *engine) data(packet uint8) feedback.Event {
	ev := feedback.Event{
		Kind: feedback.Data, PSN: e.psn(int8(packet)), AckReq: e.asks[packet],
		First: packet == e.firstOf(packet) && int(packet) >= e.Late, Last: packet == e.lastOf(packet),
	}
	if packet == e.read() {
		ev.Kind, ev.Syndrome = feedback.Refuse, roce.NAKInvalidRequest
	}
	return ev
}

func (e *engine) hears(s *state, f fate) {
	m := s.home.at[0]
	if f == isDoubled {
		s.left.doubles--
	} else {
		s.home.remove(0)
	}
	if f == isLost {
		s.left.losses--
		return
	}
	s.src.hear(e.World, m)
	e.checkHeard(s)
}

func (e *engine) answers(s *state, m move) {
	r := &s.receivers[m.receiver]
	for range m.index {
		r.take(e.World, r.down.remove(0), takes)
	}
	switch m.response {
	case notReady:
		s.left.notReady--
	case dies:
		s.left.fatals--
	}
	a, _ := r.take(e.World, r.down.remove(0), m.response)
	if r.dead {
		r.down.n = 0
	}
	e.arrive(s, m, a)
}

func (e *engine) arrive(s *state, m move, a answer) {
	r := &s.receivers[m.receiver]
	switch m.fate {
	case isLost:
		s.left.losses--
		return
	case isDelayed:
		s.left.delays--
		r.aside.push(a)
		return
	case isDoubled:
		s.left.doubles--
		r.aside.push(a)
	}
	if !e.merge(s, int(m.receiver), a) {
		e.step(s, a.event(e.World, int(m.receiver)))
	}
}

// quiet lets time pass. By then the receivers have taken all packets that get no answer. The switch
// repairs in less time than the source waits, so it also looks in less time at what its engine has
// carried.
func (e *engine) quiet(s *state) {
	e.takeAll(s)
	if e.Policy.Repair != feedback.RepairOff {
		e.sync(s)
	}
	for tried := false; e.Policy.NeedsTimer() && !tried || s.group.Waiting(); tried = true {
		e.tick(s)
		if slices.ContainsFunc(e.acts, func(a feedback.Action) bool { return a.Kind != feedback.Question || !s.receivers[a.Path].dead }) {
			return
		}
		if len(e.acts) > 0 {
			break // who is dead is asked for ever
		}
	}
	if s.src.waits(e.World) {
		if e.Unlimited {
			s.now += tickLength // what the switch finds out by the retries takes time
		}
		s.src.retry(e.World)
	}
}

// deadAlone reports whether the group waits only for receivers that are dead: it has given up their
// repair, asks what they have, and all others have everything.
func (e *engine) deadAlone(s *state) (some bool) {
	for i, p := range s.group.Snapshot().Paths {
		switch {
		case p.Part != feedback.PartActive || p.Acked.Next() == s.group.NextPSN():
		case !s.receivers[i].dead || !p.Unmended:
			return false
		default:
			some = true
		}
	}
	return some
}

// takeAll makes the receivers take all packets on their links. The switch does not hear their
// answers.
func (e *engine) takeAll(s *state) {
	for i := range s.receivers[:e.Receivers] {
		for r := &s.receivers[i]; r.down.n > 0; {
			r.take(e.World, r.down.remove(0), takes)
		}
	}
}

// tick lets so much time pass that the switch has run its timer many times. The first time it hears
// of what its engine has carried.
func (e *engine) tick(s *state) {
	e.sync(s)
	s.now += tickLength
	e.step(s, feedback.Event{Kind: feedback.Timer})
}
