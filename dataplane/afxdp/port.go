package afxdp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/xsk"
	"github.com/rocast/rocast/mft"
)

const (
	// flushTries is how many kicks in a row may move nothing before the
	// frames are given up: the link is down or stuck.
	flushTries = 256
	// batchDescs is what one look at a queue takes at most.
	batchDescs = 128
)

// port is one interface: the classifier on it, a socket for each queue to
// receive from, and the first of them to send through.
type port struct {
	info    dataplane.PortInfo
	xdp     *bpf.Port
	umem    *xsk.UMEM
	sockets []*xsk.Socket
	next    int // socket that Receive looks at first

	rx, tx    [batchDescs]xsk.Desc
	addrs     [batchDescs]uint64
	oversized uint64 // frames of more fragments than a Frame holds
	unmarked  uint64 // frames without the classifier's metadata
}

func (p *port) open(c *bpf.Classifier, u *xsk.UMEM, attach bpf.AttachMode, config xsk.SocketConfig) (err error) {
	p.umem = u
	if p.xdp, err = c.OpenPort(p.info.IfIndex, attach); err != nil {
		return err
	}
	if p.xdp.Mode() == bpf.ModeGeneric {
		config.Mode = xsk.ModeGeneric
	}
	for q := range p.info.Queues {
		s, err := xsk.Open(u, p.info.IfIndex, uint32(q), config)
		if err != nil {
			return err
		}
		p.sockets = append(p.sockets, s)
		if err := p.xdp.SetSocket(uint32(q), s.FD()); err != nil {
			return fmt.Errorf("queue %d: %w", q, err)
		}
	}
	o := p.sockets[0].Obtained()
	p.info.Attach, p.info.Mode, p.info.MultiBuffer = p.xdp.Mode().String(), o.Mode.String(), o.MultiBuffer
	return nil
}

// close takes the classifier off first, so that group frames go to the kernel
// and not to sockets that are gone.
func (p *port) close() error {
	var errs []error
	if p.xdp != nil {
		errs = append(errs, p.xdp.Close())
	}
	for _, s := range p.sockets {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

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
			p.unmarked++
			p.free(frame)
		case k > dataplane.MaxFragments:
			p.oversized++
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
func (p *port) flush(s *xsk.Socket, n int) int {
	taken := s.Transmit(p.tx[:n])
	frames := 0
	for _, d := range p.tx[:taken] {
		if !d.Continues() {
			frames++
		}
	}
	// An error says what withdrawn says too: these frames did not go out.
	withdrawn, _ := s.Flush(flushTries)
	return frames - withdrawn
}

// kernelCounters are what the kernel counts on the port's sockets.
func (p *port) kernelCounters() []dataplane.Counter {
	var sum xsk.Stats
	for _, s := range p.sockets {
		st, err := s.Stats()
		if err != nil {
			continue // the device is gone
		}
		sum.RxDropped += st.RxDropped
		sum.RxRingFull += st.RxRingFull
		sum.RxFillEmpty += st.RxFillEmpty
		sum.TxInvalidDescs += st.TxInvalidDescs
	}
	return []dataplane.Counter{
		{Name: "rx-dropped", Value: sum.RxDropped},
		{Name: "rx-ring-full", Value: sum.RxRingFull},
		{Name: "rx-fill-empty", Value: sum.RxFillEmpty},
		{Name: "tx-withdrawn", Value: sum.TxInvalidDescs},
	}
}
