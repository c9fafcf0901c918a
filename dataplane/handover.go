package dataplane

import (
	"sync/atomic"

	"github.com/rocast/rocast/mft"
)

const (
	// handoverFrames is how many frames may wait between two workers. What
	// comes while they do is dropped as HandoverFull, as by a full RX ring.
	handoverFrames = 256
	// handoverBytes is room for a path MTU of 4096 with all headers. Longer
	// frames are nobody's, and are dropped as OverMTU.
	handoverBytes = 4608
)

// handover carries frames from the worker whose queue they came in by to the
// worker that owns their group. It has one producer and one consumer. The bytes
// are copied: buffers never change their owner.
//
// NICs spread flows over queues by hashing, so a source's data comes by one
// queue; choose its worker with ntuple steering if the copy matters.
type handover struct {
	slots []parcel
	head  atomic.Uint32 // next to put, the producer's
	tail  atomic.Uint32 // next to take, the consumer's
}

type parcel struct {
	group mft.GroupID
	kind  Kind
	port  mft.PortID
	n     int
	bytes [handoverBytes]byte
}

func newHandover() *handover { return &handover{slots: make([]parcel, handoverFrames)} }

// put copies f into the ring; false: it is full.
func (h *handover) put(f *Frame) bool {
	head := h.head.Load()
	if head-h.tail.Load() == handoverFrames {
		return false
	}
	p := &h.slots[head%handoverFrames]
	p.group, p.kind, p.port, p.n = f.Group, f.Kind, f.Port, 0
	for _, b := range f.Bytes() {
		p.n += copy(p.bytes[p.n:], b)
	}
	h.head.Store(head + 1)
	return true
}

// take fills frames with what waits, in buffers of the consumer's pool. What
// finds no buffer stays.
func (h *handover) take(pool Pool, frames []Frame) int {
	tail, head := h.tail.Load(), h.head.Load()
	n := 0
	for ; tail != head && n < len(frames); n++ {
		p := &h.slots[tail%handoverFrames]
		f := &frames[n]
		if !pool.Load(f, p.bytes[:p.n]) {
			break
		}
		f.Group, f.Kind, f.Port = p.group, p.kind, p.port
		tail++
	}
	h.tail.Store(tail)
	return n
}
