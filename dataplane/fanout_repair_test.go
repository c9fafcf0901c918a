package dataplane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// A receiver that loses a packet which the engine carried gets it again from what the engine
// retains, and the source hears nothing. Then the engine carries the group again.
func TestWhatTheEngineCarriedIsRepaired(t *testing.T) {
	b, psn := newCarriedBench(t)
	b.send(quiet(psn), quiet(psn+1), quiet(psn+2))
	b.expectEngine(true)
	for path := range 3 {
		b.expectCopies(path, b.take(path), list(psn, psn+1, psn+2))
	}
	b.answer(1, psn+1, roce.NAKSequence)
	b.expectEngine(false) // because what is new has to wait for the repair, if that takes long
	b.expectCopies(1, b.take(1), list(psn+1, psn+2)+"!")
	b.expectSource()
	b.answer(1, psn+1, roce.NAKSequence) // nothing is fetched twice
	b.expectRetained(2)
	b.send(quiet(psn + 3))
	b.take(1)
	b.settle(psn+3, 0)
	for i := range roce.PSN(40) {
		b.send(quiet(psn + 4 + i))
		b.settle(psn+4+i, 0)
	}
	b.expectEngine(true)
}

// list is the list of PSNs as expectCopies has it.
func list(psns ...roce.PSN) (s string) {
	for _, psn := range psns {
		s += fmt.Sprint(" ", psn)
	}
	return s
}

// The engine never retains less than what a receiver may ask for: it gives the group back when it
// has as many packets as it may.
func TestTheEngineKeepsToTheWindow(t *testing.T) {
	b, psn := newCarriedBench(t)
	first := psn
	for b.engine() {
		b.send(quiet(psn))
		if psn = psn.Next(); psn.Sub(first) > 200 {
			t.Fatal("nothing stops the engine")
		}
	}
	if n := psn.Sub(first); n != 64+1 {
		t.Errorf("the engine stops after %d packets, and the window is 64", n-1)
	}
	for path := range 3 {
		b.take(path)
	}
	b.answer(2, first+1, roce.NAKSequence) // the oldest one has left the window
	b.expectSource()
	got := b.take(2)
	if len(got) < 3 {
		t.Fatalf("%d packets are sent again", len(got))
	}
	b.expectCopies(2, got[:3], list(first+1, first+2, first+3)+"!")
	b.settle(psn-1, 0)
}

// The engine retains few packets at first. It retains twice as many when the source has more on its
// way, up to the group's window. It does not begin before every receiver has what it carried
// before: its memory moves then.
func TestTheEngineRetainsWhatTheSourceHasOnItsWay(t *testing.T) {
	const window = 4 * dataplane.LeastKept
	b, psn := newCarriedBench(t, func(g *mft.Group) { g.Policy.RepairWindow = window })
	unanswered := int32(0) // when the engine began; the core retains these
	for _, keeps := range []int32{1, 2, 4, 4} {
		keeps *= dataplane.LeastKept
		if n := b.FanOut.Retains(b.group.ID); n != int(keeps) {
			t.Fatalf("the engine retains %d packets, want %d", n, keeps)
		}
		first := psn
		for ; b.engine() && psn.Sub(first) <= keeps; psn = psn.Next() {
			b.send(quiet(psn))
		}
		if n, want := psn.Sub(first)-1, min(keeps, window-unanswered); n != want {
			t.Errorf("the engine stops after %d packets, want %d", n, want)
		}
		for range 20 {
			b.send(quiet(psn))
			psn = psn.Next()
		}
		b.expectEngine(false)
		if b.take(1); keeps < window { // else the first one has left the window
			b.answer(1, first, roce.NAKSequence)
			if got := b.take(1); len(got) == 0 {
				t.Errorf("receiver 1 is sent nothing again")
			} else {
				b.expectCopies(1, got[:1], list(first))
			}
		}
		b.drain()
		b.settle(psn-1, 0)
		for unanswered = 0; !b.engine() && unanswered < 100; unanswered++ {
			b.send(quiet(psn))
			psn = psn.Next()
		}
	}
}

func (b *repairBench) engine() bool {
	st, _ := b.Switch.GroupState(b.group.ID)
	return st.Engine.Kernel
}

// The window moves with what the receivers acknowledge, so a source that streams is carried all the
// time.
func TestTheWindowMovesWithTheReceivers(t *testing.T) {
	t.Run("merged", func(t *testing.T) { testTheWindowMoves(t, merged) })
	t.Run("not merged", func(t *testing.T) { testTheWindowMoves(t, notMerged) })
}

// The engine merges the answers of one of these groups.
var (
	merged    = func(*mft.Group) {}
	notMerged = func(g *mft.Group) { g.Policy.Credits = feedback.CreditsMerge }
)

func testTheWindowMoves(t *testing.T, edit func(*mft.Group)) {
	b, psn := newCarriedBench(t, edit)
	for range 20 {
		var batch []packet
		for range 16 {
			batch = append(batch, quiet(psn))
			psn = psn.Next()
		}
		b.send(batch...)
		if b.expectEngine(true); t.Failed() {
			t.Fatalf("before packet %d", psn)
		}
		for path := range 3 {
			b.answer(path, psn-9, roce.SyndromeUnlimited)
		}
	}
	b.settle(psn-1, 0)
}

// A packet that was damaged on its way from the source is not sent again, and neither is one for
// which no buffer is left: the source has to.
func TestWhatTheEngineHasAndIsOfNoUse(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prepare func(b *repairBench, psn roce.PSN)
		counter string
	}{
		{"damaged", func(b *repairBench, psn roce.PSN) {
			b.Ports[0].Put(damaged(quiet(psn + 1).frame(b.t)))
			b.Poll()
		}, "repair-lost-damaged"},
		{"damaged header", func(b *repairBench, psn roce.PSN) {
			b.Ports[0].Put(damagedHeader(quiet(psn + 1).frame(b.t)))
			b.Poll()
		}, "repair-lost-damaged"},
		{"no buffer", func(b *repairBench, psn roce.PSN) {
			b.send(quiet(psn + 1))
			b.fill()
		}, "repair-lost-no-memory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, psn := newCarriedBench(t)
			b.send(quiet(psn))
			tt.prepare(b, psn)
			b.send(quiet(psn + 2))
			for path := range 3 {
				b.take(path)
				b.answer(path, psn+1, roce.NAKSequence)
			}
			b.drain()
			b.send(quiet(psn+1), quiet(psn+2)) // again: the second one takes the place of the engine's
			b.take(1)
			b.answer(1, psn+2, roce.NAKSequence)
			b.expectCopies(1, b.take(1), list(psn+2)+"!")
			if got := moved(b.Switch)[tt.counter]; got != 1 {
				t.Errorf("%s is %d, want 1", tt.counter, got)
			}
			b.settle(psn+2, 0)
		})
	}
}

// A packet that the engine has takes the room of the oldest packet of all, when another group fills
// the memory: the receiver that lacks it gets it a little later. The source of the other group has
// to help its receivers, if they lack what made room.
func TestAFetchedPacketTakesTheRoomOfTheOldest(t *testing.T) {
	b, psn := newCarriedBench(t)
	b.send(quiet(psn), quiet(psn+1))
	b.fill()
	for path := range 3 {
		b.answer(path, psn-1, roce.SyndromeUnlimited)
		b.take(path)
	}
	b.Ports[0].Take()
	b.answer(1, psn, roce.NAKSequence)
	b.expectCopies(1, b.take(1), "")
	before := moved(b.Switch)["repair-lost-no-memory"]
	b.wait(10 * time.Millisecond)
	if got := b.take(1); len(got) == 0 {
		t.Error("the receiver that asked gets nothing")
	}
	if before != 1 {
		t.Errorf("%d packets made room, want 1", before)
	}
	nak := fmt.Sprint("NAK ", firstPSN) // of the other group, whose source does not come
	b.expectSource(nak, nak, nak)
}

// Room for a packet that the engine has is not made with what only the box has of a quorum that
// waits: another group's oldest packet goes, which its source still has.
func TestAFetchedPacketLeavesWhatAQuorumNeeds(t *testing.T) {
	b, psn := newCarriedBench(t)
	b.send(quiet(psn), quiet(psn+1))
	waits := b.withOthers(func(g *mft.Group) { g.Policy.Ack, g.Engine = 2, mft.EngineAFXDP }, "waits")[0]
	for i := range roce.PSN(4) {
		b.send(asking(1000 + i).to(waits))
		b.answerOf(waits, 1000+i, 0, 2)
	}
	other := b.withOthers(func(g *mft.Group) { g.Engine = mft.EngineAFXDP }, "other")[0]
	core := dataplane.CoreOf(b.Switch.Workers()[0])
	for i := range roce.PSN(60) {
		b.send(quiet(1000 + i).to(other))
	}
	b.expectRetained(64)
	for _, p := range b.Ports {
		p.Take()
	}
	b.answer(1, psn, roce.NAKSequence)
	b.wait(10 * time.Millisecond)
	if n := moved(b.Switch)["repair-lost-no-memory"]; n == 0 || core.RetainedBytes(waits.ID) != 4*mft.BufferBytes {
		t.Errorf("%d packets made room, and the quorum that waits has %d bytes", n, core.RetainedBytes(waits.ID))
	}
}

// What the engine does not have when it is asked for is counted apart.
func TestWhatTheEngineDoesNotHave(t *testing.T) {
	b, psn := newCarriedBench(t)
	b.send(quiet(psn), quiet(psn+1))
	b.FanOut.Forget(b.group.ID)
	b.take(1)
	b.answer(1, psn, roce.NAKSequence)
	if m := moved(b.Switch); m["repair-lost-missing"] != 1 || m["repair-lost-damaged"] != 0 || m["repair-given-up-not-retained"] != 1 {
		t.Errorf("%v", m)
	}
}

// What the engine has in the place of a packet is not sent if it is a packet of another group.
// Other groups may have the same QPN.
func TestTheEngineHasAnotherPacket(t *testing.T) {
	for what, change := range map[string]func(*packet){
		"QPN":         func(p *packet) { p.bth.DestQPN = 2 },
		"PSN":         func(p *packet) { p.bth.PSN++ },
		"source":      func(p *packet) { p.src = ipB },
		"destination": func(p *packet) { p.dst = ipA },
	} {
		b, psn := newCarriedBench(t)
		b.send(quiet(psn), quiet(psn+1))
		p := quiet(psn)
		change(&p)
		b.FanOut.Overwrite(b.group.ID, psn, p.frame(t))
		b.take(1)
		b.answer(1, psn, roce.NAKSequence)
		b.expectCopies(1, b.take(1), "")
		if m := moved(b.Switch); m["repair-lost-damaged"] != 1 || m["repair-given-up-not-retained"] != 1 {
			t.Errorf("another %s: %v", what, m)
		}
	}
}

// The QP of the source may have another QPN as its peer than the group's: that of a link between
// boxes, for instance. What the engine carried of it is repaired as well.
func TestTheSourceHasAnotherRemoteQPN(t *testing.T) {
	b, psn := newCarriedBench(t, func(g *mft.Group) { g.QPN, g.Source.RemoteQPN = groupQPN+1, groupQPN })
	b.send(quiet(psn))
	b.take(1)
	b.answer(1, psn, roce.NAKSequence)
	b.expectCopies(1, b.take(1), list(psn)+"!")
}

// A packet that the engine has takes no room from newer packets of its own group: the receiver that
// lacks it would lack those next.
func TestAFetchedPacketTakesNoRoomFromItsGroup(t *testing.T) {
	const own, room = 20, 64
	b, psn := newCarriedBench(t)
	b.send(quiet(psn))
	b.expectEngine(true)
	b.send(quiet(psn - 1)) // again, so the worker gets the group back
	for i := range roce.PSN(own) {
		b.send(quiet(psn + 1 + i))
	}
	b.expectEngine(false)
	other := b.other()
	b.add(other)
	for i := range roce.PSN(room - own) {
		b.send(quiet(firstPSN + i).to(other))
	}
	b.expectRetained(room)
	b.answer(1, psn, roce.NAKSequence)
	b.expectRetained(room)
	if m := moved(b.Switch); m["repair-lost-no-memory"] != 1 || m["repair-given-up-not-retained"] != 1 {
		t.Errorf("%v", m)
	}
}

// fill adds a group that retains as many packets as there is room for.
func (b *repairBench) fill() {
	b.t.Helper()
	b.add(b.other())
	for i := range roce.PSN(64) {
		p := quiet(firstPSN + i)
		p.bth.DestQPN = 2
		b.send(p)
	}
}

// drain lets the receivers of the other group acknowledge everything.
func (b *repairBench) drain() {
	b.t.Helper()
	for path := range b.group.Paths {
		p := &b.group.Paths[path]
		f := ack(p.Dst, p.FirstPSN.Add(63), roce.SyndromeUnlimited)
		f.bth.DestQPN = 2
		b.Ports[p.Port].Put(f.frame(b.t))
	}
	b.Poll()
	b.Ports[0].Take()
}

// other is a group like the first one, with another QPN, that the worker carries.
func (b *repairBench) other() *mft.Group {
	g := group()
	g.Name, g.QPN, g.Engine, g.Policy = "h", 2, mft.EngineAFXDP, b.group.Policy
	for i := range g.Paths {
		g.Paths[i].RemoteQPN = 2
	}
	return g
}

// A group that loses its slot in the engine loses what the engine retained for it. What a receiver
// then lacks the source sends again.
func TestWithoutItsSlotAGroupHasWhatTheWorkerRetained(t *testing.T) {
	b, psn := newCarriedBench(t)
	b.FanOut.Slots = 1
	other := b.other()
	other.Engine, other.Policy.Repair = mft.EngineAuto, feedback.RepairOff
	b.add(other)
	b.send(quiet(psn), quiet(psn+1))
	p := quiet(firstPSN)
	p.bth.DestQPN = 2
	for p.bth.PSN < firstPSN+40 || b.engine() { // asks twice for the slot
		b.send(p)
		if p.bth.PSN++; p.bth.PSN > firstPSN+5000 {
			t.Fatal("the group keeps its slot")
		}
	}
	b.send(quiet(psn + 2))
	for path := range 3 {
		b.take(path)
	}
	b.answer(0, psn+2, roce.NAKSequence)
	b.expectCopies(0, b.take(0), list(psn+2)+"!")
	b.answer(1, psn+1, roce.NAKSequence)
	if got := b.take(1); len(got) != 0 {
		t.Errorf("receiver 1 was sent %d frames", len(got))
	}
	if m := moved(b.Switch); m["repair-lost-no-memory"] == 0 || m["repair-lost-damaged"] != 0 {
		t.Errorf("%v", m)
	}
	b.answer(2, psn+2, roce.SyndromeUnlimited)
	b.Ports[0].Take()
	b.send(quiet(psn+1), quiet(psn+2))
	b.settle(psn+2, 0)
}

// What the source sends again takes the place of what the engine has, which may be damaged.
func TestAResentPacketReplacesTheEngines(t *testing.T) {
	b, psn := newCarriedBench(t)
	b.Ports[0].Put(damaged(quiet(psn).frame(t)))
	b.Poll()
	b.expectEngine(true)
	b.send(quiet(psn)) // by a timeout of the source
	for path := range 3 {
		b.take(path)
	}
	b.answer(2, psn, roce.NAKSequence)
	b.expectCopies(2, b.take(2), list(psn)+"!")
	b.expectSource()
	b.settle(psn, 0)
}

// The engine retains what the policy says, and at least that if it is no power of two.
func TestTheBlockSaysHowManyPacketsAreRetained(t *testing.T) {
	for window, want := range map[int]int{64: 64, 33: 64, 16: 16} {
		b, _ := newCarriedBench(t, func(g *mft.Group) { g.Policy.RepairWindow = window })
		if got := b.FanOut.Retains(b.group.ID); got != want {
			t.Errorf("window %d: the engine retains %d packets, want %d", window, got, want)
		}
	}
}

// A bound in bytes bounds what the engine retains as well, where each packet counts as one buffer.
// What the core takes over from there displaces the group's oldest packet.
func TestTheEngineKeepsToTheBoundInBytes(t *testing.T) {
	b, psn := newCarriedBench(t, func(g *mft.Group) { g.Policy.RepairBytes = 5 * mft.BufferBytes })
	if got := b.FanOut.Retains(b.group.ID); got != 8 {
		t.Errorf("the engine has room for %d packets, want 8", got)
	}
	core := dataplane.CoreOf(b.Switch.Workers()[0])
	for i := range roce.PSN(7) {
		b.send(quiet(psn + i))
		b.expectEngine(i < 5)
		if got, want := core.RetainedBytes(b.group.ID), min(int(i)+1, 5)*mft.BufferBytes; got != want {
			t.Errorf("%d bytes are retained, want %d", got, want)
		}
	}
	if m := moved(b.Switch); m["repair-lost-group-full"] != 2 {
		t.Errorf("%v", m)
	}
	for path := range 3 {
		b.take(path)
	}
	b.answer(0, psn+2, roce.NAKSequence)
	b.expectCopies(0, b.take(0), list(psn+2, psn+3, psn+4)+"!"+list(psn+5, psn+6)+"!")
	b.answer(1, psn+1, roce.NAKSequence)
	if got := b.take(1); len(got) != 0 {
		t.Errorf("receiver 1 was sent %d frames", len(got))
	}
}

// What is fetched from the engine in one batch is bounded, whatever is released meanwhile: the
// worker still can retain what the source sends.
func TestFetchingLeavesRoomForTheBatch(t *testing.T) {
	onePort := func(g *mft.Group) {
		for i := range g.Paths {
			g.Paths[i].Port = 0
		}
	}
	b, _ := newCarriedBench(t, onePort)
	var groups []*mft.Group
	next := map[*mft.Group]roce.PSN{}
	put := func(g *mft.Group, p packet) {
		p.bth.DestQPN = g.QPN
		b.Ports[0].Put(p.frame(t))
	}
	answer := func(g *mft.Group, path int, psn roce.PSN, s roce.Syndrome) {
		p := &g.Paths[path]
		put(g, ack(p.Dst, p.FirstPSN.Add(psn.Sub(firstPSN)), s))
	}
	carries := func(g *mft.Group) bool {
		st, _ := b.Switch.GroupState(g.ID)
		return st.Engine.Kernel
	}
	const carried = 40
	for n := range roce.QPN(5) {
		g := b.other()
		g.Name, g.QPN, g.Engine = fmt.Sprint("g", n), 2+n, mft.EngineAuto
		g.Policy.Credits = feedback.CreditsMerge // so that the ACKs come to the worker
		onePort(g)
		for i := range g.Paths {
			g.Paths[i].RemoteQPN = g.QPN
		}
		b.add(g)
		groups, next[g] = append(groups, g), firstPSN
		for left := carried; left > 0; next[g]++ {
			put(g, quiet(next[g]))
			b.Poll()
			if carries(g) {
				left--
				continue
			}
			for path := range 3 {
				answer(g, path, next[g], roce.SyndromeUnlimited)
			}
			b.Poll()
		}
	}
	b.expectRetained(len(groups)) // the last ones before the engine took over
	for _, g := range groups {    // all in one batch
		answer(g, 0, next[g].Add(-carried), roce.NAKSequence)
		for path := range 3 {
			answer(g, path, next[g].Prev(), roce.SyndromeUnlimited)
		}
	}
	put(groups[0], quiet(next[groups[0]]))
	b.Poll()
	b.expectRetained(1)
	if m := moved(b.Switch); m["repair-sent"] < 64 || m["repair-lost-no-memory"] == 0 {
		t.Errorf("%v", m)
	}
}

// The last packet of what the engine carried is lost on one leg. The receiver does not know of it,
// and the source waits: the worker notices, because the packet asks for an ACK. A packet that does
// not ask is not waited for before the source has been silent for long.
func TestALostTailOfWhatTheEngineCarriedIsRepaired(t *testing.T) {
	b, psn := newCarriedBench(t)
	b.send(quiet(psn))
	b.answer(0, psn, roce.SyndromeUnlimited) // the worker looks at the engine
	b.wait(3 * time.Millisecond)
	for path := range 3 {
		b.expectCopies(path, b.take(path), list(psn))
	}
	p := quiet(psn + 1)
	p.bth.AckReq = true
	b.send(p, quiet(psn+2))
	b.answer(0, psn+2, roce.SyndromeUnlimited)
	b.answer(2, psn+2, roce.SyndromeUnlimited)
	b.expectEngine(true)
	b.take(1)
	b.wait(6 * time.Millisecond)
	b.expectCopies(1, b.take(1), list(psn)+"!")
	b.answer(1, psn, roce.SyndromeUnlimited)
	b.expectCopies(1, b.take(1), list(psn+1)+"!"+list(psn+2)+"!")
	b.expectSource("ACK " + fmt.Sprint(psn))
	b.settle(psn+2, 0)
}

// wait lets time pass while the worker polls.
func (b *repairBench) wait(d time.Duration) {
	for range d / (50 * time.Microsecond) {
		b.now += feedback.Tick(50 * time.Microsecond)
		b.Poll()
	}
}

// All receivers lose the last packet that the engine carried. No frame tells the worker of it.
func TestATailThatEverybodyLosesIsRepaired(t *testing.T) {
	b, psn := newCarriedBench(t)
	if got := b.sleeps(); got > time.Duration(dataplane.LookPeriod) {
		t.Errorf("an idle worker sleeps %v", got)
	}
	p := quiet(psn)
	p.bth.AckReq = true
	b.send(p)
	for path := range 3 {
		b.take(path)
	}
	b.wait(20 * time.Millisecond)
	b.expectSentAgain(psn)
	b.expectRetained(0)
	if err := b.Switch.Remove(b.group.ID); err != nil {
		t.Fatal(err)
	}
	if got := b.sleeps(); got != 100*time.Millisecond {
		t.Errorf("an idle worker sleeps %v, and the engine carries nothing", got)
	}
}

// expectSentAgain checks that every receiver is sent something again by the time at which it
// acknowledges psn.
func (b *repairBench) expectSentAgain(psn roce.PSN) {
	b.t.Helper()
	for path := range 3 {
		if b.answer(path, psn, roce.SyndromeUnlimited); len(b.take(path)) == 0 {
			b.t.Errorf("receiver %d was sent nothing again", path)
		}
	}
}

// sleeps returns how long the worker would sleep.
func (b *repairBench) sleeps() time.Duration {
	b.wait(20 * time.Millisecond) // the last ACK has been sent for the last time
	dataplane.Sleep(b.Switch.Workers()[0])
	return b.Waiters[0].Timeout
}

// A group that is removed while the engine carries it is not looked at any more.
func TestARemovedGroupIsNotLookedAt(t *testing.T) {
	b, _ := newCarriedBench(t)
	if err := b.Switch.Remove(b.group.ID); err != nil {
		t.Fatal(err)
	}
	if got := b.sleeps(); got != 100*time.Millisecond {
		t.Errorf("an idle worker sleeps %v", got)
	}
	b.now += feedback.Tick(10 * time.Second)
	b.Poll() // nor is its slot, which it has not any more
}

// Another group takes a group's slot in the engine before the worker has looked at what the engine
// carried of it last. The group's receivers are asked for that all the same.
func TestAGroupThatLosesItsSlotIsRepaired(t *testing.T) {
	b, psn := newCarriedBench(t)
	b.FanOut.Slots = 1
	other := b.other()
	other.Engine, other.Policy.Repair = mft.EngineAuto, feedback.RepairOff
	b.add(other)
	b.wait(40 * time.Millisecond) // nothing waits any more
	b.expectEngine(true)
	p := quiet(psn)
	p.bth.AckReq = true
	b.send(p) // carried, and all receivers lose it
	p = quiet(firstPSN)
	for p.bth.DestQPN = other.QPN; p.bth.PSN < firstPSN+40 || b.engine(); p.bth.PSN++ {
		b.send(p)
	}
	b.Ports[0].Take()
	for path := range 3 {
		b.take(path)
	}
	b.wait(100 * time.Millisecond)
	if len(b.take(1)) == 0 && len(b.Ports[0].Take()) == 0 {
		t.Error("nobody is sent anything")
	}
}

// A next hop changes before the worker has looked at what the engine carried last, which all
// receivers lose. The receivers are asked for that all the same.
func TestALostTailIsRepairedAfterAHopHasChanged(t *testing.T) {
	b, psn := newCarriedBench(t)
	b.wait(40 * time.Millisecond) // nothing waits any more
	b.expectEngine(true)          // the question makes the core look at the group
	b.send(asking(psn))
	for path := range 3 {
		b.take(path)
	}
	next := *b.group
	next.Paths = slices.Clone(b.group.Paths)
	next.Paths[1].L2[0] ^= 2
	if err := b.Switch.Replace(b.group.ID, &next); err != nil {
		t.Fatal(err)
	}
	b.wait(50 * time.Millisecond)
	for path := range 3 {
		if len(b.take(path)) == 0 {
			t.Errorf("receiver %d was sent nothing again", path)
		}
	}
	b.expectEngine(false)
}

// From the moment on at which the engine carries a group with repair the worker looks at it,
// however patient the group is.
func TestAGroupIsLookedAtSinceItWasArmed(t *testing.T) {
	g := group()
	g.Policy.Repair, g.Policy.RepairTimerFloor, g.Policy.RepairTimerCap = feedback.RepairLocal, time.Second, time.Second
	b := newEngineBench(t, g)
	b.arm(g)
	if pause := b.core.Pause(0); pause <= 0 || pause > dataplane.LookPeriod {
		t.Errorf("the worker looks after %v", time.Duration(pause))
	}
}

// A worker looks for the answers to what the engine carries of a group with repair only while the
// engine carries it.
func TestAGroupThatWasTakenBackIsNotLookedAt(t *testing.T) {
	g := group()
	g.Policy.Repair = feedback.RepairLocal
	b := newEngineBench(t, g)
	b.arm(g)
	b.mustCarry(g, 1)
	if b.core.Pause(0) == 0 {
		t.Error("nothing limits the pause while the engine carries")
	}
	b.acks(g, 0, 1, 2)
	b.handle(b.data(g)) // it reaches the core, so it has waited since before
	if b.armed(g) {
		t.Fatal("the group is armed")
	}
	b.acks(g, 0, 1, 2)
	now := feedback.Tick(0)
	for range 10 { // what waits for an answer waits no more
		now += feedback.Tick(1e9)
		b.core.Tick(now, &b.out)
	}
	if pause := b.core.Pause(now); pause != 0 {
		t.Errorf("the worker looks again after %v", pause)
	}
}

// A group is removed and made again with the same addresses, QPNs and PSNs, while the core and the
// engine retain packets of the one before. None of these is sent to the receivers of the new one.
func TestAGroupThatIsMadeAgainHasNothingOfTheOneBefore(t *testing.T) {
	b, psn := newCarriedBench(t)
	b.send(quiet(psn), quiet(psn+1))
	if err := b.Switch.Remove(b.group.ID); err != nil {
		t.Fatal(err)
	}
	again := group()
	again.Policy = b.group.Policy
	b.add(again)
	b.group = again
	for p := roce.PSN(firstPSN); p != psn; p = p.Next() {
		b.send(quiet(p))
		for path := range b.group.Paths {
			b.answer(path, p, roce.SyndromeUnlimited)
		}
	}
	b.expectEngine(true)
	b.take(1)
	b.answer(1, psn, roce.NAKSequence) // on its way since then
	b.wait(20 * time.Millisecond)
	if got := b.take(1); len(got) != 0 {
		t.Errorf("the receiver is sent %+v", decode(t, got[0]))
	}
	anew := quiet(psn)
	anew.payload = []byte("of the new group")
	b.send(anew)
	b.take(1)
	b.answer(1, psn, roce.NAKSequence)
	if got := b.take(1); len(got) != 1 || decode(t, got[0]).Payload != string(anew.payload) {
		t.Errorf("the receiver that asks is sent %d packets, or another one", len(got))
	}
}

// A source that sends again what the receivers have not acknowledged yet is no reason to doubt a
// driver by which they have got packets before.
func TestADriverThatHasSentWhatIsRetainedIsNotBlamed(t *testing.T) {
	b, psn := newCarriedBench(t)
	b.send(quiet(psn))
	b.send(quiet(psn))
	st, _ := b.Switch.GroupState(b.group.ID)
	if st.Engine.Kernel || strings.Contains(st.Engine.Reason, "acknowledged nothing") {
		t.Errorf("%+v", st.Engine)
	}
}
