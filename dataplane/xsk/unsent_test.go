package xsk

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestWhatIsUnsentIsCountedInBytes(t *testing.T) {
	u := newUnsent(4, 4)
	if len(u.ends) != 8 {
		t.Fatalf("room for %d descriptors", len(u.ends))
	}
	expect := func(what string, want int) {
		t.Helper()
		if u.bytes() != want {
			t.Errorf("%s: %d bytes, want %d", what, u.bytes(), want)
		}
	}
	for range 5 { // around the ring
		for _, bytes := range []uint32{1, 20, 300, ChunkBytes} {
			u.add(bytes)
		}
		expect("added", 4417)
		u.complete(1)
		expect("the oldest is completed", 4416)
		u.withdraw(1)
		expect("the newest is withdrawn", 320)
		u.add(7)
		u.complete(2)
		expect("two more are completed", 7)
		u.complete(1)
		u.complete(1)
		u.withdraw(1)
		expect("nothing is left", 0)
	}
	if u := newUnsent(2048, 2048); len(u.ends) != 4096 {
		t.Errorf("room for %d descriptors", len(u.ends))
	}
	if u := newUnsent(1, 2048); len(u.ends) != 4096 {
		t.Errorf("room for %d descriptors", len(u.ends))
	}
}

// Frames that the device keeps are unsent until it has sent them, or dropped them.
func TestFramesThatADeviceKeepsAreUnsent(t *testing.T) {
	for name, discipline := range map[string]Discipline{"lend": Lend, "give": Give} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 256)
			p := w.port("0", portOptions{SocketConfig: SocketConfig{TxOnly: true, Discipline: discipline}})
			const frames, frameBytes = 100, 1000
			send := func() []Desc {
				descs := w.load(framesOf(frames, frameBytes)...)
				if n := p.Transmit(descs); n != frames {
					t.Fatalf("took %d descriptors", n)
				}
				if p.Unsent() < frames*frameBytes {
					t.Errorf("%d bytes unsent before a kick", p.Unsent())
				}
				if withdrawn, err := p.Flush(time.Second); withdrawn != 0 || err != nil {
					t.Fatal(withdrawn, err)
				}
				return descs
			}
			addrs := make([]uint64, frames)
			unsent := func() int {
				for _, a := range addrs[:p.Complete(addrs)] {
					w.umem.Free([]uint64{a})
					w.held--
				}
				return p.Unsent()
			}
			held := w.hold(p)
			descs := send()
			// The link passes what its bucket holds before it keeps frames.
			w.eventually("the link keeps the rest", func() bool { n := unsent(); return n < frames*frameBytes })
			if n := unsent(); n%frameBytes != 0 || n < (frames-20)*frameBytes {
				t.Errorf("the device keeps %d bytes of %d", n, frames*frameBytes)
			}
			if err := held.Drop(); err != nil {
				t.Fatal(err)
			}
			w.eventually("nothing is unsent", func() bool { return unsent() == 0 })
			if discipline == Lend {
				w.free(descs)
			}
		})
	}
}

// Withdrawn frames are not unsent, although no completion comes for them: not even for the part of
// a frame that the kernel had taken already.
func TestWithdrawnFramesAreNotUnsent(t *testing.T) {
	needMultiBuffer(t)
	for name, frameBytes := range map[string]int{"one buffer": 1100, "two buffers": 4170} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 256)
			p := w.port("0", portOptions{mtu: jumboMTU, SocketConfig: SocketConfig{TxOnly: true, MultiBuffer: true}})
			held := w.hold(p)
			if err := unix.SetsockoptInt(p.FD(), unix.SOL_SOCKET, unix.SO_SNDBUF, 20_000); err != nil {
				t.Fatal(err)
			}
			// More than the link passes at once, and less than the socket may have on its way.
			taken := w.load(framesOf(15_000/frameBytes, frameBytes)...)
			p.Transmit(taken)
			if withdrawn, err := p.Flush(10 * time.Second); withdrawn != 0 || err != nil {
				t.Fatalf("%d frames withdrawn, %v: the device does not take them", withdrawn, err)
			}
			descs := w.load(framesOf(64, frameBytes)...)
			p.Transmit(descs)
			if withdrawn, err := p.Flush(stallPatience); withdrawn == 0 || !errors.Is(err, ErrStalled) {
				t.Fatalf("%d frames withdrawn, %v: the device takes them all", withdrawn, err)
			}
			if n := p.Unsent(); n == 0 || n > 40_000 {
				t.Errorf("the device keeps %d bytes", n)
			}
			for range 10 {
				p.Transmit(descs)
				_, _ = p.Flush(stallPatience)
			}
			if err := held.Drop(); err != nil {
				t.Fatal(err)
			}
			w.eventually("the stall ends", func() bool {
				p.Transmit(descs[:FrameDescs(descs)])
				_, err := p.Flush(stallPatience)
				return err == nil
			})
			w.eventually("nothing is unsent", func() bool { return p.Unsent() == 0 })
			w.free(append(taken, descs...))
		})
	}
}

// What was withdrawn before is not taken away from what the device keeps.
func TestWithdrawnFramesAreTakenAwayOnce(t *testing.T) {
	k := newFakeKernel(t, newUMEM(t, 16), Lend, 8)
	kept := k.load(1)
	descs := append(append(kept, k.load(2)...), k.load(1)...)
	k.Transmit(descs)
	k.tx.consumer.Store(k.tx.head - 2) // the first frame, and the first half of the second one
	for range 3 {
		k.withdraw(2)
		if n := k.unsent.bytes(); n != int(kept[0].Len) {
			t.Fatalf("%d bytes are unsent, and the device keeps %d", n, kept[0].Len)
		}
	}
}
