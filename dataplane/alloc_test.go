package dataplane_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// loop is a port that receives one frame again and again, and discards what is sent.
type loop struct {
	frame []byte
	buf   []byte // into which it is received
	table func() *mft.Table
	sw    *dataplane.Switch
	next  roce.PSN
	step  int32 // between the PSNs of two frames
	sent  int
	// unsent is how many bytes its device seems to have.
	unsent int
}

// slots is a pool of one buffer for a reply.
type slots struct{ buf []byte }

func (s *slots) Get(f *dataplane.Frame) bool {
	f.Buf, f.Start, f.FragmentCount = s.buf, 64, 0
	return true
}

func (s *slots) Load(*dataplane.Frame, []byte, []byte) bool { return false }

func (s *slots) Put(*dataplane.Frame) {}

func (l *loop) Receive(frames []dataplane.Frame) int {
	if l.frame == nil {
		return 0
	}
	f := &frames[0]
	f.Buf, f.Start, f.FragmentCount = l.buf, 64, 1
	n := copy(f.Buf[64:], l.frame)
	f.Fragments[0] = f.Buf[64 : 64+n]
	f.Group, f.Kind, _ = dataplane.Classify(l.table(), f.Fragments[0])
	var v roce.View
	if err := v.Decode(l.frame, len(l.frame)); err != nil {
		panic(err)
	}
	head := f.Fragments[0]
	v.SetPSN(head, l.next)
	f.Fragments[1] = head
	v.PutICRC(f.Fragments[1:2], v.ComputeICRC(f.Fragments[1:2]))
	l.next = l.next.Add(l.step)
	return 1
}

func (l *loop) Send(out []dataplane.Outgoing) int {
	l.sent += len(out)
	return len(out)
}

func (l *loop) Unsent() int { return l.unsent }

func newLoops(t testing.TB, payloadBytes int, repair feedback.RepairPolicy, egress ...dataplane.Egress) (w *dataplane.Worker, ports []*loop, g *mft.Group) {
	g = group()
	g.PathMTU, g.Policy.Repair = 4096, repair
	pool := &slots{make([]byte, 8192)}
	var s *dataplane.Switch
	var in []dataplane.Port
	for range 4 {
		l := &loop{step: 1, buf: make([]byte, 8192), table: func() *mft.Table { return s.Table() }}
		ports, in = append(ports, l), append(in, l)
	}
	s = dataplane.New(dataplane.Config{
		Workers: []dataplane.WorkerConfig{{Ports: in, Pool: pool}}, Steering: noSteering{},
		RepairChunks: 4096, Egress: egress,
	})
	if _, err := s.Add(g); err != nil {
		t.Fatal(err)
	}
	ports[0].sw = s
	ports[0].frame, ports[0].next = write(firstPSN, make([]byte, payloadBytes)).frame(t), firstPSN
	for i, p := range g.Paths {
		ports[i+1].frame = ack(p.Dst, p.FirstPSN, roce.SyndromeUnlimited).frame(t)
		ports[i+1].next = p.FirstPSN
	}
	return s.Workers()[0], ports, g
}

type noSteering struct{}

func (noSteering) Steer(mft.Key, mft.GroupID) error { return nil }
func (noSteering) Unsteer(mft.Key) error            { return nil }

// Data to three receivers, three ACKs back, and the merged ACK do not allocate.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	for _, repair := range []feedback.RepairPolicy{feedback.RepairOff, feedback.RepairLocal} {
		w, ports, _ := newLoops(t, 1024, repair)
		w.Poll()
		if n := testing.AllocsPerRun(1000, func() { w.Poll() }); n != 0 {
			t.Errorf("repair %v: %v allocations per round", repair, n)
		}
		if ports[1].sent != 1002 || ports[0].sent != 1002 {
			t.Errorf("repair %v: sent %d copies and %d merged ACKs in 1002 rounds", repair, ports[1].sent, ports[0].sent)
		}
	}
}

// A NAK in each round, and the packet that is sent again for it, do not allocate.
func TestRepairAllocatesNothing(t *testing.T) {
	w, ports, g := newLoops(t, 1024, feedback.RepairLocal)
	p := &g.Paths[0]
	ports[1].frame = ack(p.Dst, p.FirstPSN, roce.NAKSequence).frame(t)
	w.Poll()
	if n := testing.AllocsPerRun(1000, func() { w.Poll() }); n != 0 {
		t.Errorf("%v allocations per round", n)
	}
	if ports[1].sent != 2*1002 || ports[2].sent != 1002 {
		t.Errorf("sent %d copies to one receiver and %d to the other in 1002 rounds", ports[1].sent, ports[2].sent)
	}
}

// Marking, and copies that are lost because their queue is full, do not allocate.
func TestEgressAllocatesNothing(t *testing.T) {
	bounds := dataplane.Egress{KminBytes: 1, KmaxBytes: 100000, MarkPercent: 50, LimitBytes: 100000}
	w, ports, _ := newLoops(t, 1024, feedback.RepairLocal, bounds, bounds, bounds)
	for i, p := range ports {
		p.unsent = i * 60000
		v := roce.View{}
		if err := v.Decode(p.frame, len(p.frame)); err != nil {
			t.Fatal(err)
		}
		v.SetECN(p.frame, ect0)
	}
	w.Poll()
	if n := testing.AllocsPerRun(1000, func() { w.Poll() }); n != 0 {
		t.Errorf("%v allocations per round", n)
	}
	if ports[1].sent != 1002 || ports[2].sent != 0 {
		t.Errorf("by a port with room went %d copies, by a full one %d", ports[1].sent, ports[2].sent)
	}
}

// BenchmarkRound measures a data packet to three receivers, their ACKs and the merged ACK, without
// any I/O.
func BenchmarkRound(b *testing.B) {
	for _, bytes := range []int{1024, 4096} {
		for _, repair := range []feedback.RepairPolicy{feedback.RepairOff, feedback.RepairLocal} {
			b.Run(fmt.Sprintf("%dB/repair-%v", bytes, repair), func(b *testing.B) {
				w, _, _ := newLoops(b, bytes, repair)
				for b.Loop() {
					w.Poll()
				}
			})
		}
	}
}

// The fields that a copy reads are in two cache lines, for each frame of a list. In front of a list
// of this length Go's allocator has a header of 8 bytes.
func TestACopyReadsTwoCacheLinesOfItsFrame(t *testing.T) {
	const cacheLine, header = 64, 8
	frame := reflect.TypeFor[dataplane.Frame]()
	chunks, _ := frame.FieldByName("Chunks")
	if end := header + chunks.Offset + chunks.Type.Elem().Size(); end > 2*cacheLine {
		t.Errorf("the fields up to the first chunk end at %d, want %d at most", end, 2*cacheLine)
	}
	if frame.Size()%cacheLine != 0 {
		t.Errorf("a frame has %d bytes", frame.Size())
	}
}
