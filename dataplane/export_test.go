package dataplane

import (
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Lose gives up what is retained of a group up to psn.
func Lose(c *Core, id mft.GroupID, psn roce.PSN, out *Outputs) {
	c.lose(0, c.stateOf(id), psn, &c.repair.counts.NoMemory, out)
}

// Sleep does what an idle worker does.
func Sleep(w *Worker) { w.sleep() }

// SetAhead sets how far the clock that goes on over a restart is ahead of the worker's.
func SetAhead(w *Worker, by feedback.Tick) { w.core.ahead = uint32(by / feedback.AskPeriod) }

// Ahead is what SetAhead has set, or New.
func Ahead(w *Worker) uint32 { return w.core.ahead }

// HasState reports whether the worker has merging state of the group.
func HasState(w *Worker, id mft.GroupID) bool { return w.core.stateOf(id) != nil }

// Owner returns the index of the worker that owns a group, or -1.
func Owner(s *Switch, id mft.GroupID) int { return s.owners.of(id) }

// Claim makes a worker the owner of a group whose data it receives, and returns the owner.
func Claim(s *Switch, id mft.GroupID, receiver int) int { return s.owners.claim(id, receiver) }

// GroupsOf returns the number of groups that a worker owns.
func GroupsOf(s *Switch, worker int) int { return int(s.owners.groups[worker].Load()) }

// Timed reports whether the worker has groups whose policy depends on time passing.
func Timed(w *Worker) bool { return len(w.core.timed.groups) > 0 }

// Pause is how long a worker may wait before it looks again; 0: for ever.
func Pause(w *Worker, now feedback.Tick) feedback.Tick { return w.core.Pause(now) }

// EngineOf says which engine carries a group's packets.
func EngineOf(c *Core, id mft.GroupID) EngineState {
	return c.engine.report(c.stateOf(id), c.taps.capture(id))
}

// Fans are the core's counts of its engine.
func Fans(c *Core) FanOutCounts { return c.engine.counts }

// Noted is how many groups wait to be armed.
func Noted(c *Core) int { return len(c.engine.armable) }

// InFlight is how many groups have data in flight that comes to the core, and how many an engine
// carries. All other groups are settled.
func InFlight(c *Core) (toCore, byEngine, groupsSettled int) {
	return c.flights[inFlight], c.flights[carried], c.flights[settled]
}

// The bounds of the rings between workers.
const (
	HandoffFrames = handoffFrames
	HandoffBytes  = handoffBytes
)

// How an idle worker waits.
const (
	SpinSettled  = spinSettled
	SpinInFlight = spinInFlight
	// StreamPackets is how far ahead of its feedback a source is that does not wait for it.
	StreamPackets = streamPackets
)

// Handoff is a ring between two workers.
type Handoff struct{ ring *handoff }

// NewHandoff returns an empty ring.
func NewHandoff() Handoff { return Handoff{newHandoff(handoffFrames)} }

// Put is handoff.put.
func (h Handoff) Put(f *Frame) bool { return h.ring.put(f) }

// Take is handoff.take.
func (h Handoff) Take(pool Pool, frames []Frame) int { return h.ring.take(pool, frames) }

// RetainedBy returns how many packets a worker retains.
func RetainedBy(w *Worker) int {
	packets, _ := w.core.Retained()
	return packets
}

// CoreOf returns the worker's core.
func CoreOf(w *Worker) *Core { return w.core }

// Reserved reports whether the worker has records of retained packets.
func Reserved(w *Worker) bool { return w.core.repair.retained != nil }

// ServedBeside returns which groups a rotation of n groups serves in a round in which group i
// removes group k.
func ServedBeside(n, i, k int) (served []int) {
	var r rotation
	number := map[*state]int{}
	for m := range n {
		st := new(state)
		number[st] = m
		r.add(st)
	}
	gone := r.groups[k]
	r.visit(0, 1, func(st *state) {
		served = append(served, number[st])
		if number[st] == i {
			r.remove(gone)
		}
	})
	return served
}

// LeastKept is how many packets of a group the engine retains at first.
const LeastKept = leastKept

// CaptureEverything makes a core without a worker believe that a capture wants all groups.
func CaptureEverything(c *Core) {
	c.taps = append(c.taps, newTap(CaptureConfig{Snap: SnapLeast}, nil, 1))
}

// AnswersBefore makes each receiver of a group have sent so many answers of each kind.
func AnswersBefore(w *Worker, id mft.GroupID, n uint32) {
	for i := range w.core.stateOf(id).tallies {
		t := &w.core.stateOf(id).tallies[i]
		t.naks, t.rnrs, t.cnps = uint64(n), uint64(n), uint64(n)
	}
}

// SnapshotOf is the merging state of a group that a core has.
func SnapshotOf(c *Core, id mft.GroupID) feedback.Snapshot { return c.stateOf(id).merge.Snapshot() }

// StateOf is what the API shows of a group.
func StateOf(c *Core, id mft.GroupID) *GroupState { return c.groupState(0, c.stateOf(id)) }

// AstrayFor returns what the core knows of frames astray that it refused for a reason.
func (c *Core) AstrayFor(r Reason) Refused { return c.astray[r] }
