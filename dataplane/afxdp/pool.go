package afxdp

import (
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/xsk"
)

// pool is the UMEM as the worker wants it.
type pool struct{ umem *xsk.UMEM }

func (p pool) Get(f *dataplane.Frame) bool {
	if p.umem.Alloc(f.Chunks[:1]) == 0 {
		return false
	}
	p.begin(f)
	return true
}

func (p pool) begin(f *dataplane.Frame) {
	f.Buf = p.umem.Bytes(f.Chunks[0], xsk.ChunkBytes)
	f.Start, f.FragmentCount = xsk.HeadroomBytes, 0
}

func (p pool) Load(f *dataplane.Frame, b []byte) bool {
	chunks := (len(b) + xsk.FrameBytes - 1) / xsk.FrameBytes
	if chunks > dataplane.MaxFragments {
		return false
	}
	if n := p.umem.Alloc(f.Chunks[:chunks]); n < chunks {
		p.umem.Free(f.Chunks[:n])
		return false
	}
	p.begin(f)
	for i := range chunks {
		f.Chunks[i] += xsk.HeadroomBytes
		f.Fragments[i] = p.umem.Bytes(f.Chunks[i], uint32(min(len(b), xsk.FrameBytes)))
		b = b[copy(f.Fragments[i], b):]
	}
	f.FragmentCount = chunks
	return true
}

func (p pool) Put(f *dataplane.Frame) {
	p.umem.Free(f.Chunks[:max(1, f.FragmentCount)])
	f.FragmentCount = 0
}
