package dataplane

import (
	"sync/atomic"

	"github.com/rocast/rocast/mft"
)

// owners says which worker has the merging state of each group. All workers agree on it: the first
// frame of a group decides, and nothing changes before the group is removed.
//
// A NIC chooses the queue of a frame by its addresses and ports, so all data of a source arrives at
// one worker. A group belongs to that worker, and its data needs no handoff, unless the worker
// would have too many groups: an idle worker costs more than handoffs do.
type owners struct {
	bySlot []atomic.Uint32 // index of the worker + 1; 0: no frame of the group has arrived
	groups []atomic.Int32  // number of groups by worker
}

func newOwners(workers int) *owners {
	o := &owners{groups: make([]atomic.Int32, workers)}
	if workers > 1 {
		o.bySlot = make([]atomic.Uint32, mft.MaxGroups)
	}
	return o
}

// of returns the group's owner, or -1 if it has none yet.
func (o *owners) of(id mft.GroupID) int {
	if o.bySlot == nil {
		return 0
	}
	return int(o.bySlot[id.Slot()].Load()) - 1
}

// claim returns the group's owner, and makes a worker the owner if the group has none yet. receiver
// is the worker that receives the group's data; -1: it is not known. The receiver becomes the
// owner, unless it has more groups than the worker with the fewest, by more than an eighth of all
// groups. Then, and if the receiver is not known, the worker with the fewest groups becomes the
// owner.
func (o *owners) claim(id mft.GroupID, receiver int) int {
	if owner := o.of(id); owner >= 0 {
		return owner
	}
	least, sum := 0, 0
	for w := range o.groups {
		n := int(o.groups[w].Load())
		sum += n
		if n < int(o.groups[least].Load()) {
			least = w
		}
	}
	owner := least
	if receiver >= 0 && int(o.groups[receiver].Load()-o.groups[least].Load()) <= sum/8 {
		owner = receiver
	}
	if o.bySlot[id.Slot()].CompareAndSwap(0, uint32(owner+1)) {
		o.groups[owner].Add(1)
	}
	return o.of(id) // another worker may have been faster
}

// release makes room in the group's slot for the next group. No worker may still have a frame or
// the merging state of the group.
func (o *owners) release(id mft.GroupID) {
	if o.bySlot == nil {
		return
	}
	if was := o.bySlot[id.Slot()].Swap(0); was != 0 {
		o.groups[was-1].Add(-1)
	}
}
