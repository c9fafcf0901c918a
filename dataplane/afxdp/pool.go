package afxdp

import (
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/xsk"
	"github.com/rocast/rocast/mft"
)

// pool adapts the UMEM to the worker.
type pool struct{ *worker }

func (p pool) Get(f *dataplane.Frame) bool {
	if !p.alloc(f.Chunks[:1]) {
		return false
	}
	p.begin(f)
	return true
}

// alloc takes all chunks or none. If too few are free, it first reaps.
func (p pool) alloc(chunks []uint64) bool {
	n := p.umem.Alloc(chunks)
	if n < len(chunks) && p.reap() > 0 {
		n += p.umem.Alloc(chunks[n:])
	}
	if n < len(chunks) {
		p.umem.Free(chunks[:n])
		return false
	}
	return true
}

func (p pool) begin(f *dataplane.Frame) {
	f.Buf = p.umem.Bytes(f.Chunks[0], xsk.ChunkBytes)
	f.Start, f.FragmentCount, f.Port = xsk.HeadroomBytes, 0, mft.NoPort
}

func (p pool) Load(f *dataplane.Frame, head, rest []byte) bool {
	bytes := len(head) + len(rest)
	chunks := (bytes + xsk.FrameBytes - 1) / xsk.FrameBytes
	if chunks > dataplane.MaxFragments {
		return false
	}
	if !p.alloc(f.Chunks[:chunks]) {
		return false
	}
	p.begin(f)
	for i := range chunks {
		f.Chunks[i] += xsk.HeadroomBytes
		to := p.umem.Bytes(f.Chunks[i], uint32(min(bytes, xsk.FrameBytes)))
		n := copy(to, head)
		m := copy(to[n:], rest)
		f.Fragments[i], head, rest, bytes = to, head[n:], rest[m:], bytes-len(to)
	}
	f.FragmentCount = chunks
	return true
}

// Put is part of dataplane.Pool. The buffers of a frame that came by a port go to the port's queue
// that has received last. It is the one that the frame came from, unless the frame was retained or
// handed off.
func (p pool) Put(f *dataplane.Frame) {
	if !f.Kept {
		chunks := f.Chunks[:max(1, f.FragmentCount)]
		if int(f.Port) < len(p.ports) {
			p.ports[f.Port].recycle(chunks)
		} else {
			p.umem.Free(chunks)
		}
	}
	f.FragmentCount, f.Kept = 0, false
}
