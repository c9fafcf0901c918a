package xsk

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestLentChunksStayWithTheWorker(t *testing.T) {
	w := newWorld(t, 128)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{TxOnly: true}})
	if got := p.Obtained(); got.Mode != ModeCopy || got.Discipline != Lend || got.MultiBuffer {
		t.Fatalf("obtained %v", got)
	}
	sent := framesOf(100, 200) // more than one kick of an older kernel
	descs := w.load(sent...)
	for range 3 {
		w.send(p.Socket, descs)
		checkConserved(t, w.umem, 100)
		p.host.expect(sent...)
	}
	w.eventually("completions", func() bool { p.Complete(nil); return p.completed == 300 })
	if n := p.Complete(make([]uint64, 64)); n != 0 {
		t.Errorf("Complete returned %d lent chunks", n)
	}
	w.free(descs)
}

// The worker replicates in this way: it sends the same chunk through one port after the other and
// rewrites it in between.
func TestChunkMayBeRewrittenAfterFlush(t *testing.T) {
	modes(t, func(t *testing.T, mode Mode) {
		w := newWorld(t, 512)
		in := w.port("0", portOptions{SocketConfig: SocketConfig{Mode: mode, FillDescs: 64}})
		ports := []*port{in} // a copy may leave where its original came in
		for i := 1; i <= 3; i++ {
			ports = append(ports, w.port(fmt.Sprint(i), portOptions{SocketConfig: SocketConfig{Mode: mode, TxOnly: true}}))
		}
		sent := framesOf(60, 1000)
		for range 5 {
			in.host.send(sent...)
			descs := w.receive(in.Socket, len(sent))
			for i, out := range ports {
				for _, d := range descs {
					w.umem.Bytes(d.Addr, d.Len)[5] = byte(i) // the destination MAC
				}
				w.send(out.Socket, descs)
			}
			for _, d := range descs { // were the kernel still reading, it would read this
				clear(w.umem.Bytes(d.Addr, d.Len))
			}
			w.recycle(in.Socket, descs)
			checkConserved(t, w.umem, 0)
			for i, out := range ports {
				for j := range sent {
					sent[j][5] = byte(i)
				}
				out.host.expect(sent...)
			}
		}
	})
}

func TestFrameMayStartInTheHeadroom(t *testing.T) {
	w := newWorld(t, 128)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{FillDescs: 64}})
	sent := frame(1, 100)
	p.host.send(sent)
	descs := w.receive(p.Socket, 1)
	tagged := descs[0]
	tagged.Addr -= 4
	tagged.Len += 4
	f := w.umem.Bytes(tagged.Addr, tagged.Len)
	copy(f[:12], f[4:16])
	copy(f[12:], []byte{0x88, 0xB6, 0, 7}) // like a tag; the host takes a real one off before we see it
	w.send(p.Socket, []Desc{tagged})
	got := p.host.receive()
	if want := string(sent[:12]) + "\x88\xB6\x00\x07" + string(sent[12:]); string(got) != want {
		t.Errorf("host received %x", head(got))
	}
	w.recycle(p.Socket, descs)
}

func TestGivenChunksComeBackByCompletion(t *testing.T) {
	w := newWorld(t, 128)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{TxOnly: true, Discipline: Give}})
	if got := p.Obtained(); got.Discipline != Give {
		t.Fatalf("obtained %v", got)
	}
	sent := framesOf(50, 200)
	descs := w.load(sent...)
	want := map[uint64]bool{}
	for _, d := range descs {
		want[ChunkOf(d.Addr)] = true
	}
	w.send(p.Socket, descs)
	if c := w.umem.Census(); c.Transmit+c.Held != 50 {
		t.Errorf("after Transmit: %+v", c)
	}
	p.host.expect(sent...)
	var addrs [16]uint64
	w.eventually("completions", func() bool {
		n := p.Complete(addrs[:])
		for _, addr := range addrs[:n] {
			if !want[addr] {
				t.Fatalf("completion of %#x, which was not given", addr)
			}
			delete(want, addr)
		}
		w.umem.Free(addrs[:n])
		w.held -= n
		return len(want) == 0
	})
	checkConserved(t, w.umem, 0)
}

func TestGivenChunkIsNotTheWorkers(t *testing.T) {
	w := newWorld(t, 8)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{TxOnly: true, Discipline: Give}})
	descs := w.load(framesOf(1, 100)...)
	p.Transmit(descs)
	w.held = 0
	mustPanic(t, "it is with the transmit side", func() { p.Transmit(descs) })
	mustPanic(t, "it is with the transmit side", func() { w.umem.Free([]uint64{descs[0].Addr}) })
}

func TestFullTXRingTakesWhatFits(t *testing.T) {
	for _, discipline := range []Discipline{Lend, Give} {
		t.Run(discipline.String(), func(t *testing.T) {
			w := newWorld(t, 64)
			p := w.port("0", portOptions{SocketConfig: SocketConfig{TxDescs: 8, TxOnly: true, Discipline: discipline}})
			descs := w.load(framesOf(12, 100)...)
			if n := p.Transmit(descs); n != 8 {
				t.Errorf("a ring of 8 took %d", n)
			}
			if n := p.Transmit(descs[8:]); n != 0 {
				t.Errorf("a full ring took %d", n)
			}
			if n := p.TxPending(); n != 8 {
				t.Errorf("%d pending", n)
			}
			if discipline == Give {
				w.held = 4
			}
			checkConserved(t, w.umem, w.held)
			if _, err := p.Flush(patience); err != nil || p.TxPending() != 0 {
				t.Errorf("flush: %v, %d pending", err, p.TxPending())
			}
			w.send(p.Socket, descs[8:])
			p.host.expect(framesOf(12, 100)...)
			if discipline == Give {
				w.held = 0
				w.completeAll(p.Socket, 12)
				return
			}
			w.free(descs)
		})
	}
}

// completeAll waits for completions and frees their chunks.
func (w *world) completeAll(s *Socket, want int) {
	w.t.Helper()
	addrs := make([]uint64, want)
	got := 0
	w.eventually("completions", func() bool { got += s.Complete(addrs[got:]); return got == want })
	w.umem.Free(addrs)
}

func TestSmallCompletionRingHoldsNothingUp(t *testing.T) {
	w := newWorld(t, 128)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{CompletionDescs: 4, TxOnly: true}})
	sent := framesOf(100, 100)
	descs := w.load(sent...)
	w.send(p.Socket, descs)
	p.host.expect(sent...)
	w.free(descs)
}

// An interface that is down refuses frames. Flush withdraws them, and none is sent when the
// interface is up again.
func TestFlushWithdrawsWhatADownInterfaceRefuses(t *testing.T) {
	w := newWorld(t, 128)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{TxOnly: true}})
	w.setUp(p, false)
	descs := w.load(framesOf(50, 100)...)
	if n := p.Transmit(descs); n != 50 {
		t.Fatalf("transmitted %d", n)
	}
	if withdrawn, err := p.Flush(patience); withdrawn != 50 || !errors.Is(err, unix.ENETDOWN) {
		t.Errorf("flush: %d withdrawn, %v", withdrawn, err)
	}
	if withdrawn, err := p.Flush(patience); withdrawn != 0 || !errors.Is(err, unix.ENETDOWN) {
		t.Errorf("second flush: %d withdrawn, %v", withdrawn, err)
	}
	checkConserved(t, w.umem, 50)
	for _, d := range descs { // withdrawn: the worker may do this
		clear(w.umem.Bytes(d.Addr, d.Len))
	}
	w.free(descs)
	w.setUp(p, true)
	after := framesOf(3, 300)
	descs = w.load(after...)
	w.send(p.Socket, descs)
	p.host.expect(after...)
	if got := w.stats(p.Socket).TxInvalidDescs; got != 50 {
		t.Errorf("the kernel skipped %d withdrawn descriptors, want 50", got)
	}
	w.free(descs)
}

// A ring that is full of withdrawn descriptors recovers, because Flush kicks even if Transmit took
// nothing.
func TestFullRingOfWithdrawnDescriptorsRecovers(t *testing.T) {
	w := newWorld(t, 64)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{TxDescs: 16, TxOnly: true}})
	w.setUp(p, false)
	descs := w.load(framesOf(16, 100)...)
	p.Transmit(descs)
	p.Flush(0)
	w.setUp(p, true)
	if n := p.Transmit(descs); n != 0 {
		t.Errorf("a full ring took %d", n)
	}
	if withdrawn, err := p.Flush(0); withdrawn != 0 || err != nil {
		t.Errorf("flush: %d withdrawn, %v", withdrawn, err)
	}
	w.send(p.Socket, descs)
	p.host.expect(framesOf(16, 100)...)
	w.free(descs)
}

// Without a carrier the driver drops frames, one descriptor in each kick. Newer kernels advance the
// consumer index then and older kernels do not, so some frames may be withdrawn. In any case Flush
// ends, and later frames are sent.
func TestPortWithoutCarrierRecovers(t *testing.T) {
	w := newWorld(t, 128)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{TxOnly: true}})
	w.setFarUp(p, false)
	descs := w.load(framesOf(50, 100)...)
	p.Transmit(descs)
	if _, err := p.Flush(patience); err != nil && !errors.Is(err, ErrStalled) {
		t.Errorf("flush: %v", err)
	}
	checkConserved(t, w.umem, 50)
	w.free(descs)
	w.setFarUp(p, true)
	after := framesOf(40, 300)
	descs = w.load(after...)
	w.send(p.Socket, descs)
	p.host.expect(after...)
	w.free(descs)
}

func (w *world) setUp(p *port, up bool) {
	w.t.Helper()
	w.setLink(w.sw.Netlink(), p.link.Name, up)
}

func (w *world) setFarUp(p *port, up bool) {
	w.t.Helper()
	w.setLink(w.host.Netlink(), "h"+p.link.Name[1:], up)
	_, _ = unix.GetsockoptInt(p.host.fd, unix.SOL_SOCKET, unix.SO_ERROR) // what going down left there
}

func (w *world) setLink(handle *netlink.Handle, name string, up bool) {
	w.t.Helper()
	link, err := handle.LinkByName(name)
	if err == nil && up {
		err = handle.LinkSetUp(link)
	} else if err == nil {
		err = handle.LinkSetDown(link)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func TestInvalidDescriptorsPanic(t *testing.T) {
	w := newWorld(t, 8)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{TxOnly: true}})
	good := w.load(framesOf(1, 100)...)[0]
	for name, d := range map[string]Desc{
		"empty":          {Addr: good.Addr},
		"over the edge":  {Addr: good.Addr, Len: FrameBytes + 1},
		"wraps":          {Addr: good.Addr, Len: ^uint32(0)},
		"unknown option": {Addr: good.Addr, Len: 100, Options: 1 << 7},
	} {
		t.Run(name, func(t *testing.T) {
			mustPanic(t, "leaves its chunk of 4096 bytes, is empty or has unknown options", func() { p.Transmit([]Desc{d}) })
		})
	}
	mustPanic(t, "out of range [8] with length 8", func() { p.Transmit([]Desc{{Addr: 8 * ChunkBytes, Len: 60}}) })
	mustPanic(t, "it is with the free list", func() { p.Transmit([]Desc{{Addr: uint64(w.umem.free[0]) * ChunkBytes, Len: 60}}) })
	edge := Desc{Addr: ChunkOf(good.Addr), Len: 1500} // the whole headroom is usable
	copy(w.umem.Bytes(edge.Addr, edge.Len), frame(1, 1500))
	w.send(p.Socket, []Desc{edge})
	p.host.expect(frame(1, 1500))
	w.free([]Desc{good})
}

// The test puts descriptors on the ring that Transmit would refuse. The kernel skips and counts
// them and sends the rest.
func TestKernelSkipsInvalidDescriptors(t *testing.T) {
	w := newWorld(t, 16)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{TxOnly: true}})
	descs := w.load(framesOf(3, 100)...)
	outside := Desc{Addr: uint64(w.umem.Chunks()) * ChunkBytes, Len: 100}
	overEdge := Desc{Addr: descs[0].Addr, Len: ChunkBytes}
	for i, d := range []Desc{descs[0], outside, overEdge, descs[1], outside, descs[2]} {
		p.tx.put(uint32(i), d)
	}
	p.tx.publish(6)
	if _, err := p.Flush(patience); err != nil {
		t.Fatal(err)
	}
	p.host.expect(framesOf(3, 100)...)
	if got := w.stats(p.Socket).TxInvalidDescs; got != 3 {
		t.Errorf("%d invalid descriptors counted, want 3", got)
	}
	w.free(descs)
}

func TestVanishedDevice(t *testing.T) {
	for _, discipline := range []Discipline{Lend, Give} {
		t.Run(discipline.String(), func(t *testing.T) {
			w := newWorld(t, 64)
			p := w.port("0", portOptions{SocketConfig: SocketConfig{FillDescs: 16, Discipline: discipline}})
			link, err := w.sw.Netlink().LinkByName(p.link.Name)
			if err == nil {
				err = w.sw.Netlink().LinkDel(link)
			}
			if err != nil {
				t.Fatal(err)
			}
			descs := w.load(framesOf(5, 100)...)
			p.Transmit(descs)
			withdrawn, err := p.Flush(patience)
			if !errors.Is(err, unix.ENXIO) {
				t.Errorf("flush: %v", err)
			}
			switch {
			case discipline == Lend && withdrawn != 5:
				t.Errorf("%d withdrawn", withdrawn)
			case discipline == Lend:
				w.free(descs)
			default:
				w.held = 0 // Close gets them back
			}
			checkConserved(t, w.umem, w.held)
		})
	}
}

func TestHotPathAllocatesNothing(t *testing.T) {
	w := newWorld(t, 256)
	in := w.port("0", portOptions{SocketConfig: SocketConfig{FillDescs: 64}})
	lend := w.port("1", portOptions{SocketConfig: SocketConfig{TxOnly: true}})
	give := w.port("2", portOptions{SocketConfig: SocketConfig{TxOnly: true, Discipline: Give}})
	sent := framesOf(32, 100)
	var batch [64]Desc
	var addrs [64]uint64
	var copies [64]Desc
	received := 0
	round := func() {
		for _, f := range sent {
			_, _ = unix.Write(in.host.fd, f)
		}
		n := in.Receive(batch[:])
		received += n
		lend.Transmit(batch[:n])
		_, _ = lend.Flush(patience)
		k := w.umem.Alloc(addrs[:n])
		for i, addr := range addrs[:k] {
			copies[i] = Desc{Addr: addr, Len: 100}
		}
		give.Transmit(copies[:k])
		_, _ = give.Flush(patience)
		w.umem.Free(addrs[:give.Complete(addrs[:])])
		for _, d := range batch[:n] {
			in.Recycle(d.Addr)
		}
		in.TopUp()
	}
	if allocs := testing.AllocsPerRun(50, round); allocs != 0 {
		t.Errorf("%v allocations a round", allocs)
	}
	if received == 0 {
		t.Error("no frame took part")
	}
}
