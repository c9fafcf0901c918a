package model

import (
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// checkReturn lets the member that has become the source in s send some packets, which all
// receivers execute that take part. Then the switch crashes, the new source is silent, and the
// first source sends its next packet. The switch begins with the turn that control stored before
// the new source's first packet, so it knows that the first source waits for its turn, and asks the
// receivers. The first source must get its turn, and must hear an ACK of nothing that a quorum has
// not executed.
//
// The new source may have ended (hasEnded), and an old packet of it may come first (oldComes). Or
// two packets of it are still to come. Then it must keep its turn until it has heard the ACK of
// both, without its timer, and must hear no ACK ahead of what it sends again. It is inside a
// message, and has lost them in the crash (isInside). Or its timer runs out just before it hears
// the question (isBack), or it was idle, and has sent them just before that (isIdle), or before the
// second question (isLate). Or its timer ran out while the switch was away: then it ignores a NAK
// before it hears an ACK, of a packet that was not acknowledged to it before (isDeaf). If nothing
// is left to acknowledge (hasRetried), or it waits for the time of an RNR NAK (isResting), it hears
// nothing but another RNR NAK, which only a switch that repairs may send.
//
// With source-switch: force the first source gets its turn also where receivers do not answer, or
// have executed fewer packets than others when the new source ends (wasShort): who has executed
// most is enough, if that are as many as the policy needs. They take part then, also if one of them
// answers late (isSlow), and nobody else does. But the switch above is waited for.
//
// The new source numbers its packets as the receivers do, from Packets on. So does the first
// source, whose next packet has the number of the new source's first one.
func (e *engine) checkReturn(s *state, sent int, how afterCrash) {
	r := returning{engine: e, now: s.now, sent: sent, how: how}
	for i := range s.receivers[:e.Receivers] {
		if s.group.Part(i) == feedback.PartActive {
			r.members = append(r.members, follower{expected: e.Packets + sent, dead: s.receivers[i].dead, needed: e.Needed && i == 0})
		}
	}
	r.begin()
	policy := e.Policy
	force := policy.Switch == feedback.SwitchForce
	if need := max(1, int(policy.Ack)); r.living() < need || policy.Ack == feedback.AckAll && !policy.Evict && !force && r.living() < len(r.members) {
		return // nobody could become the source
	}
	first := e.Packets
	if e.old {
		first = 0
	}
	r.group = feedback.New(feedback.Config{Policy: policy, Paths: len(r.members), FirstPSN: e.psn(int8(first)), Restored: true})
	if len(r.members) > 0 && r.members[0].needed {
		r.group.Need(0)
	}
	if how == oldComes && !e.old {
		r.newSource(0)
	}
	if e.old || r.take() { // if that is old, the first source is the source
		r.sends()
	}
}

// afterCrash is what the new source does behind the crash.
type afterCrash uint8

const (
	hasEnded afterCrash = iota
	oldComes
	isInside
	isBack
	isIdle
	isLate
	isDeaf
	hasRetried
	isResting
	wasShort
	isSlow
)

// returning is the rest of a run: from a crash behind a source switch on.
type returning struct {
	*engine
	group   *feedback.Group
	now     feedback.Tick
	sent    int // packets of the new source
	offset  int // how much larger the receivers' number of a packet is than the source's
	members []follower
	sending bool // the first source is the source
	told    bool // it has heard an ACK of its packet
	how     afterCrash
	own     World // the new source's messages; it numbers its packets from 0 there
	src     source
	home    queue[message] // replies to the new source
	asked   int            // questions to the new source
	rests   bool           // it has heard an RNR NAK of the switch, whose time is short
}

// begin makes the new source what it is at the crash.
func (r *returning) begin() {
	sent := uint8(r.sent)
	r.own = World{Packets: r.sent, Message: 1, Unlimited: true}
	r.src = source{unacked: sent, next: sent, sent: sent}
	switch r.how {
	case isInside, hasRetried, isResting:
		r.own.Packets, r.own.Message = r.sent+2, r.sent+2
		r.src.next, r.src.sent = sent+2, sent+2
		r.src.retried, r.src.rnrWait = r.how == hasRetried, r.how == isResting
	case isBack, isDeaf:
		r.own.Packets, r.own.Message = r.sent+2, r.sent+2
		r.src.next, r.src.sent, r.src.unacked = sent+2, sent+2, sent-1
		r.src.retried = r.how == isDeaf
	case isIdle, isLate:
		r.own.Packets, r.own.Message = r.sent+2, 2
	case wasShort, isSlow:
		r.shorten()
	}
	r.own.prepare()
}

// shorten lets those living receivers lack packets of the new source, or answer late, without whom
// as many are left as the policy needs. If the switch above is one of them, only that one does.
func (r *returning) shorten() {
	need := max(1, int(r.Policy.Ack))
	for i := range r.members {
		switch f := &r.members[i]; {
		case f.dead:
		case need > 0 && !f.needed:
			need--
		case r.how == isSlow:
			f.silent = slowFor
		default:
			f.expected -= min(r.sent, 1+i%2)
		}
	}
}

// slowFor is how many questions a receiver leaves unanswered that is slow: it answers in time.
const slowFor = 3

// follower is a receiver that took part when the switch crashed. Its path has its index.
type follower struct {
	expected int
	executed bool // the first source's packet
	dead     bool
	needed   bool // it is the switch above
	silent   int  // so many questions it does not answer
}

// furthest is how many packets the receivers have executed that have executed most.
func (r *returning) furthest() (expected int) {
	for _, f := range r.members {
		expected = max(expected, f.expected)
	}
	return expected
}

// waitsAbove reports whether the switch above does not answer, or lacks something: nobody takes the
// turn then.
func (r *returning) waitsAbove() bool {
	for _, f := range r.members {
		if f.needed && (f.dead || f.expected < r.furthest()) {
			return true
		}
	}
	return false
}

func (r *returning) living() (n int) {
	for _, f := range r.members {
		if !f.dead {
			n++
		}
	}
	return n
}

// take lets the first source wait for its turn, and reports whether it gets that.
func (r *returning) take() bool {
	next := feedback.SourceSwitch{PSN: r.psn(int8(r.Packets)), OldPath: -1, NewPath: -1}
	for tries := 0; !r.group.MaySwitch(r.now, next); tries++ {
		if tries == 100 && r.waitsAbove() {
			return false
		}
		if tries == 300 {
			r.fail("the switch has crashed behind a source switch, and the first source does not become the source again")
			return false
		}
		if r.group.MayAsk() {
			acts := r.group.Ask(r.now, next, nil)
			for k, a := range acts {
				if a.Kind == feedback.Reply {
					r.called(a, k+1 < len(acts) && acts[k+1].Kind == feedback.Reply)
				} else if f := &r.members[a.Path]; a.Kind == feedback.Question && !f.dead {
					r.asks(a.Path)
				}
			}
		} else {
			r.group.Claim(r.now, nil)
		}
		r.now += feedback.AskPeriod
		if r.rests {
			r.src.goBack()
			r.rests = false
			r.goesOn()
		}
		acts, _ := r.group.Step(r.now, feedback.Event{Kind: feedback.Timer}, nil)
		for _, a := range acts {
			if a.Kind == feedback.Reply {
				r.hears(a)
				r.goesOn()
			}
		}
	}
	if !r.src.done(&r.own) {
		r.fail("the new source waits for the ACK of packet %d, and the first source takes its turn", r.src.unacked)
		return false
	}
	if r.waitsAbove() {
		r.fail("behind a restart the first source becomes the source, and the switch above is left out")
		return false
	}
	r.offset += int(r.packet(r.group.NextPSN())) - r.Packets
	r.group.SwitchSource(next, nil)
	r.checkParts()
	return true
}

// asks lets the receiver of a path hear a question.
func (r *returning) asks(path int) {
	f := &r.members[path]
	if f.silent--; f.silent < 0 {
		r.answers(path, f.expected-1)
	}
}

// checkParts checks who takes part when the first source has become the source by force. A quorum
// need not wait for who is slow.
func (r *returning) checkParts() {
	if r.Policy.Switch != feedback.SwitchForce {
		return
	}
	for i, f := range r.members {
		part, whole := r.group.Part(i), !f.dead && f.expected == r.furthest()
		switch {
		case whole && part != feedback.PartActive && !(r.how == isSlow && r.Policy.Ack != feedback.AckAll):
			r.fail("receiver %d is %v behind a restart, and has everything", i, part)
		case !whole && part != feedback.PartBehind:
			r.fail("receiver %d is %v behind a restart, and has not everything, or has ended", i, part)
		}
	}
}

// called lets the new source hear what Ask tells it: a question, or the ACK of what it has
// answered. It ignores a question for a packet that it has not sent. The ACK in front of a question
// says no more than the question, which follows on its heels.
func (r *returning) called(a feedback.Action, follows bool) {
	r.hears(a)
	next := r.furthest()
	switch {
	case a.Syndrome.IsACK() && follows && int(r.packet(a.PSN)) == next-1:
		return
	case a.Syndrome.IsACK() && !follows && int(r.packet(a.PSN)) < next:
	case !r.mayCall(a.Syndrome) || int(r.packet(a.PSN)) != next:
		r.fail("behind a restart the new source hears %v %d, and the receivers have executed %d packets", a.Syndrome, r.packet(a.PSN), next)
	default:
		r.asked++
		r.crosses()
	}
	r.goesOn()
}

// mayCall reports whether the source may be asked by s. Without repair it may be one that obeys no
// RNR NAK.
func (r *returning) mayCall(s roce.Syndrome) bool {
	return s == roce.NAKSequence || s.IsRNR() && r.Policy.Repair != feedback.RepairOff
}

// crosses lets the new source send what is on its way when a question is: the first one, or the
// second one if it isLate.
func (r *returning) crosses() {
	switch {
	case r.how == isLate && r.asked == 1:
		return
	case r.how == isBack && r.asked == 1:
		r.src.retry(&r.own)
	case r.how != isBack && r.how != isIdle && r.how != isLate:
		return
	}
	for r.src.canSend(&r.own) {
		r.newSource(int(r.src.send()))
	}
}

// goesOn lets the new source hear a reply. What it sends then overtakes no other reply: an ACK that
// is ahead of that shows.
func (r *returning) goesOn() {
	for most := 1; ; most = maxQueue {
		for ; r.home.n > 0 && most > 0; most-- {
			r.hear(r.home.remove(0))
		}
		if r.src.ahead > 0 {
			r.fail("the new source hears ACK %d while it resends and has come to %d", r.src.ahead, r.src.next)
		}
		if !r.src.canSend(&r.own) || r.how == isLate && r.asked < 2 {
			break
		}
		r.newSource(int(r.src.send()))
	}
	for r.home.n > 0 {
		r.hear(r.home.remove(0))
	}
}

// hear lets the new source hear a reply. If that is an RNR NAK which it obeys, it waits for a short
// time from then on, even if it waited for a long one before.
func (r *returning) hear(m message) {
	waited := r.src.rnrWait
	if m.syndrome.IsRNR() {
		r.src.rnrWait = false
	}
	r.src.hear(&r.own, m)
	if m.syndrome.IsRNR() {
		r.rests = r.rests || r.src.rnrWait
		r.src.rnrWait = r.src.rnrWait || waited
	}
}

// hears puts a reply on its way to the new source.
func (r *returning) hears(a feedback.Action) {
	r.home.push(message{packet: int8(int(r.packet(a.PSN)) - r.Packets), syndrome: a.Syndrome})
}

// newSource lets packet n of the new source come, and the receivers answer.
func (r *returning) newSource(n int) {
	number := r.Packets + n
	data := feedback.Event{Kind: feedback.Data, PSN: r.psn(int8(number)), AckReq: true, Last: n == int(r.own.lastOf(uint8(n)))}
	acts, _ := r.group.Step(r.now, data, nil)
	for _, a := range acts {
		f := &r.members[a.Path]
		switch {
		case a.Kind == feedback.Reply:
			r.hears(a)
		case a.Kind == feedback.Copy && !f.dead:
			if number == f.expected {
				f.expected++
			}
			r.answers(a.Path, f.expected-1)
		}
	}
}

// sends lets the first source send its next packet, and the receivers answer.
func (r *returning) sends() {
	r.sending = true
	data := feedback.Event{Kind: feedback.Data, PSN: r.psn(int8(r.Packets)), AckReq: true, First: true, Last: true}
	acts, _ := r.group.Step(r.now, data, nil)
	for _, a := range acts {
		if a.Kind != feedback.Copy {
			continue
		}
		f, number := &r.members[a.Path], int(r.packet(a.PSN))+r.offset
		switch {
		case f.dead:
			continue
		case number > f.expected:
			r.fail("receiver %d gets packet %d behind a restart, and expects %d", a.Path, number, f.expected)
		case number == f.expected:
			f.expected, f.executed = f.expected+1, true
		}
		r.answers(a.Path, f.expected-1)
	}
	if !r.told && r.allAnswer() {
		r.fail("all receivers have answered behind a restart, and the first source has heard nothing")
	}
}

// allAnswer reports whether no receiver has ended that takes part.
func (r *returning) allAnswer() bool {
	for i, f := range r.members {
		if f.dead && (r.Policy.Switch != feedback.SwitchForce || r.group.Part(i) == feedback.PartActive) {
			return false
		}
	}
	return true
}

// answers gives the group the ACK of a receiver, of the packet with a number.
func (r *returning) answers(path, number int) {
	psn := r.psn(int8(number - r.offset))
	acts, _ := r.group.Step(r.now, feedback.Event{Kind: feedback.Response, Path: path, PSN: psn, Syndrome: roce.SyndromeUnlimited}, nil)
	for _, a := range acts {
		if !r.sending && a.Kind == feedback.Reply {
			r.hears(a)
		}
		if r.sending && a.Kind == feedback.Reply && a.Syndrome.IsACK() && !a.PSN.Before(r.psn(int8(r.Packets))) {
			r.told = true
			r.checkTold()
		}
	}
}

// checkTold fails unless as many receivers have executed the first source's packet as the policy
// asks for.
func (r *returning) checkTold() {
	have, need := 0, int(r.Policy.Ack)
	for i, f := range r.members {
		if f.executed {
			have++
		}
		if r.Policy.Ack == feedback.AckAll && r.group.Part(i) == feedback.PartActive {
			need++
		}
	}
	if have < need {
		r.fail("behind a restart the first source hears an ACK, and %d receivers have executed its packet, of %d", have, need)
	}
}
