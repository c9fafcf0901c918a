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
// it is inside a message and has lost the next two packets in the crash (isInside). Then it must
// keep its turn until it has sent them again.
//
// The new source numbers its packets as the receivers do, from Packets on. So does the first
// source, whose next packet has the number of the new source's first one.
func (e *engine) checkReturn(s *state, sent int, how afterCrash) {
	r := returning{engine: e, now: s.now, sent: sent, how: how}
	for i := range s.receivers[:e.Receivers] {
		if s.group.Part(i) == feedback.PartActive {
			r.members = append(r.members, follower{expected: e.Packets + sent, dead: s.receivers[i].dead})
		}
	}
	policy := e.Policy
	if need := max(1, int(policy.Ack)); r.living() < need || policy.Ack == feedback.AckAll && !policy.Evict && r.living() < len(r.members) {
		return // nobody could become the source
	}
	first := e.Packets
	if e.old {
		first = 0
	}
	r.group = feedback.New(feedback.Config{Policy: policy, Paths: len(r.members), FirstPSN: e.psn(int8(first)), Restored: true})
	if how == oldComes && !e.old {
		r.newSource(e.Packets, true)
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
	again   int // packets that the new source has sent again behind the crash
}

// follower is a receiver that took part when the switch crashed. Its path has its index.
type follower struct {
	expected int
	executed bool // the first source's packet
	dead     bool
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
		if tries == 300 {
			r.fail("the switch has crashed behind a source switch, and the first source does not become the source again")
			return false
		}
		if r.group.MayAsk() {
			for _, a := range r.group.Ask(r.now, next, nil) {
				if a.Kind == feedback.Reply {
					r.called(a)
				} else if f := &r.members[a.Path]; a.Kind == feedback.Question && !f.dead {
					r.answers(a.Path, f.expected-1)
				}
			}
		} else {
			r.group.Claim(r.now, nil)
		}
		r.now += feedback.AskPeriod
		r.group.Step(r.now, feedback.Event{Kind: feedback.Timer}, nil)
	}
	if r.how == isInside && r.again < 2 {
		r.fail("the new source is inside a message and answers, and the first source takes its turn")
		return false
	}
	r.offset += int(r.packet(r.group.NextPSN())) - r.Packets
	r.group.SwitchSource(next, nil)
	return true
}

// called lets the new source answer a question. It ignores one for a packet that it has not sent.
func (r *returning) called(a feedback.Action) {
	next := r.Packets + r.sent
	if a.Syndrome != roce.NAKSequence || int(r.packet(a.PSN)) != next+r.again {
		r.fail("behind a restart the new source hears %v %d, and the receivers have executed %d packets", a.Syndrome, r.packet(a.PSN), next+r.again)
	}
	for ; r.how == isInside && r.again < 2; r.again++ {
		r.newSource(next+r.again, r.again == 1)
	}
}

// newSource lets packet n of the new source come, and the receivers answer.
func (r *returning) newSource(n int, last bool) {
	acts, _ := r.group.Step(r.now, feedback.Event{Kind: feedback.Data, PSN: r.psn(int8(n)), AckReq: true, Last: last}, nil)
	for _, a := range acts {
		if f := &r.members[a.Path]; a.Kind == feedback.Copy && !f.dead {
			if n == f.expected {
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
	if !r.told && r.living() == len(r.members) {
		r.fail("all receivers have answered behind a restart, and the first source has heard nothing")
	}
}

// answers gives the group the ACK of a receiver, of the packet with a number.
func (r *returning) answers(path, number int) {
	psn := r.psn(int8(number - r.offset))
	acts, _ := r.group.Step(r.now, feedback.Event{Kind: feedback.Response, Path: path, PSN: psn, Syndrome: roce.SyndromeUnlimited}, nil)
	for _, a := range acts {
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
