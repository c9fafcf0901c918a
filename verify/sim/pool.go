package sim

import (
	"net/netip"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/roce"
)

// frame is one frame in a buffer of its own, with room in front as in a real one. The other fields
// are what the oracle knows of it. A copy has those of its original, whatever the core writes into
// its headers.
type frame struct {
	buf   [dataplane.HeadroomBytes + tagBytes + rnic.MaxFrameBytes]byte
	bytes int
	known

	late time.Duration // it waits so long in the queue of its engine

	index    int32 // in pool.frames
	retained bool  // the core has it, for repair
}

// known is what the oracle knows of a frame.
type known struct {
	stream int32 // data: the source; else noStream
	packet int32 // data: the number of the packet

	touched bool // some byte was changed on the way
	damaged bool // a byte that the ICRC covers was changed
}

const (
	headroom = dataplane.HeadroomBytes
	noStream = -1
	tagBytes = 4
)

func (f *frame) data() []byte { return f.buf[headroom:][:f.bytes] }

// room returns the buffer in which the frame is built.
func (f *frame) room() []byte { return f.buf[headroom:headroom] }

// tag gives a frame that a host has built a VLAN tag.
func (f *frame) tag() {
	const macs = 12
	f.bytes += tagBytes
	b := f.data()
	copy(b[macs+tagBytes:], b[macs:])
	copy(b[macs:], []byte{0x81, 0x00, 0, frameVLAN})
}

// inherit gives f, whose bytes are a copy of other, what the oracle knows of other.
func (f *frame) inherit(other *frame) {
	f.known, f.late = other.known, other.late
}

// pool holds all frames of a run. A frame is lent while it is on a link, while an event handles it,
// or while the core retains it.
type pool struct {
	frames   []*frame
	free     []int32
	retained int    // frames
	copied   copied // packets of which the switch may have copied the bytes
}

func (p *pool) reset() {
	p.free = p.free[:0]
	p.retained = 0
	p.copied = copied{}
	for i := range p.frames {
		p.frames[i].retained = false
		p.free = append(p.free, int32(i))
	}
}

func (p *pool) lend() int32 {
	n := len(p.free)
	if n == 0 {
		p.frames = append(p.frames, &frame{known: known{stream: noStream}, index: int32(len(p.frames))})
		return int32(len(p.frames) - 1)
	}
	i := p.free[n-1]
	p.free = p.free[:n-1]
	f := p.frames[i]
	f.known, f.late = known{stream: noStream, packet: f.packet}, 0
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
			p.release(int32(i))
		}
	}
}

func (p *pool) release(i int32) {
	p.frames[i].retained = false
	p.retained--
	p.giveBack(i)
}

// copied is what the oracle knows of packets whose bytes the switch keeps: the engine retains them,
// or they wait until their sender's turn begins.
type copied map[packetKey]known

// packetKey names a packet by what its bytes say.
type packetKey struct {
	from netip.Addr
	psn  roce.PSN
}

func keyOfPacket(b []byte) (k packetKey, ok bool) {
	var v roce.View
	if v.Decode(b, len(b)) != nil {
		return k, false
	}
	return packetKey{v.SrcIP(b), v.PSN(b)}, true
}

func (c copied) note(f *frame) {
	if k, ok := keyOfPacket(f.data()); ok {
		c[k] = f.known
	}
}

// Put takes back a frame that the core retained. The pool is the core's dataplane.Pool for that.
func (p *pool) Put(f *dataplane.Frame) {
	if !f.Kept {
		p.release(int32(f.Chunks[0]))
	}
	f.Kept = false
}

// Get is part of dataplane.Pool.
func (p *pool) Get(*dataplane.Frame) bool { return false }

// Load makes f a frame that the core retains, of the bytes that the switch has kept.
func (p *pool) Load(f *dataplane.Frame, head, rest []byte) bool {
	i := p.lend()
	p.keep(i)
	to := p.frames[i]
	to.bytes = copy(to.buf[headroom:], head)
	to.bytes += copy(to.buf[headroom+to.bytes:], rest)
	if k, ok := keyOfPacket(to.data()); ok {
		to.known = p.copied[k]
	}
	f.Buf, f.Start, f.Chunks[0] = to.buf[:], headroom, uint64(i)
	fragment(f, to.data())
	return true
}

func (p *pool) lent() int { return len(p.frames) - len(p.free) }
