package dataplane_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// lostBefore loses the shared copies of new packets in front of the network.
func lostBefore(b *edgeBench, psns ...roce.PSN) func(int, roce.PSN, bool) bool {
	lost := map[roce.PSN]bool{}
	for _, psn := range psns {
		lost[psn] = true
	}
	return func(path int, psn roce.PSN, shared bool) bool {
		if path != -1 || !lost[psn] {
			return false
		}
		delete(lost, psn)
		return true
	}
}

// A packet that all receivers lack, and what follows, is sent again to the first that asks for it,
// then to all at once, and to nobody else.
func TestWhatAllLackIsRepairedByASharedCopy(t *testing.T) {
	b := newEdgeBench(t)
	b.message(1000)
	b.loses = lostBefore(b, 1001)
	b.send(quiet(1001), quiet(1002), quiet(1003))
	b.deliver()
	b.expectLeft(1+3+3, 3, 0, 0)
	b.message(1004)
	b.expectLeft(1, 0, 0, 0)
	b.expectNotes()
	b.expectSource("ACK 1000", "ACK 1003", "ACK 1004")
	st := b.state()
	if n := st.Shares[0].ShareCounts; n.Packets != 5 || n.Saved != 5*2+3 {
		t.Errorf("%+v", n)
	}
	if st.Traffic.Copies != 5+3+3 {
		t.Errorf("%d copies left", st.Traffic.Copies)
	}
}

// A repair that is longer than one answer of a receiver allows goes on by the shared leg.
func TestALongRepairOfAllGoesOnByTheSharedLeg(t *testing.T) {
	b := newEdgeBenchOf(t, 1024, func(g *mft.Group) { g.Policy.RepairWindow = 512 })
	b.message(1000)
	b.loses = lostBefore(b, 1001)
	const packets = 3*feedback.RepairBurst + 5
	for n := range packets {
		b.send(quiet(1001 + roce.PSN(n)))
	}
	b.deliver()
	b.message(1001 + packets)
	if repairs := b.shared - packets - 2; b.own[0] > feedback.RepairBurst || b.own[1]+b.own[2] > packets/20 || repairs > packets+5 {
		t.Errorf("%d shared copies to repair %d packets, and %v own ones", repairs, packets, b.own)
	}
}

// Receivers that lack different packets are repaired each by itself: the others have what they
// lack.
func TestWhatOneLacksIsItsOwnRepair(t *testing.T) {
	b := newEdgeBench(t)
	b.message(1000)
	b.loses = func(path int, psn roce.PSN, shared bool) bool {
		return shared && (path == 0 && psn == 1001 || path == 1 && psn == 1002)
	}
	b.send(quiet(1001), quiet(1002), quiet(1003))
	b.deliver()
	b.expectLeft(4, 3, 2, 0)
}

// Of many receivers some lose the same packet by chance. Their repair is of no use to the others,
// which would acknowledge each packet of it once more.
func TestAFewOfManyThatLackTheSame(t *testing.T) {
	const hosts = 40
	b := newEdgeBench(t, func(g *mft.Group) {
		g.Paths, g.Shares[0].Members = nil, nil
		for i := range hosts {
			p := receiver(1, netip.AddrFrom4([4]byte{10, 77, 1, byte(i)}))
			g.Paths, g.Shares[0].Members = append(g.Paths, p), append(g.Shares[0].Members, p.QP())
		}
	})
	b.own = make([]int, hosts)
	b.message(1000)
	lacking := 3
	b.loses = func(path int, psn roce.PSN, shared bool) bool {
		return shared && psn == 1001 && path >= 0 && path < lacking
	}
	b.send(quiet(1001), quiet(1002))
	b.deliver()
	if b.shared != 3 {
		t.Errorf("%d shared copies of 3 packets of which three hosts lack one", b.shared)
	}
	if b.own[0] != 2 || b.own[1] != 2 || b.own[2] != 2 {
		t.Errorf("%v own copies", b.own)
	}
	b.shared, b.own = 0, make([]int, hosts)
	b.pass(10 * time.Millisecond)
	b.loses = lostBefore(b, 1003)
	b.send(quiet(1003), quiet(1004))
	b.deliver()
	own := 0
	for i := range b.own {
		own += b.own[i]
	}
	if repairs := b.shared - 2; repairs != 2 || own != 3*2 {
		t.Errorf("%d shared copies repair what all lack, and %d own ones", repairs, own)
	}
}

// A receiver whose edge has died is silent. It is helped alone, also soon after a shared repair.
func TestAReceiverWithoutAnEdgeIsRepairedAlone(t *testing.T) {
	b := newEdgeBench(t)
	b.message(1000)
	b.hosts[2].dead = true
	b.loses = lostBefore(b, 1001)
	b.send(quiet(1001), quiet(1002))
	b.deliver()
	p := quiet(1003)
	p.bth.AckReq = true
	b.send(p)
	b.deliver()
	began := b.now
	for b.own[2] == 0 && b.now < began+feedback.Tick(900*time.Microsecond) {
		b.pass(20 * time.Microsecond)
		b.deliver()
	}
	if b.own[2] == 0 || b.own[1] != 0 {
		t.Errorf("%v own copies", b.own)
	}
}

// A receiver that gets copies of its own, because its edge does not work, is repaired with such.
func TestAReceiverWhoseEdgeIsLostIsRepairedAlone(t *testing.T) {
	b := newEdgeBench(t)
	b.message(1000)
	b.hosts[2].dead = true
	for psn := roce.PSN(1001); psn < 1004; psn++ {
		b.message(psn)
	}
	b.expectNotes("edge-lost 4")
	before := lostBefore(b, 1004)
	b.shared, b.own = 0, make([]int, 3)
	b.loses = func(path int, psn roce.PSN, shared bool) bool {
		return before(path, psn, shared) || path == 2 && psn == 1004 && b.own[2] == 1
	}
	b.hosts[2].deaf = true // it answers last
	b.send(quiet(1004), quiet(1005))
	b.deliver()
	b.hosts[2].wakes(b)
	b.deliver()
	if b.shared != 2+2 || b.own[2] != 2+2 {
		t.Errorf("%d shared copies and %v own ones", b.shared, b.own)
	}
}

// Receivers that lack the same packet at different times have lost it by themselves.
func TestReceiversThatAskAtDifferentTimes(t *testing.T) {
	b := newEdgeBench(t)
	b.message(1000)
	b.send(quiet(1001), quiet(1002))
	b.Ports[1].Take()
	b.answer(0, 1001, roce.NAKSequence)
	b.Ports[1].Take()
	b.now += feedback.Tick(2 * time.Millisecond)
	b.answer(1, 1001, roce.NAKSequence)
	b.shared = 0
	b.deliver()
	if b.shared != 0 || b.own[1] != 2 {
		t.Errorf("%d shared copies and %v own ones", b.shared, b.own)
	}
}

// What a receiver asks for behind a shared repair of a while ago is its own.
func TestARepairBehindASharedOneOfAWhileAgo(t *testing.T) {
	b := newEdgeBench(t)
	b.message(1000)
	b.send(quiet(1001), quiet(1002), quiet(1003), quiet(1004))
	b.Ports[1].Take()
	for i := range b.hosts {
		b.answer(i, 1001, roce.NAKSequence)
	}
	if left := len(b.Ports[1].Take()); left != 4+4 {
		t.Fatalf("%d repairs left", left)
	}
	b.answer(1, 1004, roce.SyndromeUnlimited)
	b.hosts[1].next = 1005
	b.now += feedback.Tick(2 * time.Millisecond)
	b.answer(2, 1002, roce.SyndromeUnlimited)
	b.Ports[1].Take()
	b.shared = 0
	b.answer(2, 1003, roce.NAKSequence)
	for _, f := range b.Ports[1].Take() {
		if d := decode(t, f); d.Dst == ipAll {
			t.Errorf("%+v", d)
		}
	}
}

// A receiver that has to answer a repair gets it although a shared one has brought it that asks for
// no answer.
func TestARepairThatAsks(t *testing.T) {
	b := newEdgeBench(t)
	b.message(1000)
	b.loses = func(path int, psn roce.PSN, shared bool) bool { return path == 2 && shared && psn == 1001 }
	b.send(quiet(1001), quiet(1002))
	b.deliver()
	b.expectLeft(3, 0, 0, 2)
	b.loses = lostBefore(b, 1003)
	b.send(quiet(1003), quiet(1004), quiet(1005))
	b.deliver()
	b.expectLeft(3+3, 3, 0, 1) // it has gone back, so it gets one packet, which asks
}

// A receiver that misses the shared repair too gets its own after a timeout.
func TestAReceiverThatMissesTheSharedRepair(t *testing.T) {
	b := newEdgeBench(t)
	b.message(1000)
	before := lostBefore(b, 1001)
	b.loses = func(path int, psn roce.PSN, shared bool) bool {
		return before(path, psn, shared) || shared && path == 2 && psn == 1001
	}
	b.send(quiet(1001), quiet(1002))
	b.deliver()
	b.message(1003)
	if b.own[1] != 0 || b.own[2] == 0 {
		t.Errorf("%v own copies", b.own)
	}
	b.expectNotes()
	b.expectSource("ACK 1000", "ACK 1001", "ACK 1003")
}

// What has left by a shared leg stands for no repair behind another leg, which is another network.
// Nor do receivers behind two legs that lack the same packet show that all of either lack it.
func TestTwoLegsAreRepairedEachByItself(t *testing.T) {
	b := newEdgeBench(t, func(g *mft.Group) {
		g.Paths, g.Shares = nil, nil
		for port := mft.PortID(1); port <= 2; port++ {
			var members []mft.QP
			for i := range 3 {
				p := receiver(port, netip.AddrFrom4([4]byte{10, 77, byte(port), byte(i)}))
				g.Paths, members = append(g.Paths, p), append(members, p.QP())
			}
			g.Shares = append(g.Shares, g.Paths[len(g.Paths)-1].Shared(ipAll, generation+roce.QPN(uint32(port)), members))
		}
	})
	lacks := func(path int) (own, shared int) {
		t.Helper()
		b.answer(path, 1001, roce.NAKSequence)
		p := &b.group.Paths[path]
		for _, f := range b.Ports[p.Port].Take() {
			switch d := decode(t, f); d.Dst {
			case p.Dst:
				own++
			case ipAll:
				shared++
			}
		}
		return own, shared
	}
	b.send(quiet(1000), quiet(1001), quiet(1002))
	b.Ports[1].Take()
	b.Ports[2].Take()
	for _, tt := range []struct{ path, own, shared int }{{0, 2, 0}, {3, 2, 0}, {1, 2, 0}, {2, 0, 2}, {4, 2, 0}, {5, 0, 2}} {
		if own, shared := lacks(tt.path); own != tt.own || shared != tt.shared {
			t.Errorf("receiver %d asks, and %d own and %d shared copies leave; want %d and %d", tt.path, own, shared, tt.own, tt.shared)
		}
	}
}

// Where nothing is shared any more, repairs are not either.
func TestRepairsOfARetiredLegAreOwn(t *testing.T) {
	b := newEdgeBench(t)
	b.message(1000)
	b.loses = lostBefore(b, 1001)
	b.send(quiet(1001))
	b.deliver()
	b.send(quiet(1002))
	b.Ports[1].Take() // lost, too
	b.answer(2, 1001, roce.NAKRemoteOperational)
	for i := range 2 {
		b.answer(i, 1001, roce.NAKSequence)
	}
	b.hosts[2].next = 1_000_000
	b.deliver()
	b.expectLeft(2, 2, 2, 0)
}
