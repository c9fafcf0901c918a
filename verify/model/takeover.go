package model

import (
	"strconv"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// In some worlds another member becomes the source while the first one has packets left. With
// source-switch: force that may be at any moment between two messages, and what the first source
// has sent may be at few receivers. The next source sends the packets that are left: so its first
// PSN is the one that the receivers expect next, and a packet has one number whoever sends it. The
// first source hears nothing any more. Behind that the switch may crash, and begins again with the
// turn that control has stored: with the next source, and without who was left behind.
//
// The checks of every world go on, so nothing is acknowledged to the next source that a counted
// receiver lacks. These come in addition:
//   - who takes part from then on has everything of the first source;
//   - the next source has as many receivers as it needs, or too few would be left in any case;
//   - where nothing more can happen, another member can become the source.

// next is the source switch that the next source wants.
func (e *engine) next(s *state) feedback.SourceSwitch {
	next := feedback.SourceSwitch{
		PSN: s.group.NextPSN(), Messages: e.complete[e.packet(s.group.NextPSN())], OldPath: -1, NewPath: -1,
		Lacks: e.Lacks, Left: e.Left, Beside: e.Beside,
	}
	if e.Member {
		next.OldPath = 0
	}
	if e.Next {
		next.NewPath = 1
	}
	return next
}

// least is how many receivers the source needs that are not beside it.
func (e *engine) least(s *state) int {
	if e.Policy.Ack == feedback.AckAll {
		return 1
	}
	return max(0, int(e.Policy.Ack)-int(s.beside))
}

// mayTakeOver reports whether the next source's packet makes a difference now: it may be the
// source, or the switch asks the receivers what they have.
func (e *engine) mayTakeOver(s *state) bool {
	g := s.group
	sent := int(e.packet(g.NextPSN()))
	if s.left.takes == 0 || s.first > 0 || sent == 0 || sent >= e.Packets || int(s.left.crashes) < e.Crashes {
		return false
	}
	return g.Settled() || e.Left || g.MaySwitch(s.now, e.next(s))
}

// takeOver lets the next source's packet come.
func (e *engine) takeOver(s *state) {
	s.left.takes--
	next := e.next(s)
	switch may := s.group.MaySwitch(s.now, next); {
	case !may && e.Left:
		e.fail("the switch above has gone on, and is waited for")
		return
	case !may:
		e.claim(s)
		return
	}
	if s.group.Inside() && !e.Left {
		e.fail("another member becomes the source inside a message")
		return
	}
	first := uint8(e.packet(next.PSN))
	e.acts = s.group.SwitchSource(next, e.acts[:0])
	e.tape.takes(e.World, next)
	if e.Member {
		s.receivers[0].away, s.receivers[0].expected = false, first
	}
	if e.Policy.Switch != feedback.SwitchForce && !e.Left && int(s.left.takes) == e.Takes-1 && len(e.acts) > 0 {
		e.fail("receiver %d is left behind at the first try", e.acts[0].Path)
	}
	more := 0
	for i := range e.acts {
		a := &e.acts[i]
		r := &s.receivers[a.Path]
		switch {
		case a.Note != feedback.NoteBehind:
			e.fail("receiver %d is %v at a source switch", a.Path, a.Note)
		case e.Needed && a.Path == 0:
			e.fail("the switch above is left out")
		case a.Path != next.NewPath:
			more++
		}
		r.out, r.stored, r.heardNAK = true, true, false
		r.gone = r.gone || e.Policy.Ack == feedback.AckAll // nobody waits for it
	}
	s.beside = 0
	if e.Next {
		to := &s.receivers[1]
		if to.away, to.down.n, to.aside.n = true, 0, 0; !to.out && to.expected == first && !e.Lacks {
			s.beside = uint8(e.Beside)
		}
	}
	e.checkTaken(s, first, more)
	s.src = source{unacked: first, next: first, sent: first}
	s.home.n, s.few, s.first = 0, false, first
	s.place, s.told, s.messages = int8(first)-1, int8(first)-1, e.complete[first]
}

// checkTaken checks who takes part behind a source switch. more have been left behind that could
// have caught up.
func (e *engine) checkTaken(s *state, first uint8, more int) {
	have := 0
	for i := range s.receivers[:e.Receivers] {
		r := &s.receivers[i]
		switch {
		case s.group.Part(i) != feedback.PartActive:
			continue
		case !r.dead && r.expected < first:
			e.fail("receiver %d takes part when another member is the source, and lacks packet %d", i, r.expected)
		case e.Left && i != 0:
			e.fail("receiver %d takes part, and nobody knows what the switch above has sent since", i)
		}
		have++
	}
	if least := e.least(s); !e.Left && have < least && have+more >= least {
		e.fail("the next source has %d receivers and needs %d, and %d more could have caught up", have, least, more)
	}
	if e.Lacks && !s.group.LeftOut() {
		e.fail("the next source's switch takes part again, and lacks something")
	}
}

// claim lets the switch ask the receivers what they have.
func (e *engine) claim(s *state) {
	retained := s.group.Oldest()
	e.acts = s.group.Claim(s.now, e.acts[:0])
	e.perform(s, feedback.Event{Kind: feedback.Timer}, e.acts, retained, retained)
}

// checkTakeOver fails if another member cannot become the source where nothing more can happen,
// although the first one has finished, or the switch is by force. Its queue pair tries for as long.
func (e *engine) checkTakeOver(before *state) {
	mayForce := e.Policy.Switch == feedback.SwitchForce && !before.group.Inside()
	if e.Takes == 0 || before.first > 0 || int(before.left.crashes) < e.Crashes || before.src.status != running && !mayForce {
		return
	}
	if e.Policy.Switch != feedback.SwitchForce && e.Policy.Ack == feedback.AckAll && e.Lacks || e.living(before) < e.least(before) {
		return // who cannot be spared is waited for
	}
	s := &e.succession
	s.copyFrom(before)
	e.deliver(s)
	for tries := 0; !s.group.MaySwitch(s.now, e.next(s)); tries++ {
		if tries == 3 {
			e.fail("nothing can happen, and no other member can become the source")
			return
		}
		e.claim(s)
		e.deliver(s)
		e.tick(s)
		e.deliver(s)
	}
}

// living is how many living receivers the next source has, and how many are beside it.
func (e *engine) living(s *state) (n int) {
	for i := range s.receivers[:e.Receivers] {
		if r := &s.receivers[i]; !r.dead && !r.out && !(e.Next && i == 1) {
			n++
		}
	}
	if !e.Lacks {
		n += e.Beside
	}
	return n
}

// takes records the source switch.
func (t *tape) takes(w *World, s feedback.SourceSwitch) {
	if t == nil {
		return
	}
	line := "source " + storyPacket(w, s.PSN)
	for _, p := range []struct {
		name string
		path int
	}{{"away", s.NewPath}, {"old", s.OldPath}} {
		if p.path >= 0 {
			line += " " + p.name + "=" + receiverNames[p.path]
		}
	}
	t.story = append(t.story, line)
	t.moves = append(t.moves, "      switch: "+line)
}

func storyPacket(w *World, psn roce.PSN) string {
	return strconv.Itoa(storyFirst + int(w.packet(psn)))
}
