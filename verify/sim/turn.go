package sim

import (
	"slices"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Turns is how control stores whose turn it is, so that a switch that comes back after a crash
// knows it. The zero value: control stores no turn, and no group that switches its source may meet
// a crash.
type Turns struct {
	Stored bool
	// Notes from the core, and writing a file, take up to so long each: a crash may come between.
	Lag time.Duration
	// Of eight notes that a member waits for its turn so many never come.
	LostNotes int
	// Of eight turns so many cannot be stored, and the source before goes on.
	Unstored int
	// In a tree: of eight steps of control so many meet a crash of their box, and Crashes at most.
	CrashedSteps, Crashes int
}

// turns is what control knows of the turns of a group during a run.
type turns struct {
	stored *mft.Turn // what a restart begins with; nil: the turn of the first source
	next   *mft.Turn // what is being stored; nil: nothing
	taker  int       // the host whose turn that is

	before *mft.Turn // the one that was stored before
	old    bool      // tests only: a restart begins with that one

	lives int32 // in a tree: how often the box has crashed
}

// asStored is a turn as a restart reads it: what Round.Sent says is not stored.
func asStored(t mft.Turn) *mft.Turn {
	t.Members = slices.Clone(t.Members)
	for i := range t.Members {
		t.Members[i].Sender.Round.Sent = false
	}
	t.First.Round.Sent = false
	return &t
}

// turnLag draws how long control takes for one step.
func (w *world) turnLag() time.Duration {
	if w.s.Turns.Lag == 0 {
		return 0
	}
	return time.Duration(w.frameRNG.Int64N(int64(w.s.Turns.Lag)))
}

// chanceOf8 draws whether something happens that happens n times of eight.
func (w *world) chanceOf8(n int) bool { return n > 0 && w.frameRNG.IntN(8) < n }

// step schedules the next step of control, which a crash of the switch ends.
func (w *world) step(kind eventKind) {
	w.schedule.add(event{at: w.now + w.turnLag(), kind: kind, index: int32(w.tally[SwitchCrash].Times)})
}

// atControl lets a step of control happen.
func (w *world) atControl(e *event) {
	t := &w.turns
	switch {
	case w.box.down > 0 || uint64(e.index) != w.tally[SwitchCrash].Times:
		// Control has crashed with the switch.
	case e.kind == takesTurn && t.next == nil:
		w.takeTurn()
	case e.kind == turnStored && w.chanceOf8(w.s.Turns.Unstored):
		w.beginTurn(false)
	case e.kind == turnStored:
		t.before, t.stored = t.stored, asStored(*t.next)
		w.storeOut(0)
		w.endTurn(&w.hosts[w.active])
		w.step(turnBegins)
	case e.kind == turnBegins:
		w.beginTurn(true)
	}
}

// takeTurn asks the core for the turn that a member waits for.
func (w *world) takeTurn() {
	if w.membersChanged {
		w.adopt() // control has published that before
	}
	var next mft.Turn
	w.atCore(func(now feedback.Tick, out *dataplane.Outputs) {
		var ok bool
		if next, ok = w.box.core.NextTurn(now, w.group.ID, out); ok {
			w.turns.next, w.turns.taker = &next, w.hostOf(next.Source)
		}
	})
	if w.turns.next == &next {
		w.step(turnStored)
	}
}

// beginTurn lets the turn begin that is stored, or the source go on.
func (w *world) beginTurn(granted bool) {
	w.turns.next = nil
	w.atCore(func(_ feedback.Tick, out *dataplane.Outputs) { w.box.core.BeginTurn(w.group.ID, granted, out) })
	w.replay()
	w.keepTime()
}

// atCore lets control ask the core for something, and sends what is due then.
func (w *world) atCore(f func(now feedback.Tick, out *dataplane.Outputs)) {
	b := &w.box
	w.notifying = nil
	b.outputs.Reset()
	f(feedback.Tick(w.now), &b.outputs)
	w.noteCarried()
	w.checkOutputs(nil)
	w.deliver(&b.pass, nil)
	b.core.PutBack()
	w.keepTime()
}

// replay lets the core handle the packets with which a turn begins.
func (w *world) replay() {
	b := &w.box
	for b.core.Kept(feedback.Tick(w.now), &w.pool, b.kept[:]) > 0 {
		kept := &b.kept[0]
		i := int32(kept.Chunks[0])
		f := w.pool.frames[i]
		f.retained = false
		w.pool.retained--
		w.present(&b.frame, &w.hosts[f.stream], f, kept.Group, kept.Kind)
		b.frame.Port = kept.Port
		b.received-- // it was counted when it came
		w.decide(&w.hosts[f.stream], i)
	}
}

// recallTurn makes the source of the turn that was stored last the source, as a restart does.
func (w *world) recallTurn() {
	t := &w.turns
	t.next = nil
	if t.old {
		t.stored = t.before
	}
	if t.stored != nil {
		w.active = w.hostOf(t.stored.Source)
	} else {
		w.active = 0
	}
	for i := range w.hosts {
		w.hosts[i].claimedAt, w.hosts[i].owedAt = 0, 0
	}
}

// hostOf returns the host of a member's queue pair. The first source may have none.
func (w *world) hostOf(qp mft.QP) int {
	for i := range w.hosts {
		if w.qp(i) == qp {
			return i
		}
	}
	return 0
}

// qp is the member that a host is, as a turn names it.
func (w *world) qp(host int) mft.QP {
	if w.s.Hosts[host].Far {
		return mft.QP{IP: w.linkIP(&farIPs), RemoteQPN: farQPN + roce.QPN(host)}
	}
	return mft.QP{IP: w.address(host), RemoteQPN: groupQPN}
}
