package sim

import "github.com/rocast/rocast/mft"

// Removed is a group that was there before the group of a scenario, with the same addresses, QPNs
// and first PSNs, as programs make groups that choose these themselves. Its packets carry other
// data. Nothing that the switch still has of it may count for the new group: frames that wait for
// the core, packets that the core and the engine retain, and the slot in the engine.
//
// The cables are empty when the new group begins. No switch and no NIC can tell a frame from one
// with the same numbers that was sent earlier: hosts keep a queue pair out of use for that long.
type Removed struct {
	Scenario
	AfterPacket int // it is removed when its first source has sent so many packets
}

// removed draws the group that was there before the one of s.
func (d drawer) removed(s *Scenario) *Removed {
	was := d.scenario(s.Seed, len(s.Hosts)-1, StandardPackets)
	for was.Addressing != s.Addressing || was.has(SwitchCrash) {
		was = d.scenario(s.Seed, len(s.Hosts)-1, StandardPackets)
	}
	was.IPv6, was.Tagged, was.FanOut, was.Engine = s.IPv6, s.Tagged, s.FanOut, s.Engine
	was.RepairChunks = max(was.RepairChunks, s.RepairChunks)
	s.RepairChunks = was.RepairChunks
	for i := range was.Hosts {
		was.Hosts[i].SendPSN, was.Hosts[i].RecvPSN = s.Hosts[i].SendPSN, s.Hosts[i].RecvPSN
	}
	return &Removed{Scenario: was, AfterPacket: 1 + d.IntN(StandardPackets)}
}

// runRemoved plays the group that was there before, and then removes it and makes the group of s.
func (w *world) runRemoved(s *Scenario) error {
	was := s.Removed
	if err := w.open(&was.Scenario); err != nil {
		return err
	}
	w.start(&w.hosts[0])
	for w.failure == nil && w.hosts[0].highest < was.AfterPacket {
		e, ok := w.schedule.next()
		if !ok || e.at > was.Limit {
			break
		}
		w.happen(&e, w.judged)
	}
	if w.failure != nil {
		return nil
	}
	if w.recorder != nil {
		w.recorder.note(w.now, "the group is removed, and made again with the same numbers")
	}
	return w.remake(s)
}

// remake removes the group as the switch does, and opens everything of s but the core, the engine
// and what waits for the core.
func (w *world) remake(s *Scenario) error {
	w.drain()
	b := &w.box
	old := w.group.ID
	b.core.Forget(old)
	b.core.PutBack()
	table := b.table.Without(old)
	w.s = s
	w.s.Limit += w.now
	w.tally = Tally{}
	w.reset(s)
	for i := range w.hosts {
		if err := w.openHost(&w.hosts[i], i, &s.Hosts[i]); err != nil {
			return err
		}
	}
	w.group = w.makeGroup(new(mft.Group))
	table, err := table.With(w.group)
	if err != nil {
		return err
	}
	b.table, b.known = table, false
	if e := b.engine; e != nil {
		b.received -= uint64(len(e.ring)) // which the hosts of before sent
		e.between, e.since, e.looks, e.life = e.between[:0], 0, false, e.life+1
		w.wake()
	}
	return nil
}

// drain takes back all frames that are on cables, or wait at ports.
func (w *world) drain() {
	for i := range w.schedule.heap {
		if e := &w.schedule.heap[i]; e.kind == atSwitch || e.kind == atHost {
			w.pool.giveBack(e.index)
		}
	}
	w.schedule.reset()
	if e := w.box.engine; e != nil {
		for i, frames := range e.ports {
			for _, f := range frames {
				w.pool.giveBack(f)
			}
			e.ports[i], e.polls[i] = frames[:0], false
		}
	}
}
