package dataplane

import (
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// repairs is what a core has for the groups with repair on. Merging decides which packet is sent
// again to which receiver, and when; the core keeps the packets and sends them.
type repairs struct {
	room     int        // buffers that may be retained
	pool     Pool       // of these buffers
	retained *retention // nil: no group with repair on was seen
	waiting  waiting    // the groups that may have something unanswered, or are carried by the engine
	fetched  Frame      // what is fetched from the engine
	robbed   []*state   // groups whose packet was given up for another group, and whose merging was not told yet
	counts   RepairCounts
	now      feedback.Tick // the time of the event that is being handled
	answered bool          // the event is the answer of a receiver
}

// RepairCounts counts what was repaired, over all groups of a core.
type RepairCounts struct {
	Sent   uint64 // packets that were sent again
	Probes uint64 // of these, the ones that were sent because the receiver was silent
	Called uint64 // times that a silent source was called back to its newest packet
	// Packets that were given up because no memory was left to retain more, or because their group
	// had as much as its policy allows.
	NoMemory, GroupFull uint64
	Damaged             uint64 // packets that were found damaged when they were to be sent again
	Missing             uint64 // packets that the engine did not have when they were to be sent again
	NoRegion            uint64 // WRITEs to memory that had left the group when they were to be sent again

	GivenUp [feedback.NumGivenUp]uint64 // times that the source had to help a receiver, by reason
}

func (c *RepairCounts) add(d *RepairCounts) {
	c.Sent, c.Probes, c.NoMemory = c.Sent+d.Sent, c.Probes+d.Probes, c.NoMemory+d.NoMemory
	c.GroupFull += d.GroupFull
	c.Called, c.Damaged, c.Missing = c.Called+d.Called, c.Damaged+d.Damaged, c.Missing+d.Missing
	c.NoRegion += d.NoRegion
	for why, n := range d.GivenUp {
		c.GivenUp[why] += n
	}
}

// named appends the counts with their names.
func (c *RepairCounts) named(counters []Counter) []Counter {
	counters = append(counters, Counter{"repair-sent", c.Sent}, Counter{"repair-probes", c.Probes},
		Counter{"repair-source-called", c.Called},
		Counter{"repair-lost-no-memory", c.NoMemory}, Counter{"repair-lost-group-full", c.GroupFull},
		Counter{"repair-lost-damaged", c.Damaged}, Counter{"repair-lost-missing", c.Missing},
		Counter{"repair-lost-no-region", c.NoRegion})
	for why, n := range c.GivenUp {
		counters = append(counters, Counter{"repair-given-up-" + feedback.GivenUp(why).String(), n})
	}
	return counters
}

// RetainUpTo sets how many buffers of a pool the core may retain for repair, before its first
// frame.
func (c *Core) RetainUpTo(chunks int, pool Pool) { c.repair.room, c.repair.pool = chunks, pool }

// Retained returns how many packets are retained for repair, and in how many buffers.
func (c *Core) Retained() (packets, chunks int) {
	if r := c.repair.retained; r != nil {
		return r.packets, r.chunks
	}
	return 0, 0
}

// RetainedBytes returns the packet memory of what is retained of a group. Packets that the engine
// retains count as full ones.
func (c *Core) RetainedBytes(id mft.GroupID) int {
	if st := c.stateOf(id); st != nil && st.held != nil {
		return st.held.used * mft.BufferBytes
	}
	return 0
}

// Retains reports whether a packet of a group is retained. PSN is in the source's space.
func (c *Core) Retains(id mft.GroupID, psn roce.PSN) bool {
	st := c.stateOf(id)
	return st != nil && st.held != nil && st.held.has(psn)
}

// GivenUp returns how often repair has left a packet of a group to the source.
func (c *Core) GivenUp(id mft.GroupID) (times uint64) {
	if st := c.stateOf(id); st != nil {
		tally := st.merge.RepairTally()
		for _, n := range tally.GivenUp {
			times += n
		}
	}
	return times
}

// PutBack gives the buffers of packets that are not retained any more to the pool. Everything that
// the core wanted to be sent must have been sent.
func (c *Core) PutBack() {
	if c.repair.retained != nil {
		c.repair.retained.putBack(c.repair.pool)
	}
}

// RepairRoom returns how many buffers the worker may yet retain. The worker's thread calls it.
func (w *Worker) RepairRoom() int {
	_, chunks := w.core.Retained()
	return w.core.repair.room - chunks
}

// retain keeps a packet that was sent for the first time. A packet that the source has sent again
// takes the place of the retained one, unless that one was undamaged: the new one is.
func (c *Core) retain(now feedback.Tick, st *state, f *Frame, outcome feedback.Outcome, checked bool, out *Outputs) {
	r := c.repair.retained
	r.releaseBelow(st.held, st.merge.Oldest())
	switch psn := f.Original.PSN; outcome {
	case feedback.Forwarded:
		c.makeRoom(now, st, f, out)
		r.keep(st, f, checked)
	case feedback.Resent, feedback.Filtered:
		s := r.find(st.held, psn)
		if (s != nil && !s.checked || st.held.engineHas(psn)) && r.fits(f) && r.hasRoomInstead(st.held, f) {
			r.replace(st, f)
		}
	}
}

// makeRoom gives up packets until f, which belongs to st, can be retained: the group's own oldest
// ones where the group is at its bound, and then the oldest ones of all groups (retention.first).
// There is room for one packet at least (Switch.Retains).
func (c *Core) makeRoom(now feedback.Tick, st *state, f *Frame, out *Outputs) {
	for h := st.held; h.used > 0 && !h.hasRoom(f); {
		c.lose(now, st, h.oldest, &c.repair.counts.GroupFull, out)
	}
	for r := c.repair.retained; !r.fits(f); {
		at := r.first()
		owner, psn := r.slots[at].owner, r.slots[at].frame.Original.PSN
		c.sync(now, owner, out)
		r.releaseBelow(owner.held, owner.merge.Oldest()) // an ACK that the engine merged may have made packets unneeded
		if !r.fits(f) && owner.held.has(psn) {
			c.lose(now, owner, psn, &c.repair.counts.NoMemory, out)
		}
		c.reconsider(now, owner, Reason(feedback.Absorbed), 1, out)
		if owner != st {
			c.conclude(now, owner, out)
		}
	}
}

// lose tells the merging of a group that its packets up to psn are not retained any more. A repair
// that needs one of them ends. It is an event of the group as any other: reconsider and conclude
// come behind it.
func (c *Core) lose(now feedback.Tick, st *state, psn roce.PSN, count *uint64, out *Outputs) {
	c.sync(now, st, out)
	*count++
	c.letGo(now, st, psn, out)
}

// letGo releases the retained packets of a group up to psn. The source has to help where a receiver
// lacks one.
func (c *Core) letGo(now feedback.Tick, st *state, psn roce.PSN, out *Outputs) {
	c.repair.retained.releaseBelow(st.held, psn.Next())
	c.acts, _ = st.merge.Step(now, feedback.Event{Kind: feedback.Lost, PSN: psn}, c.acts[:0])
	c.perform(st, nil, out)
}

// sendRepair sends a retained packet to one receiver. The first time, it is checked for damage: a
// packet that was exactly the next one may have been forwarded unchecked, and a damaged one cannot
// be mended here. keepUp reports it.
func (c *Core) sendRepair(st *state, a *feedback.Action, out *Outputs) {
	h, counts := st.held, &c.repair.counts
	if h.lost != nil {
		return // what lies behind a packet that is missing is of no use to the receiver
	}
	if h.engineHas(a.PSN) {
		head, rest := c.engine.retained(st, a.PSN)
		ok, lost := c.repair.fetch(st, a.PSN, head, rest)
		if lost != nil {
			h.lost, h.lostPSN = lost, a.PSN
		}
		if !ok {
			return
		}
	}
	s := c.repair.retained.find(h, a.PSN)
	if s == nil || !s.checked && !s.frame.View.Undamaged(s.frame.Bytes()) {
		h.lost, h.lostPSN = &counts.Damaged, a.PSN
		return
	}
	s.checked = true
	if admit(st.group, &s.frame) != 0 { // its memory has left the group meanwhile; the source hears that if it tries again
		h.lost, h.lostPSN = &counts.NoRegion, a.PSN
		return
	}
	h.recent.at(c.repair.now)
	h.recent.add(a.Path)
	again := Repair{Copy: Copy{Retained: true, AckReq: a.AckReq, First: a.PSN == st.merge.Acked(a.Path).Next()}, Frame: &s.frame}
	st.fillIn(&again.Copy, a)
	if st.sharing != nil && !c.repair.choose(st, a, s, &again.Copy, out) {
		return
	}
	counts.Sent++
	st.traffic.copied(1, s.frame.View.PayloadBytes)
	out.Repairs = append(out.Repairs, again)
}

// fetch copies packet psn of a group from head and rest, the engine's memory, into buffers. head is
// nil if the engine does not have the packet. If there is no room yet, ok is false and lost is nil:
// the merging sends the packet again when the receiver stays silent. If the packet is lost, lost is
// the counter for it.
func (r *repairs) fetch(st *state, psn roce.PSN, head, rest []byte) (ok bool, lost *uint64) {
	f, counts := &r.fetched, &r.counts
	switch {
	case head == nil:
		return false, &counts.Missing
	case !r.pool.Load(f, head, rest):
		return false, &counts.NoMemory
	}
	defer r.pool.Put(f)
	f.Group = st.group.ID
	switch {
	case !r.retained.fitsBeside(f):
		if !r.giveUpOne(st, psn) {
			lost = &counts.NoMemory
		}
		return false, lost
	case f.View.Decode(f.Head(), f.Len()) != nil || !f.View.Undamaged(f.Bytes()) || !st.isAt(f, psn):
		return false, &counts.Damaged
	}
	f.Original.Read(&f.View, f.Bytes())
	r.retained.replace(st, f)
	return true, nil
}

// giveUpOne gives up a retained packet (retention.first), so that packet psn of st finds room
// when the worker has put the buffers back. Packets of st itself from psn on are not given up for
// it. The merging of the packet's group hears of it later: it may be at work.
func (r *repairs) giveUpOne(st *state, psn roce.PSN) bool {
	all := r.retained
	if all.oldest == noSlot {
		return true // what was released is not put back yet
	}
	s := &all.slots[all.first()]
	owner, oldest := s.owner, s.frame.Original.PSN
	if owner == st && !oldest.Before(psn) {
		return false
	}
	h := owner.held
	if h.lost == nil && owner != st {
		r.robbed = append(r.robbed, owner)
	}
	h.lost, h.lostPSN = &r.counts.NoMemory, oldest
	all.releaseBelow(h, oldest.Next())
	return true
}

// isAt reports whether a packet is that of the group's source with this PSN. The engine finds
// packets by their PSN and by the block with which it carried them.
func (st *state) isAt(f *Frame, psn roce.PSN) bool {
	v, head, from := &f.View, f.Head(), st.group.Flow(st.active)
	return v.PSN(head) == psn && v.DestQPN(head) == from.DestQPN && v.SrcIP(head) == from.Src && v.DstIP(head) == from.Dst
}

// keepUp follows every event of a group with repair on.
func (c *Core) keepUp(now feedback.Tick, st *state, out *Outputs) {
	h := st.held
	for h.lost != nil {
		count := h.lost
		h.lost = nil
		c.lose(now, st, h.lostPSN, count, out)
		c.reconsider(now, st, Reason(feedback.Absorbed), 1, out)
	}
	for n := len(c.repair.robbed); n > 0; n = len(c.repair.robbed) {
		other := c.repair.robbed[n-1]
		c.repair.robbed = c.repair.robbed[:n-1]
		c.conclude(now, other, out)
	}
	c.repair.retained.releaseBelow(h, st.merge.Oldest())
	c.repair.count(st)
	c.engine.extend(st)
	c.repair.waiting.await(now, st)
}

// RepairMemory is what the workers retain for repair now, and how much they may.
type RepairMemory struct{ Packets, Buffers, Room int }

// RepairMemory returns the sum of all workers.
func (s *Switch) RepairMemory() (sum RepairMemory) {
	for _, w := range s.workers {
		s.do(w, func(w *Worker) {
			packets, buffers := w.core.Retained()
			sum.Packets, sum.Buffers, sum.Room = sum.Packets+packets, sum.Buffers+buffers, sum.Room+w.core.repair.room
		})
	}
	return sum
}

// count adds what the merging has counted of a group's repairs since the last call.
func (r *repairs) count(st *state) {
	now, was := st.merge.RepairTally(), &st.held.tally
	r.counts.Probes += now.Probes - was.Probes
	r.counts.Called += now.Called - was.Called
	for why := range now.GivenUp {
		r.counts.GivenUp[why] += now.GivenUp[why] - was.GivenUp[why]
	}
	*was = now
}

// forget releases what is retained of a group that is forgotten.
func (r *repairs) forget(st *state) {
	if st.held == nil {
		return
	}
	r.retained.releaseAll(st.held)
	r.waiting.remove(st)
}
