package dataplane

import (
	"errors"
	"fmt"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// FanOut is an engine in front of the worker that sends the plain packets of groups to all their
// paths by itself: the kernel (bpf/fanout.c), or its twin in tests. The core arms each group on its
// own. Only the core decides: a packet that is not exactly the expected one disarms the group, and
// goes to the core like a packet of a group that was never armed.
//
// The worker that owns the group calls the methods. They make no system call and do not block.
type FanOut interface {
	// Claim takes the group's place in the engine. If another group has it, holder is that group,
	// ok is false, and Wanted of the holder will return true.
	Claim(id mft.GroupID) (holder mft.GroupID, ok bool)
	// Wanted says what of the group's another group has asked for since the last call. The group
	// must have a place.
	Wanted(id mft.GroupID) Want
	// Release gives up the group's place. The group must not be armed.
	Release(id mft.GroupID)
	// Arm lets the engine carry the packets that match b, from w.PSN to limit. The group must have
	// a place and must not be armed. The error says why the engine cannot carry b. If it is that
	// no memory is left for b.Retain packets, Wanted of the groups that have some will say so.
	Arm(id mft.GroupID, b *mft.Block, w FanWord, limit roce.PSN) error
	// Load returns the engine's progress with a group that has a place.
	Load(id mft.GroupID) FanWord
	// Disarm takes the group back, and returns the engine's last progress.
	Disarm(id mft.GroupID) FanWord
	// Limit sets the last PSN that may be carried.
	Limit(id mft.GroupID, psn roce.PSN)
	// Merge lets the engine merge the receivers' plain ACKs from here on. Path i of the block has
	// acknowledged at[i], and the source was told told. The group must be armed with a block that
	// has a Source, and its ACKs must not be merged already. The error says why the engine cannot.
	// The limit moves on with what the source is told: from here on until the group is disarmed,
	// packets up to span beyond that may be carried as well, feedback.Window beyond the limit at
	// most.
	Merge(id mft.GroupID, at []feedback.Place, told feedback.Place, span int32) error
	// EndMerge ends that. It fills in what each path has acknowledged, and returns what the source
	// was told last, which is no more. It comes before Load and Disarm, so that these count what
	// was acknowledged.
	EndMerge(id mft.GroupID, at []feedback.Place) (told feedback.Place)
	// Retained returns a packet that the engine carried and retains, as the source sent it, or nil.
	// The group must have a place. It must have been armed with a block with Retain, and what may
	// be carried must end less than Retain beyond psn, for as long as the result is used.
	Retained(id mft.GroupID, psn roce.PSN) []byte
}

// Want is what of a group's in the engine another group wants.
type Want uint8

const (
	WantsNothing Want = iota
	WantsMemory       // for packets to retain; the group has some
	WantsPlace        // and the memory that comes with it
)

// FanWord is the engine's progress with one group.
type FanWord struct {
	PSN      roce.PSN // of the next packet
	Messages roce.MSN // number of messages that ended since the group was armed
	// Payload is the number of payload bytes since the group was armed. It may lack what a packet
	// has that is just being counted.
	Payload uint64
	Inside  bool // the newest packet is not the last one of its message
	Armed   bool
	// Asks says that a packet asked for an ACK since the group was armed. Asked is the last one. It
	// may be one that PSN does not count yet.
	Asks  bool
	Asked roce.PSN
}

// A group is armed after a number of plain packets in a row, calmPackets at first. The number
// doubles when the group was disarmed before the engine carried four times as many: arming has a
// cost, and a group whose packets often need decisions should stay with the core. See givenBack.
const (
	calmPackets    = 16
	calmPacketsMax = 4096
	// silentPacketsMax bounds the same number where a receiver heard nothing of what was carried.
	silentPacketsMax = 1 << 20
	inVainMax        = 16 // times in a row that nothing was carried before the number doubles
)

// fanState is the core's record of a group in the engine.
type fanState struct {
	placed  bool     // the group has a place
	at      FanWord  // as last read; if at.Armed, the engine may carry packets
	limit   roce.PSN // the last PSN that the engine may carry
	from    roce.PSN // the first packet that the engine may carry since it was armed
	keeps   int      // how many packets the engine retains; 0: leastKept
	paths   int      // number of paths that get copies from the engine
	merges  merging  // of the receivers' ACKs
	listed  bool     // in Core.armable
	unheard bool     // when disarmed last, the engine had carried something; the source has not come back since
	heard   bool     // every receiver has acknowledged something that was carried: the drivers send it
	again   int      // packets that the source has sent again since why is errUnheard
	calm    int      // plain packets in a row since the last decision
	need    int      // value of calm at which the group is armed
	inVain  int      // times in a row that the engine carried nothing
	// idle is the group's next PSN when another group last wanted the place or the memory. If it
	// has not changed when another group wants that again, the group loses its place.
	idle    roce.PSN
	carried uint64 // packets
	before  uint64 // value of carried when the group was last armed
	why     error  // why arming failed; nil if it succeeded or was not tried
}

// EngineState says which engine carries a group's plain packets.
type EngineState struct {
	Kernel  bool   // the kernel carries them now
	Reason  string // why the kernel does not
	Carried uint64 // packets that the kernel has carried
	Answers string // why the kernel does not merge the receivers' ACKs while it carries the packets
}

func (c *Core) groupState(now feedback.Tick, st *state) *GroupState {
	s := &GroupState{Snapshot: st.merge.Snapshot(), Counters: st.naks.named(named(&st.counts)), Engine: c.engineState(st), Traffic: st.traffic, Refused: st.refused}
	s.Receivers = st.receivers(&s.Snapshot)
	if st.held != nil {
		s.Repaired, s.Retained = st.held.recent.last(now), st.held.used*mft.BufferBytes
	}
	return s
}

func (c *Core) engineState(st *state) EngineState {
	e := EngineState{Kernel: st.fan.at.Armed, Carried: st.fan.carried}
	if why := st.fan.merges.why; e.Kernel && why != nil {
		e.Answers = why.Error()
	}
	switch {
	case e.Kernel:
	case c.noFanOut != nil:
		e.Reason = c.noFanOut.Error()
	case c.fanOut == nil:
		e.Reason = "the daemon's config says engine: afxdp"
	case st.group.Engine == mft.EngineAFXDP:
		e.Reason = "the group's engine is afxdp"
	case st.group.PathMTU > mft.BlockPathMTU:
		e.Reason = mft.ErrBlockMTU.Error()
	case c.captured(st.group.ID):
		e.Reason = errCaptured.Error()
	case st.fan.why != nil:
		e.Reason = st.fan.why.Error()
	default:
		e.Reason = fmt.Sprintf("the kernel takes over after %d plain packets in a row", max(st.fan.need, calmPackets))
	}
	return e
}

// FanOutCounts counts the uses of the engine, over all groups of a core.
type FanOutCounts struct{ Armed, Disarmed, Carried, Refused uint64 }

func (c *FanOutCounts) add(d *FanOutCounts) {
	c.Armed, c.Disarmed = c.Armed+d.Armed, c.Disarmed+d.Disarmed
	c.Carried, c.Refused = c.Carried+d.Carried, c.Refused+d.Refused
}

var (
	errMarks    = errors.New("a receiver's port marks congestion (egress in rocastd.yaml), and the kernel engine does not see the port's queue")
	errNotPlain = errors.New("its packets need decisions at present")
	errTooFar   = errors.New("the source is as far ahead of a receiver as it may be (with repair: local, repair-window and repair-bytes bound that)")
	errUnheard  = errors.New("a receiver acknowledged nothing of what the kernel sent last; the driver of its port may drop frames that XDP redirects to it")
	errCaptured = errors.New("a capture shows its packets (rocast capture, rocast trace), and the kernel would carry them past it")
	errNoPlace  = errors.New("another group has its place in the kernel engine, and is busy")
)

// sync reports to the merging what the engine did since the last call: the packets that it carried,
// and the ACKs that it merged. It precedes every event of the group. The engine merges nothing more
// until resume.
func (c *Core) sync(now feedback.Tick, st *state, out *Outputs) {
	if st.fan.at.Armed {
		did := c.endMerge(st)
		c.takeIn(now, st, c.fanOut.Load(st.group.ID), did, out)
	}
}

// look takes in what the engine did, between two events of a group.
func (c *Core) look(now feedback.Tick, st *state, out *Outputs) {
	c.sync(now, st, out)
	c.reconsider(now, st, Reason(feedback.Absorbed), 1, out)
	c.conclude(now, st, out)
}

// precede comes before data of a member of the group, and never before a frame of anybody else:
// nobody else may end the engine's turn. Data of the active source that reaches the core while the
// group is armed has waited for the core since before that. The engine must not carry the same
// packet, sent again, while the core forwards it: both would count the packet.
func (c *Core) precede(now feedback.Tick, st *state, sender int, out *Outputs) {
	if sender == st.active {
		c.takeBack(now, st, out)
		return
	}
	c.sync(now, st, out)
}

// reconsider follows every event of the group. It takes an armed group back if the group is no
// longer plain, if a path has left to which the engine sends, or if the block's answers are no
// longer what the receivers send. It notes a group for Arm that has been plain for long enough; the
// event was so many packets.
func (c *Core) reconsider(now feedback.Tick, st *state, r Reason, packets int, out *Outputs) {
	switch f := &st.fan; {
	case c.fanOut == nil:
	case f.at.Armed && st.merge.Plain() != f.paths:
		c.takeBack(now, st, out)
		f.unheard = false // the source has not come back: somebody has answered
	case f.at.Armed && st.outdated():
		c.surrender(now, st, out)
	case f.at.Armed || st.group.Engine == mft.EngineAFXDP || len(c.taps) > 0 && c.captured(st.group.ID):
	case r == Reason(feedback.Resent) && f.unheard:
		f.unheard = false
		if st.hearsCarried(); !f.heard && st.slowest().Before(f.from) {
			f.need = min(16*max(f.need, calmPacketsMax/16), silentPacketsMax)
			f.why, f.again = errUnheard, packets
		}
	case f.why == errUnheard && st.arrivedLate(r, packets):
		f.heard, f.why, f.calm, f.need = true, nil, 0, calmPackets
	case r != Reason(feedback.Forwarded):
	case st.merge.Plain() == 0, st.held != nil && st.held.inEngine > 0: // else new packets may overwrite these
		f.calm = 0
	default:
		if f.calm += packets; f.calm >= max(f.need, calmPackets) && !f.listed {
			f.listed = true
			c.armable = append(c.armable, st)
		}
	}
	c.resume(now, st)
}

// takeBack disarms the group.
func (c *Core) takeBack(now feedback.Tick, st *state, out *Outputs) {
	if st.fan.at.Armed {
		did := c.endMerge(st)
		c.takeIn(now, st, c.fanOut.Disarm(st.group.ID), did, out)
	}
}

// takeIn reports to the merging the packets that the engine carried, and then the ACKs that it
// merged. w is the engine's progress. The group may have stopped being plain since the last look at
// the engine. A NAK that waits for the source to come further may then be due.
func (c *Core) takeIn(now feedback.Tick, st *state, w FanWord, did folding, out *Outputs) {
	f := &st.fan
	was := f.at
	f.at = w
	n := w.PSN.Sub(was.PSN)
	st.traffic.carried(max(0, n), w.Payload-was.Payload, f.paths)
	if n > 0 {
		f.merges.busy = now
		f.carried += uint64(n)
		st.counts[feedback.Forwarded] += uint64(n)
		c.fanCounts.Carried += uint64(n)
		c.acts, _ = st.merge.Step(now, feedback.Event{
			Kind: feedback.Carried, PSN: w.PSN.Prev(), MSN: w.Messages.Add(-int32(was.Messages)), Last: !w.Inside,
			AckReq: w.Asks && !w.Asked.Before(was.PSN) && w.Asked.Before(w.PSN), Asked: w.Asked,
		}, c.acts[:0])
		c.perform(st, nil, out)
	}
	c.fold(now, st, did, out)
	if n > 0 && st.held != nil { // now that it is known which of them are needed
		c.repair.retained.carried(st.held, st.merge.Oldest(), w.PSN.Prev())
	}
	if !w.Armed {
		c.fanCounts.Disarmed++
		if st.held != nil && w.PSN.Prev() == f.reach() {
			f.keeps = 2 * st.kept()
		}
		st.disarmed(w)
	}
	c.extend(st)
}

// extend moves the limit of an armed group up before the engine reaches it.
func (c *Core) extend(st *state) {
	f := &st.fan
	if !f.at.Armed || f.limit.Sub(f.at.PSN) >= feedback.Window/2 {
		return
	}
	if limit := st.horizon(); limit.After(f.limit) {
		f.limit = limit
		c.fanOut.Limit(st.group.ID, limit)
	}
}

// horizon returns the last PSN that the engine may carry while no event comes.
func (st *state) horizon() roce.PSN {
	limit := st.merge.Horizon()
	if st.held == nil {
		return limit
	}
	return earlier(limit, st.retainable())
}

func earlier(a, b roce.PSN) roce.PSN {
	if b.Before(a) {
		return b
	}
	return a
}

// leastKept is how many packets of a group the engine retains at first. The packets that it copies
// should stay in the CPU's caches: a packet of 1 KiB takes 0.26 us more with 1024 of them, and 0.12
// us with 256. So the number is no larger than what the source has on its way: it doubles when the
// engine had to stop because of it, up to the group's window.
const leastKept = 64

// kept is how many packets of the group the engine retains.
func (st *state) kept() int { return min(max(st.fan.keeps, leastKept), len(st.held.at)) }

// retainable returns the last PSN that the engine may carry because of what is retained. The engine
// must not overwrite what it has carried since it was armed and a receiver may still lack, and a
// group must not have more packets retained than it has room for.
func (st *state) retainable() roce.PSN {
	h, oldest := st.held, st.merge.Oldest()
	last := earlier(oldest.Add(int32(len(h.at))-1), st.merge.NextPSN().Add(int32(h.room-h.used)-1))
	if oldest.Before(st.fan.from) {
		oldest = st.fan.from
	}
	return earlier(last, oldest.Add(int32(st.kept())-1))
}

// disarmed judges what the engine did for the group. A receiver that has acknowledged nothing of
// it may be behind a port whose driver drops what is redirected to it: then the source comes back
// by its timeout, because no NAK came either, and the receiver has still acknowledged nothing. Once
// all receivers have acknowledged something, no driver is to blame: a link may have been away.
func (st *state) disarmed(w FanWord) {
	f := &st.fan
	carried := f.carried - f.before
	if f.unheard = carried > 0; f.unheard {
		st.hearsCarried()
	}
	f.givenBack(carried)
}

// hearsCarried notes that all receivers have acknowledged something that the engine carried since
// it was armed last. With repair they may have it from the core.
func (st *state) hearsCarried() {
	if f := &st.fan; st.held == nil && !st.slowest().Before(f.from) {
		f.heard = true
	}
}

// slowest is the place of the receiver that is furthest behind.
func (st *state) slowest() roce.PSN { return st.merge.Horizon().Add(-feedback.Window) }

// arrivedLate reports whether all receivers have acknowledged a packet that the engine carried and
// the source has not sent again: then a driver was blamed wrongly, because a receiver is far away.
// The source sends again from its oldest packet on, which is no later than the first one that was
// carried.
func (st *state) arrivedLate(r Reason, packets int) bool {
	f := &st.fan
	if r == Reason(feedback.Resent) {
		f.again += packets
	}
	carried := int(f.at.PSN.Sub(f.from))
	return st.held == nil && f.again < carried && int(st.slowest().Sub(f.from)) >= f.again
}

// givenBack sets the number of plain packets after which a disarmed group is armed again. carried
// is the number of packets that the engine carried. Frames that still wait for the core when the
// group is armed disarm it at once, because the packet behind them has not the next PSN. So it
// counts against the group only after inVainMax times in a row that nothing was carried.
func (f *fanState) givenBack(carried uint64) {
	f.calm, f.need = 0, max(f.need, calmPackets)
	switch {
	case carried > 4*uint64(min(f.need, calmPacketsMax)):
		f.need, f.inVain = calmPackets, 0
	case carried == 0 && f.inVain < inVainMax:
		f.inVain++
	default:
		f.needMore()
	}
}

// needMore doubles the number, unless it is as high already.
func (f *fanState) needMore() {
	f.need = max(f.need, min(2*f.need, calmPacketsMax))
}

// Arm arms the groups that reconsider has noted. It is called when all copies are sent, so that no
// copy of the engine overtakes them. A group that loses its place may lose what a receiver needs,
// and what follows from that is appended to out.
func (c *Core) Arm(now feedback.Tick, out *Outputs) {
	for _, st := range c.armable {
		f := &st.fan
		calm := f.calm >= max(f.need, calmPackets)
		f.listed = false
		if c.states[st.group.ID.Slot()] != st || f.at.Armed || !calm || c.captured(st.group.ID) {
			continue
		}
		f.calm = 0
		if f.why = c.arm(now, st, out); f.why != nil {
			f.need = max(f.need, calmPackets)
			f.needMore()
			c.fanCounts.Refused++
		}
		c.countInFlight(st)
	}
	c.armable = c.armable[:0]
}

func (c *Core) arm(now feedback.Tick, st *state, out *Outputs) error {
	if st.merge.Plain() == 0 || st.active == departed {
		return errNotPlain
	}
	if err := st.block(&c.block, c.marks); err != nil {
		return err
	}
	if !c.place(now, st, out) {
		return errNoPlace
	}
	w := FanWord{PSN: st.merge.NextPSN(), Inside: st.merge.Inside(), Armed: true}
	f := &st.fan
	f.from = w.PSN
	limit := st.horizon()
	if limit.Before(w.PSN) {
		return errTooFar
	}
	if err := c.fanOut.Arm(st.group.ID, &c.block, w, limit); err != nil {
		f.keeps /= 2 // there may be memory for that
		return err
	}
	f.at, f.limit, f.before, f.paths = w, limit, f.carried, len(c.block.Paths)
	c.fanCounts.Armed++
	f.merges.of(&c.block)
	f.merges.busy, f.merges.looked, f.merges.before = now, now, f.carried
	c.resume(now, st)
	if st.held != nil {
		c.await(now, st) // no event may follow
	}
	return nil
}

// block makes the group's current block. The engine does not see the queue of a port, so it cannot
// send by one that marks.
func (st *state) block(b *mft.Block, marks []bool) error {
	if err := b.Begin(st.group, st.active, st.marks.port, st.marks.pkey, st.marks.trafficClass); err != nil {
		return err
	}
	for i := range st.offsets {
		if st.merge.Part(i) != feedback.PartActive {
			continue
		}
		if port := int(st.group.Paths[i].Port); port < len(marks) && marks[port] {
			return errMarks
		}
		if err := b.Add(st.group, i, st.offsets[i].deltaPSN, st.offsets[i].deltaMSN, &st.edits); err != nil {
			return err
		}
	}
	if st.held != nil {
		b.Retain = st.kept()
	}
	if err := b.End(); err != nil {
		return err
	}
	st.fan.merges = merging{why: st.mayMerge(b)}
	return nil
}

// place takes the group's place in the engine. It takes the place from another group of this core
// if that one gives way. A group of another core may give way later.
func (c *Core) place(now feedback.Tick, st *state, out *Outputs) bool {
	if st.fan.placed {
		return true
	}
	holder, ok := c.fanOut.Claim(st.group.ID)
	if !ok {
		other := c.stateOf(holder)
		if other == nil || !c.giveWay(now, other, WantsPlace, out) {
			return false
		}
		_, ok = c.fanOut.Claim(st.group.ID)
	}
	if ok {
		st.fan.placed, st.fan.idle = true, st.merge.NextPSN().Prev()
		c.placed.add(st)
	}
	return ok
}

// giveWayPeriod is how often the core looks whether groups of other cores want the places of its
// own, and whether any group wants their memory.
const giveWayPeriod = feedback.Tick(time.Second)

// giveWay is called when another group wants what a group has in the engine. It takes the group's
// place, and with that its memory, if the engine has carried nothing since it was called before,
// and says whether it did. Memory is taken only from a group that was sent nothing since then, and
// that has nothing there which a receiver may still need.
func (c *Core) giveWay(now feedback.Tick, st *state, want Want, out *Outputs) bool {
	c.look(now, st, out)
	f, next := &st.fan, st.merge.NextPSN()
	busy := next != f.idle
	f.idle = next
	if f.at.Armed && busy || want == WantsMemory && (busy || !c.empties(now, st, out)) {
		return false
	}
	c.leave(now, st, out)
	c.conclude(now, st, out)
	return true
}

// empties takes a group back if no receiver needs what the engine retains of it, and says whether
// that is so still: the engine may have carried something until then.
func (c *Core) empties(now feedback.Tick, st *state, out *Outputs) bool {
	if st.held.inEngine == 0 {
		c.takeBack(now, st, out)
		c.conclude(now, st, out)
	}
	return st.held.inEngine == 0
}

// leave disarms a group that has a place, and gives up its place.
func (c *Core) leave(now feedback.Tick, st *state, out *Outputs) {
	c.placed.remove(st)
	c.takeBack(now, st, out)
	if st.held != nil {
		if psn, some := st.held.newestInEngine(); some {
			c.lose(now, st, psn, &c.repair.counts.NoMemory, out)
		}
	}
	c.fanOut.Release(st.group.ID)
	st.fan = fanState{carried: st.fan.carried}
}

// abandon takes a group that is forgotten out of the engine. Its last packets are only counted.
func (c *Core) abandon(st *state) {
	if !st.fan.placed {
		return
	}
	if was := st.fan.at; was.Armed {
		c.endMerge(st)
		c.fanCounts.Disarmed++
		c.fanCounts.Carried += uint64(c.fanOut.Disarm(st.group.ID).PSN.Sub(was.PSN))
	}
	c.placed.remove(st)
	c.fanOut.Release(st.group.ID)
}
