package feedback

import "github.com/rocast/rocast/roce"

// RepairBurst is the most packets that one answer of a path makes the switch send to it again.
const RepairBurst = 64

// legState is how a path gets its packets.
type legState uint8

const (
	legDirect    legState = iota // new packets are copied to it
	legRepairing                 // it gets retained packets from its cursor on, paced by its ACKs
	legProbing                   // it was silent and was sent the packet that it waits for, and no more
	legResting                   // it has no receive posted, and is sent nothing until its time is over
)

// leg is what repair knows of one path. Since the path last went back, no packet at or above cursor
// has been sent to it. There is one for each path, so its fields leave no holes
// (docs/evaluation.md#memory).
type leg struct {
	// What the path was sent.

	cursor roce.PSN // the next packet that its repair sends
	asked  roce.PSN // the highest packet that asks for an ACK
	high   roce.PSN // the highest packet
	resent roce.PSN // the highest packet that repair has sent

	// Its repair.

	since     Tick   // when the path stopped being direct
	due       Tick   // when its timer runs out, if it runs
	backsAt   Tick   // since when backs counts
	window    uint16 // how many packets beyond acked its repair may send
	flight    uint16 // how many packets fill the path: rate times quickest
	state     legState
	attempts  uint8  // how often it was probed since it made progress
	wentBack  uint16 // when its repair began or last went back, in milliseconds modulo 2^16
	backs     uint8  // how often it went back since backsAt
	backoff   uint8  // how often it was probed since a round trip was measured, 16 at most
	carried   bool   // it was last sent packets by the engine
	running   bool   // its timer runs
	sampling  bool
	sentAgain bool // acked+1 was sent again since the path waits for it
	barred    bool // repair has given up acked+1
	reported  bool

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
//
// The caller retains each packet that it forwards, and sends it again to a path that lost it
// (rule 14).
type repair struct {
	stream
	legs   []leg     // of each path
	shared []sharing // of each path; none: no leg is shared
	tally  RepairTally
	room   int32 // how many packets are retained at least, if so many are needed

	// What follows belongs to one source.

	retained retained
	guess    guess
}

// beginLegs sets all paths to psn. It keeps their counts and round trips, and forgets the rest.
func (rp *repair) beginLegs(psn roce.PSN) {
	rp.retained = retained{oldest: psn.Next(), lowest: psn, due: endless}
	for i := range rp.legs {
		rp.beginLeg(i, psn)
	}
}

// beginLeg makes path i direct. It was sent packets up to psn at most.
func (rp *repair) beginLeg(i int, psn roce.PSN) {
	if !rp.policy.repairs() {
		return
	}
	l := &rp.legs[i]
	*l = leg{
		srtt: l.srtt, varies: l.varies, rate: l.rate, quickest: l.quickest, flight: max(l.flight, leastFlight),
		repaired: l.repaired, probes: l.probes, givenUp: l.givenUp,
		asked: rp.paths[i].acked, high: psn, resent: rp.paths[i].acked,
	}
	if s := rp.sharesWith(i); s != nil {
		s.upTo = psn
	}
}

// learnLeg makes path i direct at its first answer after a restart. The path may still owe the
// answer to a packet that it was sent since the restart.
func (rp *repair) learnLeg(now Tick, i int) {
	if !rp.policy.repairs() {
		return
	}
	owed := rp.legs[i].asked
	rp.beginLeg(i, rp.source.sent)
	if owed.After(rp.paths[i].acked) && !owed.After(rp.source.sent) {
		rp.ask(now, i, owed)
	}
}

// endLeg ends the repair of a path that gets no more data, or begins anew.
func (rp *repair) endLeg(i int) {
	if !rp.policy.repairs() {
		return
	}
	l := &rp.legs[i]
	rp.setLeg(l, legDirect)
	rp.setRunning(l, false)
	l.sentAgain = false
}

func (rp *repair) setLeg(l *leg, s legState) {
	if (l.state == legDirect) != (s == legDirect) {
		if s == legDirect {
			rp.retained.repairing--
		} else {
			rp.retained.repairing++
		}
	}
	if s == legDirect {
		l.reported = false
	}
	l.state = s
}

func (rp *repair) setRunning(l *leg, running bool) {
	if l.running != running {
		if running {
			rp.retained.running++
		} else {
			rp.retained.running--
		}
	}
	l.running = running
}

// rearrangeLegs moves each leg to the index that its path has in a new membership.
func (rp *repair) rearrangeLegs(from []int) {
	if !rp.policy.repairs() {
		return
	}
	legs := make([]leg, len(from))
	for i, old := range from {
		if old >= 0 {
			legs[i] = rp.legs[old]
		}
	}
	rp.legs = legs
	if shared := rp.shared; len(shared) > 0 {
		rp.shared = make([]sharing, len(from))
		for i, old := range from {
			if old >= 0 {
				rp.shared[i] = shared[old]
			}
		}
	}
	rp.retained.repairing, rp.retained.running = 0, 0
	for i := range legs {
		if l := &legs[i]; l.state != legDirect {
			rp.retained.repairing++
		}
		if legs[i].running {
			rp.retained.running++
		}
	}
}

// sentTo returns the highest packet that path i can have. A path under repair was not sent every
// packet that the group forwarded, but shared copies may have brought it more.
func (rp *repair) sentTo(i int) roce.PSN {
	if !rp.policy.repairs() {
		return rp.source.sent
	}
	if s := rp.sharesWith(i); s != nil {
		return later(rp.legs[i].high, s.upTo)
	}
	return rp.legs[i].high
}

// sentAgain reports whether repair has sent path i the packet that it waits for. Its NAK then
// proves nothing (rule 9): it may be older than that copy.
func (rp *repair) sentAgain(i int) bool {
	return rp.policy.repairs() && rp.legs[i].resent.After(rp.paths[i].acked)
}

// direct notes that a packet of the source is copied to path i, if that is so: a path under repair
// gets it from its cursor, and a path that has not answered its repair yet was sent it.
func (rp *repair) direct(now Tick, i int, ev *Event) bool {
	return !rp.policy.repairs() || rp.copied(now, i, ev)
}

func (rp *repair) copied(now Tick, i int, ev *Event) bool {
	l, psn := &rp.legs[i], ev.PSN
	if l.state != legDirect || l.sentAgain && !psn.After(l.resent) {
		rp.hurry(now, i, psn)
		rp.passesBy(i, psn)
		return false
	}
	l.carried = ev.Kind == Carried
	rp.sends(now, i, psn, ev.AckReq)
	return true
}

// sends notes that packet psn is sent to path i, and begins to measure its round trip if it is sent
// for the first time.
func (rp *repair) sends(now Tick, i int, psn roce.PSN, ackReq bool) {
	l := &rp.legs[i]
	switch {
	case !psn.After(l.high):
		l.sampling = false
	case ackReq && !l.sampling:
		l.sampling, l.sample, l.sampleAt = true, psn, now
		l.from, l.fromAt = rp.paths[i].acked, rp.paths[i].since
	}
	l.high = later(l.high, psn)
	if ackReq {
		rp.ask(now, i, psn)
	}
}

// repairAfterNAK takes a NAK of an active path for acked+1, if the switch can repair that.
//
// The order of the cases is the rule: the first one that is true decides. A path that rests has
// said how long, so nothing that it says meanwhile counts. Where the source has let go of the
// packet, nobody else can help, so no number of attempts and no RNR time ends the repair. Only then
// an RNR NAK may find the attempts used up, or ask for more time than the switch waits. A sequence
// NAK for what was sent again may be older than that. The last is how often a path may go back.
func (rp *repair) repairAfterNAK(now Tick, ev *Event, acts []Action) (_ Outcome, _ []Action, done bool) {
	if !rp.repairable(ev.Path) {
		rp.endLeg(ev.Path)
		return 0, acts, false
	}
	l, p := &rp.legs[ev.Path], &rp.paths[ev.Path]
	switch rnr := ev.Syndrome.IsRNR(); {
	case l.state == legResting && !l.cursor.Before(p.acked.Next()):
		return Swallowed, acts, true
	case rnr && rp.letGo(ev.PSN):
		l.attempts = 0 // the source cannot help, and the path answers
		if rp.policy.OnSlow == SlowWait && p.neverReady(now) {
			acts = append(acts, Action{Kind: Notice, Note: NoteSilent, Path: ev.Path, PSN: ev.PSN})
		}
		rp.rest(now, ev)
		rp.runFor(now, l, max(l.due-now, rp.patience(l))) // it may do so for ever
		l.backoff = min(l.backoff+1, 16)
		return Repaired, acts, true
	case rnr && rp.spent(l):
		rp.giveUp(ev.Path, GivenUpAttempts)
		return 0, acts, false
	case rnr && Tick(ev.Syndrome.RNRTimer().Duration()) > restAtMost:
		rp.giveUp(ev.Path, GivenUpRNR)
		return 0, acts, false
	case rnr:
		rp.rest(now, ev)
		return Repaired, acts, true
	case l.sentAgain:
		return Swallowed, acts, true
	case !rp.mayGoBack(now, ev.Path):
		return Repaired, rp.sendOne(now, ev.Path, acts), true
	}
	rp.repairFrom(now, ev.Path, p.acked.Next(), l.most())
	return Repaired, rp.repairMore(now, ev.Path, acts), true
}

// backsAtMost is how often a path may go back in a round trip. A path that loses one packet of a
// hundred does so less often. A path that reorders, or NAKs that are forged one after the other,
// must not make the switch send a burst for each.
const backsAtMost = 4

// mayGoBack counts that path i goes back, and reports whether it does not do so too often.
func (rp *repair) mayGoBack(now Tick, i int) bool {
	l := &rp.legs[i]
	if now-l.backsAt >= rp.backsWithin(l) {
		l.backsAt, l.backs = now, 0
	}
	l.backs = min(l.backs+1, backsAtMost+1)
	return l.backs <= rp.backsAtMostOf(i)
}

func (rp *repair) backsWithin(l *leg) Tick { return max(l.srtt, Tick(rp.policy.RepairTimerFloor)) }

// sendOne sends path i the packet that it waits for, and leaves its cursor where it is.
func (rp *repair) sendOne(now Tick, i int, acts []Action) []Action {
	l, p := &rp.legs[i], &rp.paths[i]
	p.repaired()
	next := p.acked.Next()
	cursor := later(l.cursor, next.Next())
	l.cursor = next
	acts = rp.resend(now, i, true, acts)
	l.cursor = cursor
	return acts
}

// willRepair reports whether the switch is about to repair what path i lacks: the path is under
// repair, or the switch will probe it if it does not answer.
func (rp *repair) willRepair(i int) bool {
	return rp.policy.repairs() && (rp.legs[i].state != legDirect || rp.legs[i].running && rp.repairable(i))
}

// repairHoldsFloor reports whether the floor is about to move because the switch repairs what a
// path lacks. Then the source need not be called back.
func (rp *repair) repairHoldsFloor() bool { return rp.anyHolding(rp.willRepair) }

// anyHolding reports whether the condition is true of a path that holds the floor down. Such a path
// stands at the floor. If members of a quorum have left and too few paths have come as far as the
// floor, the floor waits for the paths below it too: it never falls below what the source was sent
// an ACK for.
func (rp *repair) anyHolding(condition func(i int) bool) bool {
	enough := rp.quorum == nil || rp.reached(rp.floor.psn) >= rp.need()
	for i := range rp.legs {
		p := &rp.paths[i]
		if !p.counted() || p.acked.After(rp.floor.psn) || enough && p.acked != rp.floor.psn {
			continue
		}
		if condition(i) {
			return true
		}
	}
	return false
}

// repairFrom begins or continues the repair of path i at psn.
func (rp *repair) repairFrom(now Tick, i int, psn roce.PSN, window uint16) {
	l, p := &rp.legs[i], &rp.paths[i]
	if l.state == legDirect {
		l.since = now
	}
	rp.setLeg(l, legRepairing)
	l.cursor, l.window, l.wentBack = psn, window, milliseconds(now)
	p.repaired()
}

// leastAsked is how many packets a repair sends at least before one in the middle asks for an ACK.
const leastAsked = 3

// repairMore sends path i the retained packets that its window allows, RepairBurst at most. The
// last one asks for an ACK, and so do some before, so that the answers keep the repair going.
func (rp *repair) repairMore(now Tick, i int, acts []Action) []Action {
	l, p := &rp.legs[i], &rp.paths[i]
	limit := p.acked.Add(int32(l.window))
	if limit.After(rp.source.sent) {
		limit = rp.source.sent
	}
	if last := l.cursor.Add(RepairBurst - 1); limit.After(last) {
		limit = last
	}
	every := max(leastAsked, min(int(l.window)/4, RepairBurst/2))
	for n := 1; !l.cursor.After(limit); n++ {
		if l.cursor.Before(rp.retained.oldest) {
			if l.cursor == p.acked.Next() || !l.running {
				rp.giveUp(i, GivenUpNotRetained)
			}
			return acts // what was sent before may be answered; then it is given up
		}
		psn := l.cursor
		acts = rp.resend(now, i, psn == limit || n%every == 0, acts)
	}
	if l.cursor.After(rp.source.sent) {
		rp.setLeg(l, legDirect)
	}
	return acts
}

// resend sends path i the packet at its cursor.
func (rp *repair) resend(now Tick, i int, ackReq bool, acts []Action) []Action {
	l, psn := &rp.legs[i], rp.legs[i].cursor
	l.cursor = psn.Next()
	l.repaired++
	if psn == rp.paths[i].acked.Next() {
		l.sentAgain = true
	}
	l.resent = later(l.resent, psn)
	rp.sends(now, i, psn, ackReq)
	return append(acts, Action{Kind: Repair, Path: i, PSN: psn, AckReq: ackReq})
}

// moved notes that path i has made progress by some packets, and reports whether the path may lack
// what lies behind: it has answered a probe, or repair had given up what the path waited for before
// the path was sent all that the group has forwarded.
func (rp *repair) moved(now Tick, i int, by int32) (resumes bool) {
	l, acked := &rp.legs[i], rp.paths[i].acked
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
	if s := rp.sharesWith(i); s != nil && s.upTo.Before(acked) {
		s.upTo = acked
	}
	// The ACK of a probe, and of nothing behind it, says that the path is late or that it lacks the
	// next packet too.
	lacks := l.attempts > 0 && by == 1
	resumes = lacks || l.barred && l.high.Before(rp.source.sent)
	l.sentAgain, l.barred, l.attempts = false, false, 0
	rp.setRunning(l, false)
	if l.asked.After(acked) {
		rp.run(now, l)
	}
	return resumes
}

// clock handles an ACK that has moved path i: the repair of the path goes on.
func (rp *repair) clock(now Tick, i int, resumes bool, acts []Action) []Action {
	l, acked := &rp.legs[i], rp.paths[i].acked
	switch l.state {
	case legDirect:
		if !resumes {
			return acts
		}
		rp.repairFrom(now, i, acked.Next(), firstBurst)
	case legResting:
		rp.repairFrom(now, i, acked.Next(), firstBurst)
	case legProbing:
		// Packets that were sent without a request for an ACK may have arrived or not. The next
		// packet that requests one shows which, if there is a packet to send.
		more := l.high.Before(rp.source.sent) && l.high.Sub(acked) < int32(l.most())
		switch probe := l.cursor.Prev(); {
		case acked == l.high || more && !acked.Before(l.asked):
			rp.repairFrom(now, i, l.high.Next(), l.most())
		case acked == probe:
			rp.repairFrom(now, i, acked.Next(), firstBurst)
		case !rp.repairable(i):
			rp.giveUp(i, GivenUpNotRetained)
			return acts
		default:
			// An ACK that was on its way, or that the probe has brought. The answer to one more
			// probe shows what is missing.
			return rp.probe(now, i, acts)
		}
	case legRepairing:
		l.cursor = later(l.cursor, acked.Next())
		l.widen(now, rp.policy.RepairWindow)
	}
	return rp.repairMore(now, i, acts)
}

func later(a, b roce.PSN) roce.PSN {
	if a.After(b) {
		return a
	}
	return b
}

// giveUp stops repairing the packet that path i waits for: the source has to resend it, as without
// repair.
func (rp *repair) giveUp(i int, why GivenUp) {
	l, p := &rp.legs[i], &rp.paths[i]
	rp.endLeg(i)
	l.barred = true
	l.givenUp++
	rp.tally.GivenUp[why]++
	psn := p.acked.Next()
	p.doubt()
	if p.pending == 0 && !rp.letGo(psn) {
		rp.setPending(p, roce.NAKSequence)
	}
	inquire(rp, i)
}

func (rp *repair) snapshotLeg(i int, s *PathSnapshot) {
	if !rp.policy.repairs() {
		return
	}
	l := &rp.legs[i]
	s.Unmended = l.barred
	s.Repairing, s.Cursor = l.state != legDirect, rp.source.sent.Next()
	if s.Repairing {
		s.Cursor = l.cursor
	}
	s.Repaired, s.Probes, s.GivenUp = uint64(l.repaired), uint64(l.probes), uint64(l.givenUp)
}

// sendsTrain notes that a train is sent to path i, which is direct.
func (rp *repair) sendsTrain(now Tick, i int, ev *Event) {
	l := &rp.legs[i]
	l.carried = false
	if ev.AckReq {
		rp.sends(now, i, ev.FirstAsked, true)
		rp.ask(now, i, ev.Asked)
	}
	l.high = ev.PSN
}

// carriedTo notes that packets were carried to path i. When they were sent is not known, so no
// round trip is measured.
func (rp *repair) carriedTo(now Tick, i int, ev *Event) {
	if !rp.direct(now, i, &Event{Kind: Carried, PSN: ev.PSN}) {
		rp.legs[i].high = ev.PSN // its repair has begun since the engine was armed
	}
	if ev.AckReq {
		rp.ask(now, i, ev.Asked)
	}
}

// askLacking sends the packet that it waits for to each path that lacks something and owes no
// answer; where that packet is not retained, the newest one. The answer shows what the path has:
// an ACK is one of everything, and a NAK is for the first packet that the path lacks.
func (rp *repair) askLacking(now Tick, acts []Action) []Action {
	for i := range rp.legs {
		l := &rp.legs[i]
		if !rp.source.lackedBy(rp.paths[i]) || l.running && !l.barred {
			continue
		}
		l.barred, l.attempts, l.backoff = false, 0, 0
		if newest := rp.source.sent; rp.repairable(i) {
			acts = rp.probe(now, i, acts)
		} else if !newest.Before(rp.retained.oldest) {
			l.cursor = newest
			acts = rp.resend(now, i, true, acts)
		}
	}
	return acts
}
