package dataplane

import (
	"sync/atomic"

	"github.com/rocast/rocast/mft"
)

const (
	// handoffFrames is how many frames may wait between two workers. Further frames are dropped as
	// HandoffFull, as they are when an RX ring is full.
	handoffFrames = 256
	// handoffBytes is enough for a path MTU of 4096 with all headers. Longer frames belong to no
	// group and are dropped as OverMTU.
	handoffBytes = 4608
	// keptFrames is how many packets of a member are kept while control stores its turn. Further
	// ones are dropped as SourceBlocked.
	keptFrames = 64
)

// handoff is a ring of frames for the worker that owns their group. Another worker has received the
// frames, or the owner keeps them for later itself (turn.go). It has one producer and one consumer.
// The bytes are copied: buffers never change their owner.
type handoff struct {
	slots []parcel
	head  atomic.Uint32 // next to put; written by the producer
	tail  atomic.Uint32 // next to take; written by the consumer
}

type parcel struct {
	group mft.GroupID
	kind  Kind
	port  mft.PortID
	n     int
	bytes [handoffBytes]byte
}

func newHandoff(frames int) *handoff { return &handoff{slots: make([]parcel, frames)} }

// put copies f into the ring. The result is false if the ring is full.
func (h *handoff) put(f *Frame) bool {
	head := h.head.Load()
	if head-h.tail.Load() == uint32(len(h.slots)) {
		return false
	}
	p := &h.slots[head%uint32(len(h.slots))]
	p.group, p.kind, p.port, p.n = f.Group, f.Kind, f.Port, 0
	for _, b := range f.Bytes() {
		p.n += copy(p.bytes[p.n:], b)
	}
	h.head.Store(head + 1)
	return true
}

// take moves waiting frames into buffers of the consumer's pool. Frames for which there is no
// buffer stay in the ring.
func (h *handoff) take(pool Pool, frames []Frame) int {
	tail, head := h.tail.Load(), h.head.Load()
	n := 0
	for ; tail != head && n < len(frames); n++ {
		p := &h.slots[tail%uint32(len(h.slots))]
		f := &frames[n]
		if !pool.Load(f, p.bytes[:p.n], nil) {
			break
		}
		f.Group, f.Kind, f.Port = p.group, p.kind, p.port
		tail++
	}
	h.tail.Store(tail)
	return n
}

// drop forgets the waiting frames. The consumer calls it.
func (h *handoff) drop() { h.tail.Store(h.head.Load()) }
