package dataplane_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// stream lets the source send that many packets, of which the last one asks for an ACK. The
// receivers of the paths answer that.
func (b *repairBench) stream(psn roce.PSN, packets int, paths ...int) roce.PSN {
	b.t.Helper()
	for range packets - 1 {
		b.send(quiet(psn))
		psn = psn.Next()
	}
	b.send(asking(psn))
	for _, path := range paths {
		b.answer(path, psn, roce.SyndromeUnlimited)
	}
	return psn.Next()
}

// answersTaken is how many answers came to the worker.
func answersTaken(s *dataplane.Switch) uint64 {
	m := moved(s)
	return m["merged"] + m["absorbed"] + m["duplicate"] + m["stale"]
}

// With repair the engine carries and merges on by itself: the source hears each ACK at once, what
// is retained moves with the slowest receiver, and the worker need not look. What a receiver lacks
// is there when it asks.
func TestTheEngineMergesWithRepair(t *testing.T) {
	const window = 64
	b, psn := newCarriedBench(t)
	before := answersTaken(b.Switch)
	b.Ports[0].Take()
	for range 20 {
		psn = b.stream(psn, window/2, 0, 1, 2)
		b.expectSource(fmt.Sprint("ACK ", psn-1))
	}
	first := psn
	psn = b.stream(psn, window, 0, 2)
	b.expectSource()
	b.take(1)
	if n := answersTaken(b.Switch) - before; n != 0 {
		t.Errorf("%d answers came to the worker", n)
	}
	b.answer(1, first, roce.NAKSequence)
	b.expectSource()
	if got := b.take(1); len(got) == 0 || decode(t, got[0]).PSN != first.Add(b.group.DeltaPSN(1)) {
		t.Errorf("the receiver that asks for %d is sent %d packets", first, len(got))
	}
	b.settle(psn-1, 0)
}

// The engine stops where it would overwrite what a receiver lacks, although it merges the answers
// of the others. It retains twice as many packets the next time.
func TestTheEngineStopsForTheSlowestReceiver(t *testing.T) {
	const keeps = dataplane.LeastKept
	b, psn := newCarriedBench(t, func(g *mft.Group) { g.Policy.RepairWindow = 4 * keeps })
	before := moved(b.Switch)["fan-out-carried"]
	psn = b.stream(psn, 10, 0, 1, 2) // the limit is not told anew
	for range keeps + 10 {
		psn = b.stream(psn, 1, 0, 2)
	}
	if n := moved(b.Switch)["fan-out-carried"] - before - 10; n != keeps {
		t.Errorf("the engine carries %d packets beyond what the slowest receiver has, and retains %d", n, keeps)
	}
	for range 40 {
		psn = b.stream(psn, 1, 0, 1, 2)
	}
	if n := b.FanOut.Retains(b.group.ID); n != 2*keeps {
		t.Errorf("the engine retains %d packets the next time", n)
	}
}

// newMergingBench is an engine that merges for a group with repair, of which the core has sent the
// last packets. The receivers have acknowledged only the first one.
func newMergingBench(t *testing.T, change func(*mft.Group)) (*engineBench, *mft.Group) {
	g := group()
	g.Policy.Repair = feedback.RepairLocal
	change(g)
	b := newEngineBench(t, g)
	b.arm(g)
	next := b.next[g.ID]
	b.next[g.ID] = g.Source.FirstPSN.Next()
	for i := range g.Paths {
		b.handle(b.ack(g, i, roce.SyndromeUnlimited)) // the one whose round trip is measured
	}
	b.next[g.ID] = next
	return b, g
}

// carries returns how many packets the engine carries once everything was acknowledged.
func (b *engineBench) carries(g *mft.Group) (packets int) {
	for i := range g.Paths {
		b.merges(g, i)
	}
	for b.carry(b.data(g)) {
		packets++
	}
	return packets
}

// What the core had sent before the group was armed leaves the engine no more room when it is
// acknowledged: the engine would overwrite its own packets.
func TestTheEngineKeepsItsOwnPackets(t *testing.T) {
	b, g := newMergingBench(t, func(g *mft.Group) { g.Policy.RepairWindow = 1024 })
	if n := b.carries(g); n != dataplane.LeastKept {
		t.Errorf("the engine carries %d packets that are not acknowledged, and retains %d", n, dataplane.LeastKept)
	}
}

// What was given up leaves no more room either when it is acknowledged: the group would have more
// than it may.
func TestWhatWasGivenUpIsNoRoom(t *testing.T) {
	const room = 20
	b, g := newMergingBench(t, func(g *mft.Group) { g.Policy.RepairBytes = room * mft.BufferBytes })
	dataplane.Lose(b.core, g.ID, b.next[g.ID].Add(-6), &b.out)
	b.handle(cnp(ipB)) // any event
	if n := b.carries(g); n != room {
		t.Errorf("the engine carries %d packets that are not acknowledged, and the group may have %d", n, room)
	}
}

// The end of what the engine carried is lost on one leg while the engine merges the answers of the
// others. The receiver is sent the end again one look later than if these had come to the worker.
func TestALostTailIsRepairedWhileTheEngineMerges(t *testing.T) {
	b, psn := newCarriedBench(t)
	for range 10 {
		psn = b.stream(psn, 8, 0, 1, 2)
		b.wait(500 * time.Microsecond)
	}
	before := answersTaken(b.Switch)
	psn = b.stream(psn, 8, 0, 2)
	if n := answersTaken(b.Switch) - before; n != 0 {
		t.Fatalf("%d answers came to the worker", n)
	}
	b.take(1)
	b.wait(3900 * time.Microsecond)
	if n := len(b.take(1)); n != 0 {
		t.Errorf("a receiver that is only late is sent %d packets again", n)
	}
	b.wait(4200 * time.Microsecond)
	if len(b.take(1)) == 0 {
		t.Error("the receiver is sent nothing again")
	}
	b.settle(psn-1, 0)
}

// For a group that was idle the engine merges nothing before the worker has heard that it is not:
// then the worker knows when the receivers were asked, and repairs as soon as one has had its time.
// When the worker has looked at the idle group before makes no difference.
func TestALostTailBehindAPauseIsRepaired(t *testing.T) {
	for pause := 20 * time.Millisecond; pause <= 40*time.Millisecond; pause += time.Millisecond / 2 {
		b, psn := newCarriedBench(t)
		psn = b.stream(psn, 8, 0, 1, 2)
		b.wait(pause)
		before := answersTaken(b.Switch)
		psn = b.stream(psn, 1, 0, 2)
		if n := answersTaken(b.Switch) - before; n == 0 {
			t.Errorf("behind a pause of %v no answer came to the worker", pause)
		}
		b.take(1)
		b.wait(3900 * time.Microsecond)
		if n := len(b.take(1)); n != 0 {
			t.Errorf("behind a pause of %v a receiver that is only late is sent %d packets again", pause, n)
		}
		b.wait(200 * time.Microsecond)
		if len(b.take(1)) == 0 {
			t.Errorf("behind a pause of %v the receiver is sent nothing again", pause)
		}
		b.settle(psn-1, 0)
	}
}

// The end of a fast stream is lost on one leg: the worker looks less often there, and the receiver
// is sent the end again as soon as the worker has looked twice.
func TestTheLostTailOfAFastStreamIsRepaired(t *testing.T) {
	testlab.Long(t)
	for ms := 40; ms < 60; ms++ {
		b, psn := newCarriedBench(t)
		for range ms {
			psn = b.streams(psn, 160)
			b.wait(time.Millisecond)
		}
		psn = b.stream(psn, 8, 0, 2)
		b.take(1)
		b.wait(3900 * time.Microsecond)
		if n := len(b.take(1)); n != 0 {
			t.Errorf("after %d ms a receiver that is only late is sent %d packets again", ms, n)
		}
		b.wait((32*1000 - 3900) * time.Microsecond)
		if len(b.take(1)) == 0 {
			t.Errorf("after %d ms the receiver is sent nothing again", ms)
		}
		b.settle(psn-1, 0)
	}
}

// streams lets the source send that many packets, in messages that all receivers answer.
func (b *repairBench) streams(psn roce.PSN, packets int) roce.PSN {
	b.t.Helper()
	for ; packets > 0; packets -= 32 {
		psn = b.stream(psn, min(packets, 32), 0, 1, 2)
	}
	for path := range 3 {
		b.take(path)
	}
	return psn
}

// The answer to a packet that was sent again is the core's: it reports whether the receiver lacks
// more.
func TestTheAnswerToAProbeComesToTheCore(t *testing.T) {
	b, psn := newCarriedBench(t)
	psn = b.stream(psn, 8, 0, 1, 2)
	first := psn
	for range 9 { // the source goes on
		psn = b.stream(psn, 4, 0, 2)
		b.take(1)
		b.wait(900 * time.Microsecond)
		if len(b.take(1)) > 0 {
			break
		}
	}
	b.answer(1, first, roce.SyndromeUnlimited) // it had nothing but the probe
	if got := b.take(1); len(got) == 0 || decode(t, got[0]).PSN != first.Next().Add(b.group.DeltaPSN(1)) {
		t.Errorf("%d packets follow the probe", len(got))
	}
	b.settle(psn-1, 0)
}

// The worker is woken every four milliseconds for a group whose answers are merged, every sixteen
// for one whose source sends fast, and seldom for one that is idle.
func TestHowOftenTheWorkerLooks(t *testing.T) {
	testlab.Long(t)
	b, psn := newCarriedBench(t)
	psn = b.stream(psn, 8, 0, 1, 2)
	if idle := b.sleeps(); idle < time.Duration(dataplane.LookPeriod)/2 {
		t.Errorf("beside an idle group the worker sleeps for %v", idle)
	}
	for _, c := range []struct{ packets, least, most int }{{32, 99, 101}, {128, 99, 101}, {129, 25, 28}, {32, 96, 101}} {
		before := b.FanOut.Looks
		for range 400 {
			psn = b.streams(psn, c.packets)
			b.wait(time.Millisecond)
		}
		if n := b.FanOut.Looks - before; n < c.least || n > c.most {
			t.Errorf("for %d packets a millisecond the worker looks %d times in 400 ms", c.packets, n)
		}
	}
}

// The looks at groups that are idle come together: each wakes the worker otherwise.
func TestIdleGroupsAreLookedAtTogether(t *testing.T) {
	b, _ := newCarriedBench(t)
	b.wait(3 * time.Millisecond)
	other := b.other()
	other.Engine = mft.EngineAuto
	b.add(other)
	b.group = other
	for psn := roce.PSN(firstPSN); psn < firstPSN+20; psn++ {
		p := asking(psn)
		p.bth.DestQPN = other.QPN
		b.send(p)
		for i := range other.Paths {
			answer := ack(other.Paths[i].Dst, psn.Add(other.DeltaPSN(i)), roce.SyndromeUnlimited)
			answer.bth.DestQPN = other.QPN
			b.Ports[other.Paths[i].Port].Put(answer.frame(t))
		}
		b.Poll()
	}
	b.expectEngine(true)
	b.sleeps()
	woken := func(in time.Duration) (times int) {
		for begun := b.now; b.now < begun+feedback.Tick(in); times++ {
			dataplane.Sleep(b.Switch.Workers()[0])
			b.now += feedback.Tick(b.Waiters[0].Timeout)
		}
		return times
	}
	if n := woken(100 * time.Millisecond); n < 9 || n > 11 {
		t.Errorf("beside two idle groups the worker is woken %d times in 100 ms", n)
	}
	woken(time.Second)
	if n := woken(400 * time.Millisecond); n < 9 || n > 11 {
		t.Errorf("beside two groups that have been silent for long the worker is woken %d times in 400 ms", n)
	}
}

// What all receivers lose after a long silence is sent again before the source's timeout, if that
// is perftest's. A group that is not silent any more is looked at as often as before.
func TestATailIsRepairedAfterSilence(t *testing.T) {
	b, psn := newCarriedBench(t)
	for range 4 {
		b.wait(1100 * time.Millisecond) // looks at groups that are silent are due at any time of these
		b.send(asking(psn))
		for path := range 3 {
			b.take(path)
		}
		b.wait(60 * time.Millisecond)
		b.expectSentAgain(psn)
		psn = psn.Next()
		b.wait(7 * time.Millisecond)
	}
	b.expectEngine(true)
	if got := b.sleeps(); got > time.Duration(dataplane.LookPeriod) {
		t.Errorf("the worker sleeps for %v, although the group was carried just now", got)
	}
}

// Another group needs the memory of packets of a group whose answers the engine merges. What the
// engine has merged counts first: the receivers have those packets, so that none is lost. The
// engine merges on.
func TestWhatTheEngineMergedIsNotLostToAnotherGroup(t *testing.T) {
	const chunks = 20
	b := &repairBench{t: t, group: group()}
	b.group.Policy.Repair, b.group.Policy.RepairWindow = feedback.RepairLocal, chunks
	b.Net = porttest.NewRetaining(4, chunks, porttest.NewFanOut(), func() feedback.Tick { return b.now })
	b.add(b.group)
	other := group()
	other.Name, other.QPN, other.Policy = "h", 2, b.group.Policy
	for i := range other.Paths {
		other.Paths[i].RemoteQPN = 2
	}
	b.add(other)
	psn := roce.PSN(firstPSN)
	for range chunks - 2 {
		b.send(quiet(psn))
		psn = psn.Next()
	}
	b.send(asking(psn))
	b.expectEngine(true) // the core knows of the packet, and not of the answers
	for path := range 3 {
		b.answer(path, psn, roce.SyndromeUnlimited)
	}
	b.expectSource(fmt.Sprint("ACK ", psn))
	looks := b.FanOut.Looks
	for i := range roce.PSN(8) {
		p := quiet(firstPSN + i)
		p.bth.DestQPN = 2
		b.send(p)
	}
	if b.FanOut.Looks == looks || !b.FanOut.Merges(b.group.ID) {
		t.Error("the core did not look at what the engine has merged, or the engine does not merge on")
	}
	if m := moved(b.Switch); m["repair-lost-no-memory"] != 0 {
		t.Errorf("counters %v", m)
	}
}

// A packet that the engine has takes the room of one of a group whose answers the engine merges.
// That group hears of it behind what the engine has merged, and the engine merges on.
func TestTheEngineMergesOnForAGroupThatLosesAPacket(t *testing.T) {
	b, psn := newCarriedBench(t)
	b.send(quiet(psn))
	loses, fills := b.other(), b.other()
	loses.Engine, fills.QPN, fills.Name = mft.EngineAuto, 3, "k"
	for i := range fills.Paths {
		fills.Paths[i].RemoteQPN = 3
	}
	b.add(loses)
	b.add(fills)
	next := roce.PSN(firstPSN)
	for range 20 {
		b.send(quiet(next).to(loses))
		next = next.Next()
	}
	for i := range roce.PSN(48) {
		b.send(quiet(firstPSN + i).to(fills))
	}
	looks := b.FanOut.Looks
	b.answer(1, psn, roce.NAKSequence)
	if n := b.FanOut.Looks - looks; n != 2 {
		t.Errorf("the engine stopped merging for %d groups, want the one whose receiver asks and the one that loses a packet", n)
	}
	if !b.FanOut.Merges(loses.ID) {
		t.Error("the engine does not merge on")
	}
	if n := moved(b.Switch)["repair-lost-no-memory"]; n != 1 {
		t.Errorf("%d packets made room, want 1", n)
	}
}

// The core hears at each look what of the carried packets asks for an ACK: not what asked before
// the last look, and not what the engine has not counted yet. Else it would wait for an answer to a
// packet that nobody has to answer, and send it again.
func TestWhatWasCarriedAsksOnce(t *testing.T) {
	for _, ahead := range []bool{false, true} {
		b, psn := newCarriedBench(t, func(g *mft.Group) { g.Policy.RepairTimerCap = 4 * time.Millisecond })
		psn = b.stream(psn, 4, 0, 1, 2)
		b.look()
		b.send(quiet(psn))
		if ahead {
			b.FanOut.Ask(b.group.ID, psn.Next()) // by the next packet, which is about to be counted
		}
		b.look()
		b.wait(3 * time.Millisecond) // less than a source may be silent
		b.expectEngine(true)
		if n := moved(b.Switch)["repair-probes"]; n != 0 {
			t.Errorf("ahead %v: %d packets are sent again", ahead, n)
		}
	}
}
