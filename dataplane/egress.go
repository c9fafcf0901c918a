package dataplane

import (
	"math/rand/v2"

	"github.com/rocast/rocast/mft"
)

// Egress bounds the queue of a port: the frames that its device has and has not sent. Sizes are in
// bytes of whole frames. Each worker has a queue of its own at every port, and the bounds are for
// each. The zero value bounds nothing and marks nothing.
type Egress struct {
	// Copies are marked as having met congestion, as the congestion point of DCQCN does it (Zhu et
	// al., SIGCOMM 2015): none while no more than KminBytes wait; above that each with a
	// probability that rises to MarkPercent at KmaxBytes; from there on all. KmaxBytes 0: no copy.
	KminBytes, KmaxBytes int
	MarkPercent          int // from 1 to 100
	// LimitBytes bounds what waits: a copy that finds no room is lost. 0: the device decides.
	LimitBytes int
}

// LimitMost is the largest size of a bound.
const LimitMost = 1 << 25

// Marks reports whether a frame that finds this many bytes waiting is to be marked. random is any
// number, different for each frame.
func (e *Egress) Marks(waiting int, random uint32) bool {
	above := waiting - e.KminBytes
	if e.KmaxBytes == 0 || above <= 0 {
		return false
	}
	span := e.KmaxBytes - e.KminBytes
	// 2^32 is certainty. Bounds up to LimitMost do not overflow.
	return above >= span || uint64(random)*100*uint64(span) < uint64(e.MarkPercent)*uint64(above)<<32
}

// repairLimit is the limit of which repairs have their share where the port has none.
const repairLimit = 1 << 20

// repairShare returns how many bytes of repairs may wait: half of the limit. Its last quarter is
// for packets that their receivers wait for. The other repairs of a receiver that lacks much fill
// the share again and again, and would leave no room for one that lacks a single packet.
func (e *Egress) repairShare(first bool) int {
	share := e.LimitBytes / 2
	if e.LimitBytes == 0 {
		share = repairLimit / 2
	}
	if first {
		return share
	}
	return share - share/4
}

// egressQueue is one worker's view of the queue of a port.
type egressQueue struct {
	Egress
	bounded bool   // LimitBytes or KmaxBytes is set
	looked  bool   // waiting is up to date
	waiting int    // bytes, with those that were admitted and not given to the device yet
	end     uint64 // bytes that were given to the port since the start
	pending int    // bytes that were admitted and not given to the port yet
	random  rand.PCG
	repairs repairsQueued
}

// repairsQueued remembers which bytes of a queue are repairs.
type repairsQueued struct {
	bytes       int // in all bursts
	bursts      [64]repairBurst
	first, next uint32 // free-running
}

// repairBurst is repairs that follow one another in the queue.
type repairBurst struct {
	end   uint64 // as egressQueue.end when the port had the last one
	bytes int    // that may wait
}

// newEgressQueue returns an empty queue. Each port has random numbers of its own.
func newEgressQueue(port mft.PortID, e Egress) egressQueue {
	q := egressQueue{Egress: e, bounded: e.LimitBytes != 0 || e.KmaxBytes != 0}
	q.random.Seed(uint64(port), 0)
	return q
}

// admitsAll reports whether every frame of this fate may be sent, unmarked, however many wait.
func (q *egressQueue) admitsAll(fate Fate) bool { return !q.bounded && fate != SentRepair }

// admit decides whether a copy may be sent by a port, and marks it where the port's queue is long.
// The copy has been written into its frame; the mark lasts until the next one is written. What
// carries no copy, our own replies, is always sent: it is short, and the source waits for it.
//
// If the copy may not be sent, admit sets the fate that says why.
func (w *Worker) admit(port mft.PortID, o *Outgoing) bool {
	q, stats := &w.queues[port], &w.stats[port]
	if !q.looked {
		q.look(w.ports[port].Unsent())
	}
	bytes := o.Bytes
	switch {
	case q.LimitBytes != 0 && q.waiting+bytes > q.LimitBytes:
		stats.QueueFull++
		stats.TxLost++
		o.fate = LostQueueFull
		return false
	case o.fate == SentRepair && !q.admitRepair(bytes, o.first):
		stats.RepairsPutOff++
		o.fate = LostRepairPutOff
		return false
	}
	if q.mark(o.Frame) {
		stats.Marked++
	}
	q.waiting += bytes
	q.pending += bytes
	return true
}

// look notes that waiting bytes are unsent: the newest bytes that the port was given. Older repairs
// have left. If the port has lost frames, the estimate is off by these until the queue is empty.
func (q *egressQueue) look(waiting int) {
	q.looked, q.waiting = true, waiting
	r := &q.repairs
	for ; r.first != r.next; r.first++ {
		b := &r.bursts[r.first%uint32(len(r.bursts))]
		stay := max(0, min(b.bytes, int(int64(b.end+uint64(waiting))-int64(q.end))))
		r.bytes -= b.bytes - stay
		if b.bytes = stay; stay > 0 {
			return
		}
	}
}

// gave notes that the port was given so many bytes: all frames that were admitted, and replies.
func (q *egressQueue) gave(bytes int) {
	q.pending = 0
	q.end += uint64(bytes)
}

// admitRepair reports whether a repair of this many bytes stays within the repairs' share, and
// counts it if so. For first see repairShare.
func (q *egressQueue) admitRepair(bytes int, first bool) bool {
	r := &q.repairs
	size := uint32(len(r.bursts))
	begin := q.end + uint64(q.pending)
	follows := r.first != r.next && r.bursts[(r.next-1)%size].end == begin
	if r.bytes+bytes > q.repairShare(first) || !follows && r.next-r.first == size {
		return false
	}
	if !follows {
		r.next++ // its bytes are 0 since it left the queue
	}
	b := &r.bursts[(r.next-1)%size]
	b.end, b.bytes = begin+uint64(bytes), b.bytes+bytes
	r.bytes += bytes
	return true
}

const (
	notECNCapable         = 0 // values of the congestion field (RFC 3168, 5)
	congestionExperienced = 3
)

// mark marks a frame if the queue is long enough and its sender understands marks.
func (q *egressQueue) mark(f *Frame) bool {
	if !q.Marks(q.waiting, uint32(q.random.Uint64())) {
		return false
	}
	switch f.View.ECN(f.Head()) {
	case notECNCapable, congestionExperienced:
		return false
	}
	f.View.SetECN(f.Head(), congestionExperienced)
	return true
}
