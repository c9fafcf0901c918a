package porttest

import (
	"errors"
	"slices"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/merger"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// FanOut is the twin of the kernel's fan-out (bpf/fanout.h) in Go: frames are shown to Carry before
// a core sees them.
type FanOut struct {
	// Slots bounds the groups that are armed at one time.
	Slots int
	// Memory bounds the packets that are retained of all groups; 0: there is no bound.
	Memory int
	slots  map[int]*slot

	Looks int // how often the core has ended the merging of answers
}

type slot struct {
	id     mft.GroupID
	wanted dataplane.Want
	word   dataplane.FanWord
	limit  roce.PSN
	block  mft.Block
	merges bool
	merger merger.Merger[feedback.Progress]
	span   int32 // how far beyond what the source was told may be carried; 0: nothing beyond limit
	// retained are the packets that were carried, the one with a PSN at that PSN modulo their
	// number.
	retained []packet
}

type packet struct {
	psn   roce.PSN
	frame []byte
}

// NewFanOut returns a fan-out with no group.
func NewFanOut() *FanOut { return &FanOut{Slots: 1024, slots: map[int]*slot{}} }

func (f *FanOut) slotOf(id mft.GroupID) *slot { return f.slots[id.Slot()%f.Slots] }

// Claim is part of dataplane.FanOut.
func (f *FanOut) Claim(id mft.GroupID) (holder mft.GroupID, ok bool) {
	if p := f.slotOf(id); p != nil {
		if p.id != id {
			p.wanted = dataplane.WantsSlot
		}
		return p.id, p.id == id
	}
	f.slots[id.Slot()%f.Slots] = &slot{id: id}
	return id, true
}

// Wanted is part of dataplane.FanOut.
func (f *FanOut) Wanted(id mft.GroupID) dataplane.Want {
	p := f.slotOf(id)
	if p == nil || p.id != id {
		panic("porttest: a group without a slot asks whether the slot is wanted")
	}
	wanted := p.wanted
	p.wanted = dataplane.WantsNothing
	return wanted
}

// Release is part of dataplane.FanOut.
func (f *FanOut) Release(id mft.GroupID) {
	if p := f.slotOf(id); p != nil && p.id == id {
		if p.word.Armed {
			panic("porttest: a group gives up its slot and is armed")
		}
		delete(f.slots, id.Slot()%f.Slots)
	}
}

// Arm is part of dataplane.FanOut.
func (f *FanOut) Arm(id mft.GroupID, b *mft.Block, w dataplane.FanWord, limit roce.PSN) error {
	p := f.slotOf(id)
	if p == nil || p.id != id || p.word.Armed {
		panic("porttest: a group is armed that has no slot, or is armed already")
	}
	p.retained = nil
	if !f.hasMemory(b.Retain) {
		return errMemory
	}
	p.retained = make([]packet, b.Retain)
	p.block = *b
	p.block.Paths, p.block.Shares = slices.Clone(b.Paths), slices.Clone(b.Shares)
	p.word, p.limit, p.span = w, limit, 0
	return nil
}

var errMemory = errors.New("other groups have the memory")

// hasMemory reports whether that many more packets can be retained. If not, all groups of which
// some are retained hear that memory is wanted.
func (f *FanOut) hasMemory(packets int) bool {
	for _, p := range f.slots {
		packets += len(p.retained)
	}
	if f.Memory == 0 || packets <= f.Memory {
		return true
	}
	for _, p := range f.slots {
		if len(p.retained) > 0 {
			p.wanted = max(p.wanted, dataplane.WantsMemory)
		}
	}
	return false
}

// Load is part of dataplane.FanOut.
func (f *FanOut) Load(id mft.GroupID) dataplane.FanWord { return f.slotOf(id).word }

// Disarm is part of dataplane.FanOut.
func (f *FanOut) Disarm(id mft.GroupID) dataplane.FanWord {
	p := f.slotOf(id)
	if p.merges {
		panic("porttest: a group is disarmed whose answers are merged")
	}
	p.word.Armed = false
	return p.word
}

// Limit is part of dataplane.FanOut.
func (f *FanOut) Limit(id mft.GroupID, psn roce.PSN) { f.slotOf(id).limit = psn }

// Merge is part of dataplane.FanOut.
func (f *FanOut) Merge(id mft.GroupID, at []feedback.Progress, told feedback.Progress, span int32) error {
	p := f.slotOf(id)
	if p.merges || p.block.Source == nil || len(at) != len(p.block.Paths) {
		panic("porttest: answers are merged already, or without a source or the paths of the block")
	}
	p.merges, p.merger.At, p.merger.Told, p.span = true, append(p.merger.At[:0], at...), told, span
	return nil
}

// last is the last PSN that may be carried.
func (p *slot) last() roce.PSN {
	last := p.merger.Told.PSN.Add(p.span)
	switch far := p.limit.Add(feedback.Window); {
	case p.span == 0, last.Before(p.limit):
		return p.limit
	case last.After(far):
		return far
	}
	return last
}

// EndMerge is part of dataplane.FanOut.
func (f *FanOut) EndMerge(id mft.GroupID, at []feedback.Progress) (told feedback.Progress) {
	p := f.slotOf(id)
	if !p.merges {
		panic("porttest: no answers are merged")
	}
	p.merges = false
	f.Looks++
	copy(at, p.merger.At)
	return p.merger.Told
}

// Answer does with a classified frame what the kernel does: it merges the plain ACK of a path of an
// armed group, and appends the ACK to the source if that is due. False means that the frame is the
// core's.
func (f *FanOut) Answer(frame *dataplane.Frame, out *dataplane.Outputs) bool {
	p := f.slotOf(frame.Group)
	if p == nil || p.id != frame.Group || !p.word.Armed || !p.merges || frame.Kind != dataplane.KindFeedback {
		return false
	}
	i, at, ok := plainAck(frame, &p.block, p.word)
	if !ok {
		return false
	}
	tells, taken := p.merger.ACK(i, at)
	if tells {
		pcp := p.block.PCP
		if frame.View.VLANs > 0 {
			pcp = frame.View.PCP(frame.Head())
		}
		out.Replies = append(out.Replies, dataplane.MergedACK(&p.block, p.merger.Told, pcp))
	}
	return taken
}

// plainAck reports whether a frame is an ACK that an engine merges, which was armed with b and is
// at w: of which path, and what it acknowledges.
func plainAck(f *dataplane.Frame, b *mft.Block, w dataplane.FanWord) (path int, at feedback.Progress, ok bool) {
	v, head := &f.View, f.Head()
	if f.FragmentCount != 1 || v.Decode(head, f.Len()) != nil || v.Opcode != roce.OpAck ||
		v.MigReq(head) != b.MigReq || !v.AETH(head).Syndrome.IsACK() {
		return path, at, false
	}
	path = slices.IndexFunc(b.Paths, func(p mft.BlockPath) bool {
		return p.Path.Port == f.Port && p.Path.Dst == v.SrcIP(head) && p.Path.Src == v.DstIP(head) && p.Path.RemoteQPN == v.DestQPN(head) &&
			p.Path.VLANs() == mft.VLANsOf(head[:v.L3])
	})
	if path < 0 {
		return path, at, false
	}
	p := &b.Paths[path]
	at = feedback.Progress{PSN: v.PSN(head).Add(-p.DeltaPSN), MSN: v.AETH(head).MSN.Add(p.DeltaMSN)}
	return path, at, at.PSN.Before(w.PSN) && v.Undamaged(f.Bytes())
}

// Retained is part of dataplane.FanOut.
func (f *FanOut) Retained(id mft.GroupID, psn roce.PSN) (head, rest []byte) {
	p := f.slotOf(id)
	if len(p.retained) == 0 {
		return nil, nil
	}
	at := &p.retained[int(psn)%len(p.retained)]
	if at.psn != psn || at.frame == nil {
		return nil, nil
	}
	n := min(len(at.frame), mft.BlockPathMTU)
	return at.frame[:n], at.frame[n:]
}

// Forget loses the packets that are retained of a group that has a slot, as if they were not
// finished.
func (f *FanOut) Forget(id mft.GroupID) { clear(f.slotOf(id).retained) }

// Overwrite puts another frame into the place of a packet of a group that has a slot.
func (f *FanOut) Overwrite(id mft.GroupID, psn roce.PSN, frame []byte) {
	r := f.slotOf(id).retained
	r[int(psn)%len(r)].frame = frame
}

// Ask notes that a packet asks for an ACK, as Carry does before it counts the packet.
func (f *FanOut) Ask(id mft.GroupID, psn roce.PSN) {
	p := f.slotOf(id)
	p.word.Asks, p.word.Asked = true, psn
}

// Merges reports whether the answers of a group are merged.
func (f *FanOut) Merges(id mft.GroupID) bool {
	p := f.slotOf(id)
	return p != nil && p.id == id && p.merges
}

// Retains returns for how many packets of a group there is memory.
func (f *FanOut) Retains(id mft.GroupID) int {
	if p := f.slotOf(id); p != nil && p.id == id {
		return len(p.retained)
	}
	return 0
}

// Carry does with a classified frame what the kernel does: a plain packet of an armed group is
// answered with the copies for all its paths, one for those that share a leg. Any other packet of
// the source's disarms the group. False means that the frame is the core's.
func (f *FanOut) Carry(frame *dataplane.Frame, out *dataplane.Outputs) bool {
	p := f.slotOf(frame.Group)
	if p == nil || p.id != frame.Group || !p.word.Armed || frame.Kind != dataplane.KindData {
		return false
	}
	region, not := dataplane.Plain(frame, &p.block, p.word, p.last())
	if not != dataplane.IsPlain {
		p.word.Armed = not == dataplane.NotOfSource
		return false
	}
	v := &frame.View
	frame.Original.Read(v, frame.Bytes())
	frame.Region = region
	if n := len(p.retained); n > 0 {
		psn := frame.Original.PSN
		p.retained[int(psn)%n] = packet{psn, slices.Concat(frame.Bytes()...)}
	}
	if v.AckReq(frame.Head()) {
		p.word.Asks, p.word.Asked = true, p.word.PSN
	}
	p.word.Payload += uint64(v.PayloadBytes)
	p.word.PSN = p.word.PSN.Next()
	if p.word.Inside = !v.Opcode.EndsMessage(); !p.word.Inside {
		p.word.Messages = p.word.Messages.Add(1)
	}
	for i := range p.block.Paths {
		if b := &p.block.Paths[i]; !b.Shared {
			out.Copies = append(out.Copies, dataplane.Copy{Path: b.Path, PSN: frame.Original.PSN.Add(b.DeltaPSN), Edit: b.Edit})
		}
	}
	for i := range p.block.Shares {
		b := &p.block.Shares[i]
		out.Copies = append(out.Copies, dataplane.Copy{Path: b.Path, PSN: frame.Original.PSN, Edit: b.Edit})
	}
	return true
}
