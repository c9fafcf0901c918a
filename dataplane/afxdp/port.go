package afxdp

import (
	"sync/atomic"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/xsk"
	"github.com/rocast/rocast/mft"
)

// batchDescs is the largest number of descriptors that are received, or sent, at once.
const batchDescs = 128

const cacheLine = 64

// port is one worker's share of an interface. It receives from all its sockets, and sends through
// the first. While there is no interface it has no sockets, receives nothing and sends nothing.
type port struct {
	umem  *xsk.UMEM
	in    []rxSocket // changed between two batches only, by use
	next  int        // index of the socket in in at which Receive looks first
	from  rxSocket   // from which Receive took frames last; nil: from none yet
	out   txSocket   // nil: no interface
	gives bool       // out has discipline xsk.Give
	// withheld returns how many chunks the worker may yet retain for repair, and how many are for
	// ports that are added later. They are free, but no device may keep them.
	withheld func() int

	rx, tx    [batchDescs]xsk.Desc
	addrs     [batchDescs]uint64
	touched   byte          // the compiler must not drop the reads of touch
	oversized atomic.Uint64 // frames of more fragments than a Frame holds
	unmarked  atomic.Uint64 // frames without the classifier's metadata
	// Batches that were not sent, or not completely, by reason.
	stalled, linkDown, deviceGone, refused, backlog atomic.Uint64
}

// rxSocket is the receiving half of an xsk.Socket. Tests replace it.
type rxSocket interface {
	TopUp() int
	Recycle(addr uint64)
	Receive(descs []xsk.Desc) int
}

// use replaces the sockets. There are none if the interface is gone.
func (p *port) use(sockets []*xsk.Socket) {
	p.in, p.next, p.from, p.out, p.gives = nil, 0, nil, nil, false
	for _, s := range sockets {
		p.in = append(p.in, s)
	}
	if len(sockets) > 0 {
		p.sendBy(sockets[0])
	}
}

// Receive is part of dataplane.Port. The queues take turns.
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
			p.from = s
			return n
		}
	}
	return 0
}

// recycle takes the buffers of a frame back that came from one of the sockets.
func (p *port) recycle(chunks []uint64) {
	if p.from == nil {
		p.umem.Free(chunks)
		return
	}
	for _, chunk := range chunks {
		p.from.Recycle(chunk)
	}
}

// kinds translates the classifier's kinds. An unknown one becomes 0, which no frame has.
var kinds = [256]dataplane.Kind{
	bpf.KindData:     dataplane.KindData,
	bpf.KindFeedback: dataplane.KindFeedback,
	bpf.KindCNP:      dataplane.KindCNP,
	bpf.KindCM:       dataplane.KindCM,
}

// unpack makes frames of all descriptors and returns the number of frames.
func (p *port) unpack(descs []xsk.Desc, frames []dataplane.Frame) int {
	p.touch(descs)
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

// touch reads a byte of each cache line of a frame that is read later: the metadata and the
// headers, which are in the first buffer, and the ICRC, which is in the last. Another CPU has just
// written them. These reads do not depend on each other, so the CPU waits for many of them at once.
// When a frame is handled, the CPU would wait for one after the other.
func (p *port) touch(descs []xsk.Desc) {
	var sum byte
	begins := true // descs begin with a frame
	for _, d := range descs {
		b := p.umem.Bytes(d.Addr-bpf.MetaBytes, bpf.MetaBytes+d.Len)
		last := len(b) - 1
		if begins {
			sum += b[0] + b[min(cacheLine, last)] + b[min(2*cacheLine, last)]
		}
		ends := !d.Continues()
		if ends {
			sum += b[last]
		}
		begins = ends
	}
	p.touched = sum
}

func (p *port) fill(f *dataplane.Frame, descs []xsk.Desc, meta bpf.Meta) {
	f.Group, f.Kind = mft.GroupID(meta.Group), kinds[meta.Kind]
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

// dropped counts the losses between the wire and the worker, in both directions: the kernel's
// counters and the port's own.
type dropped struct {
	kernel              xsk.Stats
	oversized, unmarked uint64

	stalled, linkDown, deviceGone, refused, backlog uint64
}

// addSockets adds the kernel's counters.
func (d *dropped) addSockets(sockets []*xsk.Socket) {
	for _, s := range sockets {
		if st, err := s.Stats(); err == nil {
			d.kernel.Add(st)
		}
	}
}

// add adds the counters of one worker's share of the port.
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
