package dataplane

import (
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// FanOut is an engine in front of the worker that sends the plain packets of groups to all their
// paths by itself: the kernel (bpf/fanout.h), or its twin in tests. The core arms each group on its
// own. Only the core decides: a packet that is not exactly the expected one disarms the group, and
// goes to the core like a packet of a group that was never armed.
//
// The worker that owns the group calls the methods. They make no system call and do not block.
type FanOut interface {
	// Claim takes the group's slot in the engine. If another group has it, holder is that group,
	// ok is false, and Wanted of the holder will return true.
	Claim(id mft.GroupID) (holder mft.GroupID, ok bool)
	// Wanted returns which resource of the group another group has claimed since the last call. The
	// group must have a slot.
	Wanted(id mft.GroupID) Want
	// Release gives up the group's slot. The group must not be armed.
	Release(id mft.GroupID)
	// Arm lets the engine carry the packets that match b, from w.PSN to limit. The group must have
	// a slot and must not be armed. The error says why the engine cannot carry b. If it is that
	// no memory is left for b.Retain packets, Wanted of the groups that have some will say so.
	Arm(id mft.GroupID, b *mft.Block, w FanWord, limit roce.PSN) error
	// Load returns the engine's progress with a group that has a slot.
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
	Merge(id mft.GroupID, at []feedback.Progress, told feedback.Progress, span int32) error
	// EndMerge ends the merging. It fills in what each path has acknowledged, and returns what the
	// source was told last, which is not beyond that. Call it before Load and Disarm, so that they
	// count every packet that was acknowledged.
	EndMerge(id mft.GroupID, at []feedback.Progress) (told feedback.Progress)
	// Retained returns a packet that the engine carried and retains, as the source sent it: head,
	// and then rest. If head is nil, the engine does not have it. The group must have a slot. It
	// must have been armed with a block with Retain, and what may be carried must end less than
	// Retain beyond psn, for as long as the result is used.
	Retained(id mft.GroupID, psn roce.PSN) (head, rest []byte)
}

// Want says which resource of a group in the engine another group is waiting for.
type Want uint8

const (
	WantsNothing Want = iota
	WantsMemory       // for packets to retain; the group has some
	WantsSlot         // and the memory that comes with it
)

// FanWord is the engine's progress with one group.
type FanWord struct {
	PSN      roce.PSN // of the next packet
	Messages roce.MSN // number of messages that ended since the group was armed
	// Payload is the number of payload bytes since the group was armed. It may lack the bytes of a
	// packet that is being counted at this moment.
	Payload uint64
	Inside  bool // the newest packet is not the last one of its message
	Armed   bool
	// Asks says that a packet asked for an ACK since the group was armed. Asked is the last one. It
	// may be one that PSN does not count yet.
	Asks  bool
	Asked roce.PSN
}

// FanOutCounts counts the uses of the engine, over all groups of a core.
type FanOutCounts struct{ Armed, Disarmed, Carried, Refused uint64 }

func (c *FanOutCounts) add(d *FanOutCounts) {
	c.Armed, c.Disarmed = c.Armed+d.Armed, c.Disarmed+d.Disarmed
	c.Carried, c.Refused = c.Carried+d.Carried, c.Refused+d.Refused
}
