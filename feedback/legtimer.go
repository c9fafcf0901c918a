package feedback

import (
	"math"

	"github.com/rocast/rocast/roce"
)

// A probe that is answered begins a repair with firstBurst packets. A path has patienceTimes round
// trips to answer. A receiver without a posted receive is waited for at most restAtMost; a longer
// time is the source's to wait. A repair that has not gone back for calmAfter goes well; at 25 Gb/s
// that is some thousand packets. repairLong is when a repair that does not end is reported.
const (
	firstBurst    = 2
	calmAfter     = 3 // milliseconds
	patienceTimes = 3
	restAtMost    = 5 * millisecond
	repairLong    = second
)

// PathsDue returns the earliest time at which a path may have been silent for too long, if no other
// event comes first.
func (rp *repair) PathsDue() Tick {
	if rp.retained.running == 0 {
		return endless
	}
	return rp.retained.due
}

// repairs reports whether the policy has the switch send packets again to the paths that lost them.
func (p *Policy) repairs() bool { return p.Repair != RepairOff }

// WithoutRepair returns the policy with repair off.
func (p Policy) WithoutRepair() Policy {
	p.Repair, p.RepairWindow, p.RepairBytes, p.RepairAttempts = RepairOff, 0, 0, 0
	p.RepairTimerFloor, p.RepairTimerCap = 0, 0
	return p
}

// WithDefaults fills in the bounds of repair.
func (p Policy) WithDefaults() Policy {
	if p.RepairWindow == 0 {
		p.RepairWindow = DefaultRepairWindow
	}
	if p.RepairAttempts == 0 {
		p.RepairAttempts = DefaultRepairAttempts
	}
	if p.RepairTimerFloor == 0 {
		p.RepairTimerFloor = DefaultRepairTimerFloor
	}
	if p.RepairTimerCap == 0 {
		p.RepairTimerCap = DefaultRepairTimerCap
	}
	return p
}

// Bounds of leg.flight, which begins with the least.
const (
	leastFlight = 12
	mostFlight  = 256
)

// unmeasured is how long a path may leave a packet unanswered while no round trip has been
// measured.
const unmeasured = millisecond

// fade is by what part a leg's rate falls, and its shortest round trip grows, with each
// measurement.
const fade = 256

// longest is the longest time that counts as a round trip.
const longest = second

// most is how many packets beyond acked the path's repair may send: what fills the path, and a
// quarter of that again, because an ACK comes for every few packets only. More would wait in a
// queue on the way, and the loss of one of them would be found later. The quarter also shows
// whether the path takes more: then its rate is measured higher.
func (l *leg) most() uint16 { return l.flight + l.flight/4 }

// widen widens the window after an ACK. When repair has gone well for long, the window grows beyond
// most, until the path has caught up with the source: a path whose source always has more packets
// on their way than most would be fed for ever otherwise, with a few packets for each ACK. A box or
// hosts that are busy take much longer for that than for copies.
func (l *leg) widen(now Tick, limit int) {
	most := int(l.most())
	if l.calm(now) {
		most = limit
	}
	l.window = uint16(min(2*int(l.window), most, math.MaxUint16))
}

// calm reports whether the path's repair has not gone back for long. Once in a minute of one
// repair, the time wraps, and the window is smaller for calmAfter.
func (l *leg) calm(now Tick) bool { return milliseconds(now)-l.wentBack >= calmAfter }

func milliseconds(t Tick) uint16 { return uint16(t / millisecond) }

// measure takes the round trip of a packet, if no packet was sent to the path twice meanwhile: an
// ACK may answer either copy (Karn's rule).
func (l *leg) measure(rtt Tick) {
	l.backoff = 0
	if l.srtt == 0 {
		l.srtt, l.varies = max(rtt, 1), uint32(min(rtt, longest)/2)
		return
	}
	differs := min(max(rtt-l.srtt, l.srtt-rtt), longest)
	l.varies = uint32((3*Tick(l.varies) + differs) / 4)
	l.srtt += (rtt - l.srtt) / 8
}

// measureFlight takes the round trip of a packet, and how many packets the path has acknowledged
// within which time up to the ACK of this one. Rate and round trip are measured apart, because a
// source that pauses sends few packets in a round trip, and packets that wait in a queue have a
// long one (Cardwell et al., "BBR: Congestion-Based Congestion Control", 2016). While the path is
// fed, its shortest round trip does not grow: the repair itself would make the queue that it sees.
func (l *leg) measureFlight(rtt Tick, packets int32, within Tick) {
	short := uint32(max(microsecond, min(rtt, longest)))
	rate := min(int64(packets)*int64(millisecond)/max(int64(within), int64(short)), math.MaxUint32)
	l.rate = max(uint32(rate), l.rate-l.rate/fade)
	if l.state == legDirect {
		l.quickest += l.quickest / fade
	}
	if l.quickest == 0 || short < l.quickest {
		l.quickest = short
	}
	fills := uint64(l.rate) * uint64(l.quickest) / uint64(millisecond)
	l.flight = uint16(max(leastFlight, min(fills, mostFlight)))
}

// patience is how long the path may leave a packet unanswered: three round trips, or as RFC 6298
// has it where round trips vary, and twice as long after each probe until a round trip is measured
// again. A path that has become slower would be probed for ever otherwise: as long as probes are
// sent, nothing is measured. Nothing is measured of what an engine carries either; therefore the
// path has longer for that.
func (rp *repair) patience(l *leg) Tick {
	floor, limit := Tick(rp.policy.RepairTimerFloor), Tick(rp.policy.RepairTimerCap)
	t := max(patienceTimes*l.srtt, l.srtt+4*Tick(l.varies), floor)
	if l.srtt == 0 {
		t = max(unmeasured, floor)
	}
	if l.carried {
		t = max(t, limit/4)
	}
	return min(t<<l.backoff, limit)
}

// ask notes that packet psn, which asks for an ACK, is sent to path i.
func (rp *repair) ask(now Tick, i int, psn roce.PSN) {
	l := &rp.legs[i]
	l.asked = later(l.asked, psn)
	if !l.running && !l.barred && rp.paths[i].part == PartActive {
		rp.run(now, l)
	}
}

func (rp *repair) run(now Tick, l *leg) {
	rp.runFor(now, l, rp.patience(l))
}

func (rp *repair) runFor(now Tick, l *leg, t Tick) {
	l.due = now + t
	if rp.retained.running == 0 {
		rp.retained.due = endless // forget the old due time: no timer runs
	}
	rp.retained.due = min(rp.retained.due, l.due)
	rp.setRunning(l, true)
}

func (rp *repair) spent(l *leg) bool { return int(l.attempts) >= rp.policy.RepairAttempts }

// hurry takes a packet that the source has sent again and that is not copied to path i. If the path
// waits for this packet, its timer becomes as short as at first. The timer grows with each probe,
// and the source might use up its retries before it runs out. A path that rests has said itself how
// long.
func (rp *repair) hurry(now Tick, i int, psn roce.PSN) {
	l := &rp.legs[i]
	if psn != rp.paths[i].acked.Next() || l.state == legResting {
		return
	}
	l.backoff = 0
	rp.runFor(now, l, min(l.due-now, rp.patience(l)))
}

// rest waits before the packet is sent again that the path had no receive for.
func (rp *repair) rest(now Tick, ev *Event) {
	l := &rp.legs[ev.Path]
	rp.repairFrom(now, ev.Path, rp.paths[ev.Path].acked.Next(), 0)
	rp.setLeg(l, legResting)
	rp.runFor(now, l, Tick(ev.Syndrome.RNRTimer().Duration()))
}

// probeOnce sends path i the packet that it waits for, and goes on to copy new packets to it: most
// paths that are silent for the first time have lost nothing and are only late.
func (rp *repair) probeOnce(now Tick, i int, acts []Action) []Action {
	l := &rp.legs[i]
	l.probes++
	rp.tally.Probes++
	acts = rp.sendOne(now, i, acts)
	rp.run(now, l)
	return acts
}

// probe sends path i the packet that it waits for, and nothing else until it answers.
func (rp *repair) probe(now Tick, i int, acts []Action) []Action {
	l := &rp.legs[i]
	rp.repairFrom(now, i, rp.paths[i].acked.Next(), 1)
	rp.setLeg(l, legProbing)
	l.probes++
	rp.tally.Probes++
	acts = rp.resend(now, i, true, acts)
	rp.run(now, l)
	return acts
}

// legTimers probes the paths whose timer has run out.
func (rp *repair) legTimers(now Tick, acts []Action) []Action {
	r := &rp.retained
	if r.repairing == 0 && (r.running == 0 || now < r.due) {
		return acts
	}
	r.due = endless
	for i := range rp.legs {
		l := &rp.legs[i]
		if l.state != legDirect && !l.reported && now-l.since >= repairLong {
			l.reported = true
			acts = append(acts, Action{Kind: Notice, Note: NoteRepairing, Path: i, PSN: rp.paths[i].acked.Next()})
		}
		switch {
		case !l.running || now < l.due:
		case l.barred:
			acts = inquireAgain(rp, now, i, acts)
		case rp.spent(l):
			rp.giveUp(i, GivenUpAttempts)
		case !rp.repairable(i):
			rp.giveUp(i, GivenUpNotRetained)
		default:
			l.attempts++
			if l.state != legResting {
				l.backoff = min(l.backoff+1, 16)
			}
			if l.state == legDirect {
				acts = rp.probeOnce(now, i, acts)
			} else {
				acts = rp.probe(now, i, acts)
			}
		}
		if l.running {
			r.due = min(r.due, l.due)
		}
	}
	return acts
}

// endless is a due time that never comes.
const endless Tick = math.MaxInt64
