package dataplane_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// newCarriedEdgeBench is newEdgeBench with an engine that has carried packets of the group. psn is
// the next packet.
func newCarriedEdgeBench(t *testing.T, options ...func(*mft.Group)) (b *edgeBench, psn roce.PSN) {
	t.Helper()
	b = newEdgeBench(t)
	b.Net = porttest.NewRetaining(4, 64, porttest.NewFanOut(), func() feedback.Tick { return b.now })
	b.group = sharingGroup()
	b.group.Policy.Repair, b.group.Policy.RepairWindow = feedback.RepairLocal, 64
	for _, o := range options {
		o(b.group)
	}
	b.add(b.group)
	psn = b.messages(firstPSN, 40)
	b.expectEngine(true)
	b.expectLeft(40, 0, 0, 0)
	if s := b.state().Shares[0]; s.Packets != 40 || s.Saved != 80 || s.Working != 3 {
		t.Errorf("%+v", s)
	}
	return b, psn
}

// messages sends that many messages from psn on, and returns the next packet.
func (b *edgeBench) messages(psn roce.PSN, n int) roce.PSN {
	b.t.Helper()
	for range n {
		b.message(psn)
		psn = psn.Next()
	}
	return psn
}

// The engine sends one copy for all that share, merges the answer of each, and counts what the core
// would count.
func TestTheEngineSendsSharedCopies(t *testing.T) {
	b, psn := newCarriedEdgeBench(t)
	b.now += feedback.Tick(time.Second)
	b.messages(psn, 10)
	b.expectLeft(10, 0, 0, 0)
	b.expectEngine(true)
	st := b.state()
	if st.Engine.Answers != "" || st.Engine.Carried == 0 || st.Traffic.Copies != 50 {
		t.Errorf("%+v, %d copies", st.Engine, st.Traffic.Copies)
	}
	if m := moved(b.Switch); m["beyond-sent"] != 0 || m["repaired"] != 0 {
		t.Errorf("%v", m)
	}
	b.expectNotes()
}

// An edge that dies while the engine carries the group is found as it is without an engine. Then
// the engine sends its receiver copies beside the shared ones, and the edge is tried again.
func TestTheEngineSendsCopiesBesideSharedOnes(t *testing.T) {
	b, psn := newCarriedEdgeBench(t)
	b.hosts[1].dead = true
	began := b.now
	psn = b.messages(psn, 100)
	if took := time.Duration(b.now - began); took > 100*time.Millisecond {
		t.Errorf("100 messages took %v", took)
	}
	b.expectNotes("edge-lost 3")
	b.expectEngine(true)
	b.expectLeft(100, 0, 100, 0)
	if s := b.state().Shares[0]; s.Working != 2 || s.Packets != 140 || s.Saved != 80+2*3+97 {
		t.Errorf("%+v", s)
	}
	carried := b.state().Engine.Carried
	if b.messages(psn, 1); b.state().Engine.Carried != carried+1 {
		t.Errorf("%+v", b.state().Engine)
	}
	b.expectLeft(1, 0, 1, 0)

	b.pass(2 * time.Second)
	b.state() // so that the core looks at the group
	psn = b.messages(psn.Next(), 40)
	b.expectNotes()
	if e := b.state().Edges[1]; !e.Lost || e.After <= 0 {
		t.Errorf("%+v after a trial that failed", e)
	}
	b.expectLeft(40, 0, 40, 0)

	b.hosts[1].dead = false
	b.pass(4 * time.Second)
	b.state()
	psn = b.messages(psn, 40)
	b.expectNotes("edge-works 3")
	b.expectEngine(true)
	b.shared, b.own = 0, make([]int, 3)
	b.messages(psn, 10)
	b.expectLeft(10, 0, 0, 0)
}

// One path alone gets no shared copy from the engine either.
func TestTheEngineSharesNothingForOne(t *testing.T) {
	b, psn := newCarriedEdgeBench(t)
	b.hosts[0].dead, b.hosts[1].dead = true, true
	psn = b.messages(psn, 100)
	b.expectNotes("edge-lost 2", "edge-lost 3")
	b.expectEngine(true)
	b.shared, b.own = 0, make([]int, 3)
	began := b.now
	b.messages(psn, 10)
	b.expectLeft(0, 10, 10, 10)
	if b.now != began {
		t.Errorf("10 messages took %v: repair had to send some", time.Duration(b.now-began))
	}
}

// When a member leaves, the engine gives the group back: none of its copies may reach the edge that
// goes on mapping them.
func TestTheEngineGivesBackALegThatIsRetired(t *testing.T) {
	b, psn := newCarriedEdgeBench(t, func(g *mft.Group) { g.Policy.OnFatal = feedback.FatalEvict })
	b.ends(1, psn)
	b.expectEngine(false)
	b.messages(psn.Next(), 60)
	b.expectEngine(true)
	b.expectLeft(0, 60, 0, 60)
}

// A leg behind a port of its own is in the block beside the receivers' paths: the engine sends
// what each port needs.
func TestTheEngineSharesAtSeveralPorts(t *testing.T) {
	b := newEdgeBench(t, func(g *mft.Group) {
		g.Paths[2].Port = 2
		g.Shares[0].Members = g.Shares[0].Members[:2]
	})
	group := b.group
	group.ID = 0
	b.Net = porttest.NewRetaining(4, 64, porttest.NewFanOut(), func() feedback.Tick { return b.now })
	b.add(group)
	for psn := roce.PSN(firstPSN); psn < firstPSN+40; psn++ {
		b.send(quiet(psn))
		for path := range b.hosts {
			b.answer(path, psn, roce.SyndromeUnlimited)
		}
	}
	b.expectEngine(true)
	left := [][]roce.QPN{{}, {}}
	for k, port := range []int{1, 2} {
		for _, f := range b.Ports[port].Take() {
			left[k] = append(left[k], decode(t, f).QPN)
		}
	}
	if want := slices.Repeat([]roce.QPN{generation}, 40); !slices.Equal(left[0], want) || len(left[1]) != 40 || left[1][0] == generation {
		t.Errorf("%d copies by port 1 and %d by port 2: %x", len(left[0]), len(left[1]), left)
	}
}

// Another member becomes the source while the engine shares. The engine sends nothing more by the
// generation of the turn before, and shares again by the one that control has given this turn.
func TestTheEngineSharesInTheNextTurn(t *testing.T) {
	both := func(g *mft.Group) { g.Paths[0].Sends, g.Paths[0].SendPSN = true, 5000 }
	b, _ := newCarriedEdgeBench(t, both)
	turn := func(psn, end roce.PSN) (by map[roce.QPN]int) {
		by = map[roce.QPN]int{}
		for ; psn != end; psn = psn.Next() {
			b.sendsAs(0, psn)
			for _, f := range b.Ports[1].Take() {
				d := decode(t, f)
				if by[d.QPN]++; !d.ICRCValid || d.Dst == b.group.Paths[0].Dst {
					t.Errorf("%+v", d)
				}
			}
			for i := range b.group.Paths[1:] {
				to := &b.group.Paths[1+i]
				b.Ports[1].Put(ack(to.Dst, to.FirstPSN.Add(40+psn.Sub(5000)), roce.SyndromeUnlimited).frame(t))
				b.Poll()
			}
			b.Ports[1].Take() // what the source hears
		}
		b.expectEngine(true)
		return by
	}
	own := map[roce.QPN]int{b.group.Paths[1].DestQPN: 100, b.group.Paths[2].DestQPN: 100}
	if got := turn(5000, 5100); !maps.Equal(got, own) {
		t.Errorf("copies by QPN %v, want %v", got, own)
	}
	next := sharingGroup()
	both(next)
	next.Policy = b.group.Policy
	next.Shares[0].Members = next.Shares[0].Members[1:]
	next.Shares[0].DestQPN, next.Shares[0].Turn = generation+1, 1
	if err := b.Switch.Replace(b.group.ID, next); err != nil {
		t.Fatal(err)
	}
	if got := turn(5100, 5200); !maps.Equal(got, map[roce.QPN]int{generation + 1: 100}) {
		t.Errorf("copies by QPN %v", got)
	}
}
