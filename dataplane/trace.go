package dataplane

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Trace is what would happen with a frame.
type Trace struct {
	Class Class
	Group mft.GroupID // with Class ToGroup; mft.NoGroup: only the address is a group's
	Kind  Kind
	// Carried: an engine carries the group now, and sends these copies by itself.
	Carried bool
	// GivesBack: an engine has the group now, and gives it back because of this frame. IsPlain: it
	// does not.
	GivesBack NotPlain
	// Frames are the frame itself, and everything that would be sent because of it, whole. Nothing
	// is lost: the queues of the ports are not looked at.
	Frames []Captured
	Notes  []Note
}

// traceRoom is how many frames a trace shows besides one copy for each path: more than one NAK lets
// the box send again.
const traceRoom = 128

// Trace finds out what would happen with a frame if it came by a port now. A copy of the group's
// state handles the frame, on a worker of its own that sends nothing. Nothing else changes: no
// state, no counter, no buffer, and nothing in the engine.
func (s *Switch) Trace(port mft.PortID, frame []byte) (t Trace, err error) {
	if len(frame) > SnapMost {
		return t, fmt.Errorf("the frame has %d bytes, and no frame of a group has more than %d", len(frame), SnapMost)
	}
	s.change.Lock() // so that the table and the ports stay the same
	defer s.change.Unlock()
	table := s.Table()
	if t.Group, t.Kind, t.Class = Classify(table, frame); t.Class != ToGroup {
		return t, nil
	}
	var ports []Port
	for range s.workers[0].ports {
		ports = append(ports, nowhere{})
	}
	trial := newWorker(WorkerConfig{Ports: ports, Pool: unbounded{}}, Config{RepairChunks: MaxFragments}, &s.table, nil)
	trial.peers, trial.owners = []*Worker{trial}, newOwners(1)
	room := traceRoom
	if g := table.Group(t.Group); g != nil {
		room += len(g.Paths)
	}
	seen := newTap(CaptureConfig{Kinds: CaptureAll, Snap: SnapMost}, nil, room)
	trial.core.taps = []*tap{seen}
	var zero time.Time
	s.do(s.workers[max(0, s.owners.of(t.Group))], func(w *Worker) {
		trial.polled = w.now()
		zero = time.Now().Add(-time.Duration(trial.polled))
		if st := w.core.stateOf(t.Group); st != nil {
			w.core.look(w.polled, st, &w.out)
			w.flush()
			trial.core.imitate(w.core, st)
		}
		trial.try(table, frame, &t, port)
	})
	captured := Capture{s: s, taps: []*tap{seen}, zero: []time.Time{zero}, before: table}
	captured.Read(func(f *Captured) {
		f.Bytes = slices.Clone(f.Bytes)
		t.Frames = append(t.Frames, *f)
	})
	return t, nil
}

// try handles one frame as handle does. Retained packets are sent from buffers of the trial's own.
func (w *Worker) try(table *mft.Table, frame []byte, t *Trace, port mft.PortID) {
	var f Frame
	w.pool.Load(&f, frame, nil)
	f.Group, f.Kind, f.Port = t.Group, t.Kind, port
	w.core.tryEngine(&f, t)
	w.sawFrame(&f, w.core.Handle(w.polled, table, &f, &w.out))
	for k := range w.out.Copies {
		w.enqueue(&f, nil, k)
	}
	for i := range w.out.Repairs {
		w.out.Repairs[i].Frame = w.out.Repairs[i].Frame.clone()
	}
	t.Notes = slices.Clone(w.out.Notes)
	w.out.Notes = w.out.Notes[:0]
	w.flush()
}

// tryEngine finds out what the engine in front of the core would do with a frame.
func (c *Core) tryEngine(f *Frame, t *Trace) {
	if st := c.stateOf(f.Group); st != nil && st.fan.at.Armed && f.Kind == KindData {
		c.engine.try(st, f, t)
	}
}

func (e *engine) try(st *state, f *Frame, t *Trace) {
	var b mft.Block
	w := e.fanOut.Load(f.Group)
	if !w.Armed || st.block(&b, e.marks) != nil {
		return
	}
	_, not := Plain(f, &b, w, st.fan.limit)
	t.Carried = not == IsPlain
	if not != NotOfSource {
		t.GivesBack = not
	}
}

// clone returns a frame with the same bytes in buffers of its own.
func (f *Frame) clone() *Frame {
	c := *f
	c.Buf = slices.Clone(f.Buf)
	for i, b := range f.Bytes() {
		c.Fragments[i] = slices.Clone(b)
	}
	c.Fragments[0] = c.Buf[f.Start : f.Start+len(f.Fragments[0])]
	return &c
}

// imitate gives c a copy of the state that another core has of a group.
func (c *Core) imitate(other *Core, of *state) {
	st := of.clone()
	c.states = make([]*state, of.group.ID.Slot()+1)
	c.states[of.group.ID.Slot()] = st
	c.flights[st.flight]++
	c.engine.fanOut = other.engine.freeze(of)
	if of.held != nil {
		c.repair.retained = other.repair.retained.of(of.held, st)
	}
}

// clone returns a copy that shares nothing that events change. What is retained for repair is not
// copied yet.
func (st *state) clone() *state {
	c := *st
	c.merge = new(feedback.Group)
	c.merge.CopyFrom(st.merge)
	c.offsets, c.turns, c.tallies = slices.Clone(st.offsets), slices.Clone(st.turns), slices.Clone(st.tallies)
	c.sharing = st.sharing.clone()
	c.fan.listed, c.fan.merges.on = false, false // nothing is merged of a copy
	if c.claimant.stands {
		c.claimant.kept = newHandoff(keptFrames)
	}
	if st.held != nil {
		h := *st.held
		h.at = slices.Clone(h.at)
		h.waits = 0
		h.recent.now, h.recent.before = slices.Clone(h.recent.now), slices.Clone(h.recent.before)
		c.held = &h
	}
	return &c
}

// of returns a retention that has only the packets of one group, h, for a copy of its state. The
// packets' buffers are those of r.
func (r *retention) of(h *held, st *state) *retention {
	only := newRetention(h.used + MaxFragments)
	st.held.used, st.held.inEngine = 0, 0
	st.held.next = h.oldest
	for psn := h.oldest; psn != h.next; psn = psn.Next() {
		if h.engineHas(psn) {
			only.carried(st.held, h.oldest, psn)
			continue
		}
		s := r.find(h, psn)
		frame := s.frame
		only.keep(st, &frame, s.checked)
	}
	only.room = only.chunks + max(r.room-r.chunks, MaxFragments)
	return only
}

// frozen is a copy of an engine's state with one group. It never changes.
type frozen struct {
	FanOut
	word FanWord
	at   []feedback.Progress // of a group whose answers it merges
	told feedback.Progress
}

// freeze returns the engine as it is with a group now; nil: there is none.
func (e *engine) freeze(st *state) FanOut {
	switch {
	case e.fanOut == nil:
		return nil
	case !st.fan.hasSlot:
		return &frozen{FanOut: e.fanOut}
	}
	return &frozen{FanOut: e.fanOut, word: e.fanOut.Load(st.group.ID)}
}

var errFrozen = errors.New("this is only tried")

func (f *frozen) Claim(id mft.GroupID) (mft.GroupID, bool)             { return id, true }
func (f *frozen) Wanted(mft.GroupID) Want                              { return WantsNothing }
func (f *frozen) Release(mft.GroupID)                                  {}
func (f *frozen) Arm(mft.GroupID, *mft.Block, FanWord, roce.PSN) error { return errFrozen }
func (f *frozen) Load(mft.GroupID) FanWord                             { return f.word }
func (f *frozen) Limit(mft.GroupID, roce.PSN)                          {}
func (f *frozen) Merge(_ mft.GroupID, at []feedback.Progress, told feedback.Progress, _ int32) error {
	f.at, f.told = slices.Clone(at), told
	return nil
}
func (f *frozen) EndMerge(_ mft.GroupID, at []feedback.Progress) (told feedback.Progress) {
	copy(at, f.at)
	return f.told
}
func (f *frozen) Disarm(mft.GroupID) FanWord {
	f.word.Armed = false
	return f.word
}

// nowhere is a port that takes every frame and sends none.
type nowhere struct{}

func (nowhere) Receive([]Frame) int     { return 0 }
func (nowhere) Send(out []Outgoing) int { return len(out) }
func (nowhere) Unsent() int             { return 0 }

// unbounded is a pool without bounds.
type unbounded struct{}

func (unbounded) Get(f *Frame) bool {
	f.Buf, f.Start, f.FragmentCount = make([]byte, HeadroomBytes+SnapMost), HeadroomBytes, 0
	return true
}

func (u unbounded) Load(f *Frame, head, rest []byte) bool {
	bytes := slices.Concat(head, rest)
	for u.Get(f); len(bytes) > 0; f.FragmentCount++ {
		n := min(len(bytes), mft.BufferBytes-HeadroomBytes)
		f.Fragments[f.FragmentCount] = slices.Clone(bytes[:n])
		bytes = bytes[n:]
	}
	f.Fragments[0] = f.Buf[f.Start : f.Start+copy(f.Buf[f.Start:], f.Fragments[0])]
	return true
}

func (unbounded) Put(*Frame) {}
