package afxdp

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/xsk"
)

const (
	// flushPatience is how long the kernel may consume nothing before frames are dropped. A port
	// that is stuck costs its thread this time only once: see xsk.Socket.Flush.
	flushPatience = 50 * time.Microsecond
	// reservedChunks are never used for copies that devices keep. So there are chunks for replies
	// and for frames from other workers even if every device is paused.
	reservedChunks = 512
)

// txSocket is the sending half of an xsk.Socket. Tests replace it.
type txSocket interface {
	Obtained() xsk.Obtained
	TxRoom() int
	Transmit(descs []xsk.Desc) int
	Flush(patience time.Duration) (withdrawn int, err error)
	Unsent() int
	// Only for discipline xsk.Give:
	Given() int
	Complete(addrs []uint64) int
	TxPending() int
	Kick() error
}

// sendBy makes s the socket that the port sends through.
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

// Unsent is part of dataplane.Port.
func (p *port) Unsent() int {
	if p.out == nil {
		return 0
	}
	if p.gives {
		p.reap()
	}
	return p.out.Unsent()
}

// lend sends through a socket whose kernel copies. The frames' own chunks are lent to the socket,
// and none is lent any more when lend returns.
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

// flushLent returns how many frames were sent.
func (p *port) flushLent(descs []xsk.Desc) (frames int) {
	for len(descs) > 0 {
		taken := p.out.Transmit(descs)
		withdrawn, err := p.out.Flush(flushPatience)
		frames += countFrames(descs[:taken]) - withdrawn
		if err != nil {
			p.countRefusal(err)
			break
		}
		descs = descs[taken:] // after a stall the socket takes one frame first
	}
	return frames
}

// give sends through a socket whose device reads the chunks at any time later. A frame that will be
// sent again is duplicated into chunks of its own. A frame that is sent for the last time is given
// with its own chunks.
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
		p.countRefusal(err)
	}
}

// spare makes descs describe chunks that the device may keep. It returns false if the device has
// its share already, which is as many chunks as are left for all others, without the reserved ones,
// those for repair and those for ports that are added later.
// So one paused device keeps half of the chunks, two keep a third each, and enough are left for a
// device that sends (Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet
// Switches", 1998).
func (p *port) spare(o *dataplane.Outgoing, descs []xsk.Desc, given int) bool {
	left := min(p.umem.FreeChunks()-p.withheld(), spareChunks) - reservedChunks
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

// reap takes back the chunks that the device has sent, and kicks if descriptors wait on the TX
// ring.
func (p *port) reap() (reaped int) {
	for {
		n := p.out.Complete(p.addrs[:])
		p.umem.Free(p.addrs[:n])
		if reaped += n; n < len(p.addrs) {
			break
		}
	}
	if p.out.TxPending() > 0 {
		_ = p.out.Kick() // Flush returns the same error
	}
	return reaped
}

// describe writes the descriptors of one frame and returns how many.
func describe(o *dataplane.Outgoing, descs []xsk.Desc) int {
	f := o.Frame
	if f.FragmentCount == 1 { // most are
		descs[0] = xsk.Desc{Addr: xsk.ChunkOf(f.Chunks[0]) + uint64(o.Start), Len: uint32(o.Bytes)}
		return 1
	}
	for i, b := range f.Bytes() {
		descs[i] = xsk.Desc{Addr: f.Chunks[i], Len: uint32(len(b)), Options: unix.XDP_PKT_CONTD}
	}
	descs[0].Addr = xsk.ChunkOf(f.Chunks[0]) + uint64(o.Start)
	descs[0].Len += uint32(f.Start - o.Start)
	descs[f.FragmentCount-1].Options = 0
	return f.FragmentCount
}

// duplicate copies what descs describe into other chunks. The caller has made sure that enough are
// free.
func (p *port) duplicate(descs []xsk.Desc) {
	p.umem.Alloc(p.addrs[:len(descs)])
	for i := range descs {
		d := &descs[i]
		copy(p.umem.Bytes(p.addrs[i], d.Len), p.umem.Bytes(d.Addr, d.Len))
		d.Addr = p.addrs[i]
	}
}

// countFrames returns the number of frames of which descs consist.
func countFrames(descs []xsk.Desc) (frames int) {
	for i := range descs {
		if !descs[i].Continues() {
			frames++
		}
	}
	return frames
}

// countRefusal counts the reason why a batch was not sent.
func (p *port) countRefusal(err error) {
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
