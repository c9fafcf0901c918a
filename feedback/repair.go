package feedback

import "github.com/rocast/rocast/roce"

// RepairBurst is the most packets that one answer of a path makes the switch send to it again.
const RepairBurst = 64

// legState is how a path gets its packets.
type legState uint8

const (
	legDirect  legState = iota // new packets are copied to it
	legFeeding                 // it gets retained packets from its cursor on, paced by its ACKs
	legProbing                 // it was silent and was sent the packet that it waits for, and no more
	legResting                 // it has no receive posted, and is sent nothing until its time is over
)

// leg is what repair knows of one path. The packets from its cursor on were not sent to it since it
// was last set back. There is one for each path, so its fields leave no holes (docs/scale.md).
type leg struct {
	// What the path was sent.

	cursor roce.PSN // the next packet that its repair sends
	asked  roce.PSN // the highest packet that asks for an ACK
	high   roce.PSN // the highest packet
	resent roce.PSN // the highest packet that repair has sent

	// Its repair.

	since    Tick   // when the path stopped being direct
	due      Tick   // when its timer runs out, if it runs
	backsAt  Tick   // since when backs counts
	window   uint16 // how many packets beyond acked its repair may send
	flight   uint16 // how many packets fill the path: rate times quickest
	state    legState
	attempts uint8  // how often it was probed since it made progress
	wentBack uint16 // when its repair began or last went back, in milliseconds modulo 2^16
	backs    uint8  // how often it went back since backsAt
	backoff  uint8  // how often it was probed since a round trip was measured, 16 at most
	carried  bool   // it was last sent packets by the engine
	running  bool   // its timer runs
	sampling bool
	served   bool // acked+1 was sent again since the path waits for it
	barred   bool // repair has given up acked+1
	reported bool

	// Its round trips.

	srtt     Tick     // smoothed; 0: none was measured yet
	sampleAt Tick     // when the packet sample was sent
	fromAt   Tick     // since when acked stood at from, or since when the path lacked something
	sample   roce.PSN // the packet whose round trip is being measured, if one is
	from     roce.PSN // acked when sample was sent
	varies   uint32   // by how many nanoseconds round trips differ from srtt, smoothed
	quickest uint32   // the shortest of late, in nanoseconds
	rate     uint32   // how many packets a millisecond the path has acknowledged at most of late

	repaired uint32 // packets that repair has sent
	probes   uint32
	givenUp  uint32
}

// repair is what repair knows of a group. Without repair it is the zero value: no path has a leg,
// nothing is retained, and nothing is a gap.
type repair struct {
	legs  []leg // of each path
	tally RepairTally

	// What follows belongs to one source.

	retained retained
	gap      gapCalls
	guess    guess
	lull     lull
	pace     pace
}

// beginLegs forgets everything but counts and round trips. All paths stand at psn.
func (g *Group) beginLegs(psn roce.PSN) {
	g.repair = repair{legs: g.legs, tally: g.tally, retained: retained{oldest: psn.Next(), lowest: psn, due: endless}}
	for i := range g.legs {
		g.beginLeg(i, psn)
	}
}

// beginLeg makes path i direct. It was sent packets up to psn at most.
func (g *Group) beginLeg(i int, psn roce.PSN) {
	if !g.policy.repairs() {
		return
	}
	l := &g.legs[i]
	*l = leg{
		srtt: l.srtt, varies: l.varies, rate: l.rate, quickest: l.quickest, flight: max(l.flight, leastFlight),
		repaired: l.repaired, probes: l.probes, givenUp: l.givenUp,
		asked: g.paths[i].acked, high: psn, resent: g.paths[i].acked,
	}
}

// learnLeg makes path i direct when it has answered for the first time after a restart. It may owe
// the answer to a packet that it was sent since.
func (g *Group) learnLeg(now Tick, i int) {
	if !g.policy.repairs() {
		return
	}
	owed := g.legs[i].asked
	g.beginLeg(i, g.source.sent)
	if owed.After(g.paths[i].acked) && !owed.After(g.source.sent) {
		g.ask(now, i, owed)
	}
}

// endLeg ends the repair of a path that gets no more data, or begins anew.
func (g *Group) endLeg(i int) {
	if !g.policy.repairs() {
		return
	}
	l := &g.legs[i]
	g.setLeg(l, legDirect)
	g.setRunning(l, false)
	l.served = false
}

func (g *Group) setLeg(l *leg, s legState) {
	if (l.state == legDirect) != (s == legDirect) {
		if s == legDirect {
			g.retained.repairing--
		} else {
			g.retained.repairing++
		}
	}
	if s == legDirect {
		l.reported = false
	}
	l.state = s
}

func (g *Group) setRunning(l *leg, running bool) {
	if l.running != running {
		if running {
			g.retained.running++
		} else {
			g.retained.running--
		}
	}
	l.running = running
}

// rearrangeLegs gives the paths of a new membership their legs.
func (g *Group) rearrangeLegs(from []int) {
	if !g.policy.repairs() {
		return
	}
	legs := make([]leg, len(from))
	for i, old := range from {
		if old >= 0 {
			legs[i] = g.legs[old]
		}
	}
	g.legs = legs
	g.retained.repairing, g.retained.running = 0, 0
	for i := range legs {
		if l := &legs[i]; l.state != legDirect {
			g.retained.repairing++
		}
		if legs[i].running {
			g.retained.running++
		}
	}
}

// sentTo is the highest packet that path i can have. A path that is being repaired was not sent all
// that the group forwarded.
func (g *Group) sentTo(i int) roce.PSN {
	if !g.policy.repairs() {
		return g.source.sent
	}
	return g.legs[i].high
}

// sentAgain reports whether repair has sent path i the packet that it waits for. Its NAK then
// proves nothing (rule 9): it may be older than that copy.
func (g *Group) sentAgain(i int) bool {
	return g.policy.repairs() && g.legs[i].resent.After(g.paths[i].acked)
}

// direct notes that a packet of the source is copied to path i, if that is so: a path under repair
// gets it from its cursor, and a path that has not answered its repair yet was sent it.
func (g *Group) direct(now Tick, i int, ev *Event) bool {
	if !g.policy.repairs() {
		return true
	}
	l, psn := &g.legs[i], ev.PSN
	if l.state != legDirect || l.served && !psn.After(l.resent) {
		g.hurry(now, i, psn)
		return false
	}
	l.carried = ev.Kind == Carried
	g.sends(now, i, psn, ev.AckReq)
	return true
}

// sends notes that packet psn is sent to path i, and begins to measure its round trip if it is sent
// for the first time.
func (g *Group) sends(now Tick, i int, psn roce.PSN, ackReq bool) {
	l := &g.legs[i]
	switch {
	case !psn.After(l.high):
		l.sampling = false
	case ackReq && !l.sampling:
		l.sampling, l.sample, l.sampleAt = true, psn, now
		l.from, l.fromAt = g.paths[i].acked, g.paths[i].since
	}
	l.high = later(l.high, psn)
	if ackReq {
		g.ask(now, i, psn)
	}
}

// mend takes a NAK of an active path for acked+1, if the switch can repair that.
func (g *Group) mend(now Tick, ev *Event, acts []Action) (_ Outcome, _ []Action, done bool) {
	if !g.repairable(ev.Path) {
		g.endLeg(ev.Path)
		return 0, acts, false
	}
	l, p := &g.legs[ev.Path], &g.paths[ev.Path]
	switch rnr := ev.Syndrome.IsRNR(); {
	case l.state == legResting && !l.cursor.Before(p.acked.Next()):
		return Swallowed, acts, true
	case rnr && g.letGo(ev.PSN):
		l.attempts = 0 // the source cannot help, and the path answers
		g.rest(now, ev)
		g.runFor(now, l, max(l.due-now, g.patience(l))) // it may do so for ever
		l.backoff = min(l.backoff+1, 16)
		return Repaired, acts, true
	case rnr && g.spent(l):
		g.giveUp(ev.Path, GivenUpAttempts)
		return 0, acts, false
	case rnr && Tick(ev.Syndrome.RNRTimer().Duration()) > restAtMost:
		g.giveUp(ev.Path, GivenUpRNR)
		return 0, acts, false
	case rnr:
		g.rest(now, ev)
		return Repaired, acts, true
	case l.served:
		return Swallowed, acts, true
	case !g.mayGoBack(now, l):
		return Repaired, g.sendOne(now, ev.Path, acts), true
	}
	g.feed(now, ev.Path, p.acked.Next(), l.most())
	return Repaired, g.push(now, ev.Path, acts), true
}

// backsAtMost is how often a path may go back in a round trip. A path that loses one packet of a
// hundred does so less often. A path that reorders, or NAKs that are forged one after the other,
// must not make the switch send a burst for each.
const backsAtMost = 4

// mayGoBack counts that a path goes back, and reports whether it does not do so too often.
func (g *Group) mayGoBack(now Tick, l *leg) bool {
	if now-l.backsAt >= g.backsWithin(l) {
		l.backsAt, l.backs = now, 0
	}
	l.backs = min(l.backs+1, backsAtMost+1)
	return l.backs <= backsAtMost
}

func (g *Group) backsWithin(l *leg) Tick { return max(l.srtt, Tick(g.policy.RepairTimerFloor)) }

// sendOne sends path i the packet that it waits for, and leaves its cursor where it is.
func (g *Group) sendOne(now Tick, i int, acts []Action) []Action {
	l, p := &g.legs[i], &g.paths[i]
	p.mended()
	next := p.acked.Next()
	cursor := later(l.cursor, next.Next())
	l.cursor = next
	acts = g.resend(now, i, true, acts)
	l.cursor = cursor
	return acts
}

// mends reports whether the switch is about to mend what path i lacks: it is under repair, or will
// be probed if it does not answer.
func (g *Group) mends(i int) bool {
	return g.policy.repairs() && (g.legs[i].state != legDirect || g.legs[i].running && g.repairable(i))
}

// mending reports whether the floor is about to move because the switch mends what a path lacks.
// Then the source need not be called back.
func (g *Group) mending() bool { return g.anyHolding(g.mends) }

// anyHolding reports whether the condition is true of a path that holds the floor down. Such a path
// stands at the floor. If members of a quorum have left and too few paths have come as far as the
// floor, the floor waits for the paths below it too: it never falls below what the source was sent
// an ACK for.
func (g *Group) anyHolding(condition func(i int) bool) bool {
	enough := g.quorum == nil || g.reached(g.floor.psn) >= int(g.policy.Ack)
	for i := range g.legs {
		p := &g.paths[i]
		if !p.counted() || p.acked.After(g.floor.psn) || enough && p.acked != g.floor.psn {
			continue
		}
		if condition(i) {
			return true
		}
	}
	return false
}

// feed begins or continues the repair of path i at psn.
func (g *Group) feed(now Tick, i int, psn roce.PSN, window uint16) {
	l, p := &g.legs[i], &g.paths[i]
	if l.state == legDirect {
		l.since = now
	}
	g.setLeg(l, legFeeding)
	l.cursor, l.window, l.wentBack = psn, window, milliseconds(now)
	p.mended()
}

// leastAsked is how many packets a repair sends at least before one in the middle asks for an ACK.
const leastAsked = 3

// push sends path i the retained packets that its window allows, RepairBurst at most. The last one
// asks for an ACK, and so do some before, so that the answers keep the repair going.
func (g *Group) push(now Tick, i int, acts []Action) []Action {
	l, p := &g.legs[i], &g.paths[i]
	limit := p.acked.Add(int32(l.window))
	if limit.After(g.source.sent) {
		limit = g.source.sent
	}
	if last := l.cursor.Add(RepairBurst - 1); limit.After(last) {
		limit = last
	}
	every := max(leastAsked, min(int(l.window)/4, RepairBurst/2))
	for n := 1; !l.cursor.After(limit); n++ {
		if l.cursor.Before(g.retained.oldest) {
			if l.cursor == p.acked.Next() || !l.running {
				g.giveUp(i, GivenUpNotRetained)
			}
			return acts // what was sent before may be answered; then it is given up
		}
		psn := l.cursor
		acts = g.resend(now, i, psn == limit || n%every == 0, acts)
	}
	if l.cursor.After(g.source.sent) {
		g.setLeg(l, legDirect)
	}
	return acts
}

// resend sends path i the packet at its cursor.
func (g *Group) resend(now Tick, i int, ackReq bool, acts []Action) []Action {
	l, psn := &g.legs[i], g.legs[i].cursor
	l.cursor = psn.Next()
	l.repaired++
	if psn == g.paths[i].acked.Next() {
		l.served = true
	}
	l.resent = later(l.resent, psn)
	g.sends(now, i, psn, ackReq)
	return append(acts, Action{Kind: Repair, Path: i, PSN: psn, AckReq: ackReq})
}

// moved notes that path i has made progress by some packets, and reports whether the path may lack
// what lies behind: it has answered a probe, or repair had given up what the path waited for before
// the path was sent all that the group has forwarded.
func (g *Group) moved(now Tick, i int, by int32) (resumes bool) {
	if !g.policy.repairs() {
		return false
	}
	l, acked := &g.legs[i], g.paths[i].acked
	if l.sampling && !acked.Before(l.sample) {
		l.sampling = false
		l.measure(now - l.sampleAt)
		l.measureFlight(now-l.sampleAt, acked.Sub(l.from), now-l.fromAt)
	}
	if l.asked.Before(acked) {
		l.asked = acked
	}
	if l.resent.Before(acked) {
		l.resent = acked
	}
	// The ACK of a probe, and of nothing behind it, says that the path is late or that it lacks the
	// next packet too.
	lacks := l.attempts > 0 && by == 1
	resumes = lacks || l.barred && l.high.Before(g.source.sent)
	l.served, l.barred, l.attempts = false, false, 0
	g.setRunning(l, false)
	if l.asked.After(acked) {
		g.run(now, l)
	}
	return resumes
}

// clock takes an ACK that has moved path i: its repair goes on.
func (g *Group) clock(now Tick, i int, resumes bool, acts []Action) []Action {
	if !g.policy.repairs() {
		return acts
	}
	l, acked := &g.legs[i], g.paths[i].acked
	switch l.state {
	case legDirect:
		if !resumes {
			return acts
		}
		g.feed(now, i, acked.Next(), firstPush)
	case legResting:
		g.feed(now, i, acked.Next(), firstPush)
	case legProbing:
		// What the path was sent and not asked for it may have or lack: the next packet tells, if
		// there is one to send that asks.
		more := l.high.Before(g.source.sent) && l.high.Sub(acked) < int32(l.most())
		switch probe := l.cursor.Prev(); {
		case acked == l.high || more && !acked.Before(l.asked):
			g.feed(now, i, l.high.Next(), l.most())
		case acked == probe:
			g.feed(now, i, acked.Next(), firstPush)
		case !g.repairable(i):
			g.giveUp(i, GivenUpNotRetained)
			return acts
		default:
			// An ACK that was on its way, or that the probe has brought. The answer to one more
			// probe shows what is missing.
			return g.probe(now, i, acts)
		}
	case legFeeding:
		l.cursor = later(l.cursor, acked.Next())
		l.widen(now, g.policy.RepairWindow)
	}
	return g.push(now, i, acts)
}

func later(a, b roce.PSN) roce.PSN {
	if a.After(b) {
		return a
	}
	return b
}

// giveUp leaves the packet that path i waits for to the source, as without repair.
func (g *Group) giveUp(i int, why GivenUp) {
	l, p := &g.legs[i], &g.paths[i]
	g.endLeg(i)
	l.barred = true
	l.givenUp++
	g.tally.GivenUp[why]++
	psn := p.acked.Next()
	p.doubt()
	if p.pending == 0 && !g.letGo(psn) {
		g.setPending(p, roce.NAKSequence)
	}
}

func (g *Group) snapshotLeg(i int, s *PathSnapshot) {
	if !g.policy.repairs() {
		return
	}
	l := &g.legs[i]
	s.Unmended = l.barred
	s.Repairing, s.Cursor = l.state != legDirect, g.source.sent.Next()
	if s.Repairing {
		s.Cursor = l.cursor
	}
	s.Repaired, s.Probes, s.GivenUp = uint64(l.repaired), uint64(l.probes), uint64(l.givenUp)
}
