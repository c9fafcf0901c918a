package sim

import (
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/internal/rnic"
)

// frame is one frame in a buffer of its own, with room in front as in a real one. The other fields
// are what the oracle knows of it. A copy has those of its original, whatever the core writes into
// its headers.
type frame struct {
	buf    [dataplane.HeadroomBytes + rnic.MaxFrameBytes]byte
	bytes  int
	stream int32 // data: the source; else noStream
	packet int32 // data: the number of the packet

	touched bool // some byte was changed on the way
	damaged bool // a byte that the ICRC covers was changed

	late time.Duration // it waits so long in the queue of its engine

	index    int32 // in pool.frames
	retained bool  // the core has it, for repair
}

const (
	headroom = dataplane.HeadroomBytes
	noStream = -1
)

func (f *frame) data() []byte { return f.buf[headroom:][:f.bytes] }

// room returns the buffer in which the frame is built.
func (f *frame) room() []byte { return f.buf[headroom:headroom] }

// inherit gives f, whose bytes are a copy of other, what the oracle knows of other.
func (f *frame) inherit(other *frame) {
	f.stream, f.packet, f.touched, f.damaged, f.late = other.stream, other.packet, other.touched, other.damaged, other.late
}

// pool holds all frames of a run. A frame is lent while it is on a link, while an event handles it,
// or while the core retains it.
type pool struct {
	frames   []*frame
	free     []int32
	retained int // frames
}

func (p *pool) reset() {
	p.free = p.free[:0]
	p.retained = 0
	for i := range p.frames {
		p.frames[i].retained = false
		p.free = append(p.free, int32(i))
	}
}

func (p *pool) lend() int32 {
	n := len(p.free)
	if n == 0 {
		p.frames = append(p.frames, &frame{stream: noStream, index: int32(len(p.frames))})
		return int32(len(p.frames) - 1)
	}
	i := p.free[n-1]
	p.free = p.free[:n-1]
	f := p.frames[i]
	f.stream, f.touched, f.damaged, f.late = noStream, false, false, 0
	return i
}

func (p *pool) giveBack(i int32) { p.free = append(p.free, i) }

// keep notes that the core retains frame i.
func (p *pool) keep(i int32) {
	p.frames[i].retained = true
	p.retained++
}

// crash takes back the frames that a core retained.
func (p *pool) crash() {
	for i, f := range p.frames {
		if f.retained {
			p.takeBack(int32(i))
		}
	}
}

func (p *pool) takeBack(i int32) {
	p.frames[i].retained = false
	p.retained--
	p.giveBack(i)
}

// Put takes back a frame that the core retained. The pool is the core's dataplane.Pool for that;
// the core asks it for nothing.
func (p *pool) Put(f *dataplane.Frame) { p.takeBack(int32(f.Chunks[0])) }

// Get is part of dataplane.Pool.
func (p *pool) Get(*dataplane.Frame) bool { return false }

// Load is part of dataplane.Pool.
func (p *pool) Load(*dataplane.Frame, []byte) bool { return false }

func (p *pool) lent() int { return len(p.frames) - len(p.free) }
