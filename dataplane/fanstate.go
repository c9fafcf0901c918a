package dataplane

import (
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

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
	hasSlot bool     // the group has a slot
	at      FanWord  // as last read; if at.Armed, the engine may carry packets
	limit   roce.PSN // the last PSN that the engine may carry
	from    roce.PSN // the first packet that the engine may carry since it was armed
	keeps   int      // how many packets the engine retains; 0: leastKept
	paths   int      // number of paths that get data from the engine
	copies  int      // number of copies that the engine makes of a packet
	sharing uint32   // sharing.changes when the group was armed
	merges  merging  // of the receivers' ACKs
	listed  bool     // in Core.armable
	unheard bool     // when disarmed last, the engine had carried something; the source has not come back since
	heard   bool     // every receiver has acknowledged something that was carried: the drivers send it
	again   int      // packets that the source has sent again since why is errUnheard
	calm    int      // plain packets in a row since the last decision
	need    int      // value of calm at which the group is armed
	inVain  int      // times in a row that the engine carried nothing
	// idle is the group's next PSN when another group last wanted the slot or the memory. If it
	// has not changed when another group wants that again, the group loses its slot.
	idle    roce.PSN
	carried uint64 // packets
	before  uint64 // value of carried when the group was last armed
	why     error  // why arming failed; nil if it succeeded or was not tried
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
		if err := b.Add(st.group, i, st.offsets[i].deltaPSN, st.offsets[i].deltaMSN, st.sharing.isShared(st, i), &st.edits); err != nil {
			return err
		}
	}
	if err := st.sharing.addTo(b, st); err != nil {
		return err
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
	last := earlier(oldest.Add(int32(len(h.at))-1), st.merge.NextPSN().Add(int32((h.room-h.used)/h.each)-1))
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
// it was armed last. With repair, the receivers may have got it from the core instead.
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
// group is armed disarm it at once, because the packet behind them does not have the next PSN. So
// only inVainMax times in a row without a carried packet count against the group.
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
