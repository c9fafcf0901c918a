package xsk

import (
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

func needMultiBuffer(t *testing.T) {
	t.Helper()
	if err := MultiBuffer.Supported(); err != nil {
		t.Skip(err)
	}
}

const jumboMTU = 9000

// With a path MTU of 4096 frames have up to 4170 bytes, which are two descriptors.
func TestMultiBufferFramesArriveWhole(t *testing.T) {
	needMultiBuffer(t)
	modes(t, func(t *testing.T, mode Mode) {
		w := newWorld(t, 512)
		o := portOptions{SocketConfig: SocketConfig{Mode: mode, FillDescs: 128, MultiBuffer: true}, mtu: jumboMTU}
		p := w.port("0", o)
		if !p.Obtained().MultiBuffer {
			t.Fatalf("obtained %v", p.Obtained())
		}
		sizes := map[int]int{60: 1, FrameBytes: 1, FrameBytes + 1: 2, 4170: 2, 2 * FrameBytes: 2, jumboMTU: 3}
		for size, fragments := range sizes {
			sent := framesOf(1, size)
			p.host.send(sent...)
			descs := w.receive(p.Socket, fragments)
			w.expect(descs, sent)
			checkConserved(t, w.umem, fragments)
			w.recycle(p.Socket, descs)
		}
	})
}

func TestMultiBufferMetadataIsOnTheFirstDescriptorOnly(t *testing.T) {
	needMultiBuffer(t)
	w := newWorld(t, 64)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{FillDescs: 32, MultiBuffer: true}, mtu: jumboMTU,
		program: redirectWithMetadata})
	sent := framesOf(1, 4170)
	p.host.send(sent...)
	descs := w.receive(p.Socket, 2)
	w.expect(descs, sent)
	for i, want := range []byte{0xA5, 0} {
		if got := w.umem.Bytes(descs[i].Addr-1, 1)[0]; got != want {
			t.Errorf("descriptor %d: byte in front is %#x, want %#x", i, got, want)
		}
	}
	w.recycle(p.Socket, descs)
}

func TestReceiveNeverSplitsAFrame(t *testing.T) {
	needMultiBuffer(t)
	w := newWorld(t, 256)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{FillDescs: 64, MultiBuffer: true}, mtu: jumboMTU})
	sent := framesOf(10, jumboMTU) // 30 descriptors
	p.host.send(sent...)
	w.eventually("30 descriptors", func() bool { return p.rx.available(30) == 30 })
	var all []Desc
	for _, want := range []int{18, 12, 0} {
		batch := make([]Desc, 20) // room for six frames and two thirds of one
		n := p.Receive(batch)
		if n != want {
			t.Errorf("received %d descriptors, want %d", n, want)
		}
		all = append(all, batch[:n]...)
	}
	w.held = 30
	w.expect(all, sent)
	checkConserved(t, w.umem, 30)
	w.recycle(p.Socket, all)
	mustPanic(t, "room for 17 descriptors, needs 18", func() { p.Receive(make([]Desc, MaxFrameDescs-1)) })
}

func TestMultiBufferTransmit(t *testing.T) {
	needMultiBuffer(t)
	for _, discipline := range []Discipline{Lend, Give} {
		t.Run(discipline.String(), func(t *testing.T) {
			w := newWorld(t, 512)
			p := w.port("0", portOptions{mtu: jumboMTU,
				SocketConfig: SocketConfig{TxOnly: true, MultiBuffer: true, Discipline: discipline}})
			var sent [][]byte
			for i := range 40 {
				sent = append(sent, frame(i, []int{60, 4170, jumboMTU}[i%3]))
			}
			descs := w.load(sent...)
			w.send(p.Socket, descs)
			p.host.expect(sent...)
			if discipline == Lend {
				w.free(descs)
				return
			}
			w.held = 0
			w.completeAll(p.Socket, len(descs))
		})
	}
}

func TestTransmitReservesAllFragmentsOrNone(t *testing.T) {
	needMultiBuffer(t)
	w := newWorld(t, 64)
	p := w.port("0", portOptions{mtu: jumboMTU, SocketConfig: SocketConfig{TxDescs: 8, TxOnly: true, MultiBuffer: true}})
	sent := framesOf(3, jumboMTU)
	descs := w.load(sent...) // 3 frames of 3 for 8 places
	if n := p.Transmit(descs); n != 6 {
		t.Errorf("transmitted %d descriptors, want two whole frames", n)
	}
	if n := p.Transmit(descs[6:]); n != 0 {
		t.Errorf("transmitted %d descriptors of a frame of 3 into 2 places", n)
	}
	if _, err := p.Flush(patience); err != nil {
		t.Error(err)
	}
	w.send(p.Socket, descs[6:])
	p.host.expect(sent...)
	if n := p.Transmit(descs[:2]); n != 0 {
		t.Errorf("transmitted %d descriptors of a batch that ends within its frame", n)
	}
	w.free(descs)
}

func TestLongestFrameThatCanBeSent(t *testing.T) {
	needMultiBuffer(t)
	const mtu = 65535
	w := newWorld(t, 128)
	p := w.port("0", portOptions{mtu: mtu, SocketConfig: SocketConfig{FillDescs: 64, MultiBuffer: true}})
	longest := frame(0, maxTransmitDescs*FrameBytes)
	descs := w.load(longest)
	w.send(p.Socket, descs)
	p.host.expect(longest)
	w.free(descs)
	tooLong := w.load(frame(0, maxTransmitDescs*FrameBytes+1))
	if n := p.Transmit(tooLong); n != 0 {
		t.Errorf("transmitted %d descriptors", n)
	}
	w.free(tooLong)
}

// When the rest of a frame is withdrawn, its beginning must not be joined to the next frame.
func TestMultiBufferFramesAreWithdrawnWhole(t *testing.T) {
	needMultiBuffer(t)
	w := newWorld(t, 256)
	p := w.port("0", portOptions{mtu: jumboMTU, SocketConfig: SocketConfig{TxOnly: true, MultiBuffer: true}})
	w.setUp(p, false)
	descs := w.load(framesOf(20, jumboMTU)...)
	p.Transmit(descs)
	if withdrawn, _ := p.Flush(0); withdrawn != 20 {
		t.Errorf("%d frames withdrawn", withdrawn)
	}
	w.free(descs)
	w.setUp(p, true)
	after := framesOf(20, 4170)
	descs = w.load(after...)
	w.send(p.Socket, descs)
	p.host.expect(after...)
	w.free(descs)
}

func TestFullRXRingDropsWholeMultiBufferFrames(t *testing.T) {
	needMultiBuffer(t)
	w := newWorld(t, 128)
	p := w.port("0", portOptions{mtu: jumboMTU, SocketConfig: SocketConfig{RxDescs: 8, FillDescs: 64, MultiBuffer: true}})
	sent := framesOf(10, jumboMTU)
	for range 3 {
		before := w.stats(p.Socket).RxRingFull
		p.host.send(sent...)
		w.eventually("dropped frames", func() bool { return w.stats(p.Socket).RxRingFull >= before+8 })
		descs := w.receive(p.Socket, 6)
		w.expect(descs, sent[:2])
		w.recycle(p.Socket, descs)
		checkConserved(t, w.umem, 0)
	}
}

func TestLongFrameWithoutMultiBufferIsDroppedAndCounted(t *testing.T) {
	needMultiBuffer(t) // the program must take fragments for the frame to get as far as the socket
	w := newWorld(t, 64)
	fragsAware := func(xsks *ebpf.Map) *ebpf.ProgramSpec {
		spec := redirect(xsks)
		spec.Flags = unix.BPF_F_XDP_HAS_FRAGS
		return spec
	}
	p := w.port("0", portOptions{SocketConfig: SocketConfig{FillDescs: 16}, mtu: jumboMTU, program: fragsAware})
	p.host.send(frame(0, 4170))
	w.eventually("a drop", func() bool { return w.stats(p.Socket).RxDropped == 1 })
	sent := framesOf(1, FrameBytes)
	p.host.send(sent...)
	descs := w.receive(p.Socket, 1)
	w.expect(descs, sent)
	w.recycle(p.Socket, descs)
}
