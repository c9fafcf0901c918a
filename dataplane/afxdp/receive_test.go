package afxdp

import (
	"encoding/binary"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/xsk"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/mft"
)

// queue is a socket with the frames that the classifier redirected to it.
type queue struct {
	umem     *xsk.UMEM
	frames   [][]xsk.Desc
	topUps   int
	recycled []uint64
}

func (q *queue) TopUp() int { q.topUps++; return 0 }

func (q *queue) Recycle(addr uint64) { q.recycled = append(q.recycled, addr) }

func (q *queue) Receive(descs []xsk.Desc) (n int) {
	for len(q.frames) > 0 && n+len(q.frames[0]) <= len(descs) {
		n += copy(descs[n:], q.frames[0])
		q.frames = q.frames[1:]
	}
	return n
}

// put adds a frame of this many fragments. A marked frame has the classifier's metadata in front.
func (q *queue) put(fragments int, marked bool) {
	descs := make([]xsk.Desc, fragments)
	for i := range descs {
		var addr [1]uint64
		q.umem.Alloc(addr[:])
		descs[i] = xsk.Desc{Addr: addr[0] + xsk.HeadroomBytes, Len: uint32(100 + i), Options: unix.XDP_PKT_CONTD}
		clear(q.umem.Bytes(addr[0], xsk.ChunkBytes))
	}
	descs[fragments-1].Options = 0
	if marked {
		copy(q.umem.Bytes(descs[0].Addr-bpf.MetaBytes, bpf.MetaBytes), mark(7, bpf.KindFeedback))
	}
	q.frames = append(q.frames, descs)
}

// mark returns the metadata that bpf/classifier.h writes in front of a frame.
func mark(group uint32, kind bpf.Kind) []byte {
	b := make([]byte, bpf.MetaBytes)
	binary.LittleEndian.PutUint32(b, 0x726f6361)
	binary.LittleEndian.PutUint32(b[4:], group)
	b[8] = byte(kind)
	return b
}

// receives makes a port that receives from these queues.
func receives(b *bench, queues ...*queue) *port {
	p := &port{umem: b.umem}
	for _, q := range queues {
		q.umem = b.umem
		p.in = append(p.in, q)
	}
	return p
}

func TestAFrameIsWhatArrived(t *testing.T) {
	b := newBench(t, 0, 16)
	q := &queue{}
	p := receives(b, q)
	for fragments := 1; fragments <= dataplane.MaxFragments; fragments++ {
		q.put(fragments, true)
		descs := q.frames[0]
		for i, d := range descs {
			q.umem.Bytes(d.Addr, d.Len)[0] = byte(10 + i)
		}
		frames := make([]dataplane.Frame, 64)
		if n := p.Receive(frames); n != 1 {
			t.Fatalf("%d frames", n)
		}
		f := &frames[0]
		if f.Group != mft.GroupID(7) || f.Kind != dataplane.KindFeedback || f.FragmentCount != fragments {
			t.Errorf("group %d, kind %d, %d fragments", f.Group, f.Kind, f.FragmentCount)
		}
		for i, fragment := range f.Bytes() {
			if len(fragment) != 100+i || fragment[0] != byte(10+i) || f.Chunks[i] != descs[i].Addr {
				t.Errorf("fragment %d of %d: %d bytes, chunk %#x", i, fragments, len(fragment), f.Chunks[i])
			}
		}
		if len(f.Buf) != xsk.ChunkBytes || &f.Buf[f.Start] != &f.Head()[0] {
			t.Errorf("the buffer has %d bytes, and the frame does not begin at %d of it", len(f.Buf), f.Start)
		}
		b.put(frames[:1])
		if p.oversized.Load() != 0 || p.unmarked.Load() != 0 {
			t.Errorf("counted as oversized %d, unmarked %d", p.oversized.Load(), p.unmarked.Load())
		}
	}
}

// A frame may end in a buffer without bytes.
func TestABufferMayBeEmpty(t *testing.T) {
	b := newBench(t, 0, 16)
	q := &queue{}
	p := receives(b, q)
	q.put(2, true)
	q.frames[0][1].Len = 0
	frames := make([]dataplane.Frame, 64)
	if n := p.Receive(frames); n != 1 || len(frames[0].Bytes()[1]) != 0 {
		t.Errorf("%d frames, %v", n, frames[0].Bytes())
	}
	b.put(frames[:1])
}

// A frame that is dropped costs no chunk, hides no other frame, and is counted.
func TestFramesThatAreDroppedCostNoChunk(t *testing.T) {
	b := newBench(t, 0, 64)
	q := &queue{}
	p := receives(b, q)
	for range 3 {
		q.put(1, true)
		q.put(2, false)
		q.put(dataplane.MaxFragments, true)
		q.put(dataplane.MaxFragments+1, true)
		q.put(1, false)
		q.put(1, true)
		frames := make([]dataplane.Frame, 64)
		n := p.Receive(frames)
		if n != 3 || frames[0].FragmentCount != 1 || frames[1].FragmentCount != dataplane.MaxFragments || frames[2].FragmentCount != 1 {
			t.Errorf("%d frames of %d, %d and %d fragments", n, frames[0].FragmentCount, frames[1].FragmentCount, frames[2].FragmentCount)
		}
		b.put(frames[:n])
		b.conserves()
		if free := b.umem.FreeChunks(); free != 64 {
			t.Fatalf("%d of 64 chunks are free", free)
		}
	}
	if p.unmarked.Load() != 6 || p.oversized.Load() != 3 {
		t.Errorf("counted as unmarked %d, oversized %d", p.unmarked.Load(), p.oversized.Load())
	}
	var d dropped
	d.add(p)
	for _, c := range d.counters() {
		if want := map[string]uint64{"rx-unmarked": 6, "rx-oversized": 3}[c.Name]; c.Value != want {
			t.Errorf("%s is %d, want %d", c.Name, c.Value, want)
		}
	}
}

// The queues take turns. Each is topped up before the port receives from it. A queue whose frames
// are all dropped does not hide the next queue.
func TestQueuesTakeTurns(t *testing.T) {
	b := newBench(t, 0, 256)
	queues := []*queue{{}, {}, {}}
	p := receives(b, queues...)
	queues[0].put(1, false)
	for _, q := range queues[1:] {
		for range 3 {
			q.put(1, true)
		}
	}
	var order []int
	for range 4 {
		frames := make([]dataplane.Frame, 2)
		before := []int{len(queues[0].frames), len(queues[1].frames), len(queues[2].frames)}
		n := p.Receive(frames)
		b.put(frames[:n])
		for i, q := range queues {
			if i > 0 && len(q.frames) != before[i] {
				order = append(order, i)
			}
		}
	}
	if want := []int{1, 2, 1, 2}; !slices.Equal(order, want) {
		t.Errorf("queues had their turns in the order %v, want %v", order, want)
	}
	for i, q := range queues {
		if q.topUps == 0 || len(q.frames) != 0 {
			t.Errorf("queue %d was topped up %d times and has %d frames left", i, q.topUps, len(q.frames))
		}
	}
	if n := p.Receive(make([]dataplane.Frame, 64)); n != 0 {
		t.Errorf("%d frames of empty queues", n)
	}
}

// The buffers of a received frame go back to the queue that it came from, in the order of the
// frames. All others go to the free list: those of a frame that the worker made, of a frame that a
// port keeps, and of one whose interface is gone.
func TestBuffersGoBackToTheirQueue(t *testing.T) {
	b := newBench(t, 0, 32)
	queues := []*queue{{}, {}}
	b.ports = []*port{receives(b), receives(b, queues...)}
	for range 2 {
		for i, q := range queues {
			q.put(1, true)
			q.put(2, true)
			frames := make([]dataplane.Frame, 3)
			n := b.ports[1].Receive(frames)
			for k := range frames[:n] {
				frames[k].Port = 1
			}
			frames[2].Port = 1 // of a frame before it
			if !(pool{b.worker}).Get(&frames[2]) {
				t.Fatal("no chunk is free")
			}
			want := []uint64{frames[0].Chunks[0], frames[1].Chunks[0], frames[1].Chunks[1]}
			b.put(frames)
			if !slices.Equal(q.recycled, want) || len(queues[1-i].recycled) != 0 {
				t.Errorf("queue %d got %#x, want %#x, and the other one %#x", i, q.recycled, want, queues[1-i].recycled)
			}
			b.umem.Free(q.recycled)
			q.recycled = nil
			b.conserves()
		}
	}
	queues[0].put(1, true)
	queues[0].put(1, true)
	frames := make([]dataplane.Frame, 2)
	if n := b.ports[1].Receive(frames); n != 2 {
		t.Fatalf("%d frames", n)
	}
	frames[0].Port, frames[1].Port, frames[1].Kept = 1, 1, true
	kept := frames[1].Chunks[0]
	b.ports[1].use(nil)
	b.put(frames)
	if n := b.umem.FreeChunks(); n != 31 || len(queues[0].recycled) != 0 {
		t.Errorf("%d of 32 chunks are free, and the queue got %#x", n, queues[0].recycled)
	}
	b.umem.Free([]uint64{kept})
}

// Receive returns no more frames than the worker has room for.
func TestReceiveTakesNoMoreThanAsked(t *testing.T) {
	b := newBench(t, 0, 256)
	q := &queue{}
	p := receives(b, q)
	for range 200 {
		q.put(1, true)
	}
	for _, c := range []struct{ room, want int }{{5, 5}, {64, 64}, {300, batchDescs}, {64, 3}} {
		frames := make([]dataplane.Frame, c.room)
		n := p.Receive(frames)
		if n != c.want {
			t.Errorf("%d frames for a room of %d, want %d", n, c.room, c.want)
		}
		b.put(frames[:n])
	}
}

// A port that is closed leaves no file open.
func TestAPortThatComesAndGoesLeavesNoFile(t *testing.T) {
	for name, open := range map[string]func(*xsk.UMEM, int, uint32, xsk.SocketConfig) (*xsk.Socket, error){"lends": xsk.Open, "gives": giving} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.plug(1, netns.VethOptions{Queues: 2})
			w.plug(2, netns.VethOptions{Queues: 2})
			w.open(Config{Ports: []string{"p1", "p2"}, openSocket: open})
			before := len(testlab.OpenFiles(t))
			for range 3 {
				w.unplug(2)
				w.refresh()
				gone := len(testlab.OpenFiles(t))
				w.plug(2, netns.VethOptions{Queues: 2})
				w.refresh()
				if now := len(testlab.OpenFiles(t)); now > before || gone >= before {
					t.Errorf("%d files were open, %d without the port, %d when it was back", before, gone, now)
				}
			}
		})
	}
}

// Each counter of a port is shown under its own name.
func TestCountersHaveTheirNames(t *testing.T) {
	p := &port{}
	want := map[string]uint64{}
	for name, n := range map[string]*atomic.Uint64{
		"rx-oversized": &p.oversized, "rx-unmarked": &p.unmarked, "tx-stalled": &p.stalled, "tx-link-down": &p.linkDown,
		"tx-device-gone": &p.deviceGone, "tx-refused": &p.refused, "tx-backlog": &p.backlog,
	} {
		want[name] = 2 * n.Add(uint64(len(want)+1))
	}
	d := dropped{kernel: xsk.Stats{RxDropped: 100, RxRingFull: 200, RxFillEmpty: 300, TxInvalidDescs: 400}}
	want["rx-dropped"], want["rx-ring-full"], want["rx-fill-empty"], want["tx-withdrawn"] = 100, 200, 300, 400
	d.add(p)
	d.add(p) // the share of a second worker
	for _, c := range d.counters() {
		if c.Value != want[c.Name] {
			t.Errorf("%s is %d, want %d", c.Name, c.Value, want[c.Name])
		}
		delete(want, c.Name)
	}
	if len(want) > 0 {
		t.Errorf("not shown: %v", want)
	}
}
