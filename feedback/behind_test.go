package feedback

import (
	"testing"

	"github.com/rocast/rocast/roce"
)

// A refused NAK leaves its path in doubt when the path comes to wait for that packet, and no engine
// may carry packets then. A NAK that is further ahead than the window is not noted.
func TestMissedNAKIsNoted(t *testing.T) {
	for _, ahead := range []int32{1, 2, Window, Window + 1, 2 * Window} {
		g := settled(100)
		refused := roce.PSN(100).Add(ahead)
		if _, o := g.Step(0, Event{Kind: Response, Path: 2, PSN: refused, Syndrome: roce.NAKSequence}, nil); o != BeyondSent {
			t.Fatalf("a NAK %d ahead is %v", ahead, o)
		}
		at := roce.PSN(100)
		for left := ahead - 1; left > 0; left -= Window {
			at = at.Add(min(left, Window))
			sendAndAck(g, at)
		}
		if noted, want := g.Plain() == 0, ahead <= Window; noted != want {
			t.Errorf("a NAK %d ahead is noted: %v, want %v", ahead, noted, want)
		}
		sendAndAck(g, at.Next())
		if g.Plain() != 3 {
			t.Errorf("behind the packet of a NAK %d ahead the path is still in doubt", ahead)
		}
	}
}

// When the PSNs have gone round, the same PSN is another packet.
func TestMissedNAKIsForgotten(t *testing.T) {
	g := settled(100)
	g.Step(0, Event{Kind: Response, Path: 2, PSN: 102, Syndrome: roce.NAKSequence}, nil)
	const steps = 16
	at := roce.PSN(101)
	sendAndAck(g, at)
	for range steps {
		at = at.Add(1 << 24 / steps)
		sendAndAck(g, at)
	}
	if at != 101 || g.Plain() != 3 {
		t.Errorf("at PSN %d the group has %d plain paths: the NAK is still noted", at, g.Plain())
	}
}

// What a source has let go of before a restart lies below every packet that it sends afterwards,
// also when the PSNs have gone half round since.
func TestTheSourcePassesOverNothingNew(t *testing.T) {
	g := New(Config{Policy: Policy{Ack: 2}, Paths: 3, Restored: true})
	at := roce.PSN(100)
	sendAndAck(g, at)
	for range 1<<8 + 1 { // a byte counts them
		g.Step(0, Event{Kind: Data, PSN: at, First: true, Last: true, AckReq: true}, nil)
	}
	if !g.doubts.passes(99) || g.doubts.passes(100) {
		t.Fatalf("after many rounds from packet 100 on: %+v", g.doubts)
	}
	const steps = 16
	for range steps {
		at = at.Add(1 << 24 / steps)
		if sendAndAck(g, at); g.doubts.passes(at) {
			t.Errorf("the source has sent packet %d, and is said to have let go of it before", at)
		}
	}
}

// The first packet behind a restart may be older than the restart. Then the source shows by its
// rounds what it has let go of, also while single packets come late.
func TestTheFirstPacketMayBeOld(t *testing.T) {
	g := New(Config{Policy: Policy{Ack: 2}, Paths: 3, Restored: true})
	data := func(psn roce.PSN) {
		g.Step(0, Event{Kind: Data, PSN: psn, First: true, Last: true, AckReq: true}, nil)
	}
	data(20)
	for range doubtLimit + 2 { // the first begins no round where the one before did
		if g.doubts.passes(28) {
			t.Fatalf("too few rounds show it: %+v", g.doubts)
		}
		for range 2 {
			data(134)
			data(150)
		}
		data(140) // which came late
	}
	if !g.doubts.passes(28) || !g.doubts.passes(133) || g.doubts.passes(134) {
		t.Errorf("after many rounds from packet 134 on: %+v", g.doubts)
	}
	data(30)
	if g.doubts.passes(28) {
		t.Errorf("a packet below those that were passed is not taken for what the source goes back to: %+v", g.doubts)
	}
}

// Where nobody has restarted, rounds that begin later than they should show nothing: their first
// packets are lost on the uplink, and the box knows what it has acknowledged.
func TestRoundsShowNothingWithoutARestart(t *testing.T) {
	g := settled(100)
	for range 3 * doubtLimit {
		for psn := roce.PSN(103); psn < 106; psn++ {
			g.Step(0, Event{Kind: Data, PSN: psn, First: true, Last: true, AckReq: true}, nil)
		}
	}
	if g.doubts.passes(101) {
		t.Errorf("the source has let go of packet 101: %+v", g.doubts)
	}
}

// Of a group that has not been restarted nobody has let go of anything.
func TestANewGroupsSourcePassesOverNothing(t *testing.T) {
	const first = roce.PSN(0xFFFFF0)
	g := New(Config{Policy: Policy{Ack: 2}, Paths: 3, FirstPSN: first})
	for range 20 {
		g.Step(0, Event{Kind: Data, PSN: first.Next(), First: true, Last: true, AckReq: true}, nil)
	}
	if g.doubts.passes(first) {
		t.Errorf("the source has let go of its first packet: %+v", g.doubts)
	}
}

// settled returns a group with a quorum of which every path has everything up to psn.
func settled(psn roce.PSN) *Group {
	g := New(Config{Policy: Policy{Ack: 2}, Paths: 3, FirstPSN: psn})
	sendAndAck(g, psn)
	return g
}

func sendAndAck(g *Group, psn roce.PSN) {
	g.Step(0, Event{Kind: Data, PSN: psn, First: true, Last: true, AckReq: true}, nil)
	for i := range g.paths {
		g.Step(0, Event{Kind: Response, Path: i, PSN: psn, Syndrome: roce.SyndromeUnlimited}, nil)
	}
}
