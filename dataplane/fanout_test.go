package dataplane_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// counter is one of a switch's counters.
func counter(t testing.TB, s *dataplane.Switch, name string) uint64 {
	t.Helper()
	for _, c := range s.Counters() {
		if c.Name == name {
			return c.Value
		}
	}
	t.Fatalf("no counter %s", name)
	return 0
}

// A new packet with a wrong ICRC is no more than a lost one: it is not checked, every copy of it is
// as wrong, and the resent packet repairs it.
func TestDamagedNextPacketIsALostPacket(t *testing.T) {
	for _, receivers := range []int{3, 1} {
		g := group()
		g.Paths = g.Paths[:receivers]
		net := newNet(t, g)
		damaged := write(firstPSN, []byte("data")).frame(t)
		damaged[len(damaged)-6] ^= 1
		net.Ports[0].Put(damaged)
		net.Poll()
		for port := 1; port <= receivers; port++ {
			if out := net.Ports[port].Take(); len(out) != 1 || decode(t, out[0]).ICRCValid {
				t.Errorf("port %d of %d: %d copies, or one with a valid ICRC", port, receivers, len(out))
			}
		}
		net.Ports[0].Put(write(firstPSN, []byte("data")).frame(t))
		net.Poll()
		for port := 1; port <= receivers; port++ {
			if out := net.Ports[port].Take(); len(out) != 1 || !decode(t, out[0]).ICRCValid {
				t.Errorf("port %d of %d did not get the packet again", port, receivers)
			}
		}
	}
}

// Damaged packets must not let a receiver join: it would begin at the wrong packet.
func TestDamagedPacketDoesNotLetAReceiverJoin(t *testing.T) {
	g := group()
	g.Paths = g.Paths[:2]
	net := newNet(t, g)
	joined := group()
	if err := net.Switch.Replace(g.ID, joined); err != nil {
		t.Fatal(err)
	}
	damaged := write(firstPSN, []byte("data")).frame(t)
	damaged[len(damaged)-6] ^= 1
	net.Ports[0].Put(damaged)
	net.Poll()
	if n := counter(t, net.Switch, "bad-icrc"); n != 1 {
		t.Errorf("bad-icrc is %d", n)
	}
	if p := snapshot(t, net.Switch, joined).Paths[2]; p.Part != feedback.PartJoining {
		t.Errorf("the receiver is %v", p.Part)
	}
}

// twins are two switches that get the same frames, one of them with an engine in front.
type twins struct {
	t          *testing.T
	with, sole *porttest.Net
	a, b       *mft.Group
	now        feedback.Tick
}

func newTwins(t *testing.T, edit func(*mft.Group)) *twins {
	t.Helper()
	w := &twins{t: t, a: group(), b: group()}
	clock := func() feedback.Tick { return w.now }
	w.with, w.sole = porttest.NewFanOutAt(4, clock), porttest.NewAt(4, clock)
	edit(w.a)
	edit(w.b)
	for net, g := range map[*porttest.Net]*mft.Group{w.with: w.a, w.sole: w.b} {
		if _, err := net.Switch.Add(g); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// put lets a frame arrive at both and compares every frame that they send.
func (w *twins) put(port int, frame []byte) {
	w.t.Helper()
	w.now += feedback.Tick(20 * time.Microsecond)
	w.with.Ports[port].Put(frame)
	w.sole.Ports[port].Put(frame)
	w.with.Poll()
	w.sole.Poll()
	for i := range w.with.Ports {
		got, want := w.with.Ports[i].Take(), w.sole.Ports[i].Take()
		if len(got) != len(want) {
			w.t.Fatalf("port %d: %d frames with the engine, %d without", i, len(got), len(want))
		}
		for k := range got {
			if !bytes.Equal(got[k], want[k]) {
				w.t.Fatalf("port %d:\n%+v\n%+v", i, decode(w.t, got[k]), decode(w.t, want[k]))
			}
		}
	}
}

func (w *twins) replace(edit func(*mft.Group)) {
	w.t.Helper()
	for net, old := range map[*porttest.Net]**mft.Group{w.with: &w.a, w.sole: &w.b} {
		g := group()
		edit(g)
		if err := net.Switch.Replace((*old).ID, g); err != nil {
			w.t.Fatal(err)
		}
		*old = g
	}
}

// Whatever happens to a group, both engines send the same bytes, and the switch counts the same.
func TestEnginesAgree(t *testing.T) {
	testlab.Long(t)
	carried := uint64(0)
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			policy := feedback.Policy{Nak: feedback.NakPolicy(r.IntN(2)), Credits: feedback.CreditPolicy(r.IntN(2))}
			if r.IntN(3) == 0 {
				policy.Ack = 2
			}
			members := func(g *mft.Group) { g.Policy = policy }
			w := newTwins(t, members)
			d := &dialogue{Rand: r, twins: w, next: firstPSN}
			for range 600 {
				d.step()
			}
			w.counts() // the core learns of what was carried last
			for _, name := range []string{"forwarded", "resent", "filtered", "held", "refused"} {
				if a, b := counter(t, w.with.Switch, name), counter(t, w.sole.Switch, name); a != b {
					t.Errorf("%s: %d with the engine, %d without", name, a, b)
				}
			}
			carried += counter(t, w.with.Switch, "fan-out-carried")
		})
	}
	if carried == 0 {
		t.Error("the engine carried nothing")
	}
}

// A receiver that is evicted while the engine carries the group gets nothing more: time alone takes
// the group back.
func TestEvictionTakesTheGroupBack(t *testing.T) {
	w := newTwins(t, func(g *mft.Group) {
		g.Policy = feedback.Policy{SilentAfter: 20 * time.Millisecond, Evict: true}
	})
	next := roce.PSN(firstPSN)
	send := func(packets int) {
		for range packets {
			w.put(0, write(next, []byte("data")).frame(t))
			next = next.Next()
		}
	}
	acked := func() {
		for i, host := range []netip.Addr{ipC, ipD} {
			psn := w.a.Paths[1+i].FirstPSN.Add(next.Prev().Sub(firstPSN))
			w.put(2+i, ack(host, psn, roce.SyndromeUnlimited).frame(t))
		}
	}
	send(1)
	acked()
	next = next.Prev() // the source resends, and b stays silent
	send(40)
	acked()
	st, _ := w.with.Switch.GroupState(w.a.ID)
	if !st.Engine.Kernel {
		t.Fatalf("the engine does not carry the group: %s", st.Engine.Reason)
	}
	w.now += feedback.Tick(30 * time.Millisecond)
	w.with.Poll()
	w.sole.Poll()
	send(3)
	if part := snapshot(t, w.with.Switch, w.a).Paths[0].Part; part != feedback.PartGone {
		t.Fatalf("the silent receiver is %v", part)
	}
	acked()
	send(40) // and the engine carries the group again, without the receiver
	if st, _ := w.with.Switch.GroupState(w.a.ID); !st.Engine.Kernel {
		t.Errorf("the engine does not carry the group again: %s", st.Engine.Reason)
	}
}

// counts compares what both switches have counted for the group, and what the one with the engine
// counts of the engine with the group's state.
func (w *twins) counts() {
	w.t.Helper()
	with, _ := w.with.Switch.GroupState(w.a.ID)
	sole, _ := w.sole.Switch.GroupState(w.b.ID)
	for i, c := range sole.Counters {
		switch feedback.Outcome(i) {
		case feedback.Stale, feedback.Duplicate, feedback.Absorbed, feedback.Merged:
			continue // the engine merges plain ACKs past the core
		}
		if with.Counters[i] != c {
			w.t.Errorf("the group counts %v with the engine, %v without", with.Counters[i], c)
		}
	}
	if with.Traffic != sole.Traffic || !slices.Equal(with.Receivers, sole.Receivers) {
		w.t.Errorf("the group has carried %+v %+v with the engine, %+v %+v without", with.Traffic, with.Receivers, sole.Traffic, sole.Receivers)
	}
	if n := counter(w.t, w.with.Switch, "fan-out-carried"); n != with.Engine.Carried {
		w.t.Errorf("the engine carried %d packets, and %d of its only group", n, with.Engine.Carried)
	}
	armed, want := counter(w.t, w.with.Switch, "fan-out-armed")-counter(w.t, w.with.Switch, "fan-out-disarmed"), uint64(0)
	if with.Engine.Kernel {
		want = 1
	}
	if armed != want {
		w.t.Errorf("armed %d times more than disarmed, want %d", armed, want)
	}
}

// dialogue is what a source and three receivers say to each other, with losses.
type dialogue struct {
	*rand.Rand
	*twins
	next    roce.PSN // of the source
	message int      // packets left of a message
	acked   [3]int32
}

func (d *dialogue) step() {
	switch n := d.IntN(100); {
	case n < 70:
		d.data(true)
	case n < 72:
		d.data(false) // lost on its way
	case n < 74:
		d.next = d.next.Add(-int32(d.IntN(5))) // goes back
	case n < 95:
		d.answer(d.IntN(3), roce.SyndromeUnlimited)
	case n < 97 && d.a.Policy.Ack == feedback.AckAll: // with a quorum, a NAK for a carried packet proves less (rule 9)
		d.answer(d.IntN(3), roce.NAKSequence)
	case n < 98:
		d.put(1+d.IntN(3), cnp([]netip.Addr{ipB, ipC, ipD}[d.IntN(3)]).frame(d.t))
	default:
		hop := roce.MAC{2, 0, 0, 0, 1, byte(d.IntN(3))}
		policy := d.a.Policy
		d.replace(func(g *mft.Group) { // a next hop moved
			g.Policy = policy
			copy(g.Paths[1].L2[:], hop[:])
		})
	}
}

func (d *dialogue) data(arrives bool) {
	p := write(d.next, make([]byte, d.IntN(40)))
	switch {
	case d.message > 1:
		p.bth.Opcode, p.reth = roce.OpWriteMiddle, nil
		d.message--
	case d.message == 1:
		p.bth.Opcode, p.reth = roce.OpWriteLast, nil
		d.message--
	case d.IntN(4) == 0:
		p.bth.Opcode, p.reth.DMABytes = roce.OpWriteFirst, 1024
		d.message = 1 + d.IntN(4)
	}
	p.bth.AckReq = d.IntN(3) == 0
	p.bth.PadCount = roce.PadFor(len(p.payload))
	p.payload = append(p.payload, make([]byte, p.bth.PadCount)...)
	if d.IntN(200) == 0 {
		p.hopLimit = 1
	}
	d.next = d.next.Next()
	if arrives {
		d.put(0, p.frame(d.t))
	}
}

// answer lets receiver i say something about a packet between what it said last and what was sent.
func (d *dialogue) answer(i int, s roce.Syndrome) {
	sent := d.next.Prev().Sub(firstPSN)
	if sent <= d.acked[i] {
		return
	}
	d.acked[i] += 1 + d.Int32N(sent-d.acked[i])
	host := []netip.Addr{ipB, ipC, ipD}[i]
	first := d.a.Paths[i].FirstPSN
	d.put(1+i, ack(host, first.Add(d.acked[i]), s).frame(d.t))
}
