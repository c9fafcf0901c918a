package rnic

import (
	"bytes"
	"container/heap"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/rocast/rocast/roce"
)

// node is a queue pair with memory that its peer may write to.
type node struct {
	qp     *QP
	memory []byte
	buf    [MaxFrameBytes]byte
}

const (
	nodeVA          = 0x7F0000000000
	nodeRKey        = 0x1234
	nodeMemoryBytes = 1 << 20
)

func (n *node) remote() Remote { return Remote{VA: nodeVA, RKey: nodeRKey} }

// pair connects two nodes. change may set anything but addresses, QPNs and PSNs.
func pair(t testing.TB, change func(*Config), ipA, ipB netip.Addr) (a, b *node) {
	t.Helper()
	peers := [2]Peer{
		{MAC: roce.MAC{2, 0, 0, 0, 0, 0xA}, IP: ipA, QPN: 0xA1, PSN: 0xFFFFF0},
		{MAC: roce.MAC{2, 0, 0, 0, 0, 0xB}, IP: ipB, QPN: 0xB1, PSN: 0x000400},
	}
	var nodes [2]*node
	for i, self := range peers {
		c := Defaults()
		if change != nil {
			change(&c)
		}
		c.MAC, c.IP, c.QPN, c.SendPSN = self.MAC, self.IP, self.QPN, self.PSN
		memory := make([]byte, nodeMemoryBytes)
		region := Region{VA: nodeVA, RKey: nodeRKey, Access: RemoteWrite, Bytes: memory}
		nodes[i] = &node{qp: connected(t, c, peers[1-i], region), memory: memory}
	}
	return nodes[0], nodes[1]
}

func pairIPv4(t testing.TB, change func(*Config)) (a, b *node) {
	t.Helper()
	return pair(t, change, netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"))
}

// exchange moves frames between two nodes over a perfect link, until both have nothing to send.
func exchange(a, b *node) {
	for moved := true; moved; {
		moved = false
		for _, way := range [2][2]*node{{a, b}, {b, a}} {
			if f := way[0].qp.Transmit(0, way[0].buf[:]); f != nil {
				moved = true
				if r := way[1].qp.Receive(0, f, way[1].buf[:]); r != nil {
					way[0].qp.Receive(0, r, nil)
				}
			}
		}
	}
}

// lossyLink is a network between two nodes in simulated time, with a seed. Each frame may be lost,
// doubled and delayed. Delays differ, so frames overtake each other.
type lossyLink struct {
	random          *rand.Rand
	lost, doubled   float64
	latency, jitter time.Duration
	now             time.Duration
	nodes           [2]*node
	flying          flight
	sequence        uint64
	at              func() // called before every event
}

type flying struct {
	at       time.Duration
	sequence uint64 // the order of equal times, so that a run is the same every time
	to       int
	frame    []byte
}

type flight []flying

func (f flight) Len() int { return len(f) }
func (f flight) Less(i, j int) bool {
	return f[i].at < f[j].at || f[i].at == f[j].at && f[i].sequence < f[j].sequence
}
func (f flight) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f *flight) Push(x any)   { *f = append(*f, x.(flying)) }
func (f *flight) Pop() any     { last := (*f)[len(*f)-1]; *f = (*f)[:len(*f)-1]; return last }

func (l *lossyLink) send(from int, frame []byte) {
	if l.random.Float64() < l.lost {
		return
	}
	copies := 1
	if l.random.Float64() < l.doubled {
		copies = 2
	}
	for range copies {
		l.sequence++
		delay := l.latency + time.Duration(l.random.Int64N(int64(l.jitter)+1))
		heap.Push(&l.flying, flying{at: l.now + delay, sequence: l.sequence, to: 1 - from, frame: bytes.Clone(frame)})
	}
}

// run lets time pass until done returns true, nothing can happen any more, or the limit is reached.
func (l *lossyLink) run(limit time.Duration, done func() bool) {
	for !done() && l.now < limit {
		l.transmit()
		next := min(l.nodes[0].qp.NextDeadline(), l.nodes[1].qp.NextDeadline())
		if len(l.flying) > 0 && l.flying[0].at <= next {
			f := heap.Pop(&l.flying).(flying)
			l.now = f.at
			l.at()
			if reply := l.nodes[f.to].qp.Receive(l.now, f.frame, l.nodes[f.to].buf[:]); reply != nil {
				l.send(f.to, reply)
			}
			continue
		}
		if next == Never {
			return
		}
		l.now = next
		l.at()
		for _, n := range l.nodes {
			n.qp.Tick(l.now)
		}
	}
}

// transmit lets each node send a few packets. What arrives meanwhile cuts the burst.
func (l *lossyLink) transmit() {
	for i, n := range l.nodes {
		for range 1 + l.random.IntN(8) {
			frame := n.qp.Transmit(l.now, n.buf[:])
			if frame == nil {
				break
			}
			l.send(i, frame)
		}
	}
}
