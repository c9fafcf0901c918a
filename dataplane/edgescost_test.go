package dataplane_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// crowd is a port behind which all receivers are. When it is their turn each acknowledges the
// newest packet. It discards what is sent.
type crowd struct {
	acks  [][]byte // by receiver, with the PSN of the first packet
	views []roce.View
	bufs  [][]byte
	group mft.GroupID
	from  []roce.PSN
	upTo  int32 // packets that were sent; 0: nobody answers now
	sent  int
}

func (p *crowd) Receive(frames []dataplane.Frame) int {
	if p.upTo == 0 {
		return 0
	}
	for i, frame := range p.acks {
		f, buf := &frames[i], p.bufs[i]
		copy(buf[64:], frame)
		f.Buf, f.Start, f.FragmentCount = buf, 64, 1
		f.Fragments[0] = buf[64 : 64+len(frame)]
		f.Group, f.Kind = p.group, dataplane.KindFeedback
		v := &p.views[i]
		v.SetPSN(f.Fragments[0], p.from[i].Add(p.upTo-1))
		v.PutICRC(f.Fragments[:1], v.ComputeICRC(f.Fragments[:1]))
	}
	p.upTo = 0
	return len(p.acks)
}

func (p *crowd) Send(out []dataplane.Outgoing) int {
	p.sent += len(out)
	return len(out)
}

func (p *crowd) Unsent() int { return 0 }

// gate lets batches of data in one at a time.
type gate struct {
	*stream
	open bool
}

func (p *gate) Receive(frames []dataplane.Frame) int {
	if !p.open {
		return 0
	}
	p.open = false
	return p.stream.Receive(frames)
}

// BenchmarkCopies measures batches of 64 packets to receivers behind one port, with copies of their
// own and with shared ones, and apart from that one ACK from each receiver for each batch. There is
// no I/O.
func BenchmarkCopies(b *testing.B) {
	for _, n := range []int{1, 3, 16, 63} {
		b.Run(fmt.Sprintf("%d receivers, own", n), func(b *testing.B) { copies(b, n, false) })
		if n > 1 {
			b.Run(fmt.Sprintf("%d receivers, shared", n), func(b *testing.B) { copies(b, n, true) })
		}
	}
}

func copies(b *testing.B, receivers int, shared bool) {
	g := group()
	path := g.Paths[0]
	g.Policy.Repair, g.Policy.RepairWindow, g.Paths = feedback.RepairLocal, 1024, nil
	var members []mft.QP
	for i := range receivers {
		p := path
		p.Port, p.Dst, p.DestQPN = 1, netip.AddrFrom4([4]byte{10, 77, 1, byte(1 + i)}), roce.QPN(100+i)
		g.Paths = append(g.Paths, p)
		members = append(members, p.QP())
	}
	if shared {
		g.Shares = []mft.Share{g.Paths[0].Shared(ipAll, generation, members)}
	}
	data, hosts := &gate{stream: newStream(b, 1024)}, new(crowd)
	s := dataplane.New(dataplane.Config{
		Workers:  []dataplane.WorkerConfig{{Ports: []dataplane.Port{data, hosts}, Pool: &slots{make([]byte, 8192)}}},
		Steering: noSteering{}, RepairChunks: 1 << 12,
	})
	if _, err := s.Add(g); err != nil {
		b.Fatal(err)
	}
	data.group, _ = s.Table().Lookup(ipA, ipGroup, groupQPN)
	hosts.group = data.group
	for i := range g.Paths {
		p := &g.Paths[i]
		hosts.from = append(hosts.from, p.FirstPSN)
		frame := ack(p.Dst, p.FirstPSN, roce.SyndromeUnlimited).frame(b)
		var v roce.View
		if err := v.Decode(frame, len(frame)); err != nil {
			b.Fatal(err)
		}
		hosts.acks, hosts.views, hosts.bufs = append(hosts.acks, frame), append(hosts.views, v), append(hosts.bufs, make([]byte, 64+len(frame)))
	}
	w := s.Workers()[0]
	var forData, forACKs time.Duration
	packets := int32(0)
	for b.Loop() {
		data.open = true
		began := time.Now()
		w.Poll()
		sent := time.Now()
		packets += 64
		hosts.upTo = packets
		w.Poll()
		forData, forACKs = forData+sent.Sub(began), forACKs+time.Since(sent)
	}
	b.ReportMetric(float64(forData.Nanoseconds())/float64(packets), "ns/packet")
	b.ReportMetric(float64(forACKs.Nanoseconds())/float64(b.N*receivers), "ns/ACK")
	each := receivers
	if shared {
		each = 1
	}
	if want := each * int(packets); hosts.sent != want {
		b.Errorf("%d copies of %d packets, want %d", hosts.sent, packets, want)
	}
	if m := moved(s); m["merged"] == 0 || m["repair-sent"] != 0 {
		b.Errorf("%v", m)
	}
}
