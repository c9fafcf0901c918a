package afxdp

import (
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/xsk"
	"github.com/rocast/rocast/mft"
)

const (
	// flushPatience is how long the kernel may take nothing before frames are
	// given up. A port that is stuck costs its thread this long, once: see
	// xsk.Socket.Flush.
	flushPatience = 50 * time.Microsecond
	// batchDescs is what one look at a queue takes at most.
	batchDescs = 128
)

// port is one worker's share of an interface: sockets to receive from, and the
// first of them to send through. While there is no interface it has none: it
// receives nothing and sends nothing.
type port struct {
	umem    *xsk.UMEM
	sockets []*xsk.Socket // set between two batches, by take
	next    int           // socket that Receive looks at first

	rx, tx    [batchDescs]xsk.Desc
	addrs     [batchDescs]uint64
	oversized atomic.Uint64 // frames of more fragments than a Frame holds
	unmarked  atomic.Uint64 // frames without the classifier's metadata
	// Batches that did not go out, or not all of them, by what the kernel said.
	stalled, linkDown, deviceGone, refused atomic.Uint64
}

// take replaces the sockets; none: the interface has gone.
func (p *port) take(sockets []*xsk.Socket) { p.sockets, p.next = sockets, 0 }

// Receive is part of dataplane.Port. Queues take turns.
func (p *port) Receive(frames []dataplane.Frame) int {
	for range p.sockets {
		s := p.sockets[p.next]
		if p.next++; p.next == len(p.sockets) {
			p.next = 0
		}
		s.TopUp()
		n := s.Receive(p.rx[:min(len(frames), batchDescs)])
		if n > 0 {
			return p.unpack(p.rx[:n], frames)
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

// Send is part of dataplane.Port. Where the kernel copies, the frames' own
// chunks are lent to it and are the worker's again when flush returns. Where
// the device reads the UMEM itself, it is given copies.
func (p *port) Send(out []dataplane.Outgoing) int {
	if len(p.sockets) == 0 {
		return 0
	}
	s := p.sockets[0]
	give := s.Obtained().Discipline == xsk.Give
	if give {
		p.umem.Free(p.addrs[:s.Complete(p.addrs[:])])
	}
	sent, n := 0, 0
	for i := range out {
		if n+out[i].Frame.FragmentCount > batchDescs {
			sent += p.flush(s, n)
			n = 0
		}
		described := describe(&out[i], p.tx[n:])
		if give && !p.duplicate(p.tx[n:n+described]) {
			break // every chunk is with a device
		}
		n += described
	}
	return sent + p.flush(s, n)
}

// describe writes the descriptors of one frame and returns how many.
func describe(o *dataplane.Outgoing, descs []xsk.Desc) int {
	f := o.Frame
	for i, b := range f.Bytes() {
		descs[i] = xsk.Desc{Addr: f.Chunks[i], Len: uint32(len(b)), Options: unix.XDP_PKT_CONTD}
	}
	descs[0].Addr = xsk.ChunkOf(f.Chunks[0]) + uint64(o.Start)
	descs[0].Len += uint32(f.Start - o.Start)
	descs[f.FragmentCount-1].Options = 0
	return f.FragmentCount
}

// duplicate copies what descs describe into chunks of their own.
func (p *port) duplicate(descs []xsk.Desc) bool {
	n := p.umem.Alloc(p.addrs[:len(descs)])
	if n < len(descs) {
		p.umem.Free(p.addrs[:n])
		return false
	}
	for i := range descs {
		d := &descs[i]
		copy(p.umem.Bytes(p.addrs[i], d.Len), p.umem.Bytes(d.Addr, d.Len))
		d.Addr = p.addrs[i]
	}
	return true
}

// flush sends p.tx[:n] and returns how many frames went out.
func (p *port) flush(s *xsk.Socket, n int) (frames int) {
	for rest := p.tx[:n]; len(rest) > 0; {
		taken := s.Transmit(rest)
		withdrawn, err := s.Flush(flushPatience)
		frames += countFrames(rest[:taken]) - withdrawn
		rest = rest[taken:]
		if err != nil {
			p.unsent(err)
		}
		// A socket that was stalled takes one frame first.
		if err != nil || taken == 0 {
			if s.Obtained().Discipline == xsk.Give {
				p.free(rest) // copies that nobody will complete
			}
			break
		}
	}
	return frames
}

// countFrames is how many frames descs are.
func countFrames(descs []xsk.Desc) (frames int) {
	for i := range descs {
		if !descs[i].Continues() {
			frames++
		}
	}
	return frames
}

// unsent counts why a batch did not go out.
func (p *port) unsent(err error) {
	switch {
	case errors.Is(err, xsk.ErrStalled):
		p.stalled.Add(1)
	case errors.Is(err, unix.ENETDOWN):
		p.linkDown.Add(1)
	case errors.Is(err, unix.ENXIO):
		p.deviceGone.Add(1)
	default:
		p.refused.Add(1)
	}
}

// dropped is what is lost between the wire and the worker, or from it: the
// kernel's counts, and the port's own of what no Frame can be made of.
type dropped struct {
	kernel              xsk.Stats
	oversized, unmarked uint64

	stalled, linkDown, deviceGone, refused uint64
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
	}
}
