package xsk

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// modes runs a scenario in native and in generic mode.
func modes(t *testing.T, scenario func(t *testing.T, mode Mode)) {
	for _, mode := range []Mode{ModeCopy, ModeGeneric} {
		t.Run(mode.String(), func(t *testing.T) { scenario(t, mode) })
	}
}

func TestReceiveFrames(t *testing.T) {
	modes(t, func(t *testing.T, mode Mode) {
		w := newWorld(t, 256)
		p := w.port("0", portOptions{SocketConfig: SocketConfig{Mode: mode, FillDescs: 64}})
		checkConserved(t, w.umem, 0)
		for range 5 { // more frames than chunks: they go round
			sent := framesOf(60, 200)
			p.host.send(sent...)
			descs := w.receive(p.Socket, 60)
			w.expect(descs, sent)
			for _, d := range descs {
				if d.Addr-ChunkOf(d.Addr) != HeadroomBytes {
					t.Fatalf("frame at %#x, want %d bytes into its chunk", d.Addr, HeadroomBytes)
				}
			}
			checkConserved(t, w.umem, w.held)
			w.recycle(p.Socket, descs)
			checkConserved(t, w.umem, 0)
		}
	})
}

func TestReceiveTakesNoMoreThanAsked(t *testing.T) {
	w := newWorld(t, 256)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{FillDescs: 64}})
	p.host.send(framesOf(10, 100)...)
	w.eventually("10 frames", func() bool { return p.rx.available(10) == 10 })
	var batch [4]Desc
	for _, want := range []int{4, 4, 2, 0} {
		n := p.Receive(batch[:])
		if n != want {
			t.Errorf("received %d, want %d", n, want)
		}
		w.held += n
		w.recycle(p.Socket, batch[:n])
	}
}

func TestMetadataLiesInFrontOfTheFrame(t *testing.T) {
	modes(t, func(t *testing.T, mode Mode) {
		w := newWorld(t, 128)
		p := w.port("0", portOptions{SocketConfig: SocketConfig{Mode: mode, FillDescs: 64}, program: redirectWithMetadata})
		sent := framesOf(1, 200)
		p.host.send(sent...)
		descs := w.receive(p.Socket, 1)
		w.expect(descs, sent)
		metadata := w.umem.Bytes(descs[0].Addr-metadataBytes, metadataBytes)
		if want := bytes.Repeat([]byte{0xA5}, metadataBytes); !bytes.Equal(metadata, want) {
			t.Errorf("metadata %x", metadata)
		}
		w.recycle(p.Socket, descs)
	})
}

func TestFillKeepsNoMoreThanFillDescs(t *testing.T) {
	w := newWorld(t, 64)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{FillDescs: 16}})
	if c := w.umem.Census(); c.Receive != 16 || c.Free != 48 {
		t.Errorf("after Open: %+v", c)
	}
	if n := p.TopUp(); n != 0 {
		t.Errorf("TopUp of a full receive side took %d chunks", n)
	}
	spare := w.load(framesOf(1, 60)...)
	w.recycle(p.Socket, spare)
	if c := w.umem.Census(); c.Receive != 16 || c.Free != 48 {
		t.Errorf("a chunk is recycled to a full receive side: %+v", c)
	}
	p.host.send(framesOf(3, 60)...)
	descs := w.receive(p.Socket, 3)
	w.recycleUnseen(p.Socket, w.load(framesOf(1, 60)...))
	if c := w.umem.Census(); c.Receive != 14 {
		t.Errorf("%+v", c)
	}
	w.recycleUnseen(p.Socket, descs) // two have room, the third goes to the free list
	checkConserved(t, w.umem, 0)
	if c := w.umem.Census(); c.Receive != 16 || c.Free != 48 {
		t.Errorf("%+v", c)
	}
}

func TestEmptyFillRingDropsAndRecovers(t *testing.T) {
	modes(t, func(t *testing.T, mode Mode) {
		w := newWorld(t, 64)
		p := w.port("0", portOptions{SocketConfig: SocketConfig{Mode: mode, FillDescs: 16}})
		sent := framesOf(40, 100)
		p.host.send(sent...)
		w.eventually("dropped frames", func() bool { return w.stats(p.Socket).RxDropped == 24 })
		if n, err := p.Heard(); n != 40 || err != nil {
			t.Errorf("heard %d, %v", n, err)
		}
		if stats := w.stats(p.Socket); stats.RxFillEmpty == 0 {
			t.Errorf("nothing counted: %+v", stats)
		}
		descs := w.receive(p.Socket, 16)
		w.expect(descs, sent[:16])
		checkConserved(t, w.umem, 16)
		w.recycle(p.Socket, descs)
		p.host.send(sent[30:]...)
		descs = w.receive(p.Socket, 10)
		w.expect(descs, sent[30:])
		w.recycle(p.Socket, descs)
	})
}

func TestTopUpReplacesChunksThatWentElsewhere(t *testing.T) {
	w := newWorld(t, 64)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{FillDescs: 16}})
	p.host.send(framesOf(10, 100)...)
	descs := w.receive(p.Socket, 10)
	if n := p.TopUp(); n != 10 {
		t.Errorf("TopUp took %d chunks, want 10", n)
	}
	checkConserved(t, w.umem, 10)
	w.recycle(p.Socket, descs)
	if c := w.umem.Census(); c.Receive != 16 || c.Free != 48 {
		t.Errorf("%+v", c)
	}
}

// In copy mode a socket is opened with all its chunks, has fewer when some have gone round, and
// gets them back when frames wait for it.
func TestTheReceiveSideGrowsWithTheBacklog(t *testing.T) {
	w := newWorld(t, 2*DefaultDescs)
	p := w.port("0", portOptions{})
	expect := func(when string, want int) {
		t.Helper()
		p.TopUp()
		if c := w.umem.Census(); c.Receive != want {
			t.Errorf("%s: %d chunks on the receive side, want %d", when, c.Receive, want)
		}
	}
	arrive := func(n int) {
		t.Helper()
		for _, f := range framesOf(n, 100) {
			p.host.send(f)
		}
		w.eventually("the frames", func() bool { return p.rx.available(uint32(n)) >= uint32(n) })
		w.free(w.receive(p.Socket, n))
	}
	expect("opened", DefaultDescs)
	for range (DefaultDescs - startLevel) / 64 {
		arrive(64)
	}
	expect("after many frames in small bursts", startLevel)
	arrive(startLevel / 2)
	expect("after half of the chunks arrived at once", startLevel)
	arrive(startLevel/2 + 1)
	expect("after more than half of the chunks arrived at once", 2*startLevel)
	arrive(startLevel + 1)
	expect("after it happened again", DefaultDescs)
	arrive(DefaultDescs/2 + 1)
	expect("after it happened with all chunks", DefaultDescs)
	checkConserved(t, w.umem, 0)
}

func TestTheFirstLevel(t *testing.T) {
	for _, c := range []struct {
		mode          Mode
		entries, want uint32
	}{
		{ModeCopy, 2048, startLevel},
		{ModeGeneric, 2048, startLevel},
		{ModeCopy, 64, 64},
		{ModeZeroCopy, 2048, 2048},
	} {
		if got := firstLevel(c.mode, c.entries); got != c.want {
			t.Errorf("%v, %d entries: %d, want %d", c.mode, c.entries, got, c.want)
		}
	}
}

// A receive side that has more chunks than its level, as after Open, gets none of them back.
func TestRecycleKeepsToTheLevel(t *testing.T) {
	w := newWorld(t, 2*startLevel)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{Mode: ModeCopy, FillDescs: 2 * startLevel}})
	p.host.send(framesOf(3, 100)...)
	w.recycleUnseen(p.Socket, w.receive(p.Socket, 3))
	if c := w.umem.Census(); p.level != startLevel || c.Receive != 2*startLevel-3 || c.Free != 3 {
		t.Errorf("%+v", c)
	}
}

// Audit looks at the chunks too that the kernel does not see yet.
func TestAuditSeesRecycledChunks(t *testing.T) {
	w := newWorld(t, 32)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{FillDescs: 16}})
	p.host.send(framesOf(2, 100)...)
	w.recycleUnseen(p.Socket, w.receive(p.Socket, 2))
	second := &p.fill.entries[(p.fill.head+1)&p.fill.mask]
	was := *second
	*second = p.fill.entries[p.fill.head&p.fill.mask]
	if err := w.umem.Audit(); err == nil || !strings.Contains(err.Error(), "twice on the fill ring") {
		t.Errorf("a chunk is recycled twice: %v", err)
	}
	*second = was
	checkConserved(t, w.umem, 0)
}

// A socket whose chunks are recycled uses the same ones in the same order, whatever other chunks
// are freed meanwhile. The kernel sees them after TopUp.
func TestRecycledChunksKeepTheirOrder(t *testing.T) {
	w := newWorld(t, 32)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{FillDescs: 8}})
	var want []uint64
	for round := range 5 {
		for _, f := range framesOf(8, 100) {
			p.host.send(f)
		}
		descs := w.receive(p.Socket, 8)
		var got []uint64
		for _, d := range descs {
			got = append(got, ChunkOf(d.Addr))
		}
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("round %d: chunks %#x, want %#x", round, got, want)
		}
		w.free(w.load(framesOf(3, 100)...))
		w.recycleUnseen(p.Socket, descs)
		for i, chunk := range want {
			if got := p.fill.entries[(p.fill.head+uint32(i))&p.fill.mask]; got != chunk {
				t.Errorf("round %d: entry %d is %#x, want %#x", round, i, got, chunk)
			}
		}
		if n := p.fill.pending(); n != 0 {
			t.Errorf("round %d: the kernel sees %d chunks before TopUp", round, n)
		}
		checkConserved(t, w.umem, 0)
		if n := p.TopUp(); n != 0 || p.fill.pending() != 8 {
			t.Errorf("round %d: TopUp took %d chunks from the free list, and the kernel sees %d", round, n, p.fill.pending())
		}
	}
}

// Of the chunks on the free list, TopUp takes those that were freed most recently, in the order in
// which they were freed.
func TestTopUpKeepsTheOrderOfChunks(t *testing.T) {
	w := newWorld(t, 12)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{FillDescs: 4}})
	for _, f := range framesOf(4, 100) {
		p.host.send(f)
	}
	descs := w.receive(p.Socket, 4)
	descs[0], descs[1], descs[2] = descs[1], descs[2], descs[0]
	w.free(descs)
	first := p.fill.head
	if n := p.TopUp(); n != len(descs) {
		t.Fatalf("TopUp took %d chunks", n)
	}
	for i := range descs {
		if got, want := p.fill.entries[(first+uint32(i))&p.fill.mask], ChunkOf(descs[i].Addr); got != want {
			t.Errorf("chunk %d on the ring is %#x, want %#x", i, got, want)
		}
	}
}

func TestTopUpTakesWhatThereIs(t *testing.T) {
	w := newWorld(t, 12)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{FillDescs: 16}})
	if c := w.umem.Census(); c.Receive != 12 || c.Free != 0 {
		t.Errorf("%+v", c)
	}
	if n := p.TopUp(); n != 0 {
		t.Errorf("TopUp from an empty free list took %d", n)
	}
}

func TestFullRXRingDropsAndRecovers(t *testing.T) {
	modes(t, func(t *testing.T, mode Mode) {
		w := newWorld(t, 128)
		p := w.port("0", portOptions{SocketConfig: SocketConfig{Mode: mode, RxDescs: 8, FillDescs: 64}})
		sent := framesOf(50, 100)
		for range 3 { // the kernel keeps the chunks of dropped frames for the next ones
			before := w.stats(p.Socket).RxRingFull
			p.host.send(sent...)
			w.eventually("dropped frames", func() bool { return w.stats(p.Socket).RxRingFull == before+42 })
			if n, err := p.Heard(); n != 50*(before/42+1) || err != nil { // also those that were dropped
				t.Errorf("heard %d, %v", n, err)
			}
			descs := w.receive(p.Socket, 8)
			w.expect(descs, sent[:8])
			checkConserved(t, w.umem, 8)
			w.recycle(p.Socket, descs)
		}
	})
}

func TestMisusedReceiveChunksPanic(t *testing.T) {
	w := newWorld(t, 64)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{FillDescs: 16}})
	p.host.send(framesOf(2, 100)...)
	descs := w.receive(p.Socket, 2)
	w.recycle(p.Socket, descs[:1])
	mustPanic(t, "it is with the receive side", func() { p.Recycle(descs[0].Addr) })
	mustPanic(t, "it is with the receive side", func() { p.Transmit(descs[:1]) })
	mustPanic(t, "it is with the free list", func() { p.Recycle(uint64(w.umem.free[0]) * ChunkBytes) })
	w.recycle(p.Socket, descs[1:])
}

func TestSeveralQueuesShareTheUMEM(t *testing.T) {
	w := newWorld(t, 256)
	o := portOptions{SocketConfig: SocketConfig{FillDescs: 64}, queues: 2}
	p := w.port("0", o)
	other := w.open(p.link, 1, o.SocketConfig)
	checkConserved(t, w.umem, 0)
	if c := w.umem.Census(); c.Receive != 128 {
		t.Errorf("%+v", c)
	}
	descs := w.load(framesOf(1, 100)...)
	w.send(other, descs)
	p.host.expect(framesOf(1, 100)...)
	w.free(descs)
}

// A zero-copy driver that found the fill ring empty sleeps until a system call wakes it. A worker
// that spins calls only Receive.
func TestReceiveWakesASleepingDriver(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	s := &Socket{umem: newUMEM(t, 1), fd: pair[0]}
	_, s.rx = heapRing[Desc](8, 0)
	s.fill, _ = heapRing[uint64](8, 0)
	kicked := func() bool { // recvfrom takes the datagram
		if err := unix.Sendto(pair[1], []byte{0}, 0, nil); err != nil {
			t.Fatal(err)
		}
		s.Receive(make([]Desc, 4))
		n, _, _ := unix.Recvfrom(pair[0], make([]byte, 1), unix.MSG_DONTWAIT)
		return n != 1
	}
	if kicked() {
		t.Error("woken although it does not sleep")
	}
	s.fill.flags.Store(unix.XDP_RING_NEED_WAKEUP)
	if !kicked() {
		t.Error("not woken")
	}
}
