package dataplane

import (
	"errors"
	"fmt"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// engine is the core's side of the engine in front of it. It knows which groups have a slot there,
// with what each was armed and which are to be armed, and it alone calls FanOut. It decides nothing
// about merging: what the FanOut did for a group is its progress, which the core reports
// (handover.go).
type engine struct {
	fanOut  FanOut    // nil: every packet comes to the core
	none    error     // why there is no fanOut although one is configured; nil: none is configured
	marks   []bool    // by port: its queue marks copies, which the FanOut does not
	armable []*state  // groups to arm when all copies are sent
	holders rotation  // groups that have a slot in fanOut
	block   mft.Block // of the group that is being armed
	counts  FanOutCounts
	space   mergeSpace
}

// progress is what the FanOut did for a group since it was looked at last.
type progress struct {
	word   FanWord
	merged folding
}

// EngineState says which engine carries a group's plain packets.
type EngineState struct {
	Kernel  bool   // the kernel carries them now
	Reason  string // why the kernel does not
	Carried uint64 // packets that the kernel has carried
	Answers string // why the kernel does not merge the receivers' ACKs while it carries the packets
}

// report says which engine carries the group's plain packets. captured: a capture wants them.
func (e *engine) report(st *state, captured bool) EngineState {
	s := EngineState{Kernel: st.fan.at.Armed, Carried: st.fan.carried}
	if why := st.fan.merges.why; s.Kernel && why != nil {
		s.Answers = why.Error()
	}
	switch {
	case s.Kernel:
	case e.none != nil:
		s.Reason = e.none.Error()
	case e.fanOut == nil:
		s.Reason = "the daemon's config says engine: afxdp"
	case st.group.Engine == mft.EngineAFXDP:
		s.Reason = "the group's engine is afxdp"
	case captured:
		s.Reason = errCaptured.Error()
	case st.fan.why != nil:
		s.Reason = st.fan.why.Error()
	case st.group.PathMTU > mft.BlockPathMTU && st.group.Copies() != 1:
		s.Reason = mft.ErrBlockMTU.Error()
	default:
		s.Reason = fmt.Sprintf("the kernel takes over after %d plain packets in a row", max(st.fan.need, calmPackets))
	}
	return s
}

var (
	errMarks    = errors.New("a receiver's port marks congestion (egress in rocastd.yaml), and the kernel engine does not see the port's queue")
	errNotPlain = errors.New("its packets need decisions at present")
	errTooFar   = errors.New("the source is as far ahead of a receiver as it may be (with repair: local, repair-window and repair-bytes bound that)")
	errUnheard  = errors.New("a receiver acknowledged nothing of what the kernel sent last; the driver of its port may drop frames that XDP redirects to it")
	errCaptured = errors.New("a capture shows its packets (rocast capture, rocast trace), and the kernel would carry them past it")
	errNoSlot   = errors.New("another group has its slot in the kernel engine, and is busy")
)

// look returns what the FanOut did for an armed group. Until resume the FanOut merges nothing more.
func (e *engine) look(st *state) (p progress) {
	p.merged = e.endMerge(st)
	p.word = e.fanOut.Load(st.group.ID)
	return p
}

// disarm takes an armed group back, and returns what the FanOut did for it until then.
func (e *engine) disarm(st *state) (p progress) {
	p.merged = e.endMerge(st)
	p.word = e.fanOut.Disarm(st.group.ID)
	return p
}

// note records how far the FanOut is with a group. It returns how far the FanOut was at the last
// call, and how many packets it has carried since.
func (e *engine) note(now feedback.Tick, st *state, w FanWord) (was FanWord, carried int32) {
	f := &st.fan
	was, f.at = f.at, w
	carried = w.PSN.Sub(was.PSN)
	if carried > 0 {
		f.merges.busy = now
		f.carried += uint64(carried)
		e.counts.Carried += uint64(carried)
	}
	return was, carried
}

// ended records that a group was disarmed at w.
func (e *engine) ended(st *state, w FanWord) {
	e.counts.Disarmed++
	if st.held != nil && w.PSN.Prev() == st.fan.reach() {
		st.fan.keeps = 2 * st.kept()
	}
	st.disarmed(w)
}

// verdict is what becomes of an armed group after an event.
type verdict uint8

const (
	stays      verdict = iota // as it is
	notPlain                  // it is to be disarmed: its packets need decisions, or go to other paths
	isOutdated                // it is to be disarmed and armed with another block
)

// weigh decides what becomes of a group after an event of so many packets. It notes a group for
// Core.Arm that has been plain for long enough. captured: a capture wants the group's packets.
func (e *engine) weigh(now feedback.Tick, st *state, r Reason, packets int, captured bool) verdict {
	switch f := &st.fan; {
	case e.fanOut == nil:
	case f.at.Armed && st.merge.Plain() != f.paths:
		return notPlain
	case f.at.Armed && (st.outdated() || st.sharing.outdates(now, st, f.sharing)):
		return isOutdated
	case f.at.Armed || st.group.Engine == mft.EngineAFXDP || captured:
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
			e.armable = append(e.armable, st)
		}
	}
	return stays
}

// extend moves the limit of an armed group up before the FanOut reaches it.
func (e *engine) extend(st *state) {
	f := &st.fan
	if !f.at.Armed || f.limit.Sub(f.at.PSN) >= feedback.Window/2 {
		return
	}
	if limit := st.horizon(); limit.After(f.limit) {
		f.limit = limit
		e.fanOut.Limit(st.group.ID, limit)
	}
}

// prepare makes the block of a group that is to be armed. While control stores a turn, nothing new
// of the source before it may be carried.
func (e *engine) prepare(now feedback.Tick, st *state) error {
	if st.merge.Plain() == 0 || st.active == departed || st.claimant.held {
		return errNotPlain
	}
	st.sharing.choose(now, st)
	return st.block(&e.block, e.marks)
}

// wanted returns which resource of this group, which has a slot in the engine, another group is
// waiting for.
func (e *engine) wanted(st *state) Want { return e.fanOut.Wanted(st.group.ID) }

// retained returns a packet that the engine has carried and retains, or nil: see FanOut.
func (e *engine) retained(st *state, psn roce.PSN) (head, rest []byte) {
	return e.fanOut.Retained(st.group.ID, psn)
}

// claim takes the group's slot in the engine. If another group has it, holder is that group.
func (e *engine) claim(st *state) (holder mft.GroupID, ok bool) {
	if st.fan.hasSlot {
		return holder, true
	}
	if holder, ok = e.fanOut.Claim(st.group.ID); ok {
		st.fan.hasSlot, st.fan.idle = true, st.merge.NextPSN().Prev()
		e.holders.add(st)
	}
	return holder, ok
}

// arm arms a group that has a slot, with the block that prepare has made.
func (e *engine) arm(now feedback.Tick, st *state) error {
	w := FanWord{PSN: st.merge.NextPSN(), Inside: st.merge.Inside(), Armed: true}
	f := &st.fan
	f.from = w.PSN
	limit := st.horizon()
	if limit.Before(w.PSN) {
		return errTooFar
	}
	if err := e.fanOut.Arm(st.group.ID, &e.block, w, limit); err != nil {
		f.keeps /= 2 // there may be memory for that
		return err
	}
	f.at, f.limit, f.before, f.paths, f.copies = w, limit, f.carried, len(e.block.Paths), e.block.Copies()
	f.sharing = st.sharing.version()
	e.counts.Armed++
	f.merges.of(&e.block)
	f.merges.busy, f.merges.looked, f.merges.before = now, now, f.carried
	e.resume(now, st)
	return nil
}

// refused records that a group was not armed.
func (e *engine) refused(st *state) {
	st.fan.need = max(st.fan.need, calmPackets)
	st.fan.needMore()
	e.counts.Refused++
}

// release gives up the slot of a group that is not armed.
func (e *engine) release(st *state) {
	e.holders.remove(st)
	e.fanOut.Release(st.group.ID)
	st.fan = fanState{carried: st.fan.carried}
}

// abandon takes a group that was removed out of the engine. It counts the last packets that the
// engine carried, and reports them to nobody.
func (e *engine) abandon(st *state) {
	if !st.fan.hasSlot {
		return
	}
	if was := st.fan.at; was.Armed {
		e.counts.Disarmed++
		e.counts.Carried += uint64(e.disarm(st).word.PSN.Sub(was.PSN))
	}
	e.release(st)
}

// resume lets the FanOut merge the ACKs of an armed group, which is plain, until the next sync.
func (e *engine) resume(now feedback.Tick, st *state) {
	f := &st.fan
	m := &f.merges
	switch {
	case !f.at.Armed, m.on, m.why != nil:
		return
	case st.held != nil && (now-m.busy >= mergedPeriod || st.merge.AcksDecide()):
		return
	}
	acked := e.space.acked[:f.paths]
	told, _ := st.merge.Told()
	for i := range acked {
		acked[i] = st.merge.Progress(int(m.path[i]))
	}
	span := st.span(told.PSN)
	m.why = e.fanOut.Merge(st.group.ID, acked, told, span)
	if m.on = m.why == nil; !m.on {
		return
	}
	m.told, m.span = told.PSN, span
}

// endMerge ends the FanOut's merging. The result is valid until the next call.
func (e *engine) endMerge(st *state) (did folding) {
	m := &st.fan.merges
	if !m.on {
		return did
	}
	m.on = false
	acked := e.space.acked[:st.fan.paths]
	did.told, did.paths = e.fanOut.EndMerge(st.group.ID, acked), e.space.paths[:len(acked)]
	m.told = did.told.PSN
	for i, at := range acked {
		did.paths[i] = feedback.Answered{Path: int(m.path[i]), Progress: at}
	}
	return did
}
