package afxdp

import (
	"sync/atomic"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/xsk"
	"github.com/rocast/rocast/mft"
)

// batchDescs is what one look at a queue takes at most, and what is sent at
// once.
const batchDescs = 128

// port is one worker's share of an interface: sockets to receive from, and the
// first of them to send through. While there is no interface it has none: it
// receives nothing and sends nothing.
type port struct {
	umem  *xsk.UMEM
	in    []rxSocket // set between two batches, by use
	next  int        // of in: Receive looks at it first
	out   txSocket   // nil: no interface
	gives bool       // out keeps the chunks of what it sends until the device has sent it

	rx, tx    [batchDescs]xsk.Desc
	addrs     [batchDescs]uint64
	oversized atomic.Uint64 // frames of more fragments than a Frame holds
	unmarked  atomic.Uint64 // frames without the classifier's metadata
	// Batches that did not go out, or not all of them, by the reason.
	stalled, linkDown, deviceGone, refused, backlog atomic.Uint64
}

// rxSocket is the receiving half of an xsk.Socket. Tests have one of their own.
type rxSocket interface {
	TopUp() int
	Receive(descs []xsk.Desc) int
}

// use replaces the sockets; none: the interface has gone.
func (p *port) use(sockets []*xsk.Socket) {
	p.in, p.next, p.out, p.gives = nil, 0, nil, false
	for _, s := range sockets {
		p.in = append(p.in, s)
	}
	if len(sockets) > 0 {
		p.sendBy(sockets[0])
	}
}

// Receive is part of dataplane.Port. Queues take turns.
func (p *port) Receive(frames []dataplane.Frame) int {
	if p.gives {
		p.reap()
	}
	for range p.in {
		s := p.in[p.next]
		if p.next++; p.next == len(p.in) {
			p.next = 0
		}
		s.TopUp()
		n := s.Receive(p.rx[:min(len(frames), batchDescs)])
		if n = p.unpack(p.rx[:n], frames); n > 0 {
			return n
		}
	}
	return 0
}

// unpack makes frames of descriptors, as many as there are.
func (p *port) unpack(descs []xsk.Desc, frames []dataplane.Frame) int {
	n := 0
	for len(descs) > 0 {
		k := xsk.FrameDescs(descs)
		frame := descs[:k]
		descs = descs[k:]
		meta, ok := bpf.DecodeMeta(p.umem.Bytes(frame[0].Addr-bpf.MetaBytes, bpf.MetaBytes))
		switch {
		case !ok:
			p.unmarked.Add(1)
			p.free(frame)
		case k > dataplane.MaxFragments:
			p.oversized.Add(1)
			p.free(frame)
		default:
			p.fill(&frames[n], frame, meta)
			n++
		}
	}
	return n
}

func (p *port) fill(f *dataplane.Frame, descs []xsk.Desc, meta bpf.Meta) {
	f.Group, f.Kind = mft.GroupID(meta.Group), dataplane.Kind(meta.Kind)
	for i, d := range descs {
		f.Fragments[i] = p.umem.Bytes(d.Addr, d.Len)
		f.Chunks[i] = d.Addr
	}
	f.FragmentCount = len(descs)
	chunk := xsk.ChunkOf(descs[0].Addr)
	f.Buf = p.umem.Bytes(chunk, xsk.ChunkBytes)
	f.Start = int(descs[0].Addr - chunk)
}

func (p *port) free(descs []xsk.Desc) {
	for i, d := range descs {
		p.addrs[i] = d.Addr
	}
	p.umem.Free(p.addrs[:len(descs)])
}

// dropped is what is lost between the wire and the worker, or from it: the
// kernel's counts, and the port's own of what no Frame can be made of.
type dropped struct {
	kernel              xsk.Stats
	oversized, unmarked uint64

	stalled, linkDown, deviceGone, refused, backlog uint64
}

// addSockets adds what the kernel counts.
func (d *dropped) addSockets(sockets []*xsk.Socket) {
	for _, s := range sockets {
		if st, err := s.Stats(); err == nil {
			d.kernel.Add(st)
		}
	}
}

// add adds what one worker's share of the port counted.
func (d *dropped) add(p *port) {
	d.oversized += p.oversized.Load()
	d.unmarked += p.unmarked.Load()
	d.stalled += p.stalled.Load()
	d.linkDown += p.linkDown.Load()
	d.deviceGone += p.deviceGone.Load()
	d.refused += p.refused.Load()
	d.backlog += p.backlog.Load()
}

func (d *dropped) counters() []dataplane.Counter {
	return []dataplane.Counter{
		{Name: "rx-dropped", Value: d.kernel.RxDropped},
		{Name: "rx-ring-full", Value: d.kernel.RxRingFull},
		{Name: "rx-fill-empty", Value: d.kernel.RxFillEmpty},
		{Name: "rx-oversized", Value: d.oversized},
		{Name: "rx-unmarked", Value: d.unmarked},
		{Name: "tx-withdrawn", Value: d.kernel.TxInvalidDescs},
		{Name: "tx-stalled", Value: d.stalled},
		{Name: "tx-link-down", Value: d.linkDown},
		{Name: "tx-device-gone", Value: d.deviceGone},
		{Name: "tx-refused", Value: d.refused},
		{Name: "tx-backlog", Value: d.backlog},
	}
}
