package afxdp

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/xsk"
)

const (
	// flushPatience is how long the kernel may take nothing before frames are
	// given up. A port that is stuck costs its thread this long, once: see
	// xsk.Socket.Flush.
	flushPatience = 50 * time.Microsecond
	// reservedChunks are not for copies that devices keep: replies, and frames
	// from other workers, find a chunk also when every device is paused.
	reservedChunks = 512
)

// txSocket is the sending half of an xsk.Socket. Tests have one whose device
// does what they say.
type txSocket interface {
	Obtained() xsk.Obtained
	TxRoom() int
	Transmit(descs []xsk.Desc) int
	Flush(patience time.Duration) (withdrawn int, err error)
	// For discipline xsk.Give.
	Given() int
	Complete(addrs []uint64) int
	TxPending() int
	Kick() error
}

// sendBy makes s the socket to send through.
func (p *port) sendBy(s txSocket) { p.out, p.gives = s, s.Obtained().Discipline == xsk.Give }

// Send is part of dataplane.Port.
func (p *port) Send(out []dataplane.Outgoing) int {
	switch {
	case p.out == nil:
		return 0
	case p.gives:
		return p.give(out)
	}
	return p.lend(out)
}

// lend sends through a socket whose kernel copies: the frames' own chunks are
// lent to it and are the worker's again when it returns.
func (p *port) lend(out []dataplane.Outgoing) (sent int) {
	n := 0
	for i := range out {
		if n+out[i].Frame.FragmentCount > batchDescs {
			sent += p.flushLent(p.tx[:n])
			n = 0
		}
		n += describe(&out[i], p.tx[n:])
	}
	return sent + p.flushLent(p.tx[:n])
}

// flushLent returns how many frames went out.
func (p *port) flushLent(descs []xsk.Desc) (frames int) {
	for len(descs) > 0 {
		taken := p.out.Transmit(descs)
		withdrawn, err := p.out.Flush(flushPatience)
		frames += countFrames(descs[:taken]) - withdrawn
		if err != nil {
			p.unsent(err)
			break
		}
		descs = descs[taken:] // a socket that was stalled takes one frame first
	}
	return frames
}

// give sends through a socket whose device reads the chunks when it will. A
// frame that is sent again goes as a duplicate, in chunks of its own; one that
// is not goes as it is.
func (p *port) give(out []dataplane.Outgoing) (sent int) {
	p.reap()
	n := 0
	for i := range out {
		o := &out[i]
		if n+o.Frame.FragmentCount > batchDescs {
			p.flushGiven(n)
			n = 0
		}
		descs := p.tx[n : n+describe(o, p.tx[n:])]
		if n+len(descs) > p.out.TxRoom() || !p.spare(o, descs, p.out.Given()+n) {
			p.backlog.Add(1)
			break
		}
		n, sent = n+len(descs), sent+1
	}
	p.flushGiven(n)
	return sent
}

// flushGiven sends p.tx[:n], for which the TX ring has room.
func (p *port) flushGiven(n int) {
	p.out.Transmit(p.tx[:n])
	if _, err := p.out.Flush(flushPatience); err != nil {
		p.unsent(err)
	}
}

// spare makes descs chunks that the device may keep, unless it keeps its share
// already: as many as are left for all others, besides those that are reserved.
// So one paused device gets half of the chunks, two get a third each, and a
// device that sends finds what it needs (Choudhury and Hahne, "Dynamic Queue
// Length Thresholds for Shared-Memory Packet Switches", 1998).
func (p *port) spare(o *dataplane.Outgoing, descs []xsk.Desc, given int) bool {
	left := min(p.umem.FreeChunks(), spareChunks) - reservedChunks
	switch {
	case given+len(descs) > left:
		return false
	case o.Last:
		o.Frame.Kept = true
	default:
		p.duplicate(descs)
	}
	return true
}

// reap takes back the chunks of what the device has sent, and kicks for what it
// has not taken.
func (p *port) reap() (reaped int) {
	for {
		n := p.out.Complete(p.addrs[:])
		p.umem.Free(p.addrs[:n])
		if reaped += n; n < len(p.addrs) {
			break
		}
	}
	if p.out.TxPending() > 0 {
		_ = p.out.Kick() // Flush tells what is wrong
	}
	return reaped
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

// duplicate copies what descs describe into chunks of their own, which are there.
func (p *port) duplicate(descs []xsk.Desc) {
	p.umem.Alloc(p.addrs[:len(descs)])
	for i := range descs {
		d := &descs[i]
		copy(p.umem.Bytes(p.addrs[i], d.Len), p.umem.Bytes(d.Addr, d.Len))
		d.Addr = p.addrs[i]
	}
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
