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
	f.Buf = p.umem.Bytes(f.Chunks[0], xsk.ChunkBytes)
	f.Start, f.FragmentCount = xsk.HeadroomBytes, 0
	return true
}

func (p pool) Put(f *dataplane.Frame) {
	p.umem.Free(f.Chunks[:max(1, f.FragmentCount)])
	f.FragmentCount = 0
}
