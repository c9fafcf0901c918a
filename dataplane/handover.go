package dataplane

import (
	"time"

	"github.com/rocast/rocast/feedback"
)

// Here the core hands groups to the engine and takes them back. Before each event of a group the
// merging hears what the engine did for it (sync, disarm), and after each event the core finds
// out whether the engine may go on (reconsider).

// sync reports to the merging what the engine did since the last call: the packets that it carried,
// and the ACKs that it merged. It precedes every event of the group. The engine merges nothing more
// until resume.
func (c *Core) sync(now feedback.Tick, st *state, out *Outputs) {
	if st.fan.at.Armed {
		c.takeIn(now, st, c.engine.look(st), out)
	}
}

// look takes in what the engine did, between two events of a group.
func (c *Core) look(now feedback.Tick, st *state, out *Outputs) {
	c.sync(now, st, out)
	c.reconsider(now, st, Reason(feedback.Absorbed), 1, out)
	c.conclude(now, st, out)
}

// precede is called before data of a member. Frames of others never disarm a group. Data of the
// active source that reaches the core while the group is armed was received before the group was
// armed. The engine must not carry the same packet, sent again, while the core forwards it: both
// would count the packet.
func (c *Core) precede(now feedback.Tick, st *state, sender int, out *Outputs) {
	if sender == st.active {
		c.disarm(now, st, out)
		return
	}
	c.sync(now, st, out)
}

// reconsider follows every event of the group. It takes an armed group back if the group is no
// longer plain, if a path has left to which the engine sends, or if the block's answers are no
// longer what the receivers send. It notes a group for Arm that has been plain for long enough; the
// event was so many packets.
func (c *Core) reconsider(now feedback.Tick, st *state, r Reason, packets int, out *Outputs) {
	switch c.engine.weigh(now, st, r, packets, len(c.taps) > 0 && c.taps.capture(st.group.ID)) {
	case notPlain:
		c.disarm(now, st, out)
		st.fan.unheard = false // the source has not come back: somebody has answered
	case isOutdated:
		c.surrender(now, st, out)
	}
	c.engine.resume(now, st)
}

// disarm disarms the group.
func (c *Core) disarm(now feedback.Tick, st *state, out *Outputs) {
	if st.fan.at.Armed {
		c.takeIn(now, st, c.engine.disarm(st), out)
	}
}

// takeIn reports to the merging the packets that the engine carried, and then the ACKs that it
// merged. The group may have stopped being plain since the last look at the engine: a NAK that
// waited for the source to come further may be due now, or the engine may have been stopped between
// merging an ACK and telling the source.
func (c *Core) takeIn(now feedback.Tick, st *state, p progress, out *Outputs) {
	w := p.word
	was, n := c.engine.note(now, st, w)
	st.traffic.carried(max(0, n), w.Payload-was.Payload, st.fan.copies)
	if n > 0 {
		st.counts[feedback.Forwarded] += uint64(n)
		c.acts, _ = st.merge.Step(now, feedback.Event{
			Kind: feedback.Carried, PSN: w.PSN.Prev(), MSN: w.Messages.Add(-int32(was.Messages)), Last: !w.Inside,
			AckReq: w.Asks && !w.Asked.Before(was.PSN) && w.Asked.Before(w.PSN), Asked: w.Asked,
		}, c.acts[:0])
		st.sharing.carried(st, n)
		c.perform(st, nil, out)
	}
	if p.merged.paths != nil {
		c.acts = st.merge.Answered(now, p.merged.paths, p.merged.told, c.acts[:0])
		st.sharing.folded(st, p.merged.paths, out)
		c.perform(st, nil, out)
	}
	if n > 0 && st.held != nil { // now that it is known which of them are needed
		c.repair.retained.carried(st.held, st.merge.Oldest(), w.PSN.Prev())
	}
	if !w.Armed {
		c.engine.ended(st, w)
	}
	c.engine.extend(st)
}

// Arm arms the groups that reconsider has noted. It is called when all copies are sent, so that no
// copy of the engine overtakes them. A group that loses its slot may lose what a receiver needs,
// and what follows from that is appended to out.
func (c *Core) Arm(now feedback.Tick, out *Outputs) {
	for _, st := range c.engine.armable {
		f := &st.fan
		calm := f.calm >= max(f.need, calmPackets)
		f.listed = false
		if c.states[st.group.ID.Slot()] != st || f.at.Armed || !calm || c.taps.capture(st.group.ID) {
			continue
		}
		f.calm = 0
		if f.why = c.arm(now, st, out); f.why != nil {
			c.engine.refused(st)
		}
		c.countInFlight(st)
	}
	c.engine.armable = c.engine.armable[:0]
}

func (c *Core) arm(now feedback.Tick, st *state, out *Outputs) error {
	if err := c.engine.prepare(now, st); err != nil {
		return err
	}
	if !c.takeSlot(now, st, out) {
		return errNoSlot
	}
	if err := c.engine.arm(now, st); err != nil {
		return err
	}
	if st.held != nil {
		c.repair.waiting.await(now, st) // no event may follow
	}
	return nil
}

// takeSlot takes the group's slot in the engine, from another group of this core if that one gives
// way. A group of another core may give way later.
func (c *Core) takeSlot(now feedback.Tick, st *state, out *Outputs) bool {
	holder, ok := c.engine.claim(st)
	if ok {
		return true
	}
	if other := c.stateOf(holder); other == nil || !c.giveWay(now, other, WantsSlot, out) {
		return false
	}
	_, ok = c.engine.claim(st)
	return ok
}

// giveWayPeriod is how often the core looks whether groups of other cores want the slots of its
// own, and whether any group wants their memory.
const giveWayPeriod = feedback.Tick(time.Second)

// giveWay is called when another group wants what a group has in the engine. If the engine has
// carried nothing of the group since the call before, giveWay takes the group's slot and with it
// the memory, and reports true. Memory alone is taken only if the group has been idle since then,
// and no receiver may still need what it retains.
func (c *Core) giveWay(now feedback.Tick, st *state, want Want, out *Outputs) bool {
	c.look(now, st, out)
	f, next := &st.fan, st.merge.NextPSN()
	busy := next != f.idle
	f.idle = next
	if f.at.Armed && busy || want == WantsMemory && (busy || !c.empties(now, st, out)) {
		return false
	}
	c.giveUpSlot(now, st, out)
	c.conclude(now, st, out)
	return true
}

// empties disarms a group if no receiver needs what the engine retains of it. It reports whether
// that still holds afterwards: the engine may have carried more until it was disarmed.
func (c *Core) empties(now feedback.Tick, st *state, out *Outputs) bool {
	if st.held.inEngine == 0 {
		c.disarm(now, st, out)
		c.conclude(now, st, out)
	}
	return st.held.inEngine == 0
}

// giveUpSlot disarms a group that has a slot, and gives up its slot.
func (c *Core) giveUpSlot(now feedback.Tick, st *state, out *Outputs) {
	c.disarm(now, st, out)
	if st.held != nil {
		if psn, some := st.held.newestInEngine(); some {
			c.lose(now, st, psn, &c.repair.counts.NoMemory, out)
		}
	}
	c.engine.release(st)
}

// lookAtAll takes in what the engine did for all groups.
func (c *Core) lookAtAll(now feedback.Tick, out *Outputs) {
	for _, st := range c.engine.holders.groups {
		c.look(now, st, out)
	}
}

// surrender takes a group back from the engine because a capture wants its packets, or because its
// block is outdated. That is no sign of trouble: it does not put off when the group is armed again.
func (c *Core) surrender(now feedback.Tick, st *state, out *Outputs) {
	need := st.fan.need
	c.disarm(now, st, out)
	st.fan.unheard, st.fan.need = false, need
	c.conclude(now, st, out)
}
