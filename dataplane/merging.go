package dataplane

import (
	"errors"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// merging is the core's record of the ACKs that the engine merges for a group. The engine does so
// only between two events of the group: sync ends it before each event, and resume lets it go on
// afterwards. So while the core decides, nothing moves.
type merging struct {
	on     bool                   // the engine may be merging
	why    error                  // why the engine does not merge; nil: it may
	migReq bool                   // of the answers that it merges
	path   [mft.BlockPaths]uint16 // index in the group of each path of the block
	told   roce.PSN               // what the source was told, as last written or read
	span   int32                  // how far beyond told the engine carries; 0: the engine has not merged since the group was armed
	busy   feedback.Tick          // when packets were last found to have been carried, or the group was armed

	// What follows is of groups with repair.

	streams bool          // more than streamRate packets a millisecond were carried between the last two looks
	looked  feedback.Tick // when the worker looked last, or the group was armed
	before  uint64        // how many packets the engine had carried then
}

// mergedPeriod is how often the core looks at a group with repair while the engine merges: no
// answer tells it then that a receiver may have lost the end of what was carried. It is how long a
// receiver has to answer what was carried, so the second look repairs. A group of which nothing was
// carried for that long is idle. The engine merges nothing for it, so that the next answer tells
// the core that there is something to look after.
//
// A look costs some 60 us, because it wakes the worker, and with it Go's scheduler. A source that
// sends fast has seldom lost the end of what it sent, and needs the CPU: the looks at it are
// streamedPeriod apart.
const (
	mergedPeriod   = feedback.Tick(4 * time.Millisecond)
	streamedPeriod = 4 * mergedPeriod
	streamRate     = 128 // packets a millisecond
)

// looked notes that the worker has looked at what the engine did for the group because it was due.
func (f *fanState) looked(now feedback.Tick) {
	m := &f.merges
	passed := max(now-m.looked, carriedPeriod)
	m.streams = f.carried-m.before > streamRate*uint64(passed/feedback.Tick(time.Millisecond))
	m.looked, m.before = now, f.carried
}

var errAnswersDecide = errors.New("an ACK needs a decision: with a quorum, with credits: merge, and where the receivers' ACKs " +
	"differ in MigReq")

// folding is what the engine merged for one group until endMerge.
type folding struct {
	paths []feedback.Answered // none: it did not merge
	told  feedback.Progress
}

// mergeSpace is the core's memory for the paths of a block.
type mergeSpace struct {
	acked [mft.BlockPaths]feedback.Progress
	paths [mft.BlockPaths]feedback.Answered
}

// mayMerge gives the block its Source, if the engine may merge the answers of its paths, or returns
// the reason why it may not.
func (st *state) mayMerge(b *mft.Block) error {
	migReq, ok := st.merge.MayMerge()
	if !ok {
		return errAnswersDecide
	}
	b.Source, b.MigReq, b.PCP = st.sourceLeg(), migReq, st.pcp()
	b.Priority = st.group.Priority(b.Source)
	return nil
}

// MergedACK is what an engine sends the source of a block when the lowest path is at a place,
// because of an ACK with the priority pcp.
func MergedACK(b *mft.Block, at feedback.Progress, pcp uint8) Reply {
	return Reply{
		Leg: b.Source, PSN: at.PSN, AETH: roce.AETH{Syndrome: roce.SyndromeUnlimited, MSN: at.MSN}, MigReq: b.MigReq,
		PKey: b.PKey, TrafficClass: b.TrafficClass, HopLimit: replyHopLimit,
		PCP: pcp, Priority: b.Priority,
	}
}

// of notes the paths of the block with which the group was armed.
func (m *merging) of(b *mft.Block) {
	if m.why != nil {
		return
	}
	m.migReq = b.MigReq
	for i := range b.Paths {
		m.path[i] = uint16(b.Paths[i].Index)
	}
}

// outdated reports whether another block would let the engine merge answers that come to the core
// now. The block needs the receivers' MigReq bits; the group may have been armed before their first
// answers showed them.
func (st *state) outdated() bool {
	m := &st.fan.merges
	migReq, ok := st.merge.MayMerge()
	return ok && (m.why == errAnswersDecide || m.why == nil && migReq != m.migReq)
}

// span is how far beyond what the source was told the engine may carry while it merges. Every
// receiver has acknowledged that, so with repair no packet behind it may be overwritten. Nor
// may more be retained than there is room for, once what has been given up is acknowledged.
func (st *state) span(told roce.PSN) int32 {
	if st.held == nil {
		return st.horizon().Sub(told)
	}
	return min(st.horizon().Sub(st.merge.Oldest().Prev()), int32(st.kept()))
}

// reach is the last PSN that the engine may carry, as far as the core knows.
func (f *fanState) reach() roce.PSN {
	if m := &f.merges; m.span > 0 && m.told.Add(m.span).After(f.limit) {
		return m.told.Add(m.span)
	}
	return f.limit
}
