package model

import (
	"fmt"
	"strings"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// tape records a run: every move, and the story of the same events at the switch
// (feedback/story_test.go). A nil tape records nothing.
type tape struct {
	moves []string
	story []string // lines of the story block that is not closed yet
	told  strings.Builder
}

// storyFirst is the number of packet 0 in traces and stories, whatever the PSN of packet 0 is.
const storyFirst = 100

var receiverNames = [maxReceivers]string{"b", "c", "d"}

// Trace returns the moves that lead to the violation.
func (v *Violation) Trace(w World) string {
	t := v.play(w)
	var b strings.Builder
	for i, line := range t.moves {
		if i == v.round {
			b.WriteString("  and from here, again and again:\n")
		}
		fmt.Fprintf(&b, "  %s\n", line)
	}
	return b.String() + "=> " + v.What + "\n"
}

// Story returns the same run as a story for feedback/testdata/stories. Complete the story with
// -rewrite and read the result.
func (v *Violation) Story(w World) string {
	t := v.play(w)
	t.closeBlock()
	return t.told.String()
}

func (v *Violation) play(w World) *tape {
	w.prepare()
	t := &tape{}
	e := engine{World: &w, tape: t}
	s := w.start()
	t.open(&w, "")
	for _, m := range v.moves {
		e.make(s, m)
	}
	return t
}

func (t *tape) open(w *World, restored string) {
	p := w.Policy
	fmt.Fprintf(&t.told, "group receivers=(%s) first=%d", strings.Join(receiverNames[:w.Receivers], ","), storyFirst)
	if w.Relayed {
		t.told.WriteString(" relayed")
	}
	for i := range feedback.Keys {
		if k := &feedback.Keys[i]; k.Text(p) != k.Text(feedback.Policy{}) {
			value := k.Text(p)
			if words := strings.Fields(value); len(words) > 1 {
				value = "(" + strings.Join(words, ",") + ")"
			}
			fmt.Fprintf(&t.told, " %s=%s", k.Name, value)
		}
	}
	fmt.Fprintf(&t.told, "%s\n----\n", restored)
}

func (t *tape) closeBlock() {
	if len(t.story) > 0 {
		fmt.Fprintf(&t.told, "\nrun\n%s\n----\n", strings.Join(t.story, "\n"))
	}
	t.story = nil
}

// move records a move before it is made in s.
func (t *tape) move(w *World, s *state, m move) {
	if t == nil {
		return
	}
	r, name := &s.receivers[m.receiver], receiverNames[m.receiver]
	line := ""
	switch m.kind {
	case sends:
		line = fmt.Sprintf("source sends %d", storyFirst+int(s.src.next))
	case hears:
		h := s.home.at[0]
		line = fmt.Sprintf("source hears %v %d", h.syndrome, storyFirst+int(h.packet))
	case answers:
		line = name + t.taking(r.down.all()[:m.index+1])
		if m.response != takes {
			line += map[response]string{notReady: ", which finds no WQE", dies: ", which ends its QP"}[m.response]
		}
	case drops:
		line = fmt.Sprintf("%d on its way to %s is lost", storyFirst+int(r.down.at[m.index]&^asksAnyway), name)
	case overtook:
		a := r.aside.at[m.index]
		line = fmt.Sprintf("a late %v %d of %s arrives", a.syndrome, storyFirst+int(a.packet), name)
	case rnrEnds:
		line = "source's RNR timer ends"
	case quiet:
		line = "all is quiet: timeout"
	case early:
		line = "source times out early"
	case ticks:
		line = "time passes at the switch"
	case crashes:
		line = "switch restarts"
		if m.index > 0 {
			line += fmt.Sprintf(", and %d arrives, which was long on its way", storyFirst+int(m.index)-1)
		}
		t.closeBlock()
		t.told.WriteString("\n")
		restored := " restored"
		if last := &s.receivers[w.Receivers-1]; s.isOpen(last) {
			restored += fmt.Sprintf(" joined=(%s,%d)", receiverNames[w.Receivers-1], storyFirst+int(last.from))
		}
		t.open(w, restored)
	case perishes:
		line = name + " perishes"
	case forgets:
		line = "the switch loses a retained packet"
	case arms:
		line = "the engine is armed"
	case takesOver:
		line = "another member wants to send"
	case carries:
		line = fmt.Sprintf("source sends %d, and the engine carries it", storyFirst+int(s.src.next))
	}
	if m.kind == crashes && m.fate == isDelayed {
		line += "; the engine carries one more packet, and"
	}
	if m.kind == crashes && m.fate == isLost {
		line += "; what the receivers say meanwhile is"
	}
	line += [...]string{arrives: "", isLost: "; lost", isDelayed: "; its answer is late", isDoubled: "; comes twice"}[m.fate]
	t.moves = append(t.moves, line)
}

func (t *tape) taking(packets []uint8) string {
	text := " takes"
	for _, p := range packets {
		text += fmt.Sprintf(" %d", storyFirst+int(p&^asksAnyway))
	}
	return text
}

// event records an event of the switch and its result.
func (t *tape) event(w *World, s *state, ev feedback.Event, outcome feedback.Outcome, acts []feedback.Action) {
	if t == nil {
		return
	}
	n := func(p roce.PSN) int { return storyFirst + int(w.packet(p)) }
	line := ""
	switch ev.Kind {
	case feedback.Data:
		line = fmt.Sprintf("data %d", n(ev.PSN))
		if ev.AckReq {
			line += "!"
		}
	case feedback.Refuse:
		line = fmt.Sprintf("read %d", n(ev.PSN))
	case feedback.Timer:
		line = fmt.Sprintf("wait %v", time.Duration(tickLength))
	case feedback.Lost:
		line = fmt.Sprintf("lost %d", n(ev.PSN))
	case feedback.Carried:
		line = fmt.Sprintf("data up to %d, carried", n(ev.PSN))
	case feedback.Response:
		line = receiverNames[ev.Path] + " " + answerWords(ev.Syndrome, n(ev.PSN))
		if ev.MSN > 0 {
			line += fmt.Sprintf(" msn=%d", ev.MSN)
		}
	}
	t.story = append(t.story, line)
	said := fmt.Sprintf("      switch: %s: %v", line, outcome)
	for i := range acts {
		switch a := &acts[i]; a.Kind {
		case feedback.Copy:
			said += ", to " + receiverNames[a.Path]
		case feedback.Repair:
			said += fmt.Sprintf(", %d again to %s", n(a.PSN), receiverNames[a.Path])
		case feedback.Question:
			said += ", asks " + receiverNames[a.Path]
		case feedback.Reply:
			said += fmt.Sprintf(", tells %v %d", a.Syndrome, n(a.PSN))
		case feedback.Join:
			said += fmt.Sprintf(", %s joins at %d", receiverNames[a.Path], n(a.PSN))
		case feedback.Notice:
			said += fmt.Sprintf(", %s is %v", receiverNames[a.Path], a.Note)
		}
	}
	t.moves = append(t.moves, said)
}

func answerWords(s roce.Syndrome, n int) string {
	switch {
	case s.IsACK():
		return fmt.Sprintf("ack %d", n)
	case s.IsRNR():
		return fmt.Sprintf("rnr %d timer=%d", n, s.RNRTimer())
	case s == roce.NAKSequence:
		return fmt.Sprintf("nak %d", n)
	}
	return fmt.Sprintf("fatal %d access", n)
}
