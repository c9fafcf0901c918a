package softroce

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/rocast/rocast/roce"
)

// script makes the frames of a turn with two receivers.
type script struct {
	now    time.Duration
	frames []passage
}

func (s *script) after(d time.Duration) *script {
	s.now += d
	return s
}

func (s *script) pass(p passage) *script {
	p.at = s.now
	s.frames = append(s.frames, p)
	return s
}

func (s *script) send(offset int32) *script { return s.pass(passage{hop: uplink, offset: offset}) }

func (s *script) ask(offset int32) *script {
	return s.pass(passage{hop: uplink, offset: offset, ackReq: true})
}

func (s *script) copy(receiver int, offset int32, lost bool) *script {
	return s.pass(passage{hop: copied, receiver: receiver, offset: offset, lost: lost})
}

func (s *script) answer(receiver int, offset int32) *script {
	return s.pass(passage{hop: response, receiver: receiver, offset: offset, aeth: roce.AETH{Syndrome: roce.SyndromeUnlimited}})
}

func (s *script) asksFor(receiver int, offset int32) *script {
	return s.pass(passage{hop: response, receiver: receiver, offset: offset, aeth: roce.AETH{Syndrome: roce.NAKSequence}})
}

func (s *script) answers(offset int32) *script { return s.answer(0, offset).answer(1, offset) }

func (s *script) ack(offset int32) *script {
	return s.pass(passage{hop: merged, offset: offset, aeth: roce.AETH{Syndrome: roce.SyndromeUnlimited}})
}

func (s *script) nak(offset int32) *script {
	return s.pass(passage{hop: merged, offset: offset, aeth: roce.AETH{Syndrome: roce.NAKSequence}})
}

func (s *script) rnr(offset int32) *script {
	return s.pass(passage{hop: merged, offset: offset, aeth: roce.AETH{Syndrome: roce.SyndromeRNR(14)}})
}

// sendUpTo sends packets that ask for no ACK.
func (s *script) sendUpTo(offset int32) *script {
	for i := range offset + 1 {
		s.send(i)
	}
	return s
}

func TestOnlyASourceThatIsSilentIsExcused(t *testing.T) {
	for name, c := range map[string]struct {
		play    func(*script)
		naks    int
		resent  int
		excused int
	}{
		"nothing": {play: func(s *script) { s.sendUpTo(3).ask(4).answers(4).ack(4) }},
		"a NAK for what a receiver lacks": {
			play: func(s *script) { s.sendUpTo(3).answer(0, 3).answer(1, 1).nak(2).send(2).send(3) }, naks: 1, resent: 1,
		},
		"an RNR NAK for what a receiver lacks": {play: func(s *script) { s.sendUpTo(3).answer(0, 3).answer(1, 1).rnr(2) }, naks: 1},
		"a NAK for what a receiver lacks, after a pause": {
			play: func(s *script) { s.sendUpTo(3).answer(0, 3).answer(1, 2).after(silence).nak(3) }, naks: 1,
		},
		"a NAK that is lost": {play: func(s *script) {
			s.sendUpTo(3).answer(0, 3).answer(1, 1).pass(passage{hop: merged, offset: 2, lost: true, aeth: roce.AETH{Syndrome: roce.NAKSequence}})
		}},
		"sent again by itself": {
			play: func(s *script) { s.sendUpTo(3).send(1).send(2).send(3).send(4).send(2) }, resent: 2,
		},
		"a packet that is lost on its way from the source is sent again": {
			play: func(s *script) { s.pass(passage{hop: uplink, lost: true}).send(0) }, resent: 1,
		},
		"a newest packet that every receiver has, after a pause": {
			play: func(s *script) { s.sendUpTo(3).after(silence).answers(3).ack(2).nak(3).rnr(3).send(3).send(3).send(4) }, excused: 2,
		},
		"of two receivers the second lacks the newest packet": {
			play: func(s *script) { s.sendUpTo(3).answer(0, 3).answer(1, 2).after(silence).nak(3) }, naks: 1,
		},
		"the answer of a receiver is lost": {play: func(s *script) {
			s.sendUpTo(3).answer(0, 3).after(silence)
			s.pass(passage{hop: response, receiver: 1, offset: 3, lost: true, aeth: roce.AETH{Syndrome: roce.SyndromeUnlimited}}).nak(3)
		}, naks: 1},
		"a shorter pause": {
			play: func(s *script) { s.sendUpTo(3).answers(3).after(silence - 1).nak(3) }, naks: 1,
		},
		"a NAK for another packet, after a pause": {
			play: func(s *script) { s.sendUpTo(3).answers(3).after(silence).nak(2) }, naks: 1,
		},
		"a NAK for the first packet, and no pause": {play: func(s *script) { s.sendUpTo(0).answers(0).nak(0) }, naks: 1},
		"a pause before anything was sent":         {play: func(s *script) { s.after(silence).sendUpTo(0).answers(0).nak(0) }, naks: 1},
		"a pause behind a packet that asks": {
			play: func(s *script) { s.sendUpTo(2).ask(3).answers(3).after(silence).nak(3) }, naks: 1,
		},
		"a pause behind a packet that asked, and the next": {
			play: func(s *script) { s.sendUpTo(2).ask(3).answers(3).after(silence).send(4).nak(3) }, naks: 1,
		},
		"a NAK that meets the packet behind the pause": {
			play: func(s *script) { s.sendUpTo(3).answers(3).after(silence).send(4).nak(3).send(3).send(4).send(5) }, excused: 1,
		},
		"sent again from elsewhere than the NAK says": {
			play: func(s *script) { s.sendUpTo(3).answers(3).after(silence).nak(3).send(2).send(3) }, resent: 1, excused: 1,
		},
		"sent again twice for one NAK": {
			play: func(s *script) { s.sendUpTo(3).answers(3).after(silence).nak(3).send(3).send(3) }, resent: 1, excused: 1,
		},
		"sent again with a hole": {
			play: func(s *script) { s.sendUpTo(3).answers(3).after(silence).send(4).send(5).nak(3).send(3).send(5) }, resent: 1, excused: 1,
		},
		"the box kept the ACKs back": {
			play: func(s *script) { s.sendUpTo(window - 1).answers(window - 1).after(silence).nak(window - 1) }, naks: 1,
		},
		"the box kept the ACKs back, and then calls at once": {
			play: func(s *script) {
				s.sendUpTo(window - 1).answers(window - 1).after(silence).ack(0).nak(window - 1)
			}, naks: 1,
		},
		"an ACK made room for the next packet": {
			play: func(s *script) {
				s.sendUpTo(window - 1).answers(window - 1).ack(0).after(silence).ack(1).nak(window - 1)
			}, excused: 1,
		},
		"an ACK of old": {
			play: func(s *script) {
				s.sendUpTo(window - 1).answers(window - 1).ack(0).ack(-1).after(silence).nak(window - 1)
			}, excused: 1,
		},
		"a receiver lacks the newest packet and says so": {play: func(s *script) {
			s.sendUpTo(3).answer(0, 3).asksFor(1, 3).after(silence).nak(3)
		}, naks: 1},
		"called again, although the source has gone on": {play: func(s *script) {
			s.sendUpTo(3).answers(3).after(silence).nak(3).send(4).ask(5).after(silence).nak(3).rnr(3).send(3).send(4).send(3).send(3).send(3)
		}, excused: 3, resent: 1},
		"a pause while it sends again": {play: func(s *script) {
			s.sendUpTo(5).answers(5).after(silence).nak(5).send(6).send(5).after(silence).nak(6)
		}, excused: 1, naks: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{}
			c.play(s)
			got := noticed(2, 2, s.frames)
			if len(got.naks) != c.naks || len(got.resent) != c.resent || got.excused != c.excused {
				t.Errorf("NAKs %q, sent again %q, %d NAKs excused; want %d, %d and %d", got.naks, got.resent, got.excused, c.naks, c.resent, c.excused)
			}
		})
	}
}

func TestAQuorumIsEnoughForASourceThatPauses(t *testing.T) {
	s := (&script{}).sendUpTo(3)
	s.answer(1, 3).after(silence).nak(3)
	if got := noticed(2, 1, s.frames); len(got.naks) != 0 || got.excused != 1 {
		t.Errorf("%+v", got)
	}
	if got := noticed(2, 2, s.frames); len(got.naks) != 1 || got.excused != 0 {
		t.Errorf("%+v", got)
	}
}

func TestNoticesNameTheFrames(t *testing.T) {
	s := (&script{}).sendUpTo(3).after(time.Millisecond).nak(2).send(1).send(2)
	got := noticed(2, 2, s.frames)
	want := notices{naks: []string{fmt.Sprintf("%v for packet 2 at 1ms", roce.NAKSequence)}, resent: []string{"packet 1 at 1ms"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestRepairsLastFromTheNAKToTheCopy(t *testing.T) {
	const ms = time.Millisecond
	s := (&script{}).sendUpTo(9)
	s.copy(0, 0, false).asksFor(0, 0)          // it has not got the copy before
	s.after(ms).copy(1, 0, false)              // for another one
	s.after(ms).copy(0, 1, false)              // another packet
	s.after(ms).copy(0, 0, true).asksFor(0, 0) // lost; it asks again
	s.after(ms).copy(0, 0, false).copy(0, 0, false)
	s.asksFor(1, 5).after(3*ms).answer(1, 6).copy(1, 5, false) // another copy came
	s.asksFor(1, 7).after(ms).copy(1, 7, false)
	s.pass(passage{hop: response, receiver: 0, offset: 1, lost: true, aeth: roce.AETH{Syndrome: roce.NAKSequence}})
	s.after(ms).copy(0, 0, false).copy(0, 1, false)
	s.asksFor(1, 8).after(2*ms).copy(1, 8, false).answer(1, 8)
	s.answer(1, 9).asksFor(1, 9).copy(1, 9, false).copy(1, 10, false) // a NAK of old
	got := noticed(2, 2, s.frames)
	if want := []time.Duration{ms, 2 * ms, 4 * ms}; !reflect.DeepEqual(got.repairs, want) {
		t.Errorf("%v, want %v", got.repairs, want)
	}
}

func TestASourceWithoutANAKSendsAgainByItself(t *testing.T) {
	lost := passage{hop: merged, offset: 2, lost: true, aeth: roce.AETH{Syndrome: roce.NAKSequence}}
	for name, c := range map[string]struct {
		play func(*script)
		want []int32
	}{
		"nothing sent again": {func(s *script) { s.sendUpTo(3).ack(3) }, nil},
		"called back":        {func(s *script) { s.sendUpTo(3).nak(2).send(2).send(3) }, nil},
		"by its timer":       {func(s *script) { s.sendUpTo(3).ack(1).send(2).send(3) }, []int32{2, 3}},
		"a NAK that is lost": {func(s *script) { s.sendUpTo(3).pass(lost).send(2) }, []int32{2}},
		"a NAK of before":    {func(s *script) { s.sendUpTo(3).nak(2).send(2).send(3).send(3) }, []int32{3}},
		"a NAK in between":   {func(s *script) { s.sendUpTo(3).nak(2).send(2).nak(2).send(2) }, nil},
	} {
		s := &script{}
		c.play(s)
		if got := unbidden(s.frames); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestAProcessWithoutCPUJudgesNobody(t *testing.T) {
	p := &pulse{}
	p.feel(beat)
	p.feel(beat + 20*time.Millisecond)
	p.feel(beat)
	if why := p.starved(100 * time.Millisecond); why != "not judged, because the machine gave this process no CPU for 20ms" {
		t.Error(why)
	}
	if why := p.starved(101 * time.Millisecond); why != "" {
		t.Error(why)
	}
}

func TestTheUsualRepairIsTheMedianOfMany(t *testing.T) {
	s := (&script{}).sendUpTo(manyRepairs)
	for i := range int32(manyRepairs) {
		s.asksFor(0, i).after(time.Duration(manyRepairs-i)*time.Second).copy(0, i, false)
		got := noticed(1, 1, s.frames)
		if i < manyRepairs-1 && got.usual() != 0 {
			t.Errorf("%v of %d", got.usual(), i+1)
		}
		if i == manyRepairs-1 && got.usual() != (manyRepairs/2+1)*time.Second {
			t.Errorf("%v of %v", got.usual(), got.repairs)
		}
		s.answer(0, i)
	}
}
