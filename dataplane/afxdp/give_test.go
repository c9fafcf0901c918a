package afxdp

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/xsk"
)

// device is a socket in discipline Give with a zero-copy device, which reads a chunk when it sends
// the frame. With lends it is a socket in discipline Lend, whose kernel consumes everything in
// Flush.
type device struct {
	t      *testing.T
	umem   *xsk.UMEM
	lends  bool
	err    error // Flush says it
	descs  int   // of its TX ring
	ring   []given
	taken  []given  // from the ring
	done   []uint64 // sent and not completed
	length []int    // of these
	unsent int      // bytes that are not completed
	given  int
	kicks  int
	frames int // sent
	sent   [][]byte
}

// given is a chunk with its content at the time when it was given.
type given struct {
	desc  xsk.Desc
	bytes []byte
}

func (d *device) Obtained() xsk.Obtained {
	if d.lends {
		return xsk.Obtained{Mode: xsk.ModeCopy, Discipline: xsk.Lend, MultiBuffer: true}
	}
	return xsk.Obtained{Mode: xsk.ModeZeroCopy, Discipline: xsk.Give, MultiBuffer: true}
}

func (d *device) TxRoom() int    { return d.descs - len(d.ring) }
func (d *device) TxPending() int { return len(d.ring) }
func (d *device) Given() int     { return d.given }
func (d *device) Kick() error    { d.kicks++; return nil }
func (d *device) Unsent() int    { return d.unsent }

func (d *device) Transmit(descs []xsk.Desc) int {
	d.t.Helper()
	if len(descs) > d.TxRoom() {
		d.t.Errorf("a ring with room for %d descriptors is given %d", d.TxRoom(), len(descs))
	}
	for _, desc := range descs {
		d.ring = append(d.ring, given{desc, bytes.Clone(d.umem.Bytes(desc.Addr, desc.Len))})
		d.unsent += int(desc.Len)
	}
	d.given += len(descs)
	return len(descs)
}

func (d *device) Flush(time.Duration) (int, error) {
	_ = d.Kick()
	if d.lends {
		d.sent = append(d.sent, d.send()...)
		d.given, d.done, d.length, d.unsent = 0, nil, nil, 0
	}
	return 0, d.err
}

func (d *device) Complete(addrs []uint64) int {
	n := copy(addrs, d.done)
	d.done = d.done[n:]
	for _, bytes := range d.length[:n] {
		d.unsent -= bytes
	}
	d.length = d.length[n:]
	d.given -= n
	return n
}

// take lets the device take n descriptors from the ring.
func (d *device) take(n int) { d.taken, d.ring = append(d.taken, d.ring[:n]...), d.ring[n:] }

// send lets the device send all that it has, and returns the frames.
func (d *device) send() (frames [][]byte) {
	d.t.Helper()
	d.take(len(d.ring))
	var frame []byte
	for _, g := range d.taken {
		is := d.umem.Bytes(g.desc.Addr, g.desc.Len)
		if !bytes.Equal(is, g.bytes) {
			d.t.Errorf("chunk %#x was rewritten while the device had it", g.desc.Addr)
		}
		frame = append(frame, is...)
		if !g.desc.Continues() {
			frames, frame = append(frames, frame), nil
		}
		d.done, d.length = append(d.done, xsk.ChunkOf(g.desc.Addr)), append(d.length, int(g.desc.Len))
	}
	d.taken = nil
	d.frames += len(frames)
	return frames
}

// bench is a worker whose ports have devices instead of sockets.
type bench struct {
	*worker
	t       *testing.T
	devices []*device
	// withheld is how many chunks may yet be retained for repair.
	withheld int
}

func newBench(t *testing.T, ports, chunks int) *bench {
	t.Helper()
	umem, err := xsk.NewUMEM(chunks)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, worker: &worker{umem: umem}}
	for range ports {
		d := &device{t: t, umem: umem, descs: queueDescs}
		p := &port{umem: umem, withheld: func() int { return b.withheld }}
		p.sendBy(d)
		b.devices, b.ports = append(b.devices, d), append(b.ports, p)
	}
	t.Cleanup(func() {
		for _, d := range b.devices {
			d.send()
		}
		b.reap()
		b.conserves()
		if n := umem.FreeChunks(); n != chunks {
			t.Errorf("%d of %d chunks are free at the end", n, chunks)
		}
		if err := umem.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// conserves checks that every chunk is free or with a device.
func (b *bench) conserves() {
	b.t.Helper()
	with := 0
	for _, d := range b.devices {
		with += d.given
	}
	if c := b.umem.Census(); c.Held != with || c.Free+c.Held != c.Total {
		b.t.Errorf("the devices have %d chunks: %+v", with, c)
	}
}

// load makes n frames of these bytes.
func (b *bench) load(n int, data []byte) []dataplane.Frame {
	b.t.Helper()
	frames := make([]dataplane.Frame, n)
	for i := range frames {
		if !(pool{b.worker}).Load(&frames[i], data, nil) {
			b.t.Fatalf("no chunk is free for frame %d", i)
		}
	}
	return frames
}

func (b *bench) put(frames []dataplane.Frame) {
	for i := range frames {
		pool{b.worker}.Put(&frames[i])
	}
}

func outgoing(frames []dataplane.Frame, last bool) (out []dataplane.Outgoing) {
	for i := range frames {
		out = append(out, dataplane.Outgoing{Frame: &frames[i], Start: frames[i].Start, Bytes: frames[i].Len(), Last: last})
	}
	return out
}

// Paused devices keep no more than their share of the chunks. Another device sends everything, and
// the worker finds a chunk for each reply.
func TestPausedDevicesLeaveTheOthersTheirChunks(t *testing.T) {
	const paused, frames, replies = 3, 64, 192
	b := newBench(t, paused+1, spareChunks)
	sends := b.devices[paused]
	for round := range 500 {
		batch := b.load(frames, make([]byte, 1100))
		for i := range paused {
			b.ports[i].Send(outgoing(batch, false))
		}
		if n := b.ports[paused].Send(outgoing(batch, true)); n != frames {
			t.Fatalf("round %d: the device that is not paused was given %d of %d frames", round, n, frames)
		}
		b.put(batch)
		answers := make([]dataplane.Frame, replies)
		for i := range answers {
			f := &answers[i]
			if !(pool{b.worker}).Get(f) {
				t.Fatalf("round %d: no chunk is free for reply %d", round, i)
			}
			f.Fragments[0], f.FragmentCount = f.Buf[f.Start:f.Start+62], 1
		}
		if n := b.ports[paused].Send(outgoing(answers, true)); n != replies {
			t.Fatalf("round %d: %d of %d replies were sent", round, n, replies)
		}
		b.put(answers)
		sends.send()
		b.conserves()
	}
	share := (spareChunks - reservedChunks) / (paused + 1)
	for i, d := range b.devices[:paused] {
		if d.given < share/2 || d.given > share {
			t.Errorf("paused device %d keeps %d chunks, want %d at most", i, d.given, share)
		}
		if n := b.ports[i].backlog.Load(); n == 0 {
			t.Errorf("what paused device %d could not take is not counted", i)
		}
	}
}

// A single paused device keeps at most half of the chunks, whether it is given duplicates or the
// frames' own chunks.
func TestAPausedDeviceKeepsNoMoreThanHalf(t *testing.T) {
	for _, last := range []bool{false, true} {
		b := newBench(t, 1, spareChunks)
		b.devices[0].descs = 2 * spareChunks
		for range 200 {
			batch := b.load(60, make([]byte, 100))
			b.ports[0].Send(outgoing(batch, last))
			b.put(batch)
		}
		half := (spareChunks - reservedChunks) / 2
		if n := b.devices[0].given; n < half-64 || n > half {
			t.Errorf("last %v: it keeps %d chunks, want about %d", last, n, half)
		}
	}
}

// A frame that will be sent again is duplicated and may be rewritten at once. A frame that is sent
// for the last time is given with its own chunks.
func TestTheLastCopyIsTheFrameItself(t *testing.T) {
	for _, frameBytes := range []int{100, xsk.FrameBytes, 4170, 2*xsk.FrameBytes + 1} {
		b := newBench(t, 2, spareChunks)
		data := bytes.Repeat([]byte{1, 2, 3, 4, 5}, frameBytes)[:frameBytes]
		frames := b.load(2, data)
		own := frames[1].Chunks
		count := frames[1].FragmentCount
		if n := b.ports[0].Send(outgoing(frames, false)); n != 2 || frames[0].Kept || frames[1].Kept {
			t.Errorf("%d frames sent, kept %v and %v", n, frames[0].Kept, frames[1].Kept)
		}
		for i := range frames {
			for _, fragment := range frames[i].Bytes() {
				for k := range fragment {
					fragment[k]++
				}
			}
		}
		if n := b.ports[1].Send(outgoing(frames, true)); n != 2 || !frames[0].Kept || !frames[1].Kept {
			t.Errorf("%d frames sent, kept %v and %v", n, frames[0].Kept, frames[1].Kept)
		}
		for i, d := range b.devices[1].ring[count:] {
			if xsk.ChunkOf(d.desc.Addr) != xsk.ChunkOf(own[i]) {
				t.Errorf("%d bytes: fragment %d is in chunk %#x, the frame's own is %#x", frameBytes, i, d.desc.Addr, own[i])
			}
		}
		b.put(frames)
		if frames[0].Kept {
			t.Error("a frame that was put back is still marked as kept")
		}
		b.conserves()
		for i, device := range b.devices {
			for k, f := range device.send() {
				want := bytes.Clone(data)
				for j := range want {
					want[j] += byte(i)
				}
				if !bytes.Equal(f, want) {
					t.Errorf("%d bytes: device %d sent another frame %d", frameBytes, i, k)
				}
			}
			if device.frames != 2 {
				t.Errorf("%d bytes: device %d sent %d frames", frameBytes, i, device.frames)
			}
		}
	}
}

// A copy may begin in front of the place where the received frame began.
func TestADuplicateBeginsWhereTheCopyDoes(t *testing.T) {
	b := newBench(t, 1, spareChunks)
	frames := b.load(1, []byte("frame"))
	copy(frames[0].Buf[frames[0].Start-4:], "tag:")
	out := outgoing(frames, false)
	out[0].Start, out[0].Bytes = out[0].Start-4, out[0].Bytes+4
	b.ports[0].Send(out)
	b.put(frames)
	if got := b.devices[0].send(); len(got) != 1 || string(got[0]) != "tag:frame" {
		t.Errorf("sent %q", got)
	}
}

// A frame for which the TX ring has no room costs no chunk.
func TestAFullRingCostsNoChunk(t *testing.T) {
	full := func(t *testing.T, last bool, ring int) {
		b := newBench(t, 1, spareChunks)
		d := b.devices[0]
		d.descs = ring
		frames := b.load(5, make([]byte, 4170))
		for i, want := range []int{3, 0} {
			if n := b.ports[0].Send(outgoing(frames[3*i:], last)); n != want {
				t.Errorf("last %v: %d frames sent, want %d", last, n, want)
			}
		}
		d.take(2)
		if n := b.ports[0].Send(outgoing(frames[3:], last)); n != 1 {
			t.Errorf("last %v: %d frames sent when there is room for one more", last, n)
		}
		b.put(frames)
		b.conserves()
	}
	for _, last := range []bool{false, true} {
		full(t, last, 6) // three frames of two
		full(t, last, 7) // and half of one
	}
}

// The exact share: the chunks of a device and those of the next frame are at most as many as are
// left.
func TestADevicesShare(t *testing.T) {
	for _, c := range []struct{ frameBytes, chunks, withheld, want int }{
		{100, 10, 0, 5},  // the frame in the worker's hands is one of ten
		{100, 16, 6, 5},  // six are for repair
		{4170, 10, 0, 4}, // two of ten, and three frames would be six
		{100, 3 * spareChunks, 0, spareChunks - reservedChunks},           // most are for receiving
		{100, 3 * spareChunks, spareChunks, spareChunks - reservedChunks}, // and some for repair
	} {
		b := newBench(t, 1, reservedChunks+c.chunks)
		b.withheld = c.withheld
		b.devices[0].descs = 2 * spareChunks
		for range spareChunks {
			frames := b.load(1, make([]byte, c.frameBytes))
			b.ports[0].Send(outgoing(frames, false))
			b.put(frames)
		}
		if n := b.devices[0].given; n != c.want {
			t.Errorf("of %d chunks that are not reserved it keeps %d, want %d", c.chunks, n, c.want)
		}
	}
}

// The frames have more descriptors than one batch.
func TestLongFramesGoInSeveralBatches(t *testing.T) {
	for name, row := range map[string]struct{ lends, last bool }{
		"lent": {lends: true}, "duplicates": {}, "themselves": {last: true},
	} {
		b := newBench(t, 1, spareChunks)
		d := b.devices[0]
		d.lends = row.lends
		b.ports[0].sendBy(d)
		frames := b.load(64, make([]byte, 3*xsk.FrameBytes))
		for i := range frames {
			frames[i].Head()[0] = byte(i)
		}
		if n := b.ports[0].Send(outgoing(frames, row.last)); n != 64 {
			t.Errorf("%s: %d frames sent", name, n)
		}
		b.put(frames)
		for i, f := range append(d.sent, d.send()...) {
			if f[0] != byte(i) || len(f) != 3*xsk.FrameBytes {
				t.Errorf("%s: the %dth frame is number %d, %d bytes", name, i, f[0], len(f))
			}
		}
		if d.frames != 64 {
			t.Errorf("%s: the device sent %d frames", name, d.frames)
		}
	}
}

// An error of a socket in discipline Give is counted as any other.
func TestAGivenBatchThatDoesNotGoOutIsCounted(t *testing.T) {
	b := newBench(t, 1, spareChunks)
	b.devices[0].err = unix.ENXIO
	frames := b.load(1, make([]byte, 100))
	b.ports[0].Send(outgoing(frames, false))
	b.put(frames)
	if n := b.ports[0].deviceGone.Load(); n != 1 {
		t.Errorf("counted %d", n)
	}
}

func TestThePoolMakesFrames(t *testing.T) {
	b := newBench(t, 0, 2*dataplane.MaxFragments)
	p := pool{b.worker}
	f := dataplane.Frame{FragmentCount: 3} // what it was before
	if !p.Get(&f) || f.FragmentCount != 0 || len(f.Buf) != xsk.ChunkBytes || f.Start < dataplane.HeadroomBytes {
		t.Errorf("got a buffer of %d bytes with %d fragments from %d", len(f.Buf), f.FragmentCount, f.Start)
	}
	p.Put(&f)
	longest := make([]byte, dataplane.MaxFragments*xsk.FrameBytes)
	for i := range longest {
		longest[i] = byte(i * i >> 8)
	}
	for _, head := range []int{len(longest), 0, 100, xsk.FrameBytes, 2*xsk.FrameBytes + 1} {
		if !p.Load(&f, longest[:head], longest[head:]) || !bytes.Equal(slices.Concat(f.Bytes()...), longest) {
			t.Errorf("the longest frame in parts of %d and %d bytes has %d bytes, or others", head, len(longest)-head, f.Len())
		}
		p.Put(&f)
	}
	if p.Load(&f, longest, []byte{0}) {
		t.Error("loaded a frame of too many fragments")
	}
}

// A port that has nothing to send reaps too, and kicks if descriptors wait on the TX ring.
func TestAnIdlePortReaps(t *testing.T) {
	b := newBench(t, 1, spareChunks)
	d, p := b.devices[0], b.ports[0]
	frames := b.load(64, make([]byte, 100))
	for range 4 { // more than Complete returns at once
		p.Send(outgoing(frames, false))
	}
	b.put(frames)
	d.send()
	d.kicks = 0
	p.Receive(make([]dataplane.Frame, 64))
	if d.given != 0 || b.umem.FreeChunks() != spareChunks || d.kicks != 0 {
		t.Errorf("the device still has %d chunks, %d are free, %d kicks", d.given, b.umem.FreeChunks(), d.kicks)
	}
	frames = b.load(1, make([]byte, 100))
	p.Send(outgoing(frames, false))
	b.put(frames)
	d.kicks = 0
	p.Receive(make([]dataplane.Frame, 64))
	if d.kicks != 1 {
		t.Errorf("%d kicks for a frame that waits", d.kicks)
	}
}

// When no chunk is free, the pool reaps before it refuses.
func TestThePoolReapsWhenItIsEmpty(t *testing.T) {
	b := newBench(t, 2, reservedChunks+20)
	frames := b.load(2, make([]byte, 100))
	for i, p := range b.ports {
		if n := p.Send(outgoing(frames, false)); n != 2 {
			t.Fatalf("port %d: %d frames sent", i, n)
		}
	}
	var rest []dataplane.Frame
	for b.umem.FreeChunks() > 1 {
		rest = append(rest, b.load(1, []byte{0})...)
	}
	var f, g dataplane.Frame
	long := make([]byte, 3*xsk.FrameBytes)
	if (pool{b.worker}).Load(&f, long, nil) {
		t.Error("loaded a frame of three chunks where one is free")
	}
	if n := b.umem.FreeChunks(); n != 1 {
		t.Errorf("%d chunks are free after that", n)
	}
	b.devices[1].send()
	if !(pool{b.worker}).Load(&f, long, nil) {
		t.Error("nothing was reaped for a frame")
	}
	b.devices[0].send()
	if !(pool{b.worker}).Get(&g) {
		t.Error("nothing was reaped for a reply")
	}
	b.put(append(append(frames, rest...), f, g))
}

// What a device has sent is not unsent any more, although nobody has taken its chunks back yet.
func TestUnsentFollowsTheDevice(t *testing.T) {
	b := newBench(t, 2, spareChunks)
	p, d := b.ports[0], b.devices[0]
	frames := b.load(3, make([]byte, 1100))
	if n := p.Send(outgoing(frames, true)); n != 3 {
		t.Fatalf("%d frames sent", n)
	}
	b.put(frames)
	if n := p.Unsent(); n != 3300 || b.ports[1].Unsent() != 0 {
		t.Errorf("%d bytes are unsent", n)
	}
	d.send()
	if n := p.Unsent(); n != 0 {
		t.Errorf("%d bytes are unsent after all were sent", n)
	}
	if n := (&port{}).Unsent(); n != 0 {
		t.Errorf("a port without an interface has %d bytes to send", n)
	}
}
