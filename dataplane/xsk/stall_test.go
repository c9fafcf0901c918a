package xsk

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const stallPatience = 50 * time.Microsecond

// kernels runs a scenario on both kinds of kernel.
func kernels(t *testing.T, discipline Discipline, scenario func(t *testing.T, k *fakeKernel)) {
	for _, skipsAll := range []bool{false, true} {
		t.Run(fmt.Sprint("skips all ", skipsAll), func(t *testing.T) {
			k := newFakeKernel(t, newUMEM(t, 512), discipline, 256)
			k.skipsAll = skipsAll
			scenario(t, k)
		})
	}
}

// A socket whose device takes nothing costs its thread one wait, one kick for each descriptor that
// is withdrawn then, and after that three kicks in two flushes. The thread has the rest of its time
// for other sockets.
func TestAStalledPortCostsItsThreadOneWait(t *testing.T) {
	kernels(t, Lend, func(t *testing.T, k *fakeKernel) {
		const flushes = 1000
		k.holds = 10
		descs := k.loads(64)
		for i := range flushes {
			taken := k.Transmit(descs)
			withdrawn, err := k.Flush(stallPatience)
			if sent := taken - withdrawn; !errors.Is(err, ErrStalled) || i > 0 && sent != 0 {
				t.Fatalf("flush %d: %d frames sent, %v", i, sent, err)
			}
		}
		limit := int(stallPatience/kickTakes) + 2 + 3*flushes/2
		if !k.skipsAll {
			limit += len(descs)
		}
		if k.kicks > limit {
			t.Errorf("%d kicks, want %d at most", k.kicks, limit)
		}
		if len(k.sent) != 10 {
			t.Errorf("the device was given %d frames and took 10", len(k.sent))
		}
	})
}

// The stall ends as soon as the kernel sends a frame. After that the socket sends as before.
func TestAPortRecoversFromAStall(t *testing.T) {
	kernels(t, Lend, func(t *testing.T, k *fakeKernel) {
		k.holds = 0
		descs := k.loads(64)
		for range 5 {
			k.Transmit(descs)
			k.Flush(stallPatience)
		}
		k.holds = endless
		for lost := 0; ; lost++ {
			if lost > 2 {
				t.Fatalf("still stalled after %d flushes", lost)
			}
			k.Transmit(descs)
			if _, err := k.Flush(stallPatience); err == nil {
				break
			}
		}
		k.sent = nil
		if n := k.Transmit(descs); n != len(descs) {
			t.Errorf("took %d frames", n)
		}
		if withdrawn, err := k.Flush(stallPatience); withdrawn != 0 || err != nil || len(k.sent) != len(descs) {
			t.Errorf("%d frames withdrawn, %v, %d sent", withdrawn, err, len(k.sent))
		}
		if k.stalled || k.skips != 0 || k.TxPending() != 0 {
			t.Errorf("stalled %v, %d skips, %d pending", k.stalled, k.skips, k.TxPending())
		}
	})
}

// The stall does not end because the kernel has stepped over withdrawn descriptors.
func TestSteppingOverWithdrawnFramesEndsNoStall(t *testing.T) {
	kernels(t, Lend, func(t *testing.T, k *fakeKernel) {
		k.holds = 0
		descs := k.loads(8)
		k.Transmit(descs)
		k.Flush(stallPatience)
		if n := k.Transmit(descs); n != 0 {
			t.Errorf("took %d frames behind withdrawn ones", n)
		}
		if _, err := k.Flush(stallPatience); !errors.Is(err, ErrStalled) || k.TxPending() != 0 {
			t.Errorf("%v with %d pending, want all withdrawn frames passed and the stall to last", err, k.TxPending())
		}
		if n := k.Transmit(descs); n != 1 {
			t.Errorf("took %d frames to find out, want 1", n)
		}
		if withdrawn, err := k.Flush(stallPatience); withdrawn != 1 || !errors.Is(err, ErrStalled) {
			t.Errorf("%d withdrawn, %v", withdrawn, err)
		}
	})
}

// The probe is a whole frame of several descriptors.
func TestTheProbeIsAWholeFrame(t *testing.T) {
	k := newFakeKernel(t, newUMEM(t, 64), Lend, 64)
	k.holds = 0
	descs := append(k.load(3), k.load(2)...)
	for range 2 {
		k.Transmit(descs)
		k.Flush(stallPatience)
	}
	k.holds = endless
	if n := k.Transmit(descs); n != 3 {
		t.Errorf("took %d descriptors, want the 3 of the first frame", n)
	}
	if withdrawn, err := k.Flush(stallPatience); withdrawn != 0 || err != nil {
		t.Errorf("%d withdrawn, %v", withdrawn, err)
	}
}

// Flush waits for each descriptor as long as its patience, and no longer.
func TestFlushWaitsAsLongAsItsPatience(t *testing.T) {
	kernels(t, Lend, func(t *testing.T, k *fakeKernel) {
		k.holds = 1
		sendto := k.sendto
		k.Socket.sendto = func(fd int) unix.Errno { // the device sends one just before the patience ends
			if len(k.device) > 0 && k.kicks%50 == 0 {
				k.complete(1)
			}
			return sendto(fd)
		}
		k.Transmit(k.loads(8))
		if withdrawn, err := k.Flush(stallPatience); withdrawn != 0 || err != nil || len(k.sent) != 8 {
			t.Errorf("%d frames withdrawn, %v, %d sent", withdrawn, err, len(k.sent))
		}
		k.Socket.sendto = sendto
		k.Transmit(k.loads(8))
		before := k.kicks
		if withdrawn, err := k.Flush(stallPatience); withdrawn != 8 || !errors.Is(err, ErrStalled) {
			t.Errorf("%d frames withdrawn, %v", withdrawn, err)
		}
		if got, want := k.kicks-before, int(stallPatience/kickTakes)+1; got != want {
			t.Errorf("%d kicks, want %d", got, want)
		}
	})
}

// A thread that does not run between two kicks has waited long, but the device had no chance. The
// chances before the device's last frame do not count.
func TestAPreemptedThreadCallsNoPortStalled(t *testing.T) {
	kernels(t, Lend, func(t *testing.T, k *fakeKernel) {
		k.holds = 1
		sendto, kicks := k.sendto, 0
		k.Socket.sendto = func(fd int) unix.Errno {
			if kicks++; kicks%5 != 0 {
				k.clock += 10 * stallPatience
			} else if len(k.device) > 0 {
				k.complete(1)
			}
			return sendto(fd)
		}
		k.Transmit(k.loads(8))
		if withdrawn, err := k.Flush(stallPatience); withdrawn != 0 || err != nil || len(k.sent) != 8 {
			t.Errorf("%d frames withdrawn, %v, %d sent", withdrawn, err, len(k.sent))
		}
	})
}

// A kernel that does not read the ring, for example because the TX queue is missing, does not step
// over descriptors either.
func TestAKernelThatNeverLooksIsNotKickedForWhatItShouldSkip(t *testing.T) {
	k := newFakeKernel(t, newUMEM(t, 128), Lend, 128)
	k.Socket.sendto = func(int) unix.Errno { k.kicks++; k.clock += kickTakes; return 0 }
	descs := k.loads(64)
	for range 100 {
		k.Transmit(descs)
		if _, err := k.Flush(stallPatience); !errors.Is(err, ErrStalled) {
			t.Fatal(err)
		}
	}
	if limit := int(stallPatience/kickTakes) + 1 + len(descs) + 99; k.kicks > limit {
		t.Errorf("%d kicks, want %d at most", k.kicks, limit)
	}
}

func TestFlushWithdrawsWholeFramesFromAStalledRing(t *testing.T) {
	k := newFakeKernel(t, newUMEM(t, 16), Lend, 8)
	k.holds = 1
	descs := append(append(k.load(2), k.load(1)...), k.load(2)...) // the device takes the first descriptor
	k.Transmit(descs)
	if withdrawn, err := k.Flush(stallPatience); withdrawn != 3 || !errors.Is(err, ErrStalled) {
		t.Errorf("%d frames withdrawn, %v", withdrawn, err)
	}
	for i := k.tx.head - k.tx.pending(); i != k.tx.head; i++ {
		if d := k.tx.entries[i&k.tx.mask]; k.valid(&d) && d.Addr < uint64(k.umem.Chunks())*ChunkBytes {
			t.Errorf("descriptor %+v is still one the kernel would send", d)
		}
	}
	if n := k.unsent.bytes(); n != 0 {
		t.Errorf("%d bytes are unsent: the beginning of the first frame is dropped with its end", n)
	}
	if k.skips != 4 {
		t.Errorf("%d skips allowed for", k.skips)
	}
}

// An interface that is down refuses frames at once. Flush does not wait, and needs no probe when
// the interface is up again.
func TestAnErrorIsNoStall(t *testing.T) {
	kernels(t, Lend, func(t *testing.T, k *fakeKernel) {
		k.errno = unix.ENETDOWN
		descs := k.loads(8)
		for range 3 {
			k.Transmit(descs)
			if withdrawn, err := k.Flush(stallPatience); withdrawn != 8 || err != unix.ENETDOWN {
				t.Errorf("%d frames withdrawn, %v", withdrawn, err)
			}
		}
		if k.kicks != 3 {
			t.Errorf("%d kicks", k.kicks)
		}
		k.errno = 0
		if n := k.Transmit(descs); n != 8 {
			t.Errorf("took %d frames", n)
		}
		if withdrawn, err := k.Flush(0); withdrawn != 0 || err != nil || len(k.sent) != 8 {
			t.Errorf("%d frames withdrawn, %v, %d sent", withdrawn, err, len(k.sent))
		}
	})
}

// In discipline Give the frames stay on the ring, and each flush kicks once.
func TestFlushLeavesGivenFramesOnAStalledRing(t *testing.T) {
	k := newFakeKernel(t, newUMEM(t, 16), Give, 8)
	k.holds = 1
	k.Transmit(k.loads(2))
	for range 10 {
		if withdrawn, err := k.Flush(stallPatience); withdrawn != 0 || !errors.Is(err, ErrStalled) || k.TxPending() != 1 {
			t.Errorf("%d frames withdrawn, %v, %d pending", withdrawn, err, k.TxPending())
		}
	}
	if limit := 1 + int(stallPatience/kickTakes) + 1 + 9; k.kicks > limit {
		t.Errorf("%d kicks, want %d at most", k.kicks, limit)
	}
	if n := k.Transmit(k.loads(1)); n != 1 {
		t.Errorf("took %d frames behind those that wait", n)
	}
	if k.tx.head != 0 {
		t.Errorf("the test is about a ring whose index is where it began to count, it is %d", k.tx.head)
	}
	k.complete(1)
	k.holds = endless
	if withdrawn, err := k.Flush(stallPatience); withdrawn != 0 || err != nil || k.TxPending() != 0 {
		t.Errorf("%d frames withdrawn, %v, %d pending", withdrawn, err, k.TxPending())
	}
}

// A zero-copy device reads the ring by itself. Flush does not wait for it and withdraws nothing.
func TestFlushDoesNotWaitForAZeroCopyDevice(t *testing.T) {
	for _, asleep := range []bool{true, false} {
		k := newFakeKernel(t, newUMEM(t, 16), Give, 8)
		k.obtained.Mode = ModeZeroCopy
		k.holds = 0
		want := 1
		if !asleep {
			want = 0
			k.tx.flags.Store(0)
		}
		k.Transmit(k.loads(2))
		if withdrawn, err := k.Flush(stallPatience); withdrawn != 0 || err != nil || k.TxPending() != 2 || k.kicks != want {
			t.Errorf("asleep %v: %d frames withdrawn, %v, %d pending, %d kicks", asleep, withdrawn, err, k.TxPending(), k.kicks)
		}
	}
}

func TestGivenCountsWhatDidNotComeBack(t *testing.T) {
	k := newFakeKernel(t, newUMEM(t, 16), Give, 8)
	k.Transmit(k.loads(5))
	if k.Given() != 5 || k.TxRoom() != 3 || k.umem.FreeChunks() != 11 {
		t.Errorf("%d given, room for %d, %d chunks free", k.Given(), k.TxRoom(), k.umem.FreeChunks())
	}
	if _, err := k.Flush(0); err != nil {
		t.Fatal(err)
	}
	if k.Given() != 5 || k.TxRoom() != 8 {
		t.Errorf("on their way: %d given, room for %d", k.Given(), k.TxRoom())
	}
	k.complete(3)
	var addrs [8]uint64
	if n := k.Complete(addrs[:]); n != 3 || k.Given() != 2 {
		t.Errorf("%d came back, %d given", n, k.Given())
	}
	lends := newFakeKernel(t, k.umem, Lend, 8)
	lends.Transmit(lends.loads(2))
	if n := lends.Given(); n != 0 {
		t.Errorf("%d chunks are lent, and given none: %d", 2, n)
	}
}
