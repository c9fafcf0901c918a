package dataplane

import (
	"errors"
	"fmt"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// FanOut is an engine in front of the worker that sends the plain packets of groups to all their
// paths by itself: the kernel (bpf/fanout.c), or its twin in tests. The core arms it for one group
// at a time and stays the only place that decides: what is not exactly the next packet disarms the
// group and reaches the core as ever.
//
// Its methods are called by the worker that owns the group. None makes a system call or blocks.
type FanOut interface {
	// Claim takes the place that the group would have in the engine. Where another group has it,
	// that group is returned, and ok is false.
	Claim(id mft.GroupID) (holder mft.GroupID, ok bool)
	// Release gives the group's place up. The group is not armed.
	Release(id mft.GroupID)
	// Arm lets the engine carry packets that fit b, from w.PSN to limit. The group has a place and
	// is not armed. The error says what the engine lacks.
	Arm(id mft.GroupID, b *mft.Block, w FanWord, limit roce.PSN) error
	// Load is where the engine is with a group that has a place.
	Load(id mft.GroupID) FanWord
	// Disarm takes the group back and says where the engine got to.
	Disarm(id mft.GroupID) FanWord
	// Limit sets the last PSN that may be carried.
	Limit(id mft.GroupID, psn roce.PSN)
}

// FanWord is where the engine is with one group.
type FanWord struct {
	PSN      roce.PSN // of the next packet
	Messages roce.MSN // that ended since the group was armed
	Inside   bool     // the last packet was not its message's last
	Armed    bool
}

// A group is armed after so many plain packets in a row. The number doubles each time the engine
// carried hardly more than that before it had to give the group back: a group that often has
// something to decide stays with the core.
const (
	calmPackets    = 16
	calmPacketsMax = 4096
	inVainMax      = 16 // times that it carried nothing at all and the number stays
)

// fanState is what the core knows of its group in the engine.
type fanState struct {
	placed bool     // the group has a place
	at     FanWord  // when last looked at; at.Armed: the engine may carry packets
	limit  roce.PSN // the last PSN it may carry
	paths  int      // that get copies from it
	calm   int      // plain packets since something was to decide
	need   int      // of them, for it to be armed
	inVain int      // times in a row that it was armed and nothing was carried
	// idle is where the group was when another one wanted its place: if it is still there the next
	// time, it loses the place.
	idle    roce.PSN
	carried uint64
	before  uint64 // carried when it was armed last
	why     error  // why it was not armed when it was calm; nil: it was
}

// EngineState says which engine carries a group's plain packets.
type EngineState struct {
	Kernel  bool   // the kernel does now
	Reason  string // why it does not
	Carried uint64 // packets that it carried
}

func (c *Core) groupState(st *state) *GroupState {
	return &GroupState{Snapshot: st.merge.Snapshot(), Counters: named(&st.counts), Engine: c.engineState(st)}
}

func (c *Core) engineState(st *state) EngineState {
	e := EngineState{Kernel: st.fan.at.Armed, Carried: st.fan.carried}
	switch {
	case e.Kernel:
	case c.noFanOut != nil:
		e.Reason = c.noFanOut.Error()
	case c.fanOut == nil:
		e.Reason = "the daemon has no kernel engine; write engine: auto into its config (rocast features says whether this kernel has it)"
	case st.group.Engine == mft.EngineAFXDP:
		e.Reason = "the group's engine is afxdp"
	case st.fan.why != nil:
		e.Reason = st.fan.why.Error()
	default:
		e.Reason = fmt.Sprintf("the kernel takes over after %d new packets in a row without an incident", max(st.fan.need, calmPackets))
	}
	return e
}

// FanOutCounts are how often the engine was used, over all groups of a core.
type FanOutCounts struct{ Armed, Disarmed, Carried, Refused uint64 }

func (c *FanOutCounts) add(d *FanOutCounts) {
	c.Armed, c.Disarmed = c.Armed+d.Armed, c.Disarmed+d.Disarmed
	c.Carried, c.Refused = c.Carried+d.Carried, c.Refused+d.Refused
}

var (
	errNotPlain = errors.New("something is to be decided for its packets")
	errNoPlace  = errors.New("other groups that talk have its place")
)

// sync tells the merging what the engine carried since the last time. It precedes every event of
// the group.
func (c *Core) sync(now feedback.Tick, st *state, out *Outputs) {
	if st.fan.at.Armed {
		c.learn(now, st, c.fanOut.Load(st.group.ID), out)
	}
}

// settle follows an event of the group. An armed group is taken back when it is no longer plain, or
// a path has left that the engine sends to; one that has been plain for a while is noted for Arm.
func (c *Core) settle(now feedback.Tick, st *state, r Reason, out *Outputs) {
	switch f := &st.fan; {
	case c.fanOut == nil:
	case f.at.Armed && st.merge.Plain() != f.paths:
		c.takeBack(now, st, out)
	case f.at.Armed || st.group.Engine == mft.EngineAFXDP:
	case r != Reason(feedback.Forwarded):
	case st.merge.Plain() == 0:
		f.calm = 0
	default:
		if f.calm++; f.calm == max(f.need, calmPackets) {
			c.armable = append(c.armable, st)
		}
	}
}

// takeBack ends what the engine does for the group.
func (c *Core) takeBack(now feedback.Tick, st *state, out *Outputs) {
	if st.fan.at.Armed {
		c.learn(now, st, c.fanOut.Disarm(st.group.ID), out)
	}
	st.fan.calm = 0
}

// learn folds what the engine carried into the merging.
func (c *Core) learn(now feedback.Tick, st *state, w FanWord, out *Outputs) {
	f := &st.fan
	was := f.at
	f.at = w
	if !w.Armed {
		c.fanCounts.Disarmed++
	}
	n := w.PSN.Sub(was.PSN)
	f.carried += uint64(n)
	if !w.Armed {
		f.givenBack(f.carried - f.before)
	}
	if n == 0 {
		return
	}
	st.counts[feedback.Forwarded] += uint64(n)
	c.fanCounts.Carried += uint64(n)
	c.acts, _ = st.merge.Step(now, feedback.Event{
		Kind: feedback.Carried, PSN: w.PSN.Prev(), MSN: w.Messages.Add(-int32(was.Messages)), Last: !w.Inside,
	}, c.acts[:0])
	c.perform(st, nil, -1, out)
	if w.Armed && f.limit.Sub(w.PSN) < feedback.Window/2 {
		f.limit = st.merge.Horizon()
		c.fanOut.Limit(st.group.ID, f.limit)
	}
}

// givenBack sets how calm the group has to be before it is armed again. While frames wait for the
// core, what comes behind them disarms the group at once: that says nothing of the group, unless it
// happens again and again.
func (f *fanState) givenBack(carried uint64) {
	f.calm, f.need = 0, max(f.need, calmPackets)
	switch {
	case carried > 4*uint64(f.need):
		f.need, f.inVain = calmPackets, 0
	case carried == 0 && f.inVain < inVainMax:
		f.inVain++
	default:
		f.need = min(2*f.need, calmPacketsMax)
	}
}

// Arm hands the groups that have become calm to the engine. It is called when all copies are sent,
// so that none of the engine's overtakes them.
func (c *Core) Arm(now feedback.Tick, out *Outputs) {
	for _, st := range c.armable {
		if c.states[st.group.ID.Slot()] != st || st.fan.at.Armed {
			continue
		}
		f := &st.fan
		f.calm = 0
		if f.why = c.arm(now, st, out); f.why != nil {
			f.need = min(2*max(f.need, calmPackets), calmPacketsMax)
			c.fanCounts.Refused++
		}
		c.countInFlight(st)
	}
	c.armable = c.armable[:0]
}

func (c *Core) arm(now feedback.Tick, st *state, out *Outputs) error {
	if st.merge.Plain() == 0 {
		return errNotPlain
	}
	if err := st.block(&c.block); err != nil {
		return err
	}
	if !c.place(now, st, out) {
		return errNoPlace
	}
	w := FanWord{PSN: st.merge.NextPSN(), Inside: st.merge.Inside(), Armed: true}
	limit := st.merge.Horizon()
	if err := c.fanOut.Arm(st.group.ID, &c.block, w, limit); err != nil {
		return err
	}
	st.fan.at, st.fan.limit, st.fan.before, st.fan.paths = w, limit, st.fan.carried, len(c.block.Paths)
	c.fanCounts.Armed++
	return nil
}

// block makes the group's block as it is now.
func (st *state) block(b *mft.Block) error {
	if err := b.Begin(st.group, st.sourceLeg(), st.marks.pkey, st.marks.trafficClass); err != nil {
		return err
	}
	for i := range st.legs {
		if st.merge.Part(i) != feedback.PartActive {
			continue
		}
		if err := b.Add(st.group, i, st.legs[i].deltaPSN, &st.edits); err != nil {
			return err
		}
	}
	return b.End()
}

// place takes the group's place in the engine, from another group of this core if that one has
// stood still.
func (c *Core) place(now feedback.Tick, st *state, out *Outputs) bool {
	if st.fan.placed {
		return true
	}
	holder, ok := c.fanOut.Claim(st.group.ID)
	if !ok {
		other := c.holder(holder)
		if other == nil {
			return false
		}
		c.sync(now, other, out)
		if f := &other.fan; f.at.Armed && f.at.PSN != f.idle {
			f.idle = f.at.PSN
			return false
		}
		c.leave(now, other, out)
		_, ok = c.fanOut.Claim(st.group.ID)
	}
	st.fan.placed = ok
	return ok
}

// holder is the state of a group that has a place, if it is this core's.
func (c *Core) holder(id mft.GroupID) *state {
	slot := id.Slot()
	if slot >= len(c.states) || c.states[slot] == nil || c.states[slot].group.ID != id || !c.states[slot].fan.placed {
		return nil
	}
	return c.states[slot]
}

// leave gives the group's place up.
func (c *Core) leave(now feedback.Tick, st *state, out *Outputs) {
	if st.fan.placed {
		c.takeBack(now, st, out)
		c.fanOut.Release(st.group.ID)
		st.fan = fanState{carried: st.fan.carried}
	}
}
