package dataplane_test

import (
	"fmt"
	"testing"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// stream is a port that receives full batches of consecutive packets, and discards what is sent.
type stream struct {
	headers []byte // what copies change of a packet
	view    roce.View
	group   mft.GroupID
	next    roce.PSN
	bufs    [][]byte
	sent    int
}

func newStream(t testing.TB, payloadBytes int) *stream {
	packet := write(firstPSN, make([]byte, payloadBytes)).frame(t)
	p := &stream{headers: packet[:96], next: firstPSN}
	if err := p.view.Decode(packet, len(packet)); err != nil {
		t.Fatal(err)
	}
	for range 64 {
		buf := make([]byte, 64+len(packet))
		copy(buf[64:], packet)
		p.bufs = append(p.bufs, buf)
	}
	return p
}

// Receive writes only the headers anew: the payload stays, and so does the ICRC, which nobody
// checks.
func (p *stream) Receive(frames []dataplane.Frame) int {
	for i, buf := range p.bufs {
		f := &frames[i]
		copy(buf[64:], p.headers)
		p.view.SetPSN(buf[64:], p.next)
		f.Buf, f.Start, f.FragmentCount = buf, 64, 1
		f.Fragments[0] = buf[64:]
		f.Group, f.Kind = p.group, dataplane.KindData
		p.next = p.next.Next()
	}
	return len(p.bufs)
}

func (p *stream) Send(out []dataplane.Outgoing) int {
	p.sent += len(out)
	return len(out)
}

func (p *stream) Unsent() int { return 0 }

// BenchmarkBatch measures a batch of 64 data packets to three receivers, an ACK from each of them,
// and the merged ACK, without any I/O.
func BenchmarkBatch(b *testing.B) {
	for _, repair := range []feedback.RepairPolicy{feedback.RepairOff, feedback.RepairLocal} {
		b.Run(fmt.Sprintf("repair-%v", repair), func(b *testing.B) { batches(b, repair) })
	}
}

func batches(b *testing.B, repair feedback.RepairPolicy) {
	g := group()
	g.PathMTU, g.Policy.Repair = 4096, repair
	pool := &slots{make([]byte, 8192)}
	var s *dataplane.Switch
	data := newStream(b, 1024)
	in := []dataplane.Port{data}
	var acks []*loop
	for range 3 {
		l := &loop{buf: make([]byte, 8192), table: func() *mft.Table { return s.Table() }}
		acks, in = append(acks, l), append(in, l)
	}
	s = dataplane.New(dataplane.Config{
		Workers: []dataplane.WorkerConfig{{Ports: in, Pool: pool}}, Steering: noSteering{}, RepairChunks: 1 << 14,
	})
	if _, err := s.Add(g); err != nil {
		b.Fatal(err)
	}
	data.group, _ = s.Table().Lookup(ipA, ipGroup, groupQPN)
	for i, p := range g.Paths {
		acks[i].frame = ack(p.Dst, p.FirstPSN, roce.SyndromeUnlimited).frame(b)
		acks[i].next = p.FirstPSN.Add(63)
		acks[i].step = 64
	}
	w := s.Workers()[0]
	for b.Loop() {
		w.Poll()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*64), "ns/packet")
	if want := 64 * b.N; acks[0].sent < want || data.sent < b.N {
		b.Errorf("sent %d copies and %d merged ACKs in %d rounds", acks[0].sent, data.sent, b.N)
	}
}
