package dataplane

import (
	"math"
	"testing"

	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Without a limit, too, repairs have a bound.
func TestTheShareOfRepairs(t *testing.T) {
	for limit, want := range map[int]int{0: 512 << 10, 100000: 50000, 99999: 49999} {
		e := Egress{LimitBytes: limit}
		first, others := e.repairShare(true), e.repairShare(false)
		if first != want || others != want-want/4 {
			t.Errorf("limit %d: %d bytes, and %d of packets for which no receiver waits", limit, first, others)
		}
	}
}

// The queue holds the newest bytes that the port was given. What of it are repairs follows from
// that.
func TestWhichBytesOfAQueueAreRepairs(t *testing.T) {
	queue := newEgressQueue(0, Egress{LimitBytes: 2000})
	q := &queue
	give := func(other int, repairs ...int) {
		q.pending = other
		for _, n := range repairs {
			if !q.admitRepair(n, true) {
				t.Errorf("%d bytes of repairs are refused, and %d are there", n, q.repairs.bytes)
			}
			q.pending += n
		}
		q.gave(q.pending)
	}
	expect := func(unsent, want int) {
		t.Helper()
		if q.look(unsent); q.repairs.bytes != want {
			t.Errorf("%d bytes wait, and %d of them are repairs, want %d", unsent, q.repairs.bytes, want)
		}
	}
	give(500, 100, 200) // oldest first: 500 other bytes, 300 of repairs
	give(0, 50)         // 350
	give(100, 10)
	give(40)
	expect(1000, 360)
	expect(500, 360)
	expect(499, 359)
	expect(160, 20)
	expect(150, 10)
	expect(45, 5)
	expect(41, 1)
	expect(40, 0)
	give(0, 1000) // as much as is allowed
	expect(1040, 1000)
	if q.admitRepair(1, true) {
		t.Error("one byte more is admitted")
	}
	expect(999, 999)
	if !q.admitRepair(1, true) || q.admitRepair(1, true) {
		t.Error("there is room for one byte exactly")
	}
	q.gave(1)
	expect(0, 0)
}

// What the port has lost does not count for ever.
func TestRepairsThatThePortHasLostAreForgotten(t *testing.T) {
	queue := newEgressQueue(0, Egress{})
	q := &queue
	for range 100 {
		if !q.admitRepair(repairLimit/2, true) {
			t.Fatal("refused, and nothing waits")
		}
		q.gave(repairLimit / 2)
		q.look(0)
	}
}

// The number of bursts that are told apart is bounded. One more is refused, unless it continues the
// last one.
func TestBurstsOfRepairsAreBounded(t *testing.T) {
	queue := newEgressQueue(0, Egress{})
	q := &queue
	unsent := 0
	for range 10 { // across the end of the list
		for range len(q.repairs.bursts) {
			q.gave(1000)
			if !q.admitRepair(10, true) {
				t.Fatal("refused")
			}
			q.gave(10)
			unsent += 1010
		}
		if q.look(unsent); !q.admitRepair(10, true) {
			t.Error("what follows the last burst is refused")
		}
		if q.gave(11); q.admitRepair(10, true) {
			t.Error("one burst too many is admitted")
		}
		q.look(0)
		if unsent = 0; q.repairs.bytes != 0 {
			t.Errorf("%d bytes of repairs in an empty queue", q.repairs.bytes)
		}
	}
}

// idlePort sends everything, and its device has sent nothing yet.
type idlePort struct{ unsent int }

func (p *idlePort) Receive([]Frame) int     { return 0 }
func (p *idlePort) Send(out []Outgoing) int { return len(out) }
func (p *idlePort) Unsent() int             { return p.unsent }

// A port without bounds takes any number of copies, and repairs up to their share.
func TestAPortWithoutBoundsTakesTheShareOfRepairs(t *testing.T) {
	w := &Worker{ports: []Port{&idlePort{}}, queues: []egressQueue{newEgressQueue(0, Egress{})}, stats: make([]PortCounters, 1)}
	if q := &w.queues[0]; !q.admitsAll(SentCopy) || q.admitsAll(SentRepair) {
		t.Errorf("all copies are admitted: %v, all repairs: %v", q.admitsAll(SentCopy), q.admitsAll(SentRepair))
	}
	f := &Frame{Buf: make([]byte, 1024), FragmentCount: 1}
	f.Fragments[0] = f.Buf
	o := &Outgoing{Frame: f, Bytes: f.Len(), fate: SentCopy}
	for range 10 * repairLimit / len(f.Buf) {
		if !w.admit(0, o) {
			t.Fatal("a copy is refused")
		}
	}
	n := 0
	o.fate = SentRepair
	for n < repairLimit/len(f.Buf) && w.admit(0, o) {
		n++
	}
	o.fate, o.first = SentRepair, true
	for n < repairLimit/len(f.Buf) && w.admit(0, o) {
		n++
	}
	if n != repairLimit/2/len(f.Buf) || w.stats[0].RepairsPutOff != 2 {
		t.Errorf("%d repairs are admitted, and %+v is counted", n, w.stats[0])
	}
}

// fewPort takes the first frames of each call, and no more.
type fewPort struct {
	idlePort
	takes int
}

func (p *fewPort) Send(out []Outgoing) int { return min(len(out), p.takes) }

// The bytes of frames that the port has not taken are not sent, and these are the last ones.
func TestOnlyBytesThatThePortTookAreSent(t *testing.T) {
	port := &fewPort{}
	w := &Worker{core: NewCore(nil), ports: []Port{port}, queues: []egressQueue{newEgressQueue(0, Egress{})}, stats: make([]PortCounters, 1), send: make([]Outgoing, 0, 4)}
	var want PortCounters
	for takes, sent := range []uint64{0, 100, 300, 700, 1500} {
		port.takes = takes
		for _, bytes := range []int{100, 200, 400, 800} {
			w.another(0).Bytes = bytes
			w.sending += bytes
		}
		w.transmit(0)
		want.Add(PortCounters{TxFrames: uint64(takes), TxBytes: sent, TxLost: uint64(4 - takes)})
		if w.stats[0] != want {
			t.Errorf("the port took %d of 4 frames: %+v, want %+v", takes, w.stats[0], want)
		}
	}
}

// Each port marks as many copies as it should, and ports do not mark the same ones.
func TestMarksAreSpreadEvenly(t *testing.T) {
	const frames, ports, percent = 20_000, 8, 5
	queues := make([]egressQueue, ports)
	for i := range queues {
		queues[i] = newEgressQueue(mft.PortID(i), Egress{KminBytes: 0, KmaxBytes: 2000, MarkPercent: 2 * percent})
	}
	alike := 0
	for range frames {
		all := true
		for i := range queues {
			queues[i].waiting = 1000
			all = queues[i].mark(ecnFrame()) && all
		}
		if all {
			alike++
		}
	}
	if alike > 0 {
		t.Errorf("all ports marked the same %d copies", alike)
	}
	for i := range queues {
		marked, previous, pairs := 0, false, 0
		for range frames {
			marks := queues[i].mark(ecnFrame())
			if marks {
				marked++
			}
			if marks && previous {
				pairs++
			}
			previous = marks
		}
		// Four times the deviation of as many independent draws.
		const p = percent / 100.0
		for _, c := range []struct {
			what string
			got  int
			p    float64
		}{{"copies", marked, p}, {"copies behind a marked one", pairs, p * p}} {
			mean, deviation := frames*c.p, math.Sqrt(frames*c.p*(1-c.p))
			if math.Abs(float64(c.got)-mean) > 4*deviation {
				t.Errorf("port %d marked %d %s of %d, want about %.0f", i, c.got, c.what, frames, mean)
			}
		}
	}
}

// ecnFrame is the IPv4 header of a frame whose sender understands marks.
func ecnFrame() *Frame {
	f := &Frame{View: roce.View{L3: 0}, FragmentCount: 1}
	f.Fragments[0] = make([]byte, 20)
	f.Fragments[0][1] = 2
	return f
}
