package dataplane_test

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

const (
	notECT = iota // congestion fields (RFC 3168, 5)
	ect1
	ect0
	ce
)

// still is a clock that stands still.
func still() feedback.Tick { return 0 }

func TestTheProbabilityOfAMarkRisesBetweenTheBounds(t *testing.T) {
	half := dataplane.Egress{KminBytes: 1000, KmaxBytes: 3000, MarkPercent: 50}
	largest := dataplane.Egress{KminBytes: 0, KmaxBytes: dataplane.LimitMost, MarkPercent: 100}
	step := dataplane.Egress{KminBytes: 1000, KmaxBytes: 1000, MarkPercent: 1}
	for _, c := range []struct {
		bounds  dataplane.Egress
		waiting int
		random  uint32
		want    bool
	}{
		{half, 1000, 0, false},
		{half, 1001, 0, true},
		{half, 2000, 1<<30 - 1, true}, // a quarter
		{half, 2000, 1 << 30, false},
		{half, 2999, 1<<31 - 1<<21, true},
		{half, 2999, 1 << 31, false},
		{half, 3000, math.MaxUint32, true},
		{half, math.MaxInt, math.MaxUint32, true},
		{largest, dataplane.LimitMost - 1, math.MaxUint32 - 1<<9, true},
		{largest, dataplane.LimitMost / 2, 1<<31 - 1, true},
		{largest, dataplane.LimitMost / 2, 1 << 31, false},
		{step, 1000, 0, false},
		{step, 1001, math.MaxUint32, true},
		{dataplane.Egress{LimitBytes: 1}, math.MaxInt, 0, false},
		{dataplane.Egress{}, math.MaxInt, 0, false},
	} {
		if got := c.bounds.Marks(c.waiting, c.random); got != c.want {
			t.Errorf("%+v, %d bytes wait, %d: marked %v", c.bounds, c.waiting, c.random, got)
		}
	}
	for eighths := range uint32(8) { // of the largest bounds, and of all numbers
		for n := range uint32(8) {
			waiting, random := int(eighths)*dataplane.LimitMost/8+1, n<<29
			if got := largest.Marks(waiting, random); got != (n <= eighths) {
				t.Errorf("%+v, %d bytes wait, %d: marked %v", largest, waiting, random, got)
			}
		}
	}
}

// ecn returns the congestion field of a frame whose checksums must be right.
func ecn(t *testing.T, b []byte) uint8 {
	t.Helper()
	if d := decode(t, b); !d.ICRCValid || !d.ChecksumValid {
		t.Errorf("ICRC valid %v, checksum valid %v: %x", d.ICRCValid, d.ChecksumValid, b)
	}
	var v roce.View
	if err := v.Decode(b, len(b)); err != nil {
		t.Fatal(err)
	}
	return v.ECN(b)
}

// A long queue marks the copies that leave by it, and no other ones, although all are written into
// the same buffer. DSCP stays.
func TestALongQueueMarksWhatLeavesByIt(t *testing.T) {
	bounds := dataplane.Egress{KminBytes: 1000, KmaxBytes: 2000, MarkPercent: 100}
	for _, long := range []int{1, 2, 3} {
		for came, leaves := range map[uint8]uint8{notECT: notECT, ect1: ce, ect0: ce, ce: ce} {
			net := porttest.NewBounded(4, nil, still, bounds, bounds, bounds, bounds)
			if _, err := net.Switch.Add(group()); err != nil {
				t.Fatal(err)
			}
			net.Ports[long].Waiting = 2000
			p := write(firstPSN, []byte("data"))
			p.class = 26<<2 | came
			net.Ports[0].Put(p.frame(t))
			net.Poll()
			for port := 1; port <= 3; port++ {
				want, marked := came, uint64(0)
				if port == long {
					want = leaves
					if came != leaves {
						marked = 1
					}
				}
				out := net.Ports[port].Take()
				if len(out) != 1 || ecn(t, out[0]) != want || out[0][15]>>2 != 26 {
					t.Errorf("came with ECN %d, queue %d is long: by port %d left %x", came, long, port, out)
				}
				if c := net.Switch.PortCounters()[port]; c.Marked != marked || c.TxLost != 0 {
					t.Errorf("came with ECN %d, queue %d is long: port %d counts %+v", came, long, port, c)
				}
			}
		}
	}
}

func TestAMarkInIPv6(t *testing.T) {
	g := group()
	six := func(a netip.Addr) netip.Addr {
		b := netip.MustParseAddr("fd00::").As16()
		copy(b[12:], a.AsSlice())
		return netip.AddrFrom16(b)
	}
	g.IP, g.Source.Src, g.Source.Dst = six(g.IP), six(g.IP), six(g.Source.Dst)
	for i := range g.Paths {
		p := &g.Paths[i]
		p.Src, p.Dst = g.IP, six(p.Dst)
		p.L2[12], p.L2[13] = 0x86, 0xDD
	}
	net := porttest.NewBounded(4, nil, still, dataplane.Egress{}, dataplane.Egress{KminBytes: 1, KmaxBytes: 1, MarkPercent: 1})
	if _, err := net.Switch.Add(g); err != nil {
		t.Fatal(err)
	}
	net.Ports[1].Waiting = 2
	p := write(firstPSN, []byte("data"))
	p.src, p.dst, p.class = g.Source.Dst, g.IP, 0xA4|ect1
	b := p.frameFrom(t, mac(ipA))
	b[15] |= 0x0C // of the flow label
	net.Ports[0].Put(b)
	net.Poll()
	for port, want := range []uint8{1: ce, 2: ect1, 3: ect1} {
		if port == 0 {
			continue
		}
		out := net.Ports[port].Take()
		if len(out) != 1 || ecn(t, out[0]) != want || out[0][14] != 0x6A || out[0][15]&0xCF != 0x4C {
			t.Errorf("by port %d left %x, want ECN %d", port, out, want)
		}
	}
}

// A retained packet is sent again as the source sent it, although its last copy was marked.
func TestARepairIsMarkedByItsOwnQueueOnly(t *testing.T) {
	none, bounds := dataplane.Egress{}, dataplane.Egress{KminBytes: 1000, KmaxBytes: 1000, MarkPercent: 100}
	b := &repairBench{t: t, group: group(), Net: porttest.NewBounded(4, nil, still, none, none, none, bounds)}
	b.group.Policy.Repair = feedback.RepairLocal
	b.add(b.group)
	b.Ports[3].Waiting = 2000
	p := write(firstPSN, []byte("data"))
	p.class = ect0
	b.send(p)
	for path, want := range []uint8{ect0, ect0, ce} {
		port := b.Ports[path+1]
		if out := port.Take(); len(out) != 1 || ecn(t, out[0]) != want {
			t.Errorf("path %d: the copy is %x, want ECN %d", path, out, want)
		}
		b.answer(path, firstPSN, roce.NAKSequence)
		if out := port.Take(); len(out) != 1 || ecn(t, out[0]) != want {
			t.Errorf("path %d: the repair is %x, want ECN %d", path, out, want)
		}
	}
}

// bounded is a switch with a group with repair on, whose port 1 has bounds.
func bounded(t *testing.T, e dataplane.Egress) *repairBench {
	t.Helper()
	b := &repairBench{t: t, group: group()}
	b.Net = porttest.NewBounded(4, nil, func() feedback.Tick { return b.now }, dataplane.Egress{}, e)
	b.group.Policy.Repair = feedback.RepairLocal
	b.add(b.group)
	return b
}

// A copy that finds the queue full is lost for its receiver alone. What waits in the same burst
// counts.
func TestAFullQueueLosesCopiesOfItsPort(t *testing.T) {
	frameBytes := len(write(firstPSN, make([]byte, 1000)).frame(t))
	const fit = 3
	for _, waiting := range []int{0, 2 * frameBytes} {
		b := bounded(t, dataplane.Egress{LimitBytes: waiting + fit*frameBytes})
		b.Ports[1].Waiting = waiting
		for i := range int32(fit + 2) {
			b.Ports[0].Put(write(roce.PSN(firstPSN).Add(i), make([]byte, 1000)).frame(t))
		}
		b.Poll()
		for port, want := range []int{0, fit, fit + 2, fit + 2} {
			if out := b.Ports[port].Take(); len(out) != want {
				t.Errorf("%d bytes wait: port %d sent %d frames, want %d", waiting, port, len(out), want)
			}
		}
		c := b.Switch.PortCounters()[1]
		if c.QueueFull != 2 || c.TxLost != 2 || c.TxFrames != fit || c.Marked != 0 {
			t.Errorf("%d bytes wait: counted %+v", waiting, c)
		}
		// The receiver asks for what it lacks when there is room again.
		b.Ports[1].Waiting = 0
		b.answer(0, firstPSN+fit, roce.NAKSequence)
		if out := b.Ports[1].Take(); len(out) == 0 || decode(t, out[0]).PSN != b.group.Paths[0].FirstPSN.Add(fit) {
			t.Errorf("%d bytes wait: repairs %x", waiting, out)
		}
	}
}

// Bursts of several receivers behind one port are more than its queue takes: each receiver loses
// the same share. It does so too where groups take turns, so that each has every other flush, and
// where the queue has room for a single receiver.
func TestAFullQueueLosesTheSameShareOfEachReceiver(t *testing.T) {
	const receivers, burst, rounds = 6, 8, 600
	frameBytes := len(write(firstPSN, nil).frame(t))
	for _, groups := range []int{1, 2, 3} {
		for _, fit := range []int{1, 4} {
			net := porttest.NewBounded(2, nil, still, dataplane.Egress{}, dataplane.Egress{LimitBytes: fit * burst * frameBytes})
			var all []*mft.Group
			for i := range groups {
				g := numbered(i)
				g.Paths = nil
				for k := range byte(receivers) {
					p := receiver(1, netip.AddrFrom4([4]byte{10, 77, 1, byte(10*i) + k}))
					p.RemoteQPN = g.QPN
					g.Paths = append(g.Paths, p)
				}
				if _, err := net.Switch.Add(g); err != nil {
					t.Fatal(err)
				}
				all = append(all, g)
			}
			net.Ports[1].Holds = true
			got := map[netip.Addr]int{}
			for round := range rounds {
				g := all[round%groups]
				for i := range burst {
					p := write(roce.PSN(firstPSN).Add(int32(round/groups*burst+i)), nil)
					p.bth.DestQPN = g.QPN
					net.Ports[0].Put(p.frame(t))
				}
				net.Poll()
				for _, f := range net.Ports[1].Take() {
					got[decode(t, f).Dst]++
				}
				net.Ports[1].Waiting = 0
			}
			want := rounds / groups * burst * fit / receivers
			for _, g := range all {
				for i := range g.Paths {
					if n := got[g.Paths[i].Dst]; n < want*9/10 || n > want*11/10 {
						t.Errorf("%d groups, room for %d receivers: %v got %d copies, and an equal share is %d", groups, fit, g.Paths[i].Dst, n, want)
					}
				}
			}
		}
	}
}

// Our own answers are sent although the queue of their port is full.
func TestAFullQueueLosesNoAnswer(t *testing.T) {
	net := porttest.NewBounded(4, nil, still, dataplane.Egress{KminBytes: 1, KmaxBytes: 1, MarkPercent: 100, LimitBytes: 2})
	g := group()
	if _, err := net.Switch.Add(g); err != nil {
		t.Fatal(err)
	}
	net.Ports[0].Waiting = 1000
	p := write(firstPSN, nil)
	p.class = ect0
	net.Ports[0].Put(p.frame(t))
	net.Poll()
	for i := range g.Paths {
		net.Ports[i+1].Put(ack(g.Paths[i].Dst, g.Paths[i].FirstPSN, roce.SyndromeUnlimited).frame(t))
	}
	net.Poll()
	if out := net.Ports[0].Take(); len(out) != 1 || ecn(t, out[0]) == ce {
		t.Errorf("%x", out)
	}
}

// Repairs use at most half of what may wait, and new data finds the other half. When the repairs
// have left, there is room for more.
func TestRepairsHaveAShareOfTheQueue(t *testing.T) {
	const payload = 1000
	frameBytes := len(write(firstPSN, make([]byte, payload)).frame(t))
	b := bounded(t, dataplane.Egress{LimitBytes: 2 * 4 * frameBytes})
	next := roce.PSN(firstPSN)
	data := func(n int) {
		for range n {
			b.Ports[0].Put(write(next, make([]byte, payload)).frame(t))
			next = next.Next()
		}
		b.Poll()
	}
	data(8)
	b.Ports[1].Take()
	take := func(what string, want ...int) {
		t.Helper()
		var got []int
		for _, f := range b.Ports[1].Take() {
			got = append(got, int(decode(t, f).PSN.Sub(b.group.Paths[0].FirstPSN)))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: sent %v, want %v", what, got, want)
		}
	}
	b.answer(0, firstPSN, roce.NAKSequence)
	take("the receiver lacks all", 0, 1, 2)
	if c := b.Switch.PortCounters()[1]; c.RepairsPutOff != 5 || c.QueueFull != 0 || c.TxLost != 0 {
		t.Errorf("counted %+v", c)
	}
	probe := func() {
		b.now += feedback.Tick(20 * time.Millisecond) // the receiver is silent
		b.Poll()
	}
	b.Ports[1].Waiting = 3 * frameBytes // all of them
	probe()
	take("room is kept for the packet that the receiver waits for", 0)
	b.Ports[1].Waiting = 4 * frameBytes
	probe()
	take("the repairs wait")
	b.Ports[1].Waiting = 3*frameBytes + 1 // a part of the first one too
	probe()
	take("the first one is being sent")
	b.Ports[1].Waiting = 3 * frameBytes
	probe()
	take("the first one has left", 0)
	b.Ports[1].Waiting = 4 * frameBytes // with the new one
	probe()
	take("four wait again")
	b.Ports[1].Waiting = 0
	b.answer(0, firstPSN+7, roce.SyndromeUnlimited)
	b.Ports[1].Waiting = 4 * frameBytes
	data(4)
	take("new data", 8, 9, 10, 11)
}

// The repairs of a busy group fill their share of a port's queue again and again. A receiver of
// another group that lacks one packet gets it all the same, each time.
func TestABusyGroupLeavesRoomForTheRepairsOfOthers(t *testing.T) {
	const lacks, rounds = 16, 10
	frameBytes := len(write(firstPSN, nil).frame(t))
	b := bounded(t, dataplane.Egress{LimitBytes: 2 * 8 * frameBytes})
	slow := b.other()
	slow.Paths[0].DestQPN = 99
	b.add(slow)
	psn := roce.PSN(firstPSN)
	lack := func(g *mft.Group, acked roce.PSN) {
		f := ack(ipB, acked.Add(g.Paths[0].FirstPSN.Sub(g.Source.FirstPSN)), roce.NAKSequence)
		f.bth.DestQPN = g.QPN
		b.Ports[1].Put(f.frame(t))
		b.Poll()
	}
	for range lacks {
		b.Ports[0].Put(write(psn, nil).frame(t))
		psn = psn.Next()
	}
	b.Poll()
	for round := range rounds {
		p := write(roce.PSN(firstPSN).Add(int32(round)), nil)
		p.bth.DestQPN = slow.QPN
		b.Ports[0].Put(p.frame(t))
		b.Poll()
		b.Ports[1].Take()
		b.Ports[1].Waiting = 0
		b.now += feedback.Tick(50 * time.Millisecond)
		b.Ports[1].Holds = true // what is sent waits
		lack(b.group, firstPSN)
		lack(slow, roce.PSN(firstPSN).Add(int32(round)))
		got := map[roce.QPN]int{}
		for _, f := range b.Ports[1].Take() {
			got[decode(t, f).QPN]++
		}
		if got[slow.Paths[0].DestQPN] == 0 {
			t.Fatalf("round %d: the receiver of the other group is sent nothing: %v", round, got)
		}
		b.Ports[1].Holds, b.Ports[1].Waiting = false, 0
	}
}

// The kernel engine does not see the queue of a port, so it does not carry a group behind a port
// that marks. A limit alone does not keep it away.
func TestAPortThatMarksKeepsTheEngineAway(t *testing.T) {
	marks := dataplane.Egress{KminBytes: 1000, KmaxBytes: 2000, MarkPercent: 10}
	for name, c := range map[string]struct {
		bounds []dataplane.Egress
		kernel bool
	}{
		"a receiver's port marks": {[]dataplane.Egress{2: marks}, false},
		"the source's port marks": {[]dataplane.Egress{0: marks}, true},
		"a port has a limit":      {[]dataplane.Egress{2: {LimitBytes: 1 << 20}}, true},
	} {
		net := porttest.NewBounded(4, porttest.NewFanOut(), still, c.bounds...)
		g := group()
		if _, err := net.Switch.Add(g); err != nil {
			t.Fatal(err)
		}
		psn := roce.PSN(firstPSN)
		for range 20 {
			net.Ports[0].Put(quiet(psn).frame(t))
			net.Poll()
			psn = psn.Next()
		}
		st, _ := net.Switch.GroupState(g.ID)
		if st.Engine.Kernel != c.kernel || !c.kernel && !strings.Contains(st.Engine.Reason, "a receiver's port marks congestion") {
			t.Errorf("%s: %+v", name, st.Engine)
		}
	}
}
