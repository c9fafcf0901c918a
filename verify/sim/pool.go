package sim

import (
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/internal/rnic"
)

// frame is one frame in its own buffer, with room in front as in a real one. What is said beside its bytes is what the oracle knows
// of it; copies inherit that, whatever the core makes of their headers.
type frame struct {
	buf    [dataplane.HeadroomBytes + rnic.MaxFrameBytes]byte
	bytes  int
	stream int32 // data: the host that sent it first; else noStream
	packet int32 // of that stream

	touched bool // some byte was changed on the way,
	damaged bool // and the ICRC has to show it
}

const (
	headroom = dataplane.HeadroomBytes
	noStream = -1
)

func (f *frame) data() []byte { return f.buf[headroom:][:f.bytes] }

// room is where a frame is built.
func (f *frame) room() []byte { return f.buf[headroom:headroom] }

// inherit makes f, whose bytes are other's, what other is.
func (f *frame) inherit(other *frame) {
	f.stream, f.packet, f.touched, f.damaged = other.stream, other.packet, other.touched, other.damaged
}

// pool holds all frames of a run. A frame is lent while it is on a link or in the hands of the event that takes it.
type pool struct {
	frames []*frame
	free   []int32
}

func (p *pool) reset() {
	p.free = p.free[:0]
	for i := range p.frames {
		p.free = append(p.free, int32(i))
	}
}

func (p *pool) lend() int32 {
	n := len(p.free)
	if n == 0 {
		p.frames = append(p.frames, &frame{stream: noStream})
		return int32(len(p.frames) - 1)
	}
	i := p.free[n-1]
	p.free = p.free[:n-1]
	f := p.frames[i]
	f.stream, f.touched, f.damaged = noStream, false, false
	return i
}

func (p *pool) giveBack(i int32) { p.free = append(p.free, i) }

func (p *pool) lent() int { return len(p.frames) - len(p.free) }
