package dataplane

import (
	"cmp"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// retention keeps forwarded packets in the buffers in which they were received, until every
// receiver of their group has them, so that the box can send one again. It belongs to a core, and
// is bounded: the caller gives up the oldest packet of all groups when a new one finds no room.
//
// A packet is released at once, but its buffers go back to the pool only with putBack, because
// copies of it may still wait to be sent.
type retention struct {
	slots          []slot
	free, released int32 // the first ones of lists by slot.newer; noSlot: none
	fresh          int32 // from here on no slot was ever used; the list of free ones goes on with these
	oldest, newest int32 // the ends of the list of all packets by age; noSlot: none
	room           int   // buffers that may be in use
	chunks         int   // buffers in use
	unused         int   // slots in the free list
	packets        int
}

// slot is one retained packet.
type slot struct {
	frame        Frame
	owner        *state
	checked      bool   // it was undamaged when it came
	again        resend // how it was sent again last
	older, newer int32
}

const (
	noSlot = -1
	// engineSlot stands in held.at for the slot of a packet that the engine carried and retains.
	engineSlot = -2
)

// newRetention returns a retention with room for that many buffers. The packets of one batch may
// be retained before those that they displace are put back. No slot is written: a start would wait
// until the kernel has given the memory of all.
func newRetention(chunks int) *retention {
	r := &retention{slots: make([]slot, chunks+batchFrames), released: noSlot, oldest: noSlot, newest: noSlot, room: chunks}
	r.unused = len(r.slots)
	return r
}

// held is what is retained of one group: the packets from oldest up to, and without, next. The
// engine in front of the core may have some of them.
type held struct {
	at           []int32 // slots by PSN, modulo their number, which is a power of two
	oldest, next roce.PSN
	room         int // buffers that the group may have
	each         int // buffers that a packet in the engine counts as: those of a full one
	used         int // buffers that the group has
	inEngine     int // number of the packets that the engine has

	// Packet lostPSN could not be sent again, and lost is the counter for it. The merging has not
	// been told yet. nil: there is none.
	lost    *uint64
	lostPSN roce.PSN
	waits   int           // the group's place in repairs.waiting, from 1 on; 0: it is not there
	due     feedback.Tick // when it is due there
	recent  recent        // packets that were sent again
	tally   feedback.RepairTally
}

// newHeld returns a held for at most that many packets, in that many buffers at most.
func newHeld(packets, room int) *held {
	n := 1
	for n < packets {
		n *= 2
	}
	return &held{at: make([]int32, n), room: room, each: 1}
}

// heldFor returns a held with the bounds of a group's policy.
func heldFor(g *mft.Group) *held {
	window := cmp.Or(g.Policy.RepairWindow, feedback.DefaultRepairWindow)
	room := cmp.Or(g.Policy.RepairBytes, window*mft.PacketBytes(g.PathMTU)) / mft.BufferBytes
	h := newHeld(min(window, room), room) // a packet takes one buffer at least
	h.each = mft.PacketBytes(g.PathMTU) / mft.BufferBytes
	return h
}

func (h *held) slot(psn roce.PSN) *int32 { return &h.at[int(psn)&(len(h.at)-1)] }

func (h *held) has(psn roce.PSN) bool { return !psn.Before(h.oldest) && psn.Before(h.next) }

// fits reports whether the packet can be retained without giving up another one.
func (r *retention) fits(f *Frame) bool { return r.chunks+f.FragmentCount <= r.room }

// looksBack is how many of the newest packets are looked at for one that may go.
const looksBack = 64

// first returns the slot of the packet that goes first where memory is short: the oldest of all. If
// a receiver of a waiting quorum may get that one from nobody else, one goes of which that is not
// so: the oldest one of a group that has just sent something.
func (r *retention) first() int32 {
	s := &r.slots[r.oldest]
	if !s.owner.merge.OnlyRetained(s.frame.Original.PSN) {
		return r.oldest
	}
	tried := s.owner // many of the newest packets may be of one group with many receivers
	for i, n := r.newest, 0; i != noSlot && n < looksBack; i, n = r.slots[i].older, n+1 {
		owner := r.slots[i].owner
		if owner == tried {
			continue
		}
		if k := mayGo(owner); k != noSlot {
			return k
		}
		tried = owner
	}
	return r.oldest
}

// mayGo returns the slot of the group's oldest retained packet, unless a waiting quorum needs it
// from this box alone, or the engine has it: then noSlot.
func mayGo(st *state) int32 {
	h := st.held
	if st.merge.OnlyRetained(h.oldest) {
		return noSlot
	}
	return max(*h.slot(h.oldest), noSlot) // the engine may have it
}

// hasRoom reports whether the group may retain one more packet without giving up another one of its
// own.
func (h *held) hasRoom(f *Frame) bool { return h.used+f.FragmentCount <= h.room }

// hasRoomInstead reports whether the group may retain f in place of the packet with the same PSN.
func (r *retention) hasRoomInstead(h *held, f *Frame) bool {
	return h.used-r.buffers(h, *h.slot(f.Original.PSN))+f.FragmentCount <= h.room
}

// buffers is what a slot counts in held.used.
func (r *retention) buffers(h *held, i int32) int {
	if i == engineSlot {
		return h.each
	}
	return r.slots[i].frame.FragmentCount
}

// fitsBeside reports whether a packet that is none of this batch fits too. It must leave slots for
// the batch: those that are released meanwhile are in use until putBack.
func (r *retention) fitsBeside(f *Frame) bool { return r.fits(f) && r.unused > batchFrames }

// find returns the retained packet, or nil if there is none or the engine has it.
func (r *retention) find(h *held, psn roce.PSN) *slot {
	if !h.has(psn) || h.engineHas(psn) {
		return nil
	}
	return &r.slots[*h.slot(psn)]
}

// engineHas reports whether the engine has the packet.
func (h *held) engineHas(psn roce.PSN) bool { return h.has(psn) && *h.slot(psn) == engineSlot }

// carried notes that the engine carried the packets up to psn. It retains those from oldest on; the
// others may be many.
func (r *retention) carried(h *held, oldest, psn roce.PSN) {
	r.releaseBelow(h, oldest)
	if h.next.Before(oldest) {
		h.oldest, h.next = oldest, oldest
	}
	for ; !psn.Before(h.next); h.next = h.next.Next() {
		*h.slot(h.next) = engineSlot
		h.inEngine++
		h.used += h.each
	}
}

// newestInEngine returns the last of the packets that the engine has.
func (h *held) newestInEngine() (psn roce.PSN, some bool) {
	for psn = h.next.Prev(); h.has(psn); psn = psn.Prev() {
		if h.engineHas(psn) {
			return psn, true
		}
	}
	return psn, false
}

// keep retains f, which fits, as the newest packet of its group. From now on f's buffers belong to
// the retention. If packets between the group's last one and f were not forwarded, all older ones
// are released. The group's oldest packet goes where the group has as many as it may have.
func (r *retention) keep(st *state, f *Frame, checked bool) {
	h, psn := st.held, f.Original.PSN
	if psn != h.next {
		r.releaseAll(h)
		h.oldest = psn
	}
	r.releaseBelow(h, psn.Add(1-int32(len(h.at))))
	i := r.fill(st, f, checked)
	s := &r.slots[i]
	s.older, s.newer = r.newest, noSlot
	r.link(i)
	*h.slot(psn) = i
	h.next = psn.Next()
}

// replace retains f, which fits, in place of the retained packet with the same PSN. Where the
// engine has that one, f counts as the newest of all packets.
func (r *retention) replace(st *state, f *Frame) {
	at := st.held.slot(f.Original.PSN)
	was := *at
	i := r.fill(st, f, true)
	s := &r.slots[i]
	s.older, s.newer = r.newest, noSlot
	if was >= 0 {
		s.older, s.newer = was, r.slots[was].newer
	}
	r.link(i)
	*at = i
	r.release(st.held, was)
}

// fill takes a free slot for f.
func (r *retention) fill(st *state, f *Frame, checked bool) int32 {
	i := r.free
	s := &r.slots[i]
	if i == r.fresh {
		r.fresh++
		s.newer = r.fresh
	}
	r.free = s.newer
	r.unused--
	f.Kept = true
	s.frame, s.owner, s.checked, s.again = *f, st, checked, resend{}
	r.chunks += f.FragmentCount
	st.held.used += f.FragmentCount
	r.packets++
	return i
}

// link makes the neighbours of a slot point to it.
func (r *retention) link(i int32) {
	s := &r.slots[i]
	r.newerOf(s.older, i)
	r.olderOf(s.newer, i)
}

func (r *retention) newerOf(i, newer int32) {
	if i == noSlot {
		r.oldest = newer
		return
	}
	r.slots[i].newer = newer
}

func (r *retention) olderOf(i, older int32) {
	if i == noSlot {
		r.newest = older
		return
	}
	r.slots[i].older = older
}

// releaseBelow releases the packets of a group that are below psn.
func (r *retention) releaseBelow(h *held, psn roce.PSN) {
	for h.oldest != h.next && h.oldest.Before(psn) {
		r.release(h, *h.slot(h.oldest))
		h.oldest = h.oldest.Next()
	}
}

// releaseAll releases all packets of a group.
func (r *retention) releaseAll(h *held) { r.releaseBelow(h, h.next) }

// release takes a packet of a group out. Its slot and its buffers are in use until putBack.
func (r *retention) release(h *held, i int32) {
	h.used -= r.buffers(h, i)
	if i == engineSlot {
		h.inEngine--
		return
	}
	s := &r.slots[i]
	r.newerOf(s.older, s.newer)
	r.olderOf(s.newer, s.older)
	s.owner = nil // which may be forgotten
	s.newer, r.released = r.released, i
	r.chunks -= s.frame.FragmentCount
	r.packets--
}

// putBack gives the buffers of released packets to the pool. No copy of these packets may wait to
// be sent.
func (r *retention) putBack(pool Pool) {
	for r.released != noSlot {
		i := r.released
		s := &r.slots[i]
		s.frame.Kept = false
		pool.Put(&s.frame)
		r.released = s.newer
		s.newer, r.free = r.free, i
		r.unused++
	}
}
