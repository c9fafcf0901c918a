package dataplane_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// repairBench is a switch with a group that has repair on.
type repairBench struct {
	*porttest.Net
	t     *testing.T
	group *mft.Group
	now   feedback.Tick
}

func newRepairBench(t *testing.T, chunks int, options ...func(*mft.Group)) *repairBench {
	t.Helper()
	b := &repairBench{t: t, group: group()}
	b.group.Policy.Repair, b.group.Policy.RepairWindow = feedback.RepairLocal, min(chunks, 64)
	for _, o := range options {
		o(b.group)
	}
	b.Net = porttest.NewRetaining(4, chunks, nil, func() feedback.Tick { return b.now })
	b.add(b.group)
	return b
}

// newCarriedBench is newRepairBench with an engine that has carried some packets of the group. The
// result is the PSN of the next packet.
func newCarriedBench(t *testing.T, options ...func(*mft.Group)) (*repairBench, roce.PSN) {
	t.Helper()
	b := &repairBench{t: t, group: group()}
	b.group.Policy.Repair, b.group.Policy.RepairWindow = feedback.RepairLocal, 64
	for _, o := range options {
		o(b.group)
	}
	chunks := b.group.Policy.RepairWindow * mft.PacketBytes(b.group.PathMTU) / mft.BufferBytes
	b.Net = porttest.NewRetaining(4, chunks, porttest.NewFanOut(), func() feedback.Tick { return b.now })
	b.add(b.group)
	psn := roce.PSN(firstPSN)
	for range 20 { // until the group is armed, and some more
		b.send(quiet(psn))
		for path := range b.group.Paths {
			b.answer(path, psn, roce.SyndromeUnlimited)
		}
		psn = psn.Next()
	}
	b.expectEngine(true)
	b.expectRetained(0)
	return b, psn
}

// look makes the core look at what the engine did for its groups.
func (b *repairBench) look() {
	for id := range mft.GroupID(8) {
		b.Switch.GroupState(id)
	}
	b.Poll() // which puts buffers back
}

// expectEngine checks whether the engine carries the group now.
func (b *repairBench) expectEngine(carries bool) {
	b.t.Helper()
	if st, _ := b.Switch.GroupState(b.group.ID); st.Engine.Kernel != carries {
		b.t.Errorf("the engine carries the group: %+v", st.Engine)
	}
}

func (b *repairBench) add(g *mft.Group) {
	b.t.Helper()
	if _, err := b.Switch.Add(g); err != nil {
		b.t.Fatal(err)
	}
}

// quiet is a WRITE that does not ask for an ACK.
func quiet(psn roce.PSN) packet {
	p := write(psn, fmt.Appendf(nil, "packet %d, and some bytes more", psn))
	p.bth.AckReq = false
	return p
}

// send lets the source send frames, in one batch.
func (b *repairBench) send(packets ...packet) {
	b.t.Helper()
	for _, p := range packets {
		b.Ports[0].Put(p.frame(b.t))
	}
	b.Poll()
}

// answer lets receiver number path answer the packet psn of the source.
func (b *repairBench) answer(path int, psn roce.PSN, s roce.Syndrome) {
	b.t.Helper()
	p := &b.group.Paths[path]
	b.Ports[p.Port].Put(ack(p.Dst, psn.Add(b.group.DeltaPSN(path)), s).frame(b.t))
	b.Poll()
}

// settle lets all receivers acknowledge everything, and checks that no buffer is in use then, but
// those of other groups.
func (b *repairBench) settle(psn roce.PSN, others int) {
	b.t.Helper()
	for path := range b.group.Paths {
		b.answer(path, psn, roce.SyndromeUnlimited)
	}
	b.expectRetained(others)
}

// expectRetained checks how many packets are retained, and that no other buffer is lent.
func (b *repairBench) expectRetained(packets int) {
	b.t.Helper()
	for _, p := range b.Ports {
		p.Take()
	}
	b.look()
	if got := dataplane.RetainedBy(b.Switch.Workers()[0]); got != packets || b.Pool.Lent != packets {
		b.t.Errorf("%d packets are retained and %d buffers lent, want %d", got, b.Pool.Lent, packets)
	}
}

// expectSource checks what the source has heard: "ACK 1002" or "NAK 1001".
func (b *repairBench) expectSource(want ...string) {
	b.t.Helper()
	var heard []string
	for _, f := range b.Ports[0].Take() {
		d := decode(b.t, f)
		what := "NAK"
		if d.Syndrome.IsACK() {
			what = "ACK"
		}
		heard = append(heard, fmt.Sprint(what, " ", d.PSN))
	}
	if !slices.Equal(heard, want) {
		b.t.Errorf("the source has heard %q, want %q", heard, want)
	}
}

// expectCopies checks that a receiver was sent the packets that the source built, with the AckReq
// bit for those that have a '!'.
func (b *repairBench) expectCopies(path int, frames [][]byte, want string) {
	b.t.Helper()
	var got string
	for _, f := range frames {
		d := decode(b.t, f)
		psn := d.PSN.Add(-b.group.DeltaPSN(path))
		reference := b.copyOf(path, quiet(psn))
		asks := f[14+20+8+8]&0x80 != 0
		if asks {
			p := quiet(psn)
			p.bth.AckReq = true
			reference = b.copyOf(path, p)
			got += fmt.Sprint(" ", psn, "!")
		} else {
			got += fmt.Sprint(" ", psn)
		}
		if !bytes.Equal(f, reference) {
			b.t.Errorf("packet %d for receiver %d:\n%x, want\n%x", psn, path, f, reference)
		}
	}
	if want != got {
		b.t.Errorf("receiver %d was sent%s, want%s", path, got, want)
	}
}

// copyOf is the frame that a switch without repair sends to a receiver when it gets p from the
// source.
func (b *repairBench) copyOf(path int, p packet) []byte {
	b.t.Helper()
	g := group()
	g.Source.FirstPSN = p.bth.PSN
	for i := range g.Paths {
		g.Paths[i].FirstPSN = g.Paths[i].FirstPSN.Add(p.bth.PSN.Sub(firstPSN))
		g.Paths[i].Port = b.group.Paths[i].Port
	}
	net := newNet(b.t, g)
	net.Ports[0].Put(p.frame(b.t))
	net.Poll()
	return framesTo(b.t, b.group.Paths[path].Dst, net.Ports[b.group.Paths[path].Port].Take())[0]
}

// framesTo returns the frames to one host.
func framesTo(t *testing.T, host netip.Addr, frames [][]byte) [][]byte {
	return slices.DeleteFunc(frames, func(f []byte) bool { return decode(t, f).Dst != host })
}

func (b *repairBench) take(path int) [][]byte { return b.Ports[b.group.Paths[path].Port].Take() }

// One receiver loses a packet. It gets that one and those behind it again, and the source hears
// nothing of it.
func TestALossOnOneLegIsRepairedThere(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		b := newRepairBench(t, 64)
		for _, p := range b.Ports {
			p.Keeps = keeps
		}
		b.send(quiet(1000), quiet(1001), quiet(1002))
		for path := range 3 {
			b.expectCopies(path, b.take(path), " 1000 1001 1002")
		}
		b.answer(1, 1001, roce.NAKSequence)
		b.expectCopies(1, b.take(1), " 1001 1002!")
		b.expectRetained(3)
		b.send(quiet(1003)) // the leg has caught up, so it gets what is new directly
		for path := range 3 {
			b.expectCopies(path, b.take(path), " 1003")
		}
		b.answer(0, 1003, roce.SyndromeUnlimited)
		b.answer(2, 1003, roce.SyndromeUnlimited)
		b.expectSource("ACK 1000")
		b.expectRetained(3)
		b.answer(1, 1003, roce.SyndromeUnlimited)
		b.expectSource("ACK 1003")
		b.expectRetained(0)
		if got := moved(b.Switch)["repair-sent"]; got != 2 {
			t.Errorf("%d packets were sent again, want 2", got)
		}
	}
}

// A packet may be asked for while its copies wait to be sent: they go first, and are not what the
// repair has made of the buffer.
func TestARepairInTheSameBatchFollowsTheCopies(t *testing.T) {
	b := newRepairBench(t, 64, func(g *mft.Group) { g.Paths[1].Port, g.Paths[2].Port = 0, 1 })
	c := &b.group.Paths[1]
	b.Ports[0].Put(quiet(1000).frame(t))
	b.Ports[0].Put(quiet(1001).frame(t))
	b.Ports[0].Put(ack(c.Dst, c.FirstPSN, roce.NAKSequence).frame(t))
	b.Ports[0].Put(quiet(1002).frame(t))
	b.Poll()
	b.expectCopies(1, b.Ports[0].Take(), " 1000 1001 1000 1001! 1002")
	both := b.Ports[1].Take() // of the receivers 0 and 2
	b.expectCopies(0, framesTo(t, ipB, slices.Clone(both)), " 1000 1001 1002")
	b.expectCopies(2, framesTo(t, ipD, both), " 1000 1001 1002")
	b.settle(1002, 0)
}

// lacksItsOldest checks that packet 1000 is no longer retained, and the others are: receiver 1 is
// sent those, and receiver 2 gets packet 1000 from the source.
func (b *repairBench) lacksItsOldest(others string) {
	b.t.Helper()
	b.answer(1, 1001, roce.NAKSequence)
	b.expectSource()
	b.expectCopies(1, b.take(1), " "+others)
	b.answer(2, 1000, roce.NAKSequence)
	b.expectSource("NAK 1000")
	if got := b.take(2); len(got) != 0 {
		b.t.Errorf("receiver 2 was sent %d frames", len(got))
	}
	b.send(quiet(1000)) // by the source, again
	b.expectCopies(2, b.take(2), " 1000")
}

// Where memory is short the oldest packet of all groups goes. A receiver that then asks for it gets
// it from the source, as without repair; other groups lose nothing.
func TestTheOldestPacketGoesWhereMemoryIsShort(t *testing.T) {
	b := newRepairBench(t, 4)
	other := group()
	other.Name, other.QPN = "h", 2
	other.Policy = b.group.Policy
	for i := range other.Paths {
		other.Paths[i].RemoteQPN = 2
	}
	b.add(other)
	b.send(quiet(1000), quiet(1001), quiet(1002))
	p := quiet(1000)
	p.bth.DestQPN = 2
	b.send(p)
	b.expectRetained(4)
	p = quiet(1001)
	p.bth.DestQPN = 2
	b.send(p)
	b.expectRetained(4)
	b.answer(0, 1002, roce.SyndromeUnlimited)
	b.lacksItsOldest("1001 1002!")
	if m := moved(b.Switch); m["repair-lost-no-memory"] != 1 {
		t.Errorf("%v", m)
	}
	b.settle(1002, 2)
}

// damaged returns the frame with another payload, and the ICRC of the undamaged one.
func damaged(frame []byte) []byte {
	frame[len(frame)-10] ^= 1
	return frame
}

// damagedHeader returns the frame with a wrong checksum of its IPv4 header, which the ICRC does not
// cover.
func damagedHeader(frame []byte) []byte {
	const checksum = 14 + 10 // behind Ethernet
	frame[checksum] ^= 1
	return frame
}

// A packet that was damaged on its way from the source cannot be repaired: the source sends it
// again, and that one is kept in its place.
func TestADamagedPacketIsNotSentAgain(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{"payload": damaged, "header checksum": damagedHeader} {
		t.Run(name, func(t *testing.T) {
			b := newRepairBench(t, 64)
			b.send(quiet(1000))
			b.Ports[0].Put(damage(quiet(1001).frame(t))) // the next one, so it is not checked
			b.send(quiet(1002))
			for path := range 3 {
				b.take(path)
				b.answer(path, 1001, roce.NAKSequence)
			}
			b.expectSource("ACK 1000", "NAK 1001")
			for path := range 3 {
				if got := b.take(path); len(got) != 0 {
					t.Errorf("receiver %d was sent %d frames", path, len(got))
				}
			}
			if m := moved(b.Switch); m["repair-lost-damaged"] != 1 || m["repair-sent"] != 0 {
				t.Errorf("%v", m)
			}
			b.expectRetained(1) // what lies behind it
			b.send(quiet(1001), quiet(1002))
			b.settle(1002, 0)
		})
	}
}

// The source may send a packet again that is retained, because others lack it too. If the retained
// one was never checked, the new one takes its place.
func TestAResentPacketReplacesAnUncheckedOne(t *testing.T) {
	b := newRepairBench(t, 64)
	b.send(quiet(1000))
	b.Ports[0].Put(damaged(quiet(1001).frame(t)))
	b.Poll()
	b.send(quiet(1001)) // by a timeout of the source
	for path := range 3 {
		b.take(path)
	}
	b.answer(2, 1001, roce.NAKSequence)
	b.expectCopies(2, b.take(2), " 1001!")
	b.expectSource()
	b.expectRetained(2)
	b.settle(1001, 0)
}

// A receiver that says nothing is sent the packet that it has not acknowledged, until the time
// between two attempts or their number is at its bound.
func TestASilentReceiverIsProbed(t *testing.T) {
	b := newRepairBench(t, 64, func(g *mft.Group) { g.Policy.RepairAttempts = 2 })
	p := quiet(1000)
	p.bth.AckReq = true
	b.send(p)
	b.answer(0, 1000, roce.SyndromeUnlimited)
	b.answer(2, 1000, roce.SyndromeUnlimited)
	b.take(1)
	sent := 0
	for range 2000 { // 100 ms
		b.now += feedback.Tick(50 * time.Microsecond)
		b.Poll()
		sent += len(b.take(1))
	}
	if sent != 2 {
		t.Errorf("the packet was sent %d times again, want 2", sent)
	}
	if m := moved(b.Switch); m["repair-probes"] != 2 || m["repair-given-up-attempts"] != 1 {
		t.Errorf("%v", m)
	}
	b.expectRetained(1)
	b.settle(1000, 0)
}

// What is retained of a group goes with the group, with the receiver that lacked it, and with the
// source that sent it.
func TestNothingIsRetainedInVain(t *testing.T) {
	lacking := func(t *testing.T) *repairBench {
		b := newRepairBench(t, 64, func(g *mft.Group) {
			g.Paths[2].Sends, g.Paths[2].SendPSN, g.Policy.Switch = true, 77, feedback.SwitchForce
		})
		b.send(quiet(1000), quiet(1001))
		b.answer(0, 1001, roce.SyndromeUnlimited)
		b.answer(2, 1001, roce.SyndromeUnlimited)
		b.expectRetained(2)
		return b
	}
	t.Run("group", func(t *testing.T) {
		b := lacking(t)
		if err := b.Switch.Remove(b.group.ID); err != nil {
			t.Fatal(err)
		}
		b.expectRetained(0)
	})
	t.Run("receiver", func(t *testing.T) {
		b := lacking(t)
		g := group()
		g.Policy, g.Paths = b.group.Policy, slices.Delete(slices.Clone(b.group.Paths), 1, 2)
		if err := b.Switch.Replace(b.group.ID, g); err != nil {
			t.Fatal(err)
		}
		b.expectRetained(0)
		b.group = g
		b.send(quiet(1002))
		b.expectRetained(1)
		b.settle(1002, 0)
	})
	t.Run("source", func(t *testing.T) {
		b := lacking(t)
		p := quiet(77)
		p.src = ipD
		b.Ports[3].Put(p.frame(t))
		b.Poll()
		b.expectRetained(1)
	})
	t.Run("reborn", func(t *testing.T) { // a group in the place of another one
		b := lacking(t)
		if err := b.Switch.Remove(b.group.ID); err != nil {
			t.Fatal(err)
		}
		b.group = group()
		b.group.Policy.Repair, b.group.Policy.RepairWindow = feedback.RepairLocal, 64
		b.add(b.group)
		b.send(quiet(1000))
		b.expectRetained(1)
		b.settle(1000, 0)
	})
}

// A worker waits no longer than a receiver may leave an answer missing, and as long as any other
// when none is missing.
func TestAWorkerWaitsNoLongerThanARepairMay(t *testing.T) {
	b := newRepairBench(t, 64)
	w := b.Switch.Workers()[0]
	waits := func(least, most time.Duration) {
		t.Helper()
		dataplane.Sleep(w)
		if got := b.Waiters[0].Timeout; got < least || got > most {
			t.Errorf("it waits %v, want %v to %v", got, least, most)
		}
	}
	const idle, answer = 100 * time.Millisecond, time.Millisecond // before a round trip was measured
	waits(idle, idle)
	p := quiet(1000)
	p.bth.AckReq = true
	for psn := roce.PSN(1000); psn < 1002; psn++ {
		p.bth.PSN = psn
		b.send(p)
		waits(time.Duration(feedback.RepairPeriod), answer)
		b.settle(psn, 0)
		b.wait(20 * time.Millisecond) // the last ACK has been sent for the last time
		waits(idle, idle)
	}
}

// asking is a WRITE that asks for an ACK.
func asking(psn roce.PSN) packet {
	p := quiet(psn)
	p.bth.AckReq = true
	return p
}

// withGroups adds n groups that differ in their QPN, and returns them with the first one.
func (b *repairBench) withGroups(n int) []*mft.Group {
	b.t.Helper()
	groups := []*mft.Group{b.group}
	for i := range roce.QPN(n) {
		g := group()
		g.Name, g.QPN, g.Policy = fmt.Sprint("g", i), 2+i, b.group.Policy
		for k := range g.Paths {
			g.Paths[k].RemoteQPN = g.QPN
		}
		b.add(g)
		groups = append(groups, g)
	}
	return groups
}

// to returns p as a packet of another group.
func (p packet) to(g *mft.Group) packet {
	p.bth.DestQPN = g.QPN
	return p
}

// A repair that needs a packet which had to go ends, and the source hears of it at once.
func TestARepairEndsWithTheMemory(t *testing.T) {
	b := newRepairBench(t, 4)
	other := b.withGroups(1)[1]
	b.send(asking(1000))
	b.answer(0, 1000, roce.SyndromeUnlimited)
	b.answer(2, 1000, roce.SyndromeUnlimited)
	b.now += feedback.Tick(10 * time.Millisecond)
	b.Poll() // receiver 1 is silent, and is sent the packet again
	b.Ports[2].Take()
	for i := range roce.PSN(3) {
		b.send(quiet(1000 + i).to(other))
	}
	b.expectSource()
	b.send(quiet(1003).to(other))
	b.expectSource("NAK 1000")
	b.expectRetained(4)
}

// Three groups need more memory than there is: a quorum whose source is ahead of a slow receiver, a
// group with a slow receiver, and a fast one. A packet that the quorum's source has let go of stays
// as long as its policy is to wait and the slow receiver answers: what other sources still have
// goes before. With on-slow: go-on the oldest packet goes, and then the receiver is behind.
func TestWhatAWaitingQuorumNeedsStaysWhereMemoryIsShort(t *testing.T) {
	const room = 32
	for _, c := range []struct {
		onSlow feedback.SlowPolicy
		silent bool // the slow receiver of the quorum answers nothing any more
		stays  bool
	}{{feedback.SlowWait, false, true}, {feedback.SlowWait, true, false}, {feedback.SlowGoOn, false, false}} {
		b := newRepairBench(t, room, func(g *mft.Group) { g.Policy.Ack, g.Policy.OnSlow = 2, c.onSlow })
		others := b.withOthers(func(g *mft.Group) { g.Policy.Ack = feedback.AckAll }, "slow", "fast")
		for i := range roce.PSN(4) {
			b.send(asking(1000 + i))
			b.answer(0, 1000+i, roce.SyndromeUnlimited)
			b.answer(2, 1000+i, roce.SyndromeUnlimited)
		}
		b.expectSource("ACK 1000", "ACK 1001", "ACK 1002", "ACK 1003") // receiver 1 has nothing of that
		if c.silent {
			for range 40 {
				b.now += feedback.Tick(10 * time.Millisecond)
				b.Poll()
			}
		}
		also := b.withOthers(func(*mft.Group) {}, "also")[0] // another quorum, that sends when memory gets short
		for i := range roce.PSN(2 * room) {
			if i < 14 {
				b.send(asking(1000 + i).to(also))
				b.answerOf(also, 1000+i, 0, 2)
			}
			for k, g := range others {
				b.send(asking(1000 + i).to(g))
				if _, buffers := dataplane.CoreOf(b.Switch.Workers()[0]).Retained(); buffers > room {
					t.Fatalf("%d buffers are retained, of %d", buffers, room)
				}
				if k == 1 && i%8 == 7 {
					b.answerOf(g, 1000+i, 0, 1, 2)
				}
			}
		}
		lost := moved(b.Switch)["repair-lost-no-memory"]
		for _, p := range b.Ports {
			p.Take()
		}
		b.answer(1, 1000, roce.NAKSequence)
		want := 0
		if c.stays {
			want = 4
		}
		got := len(framesTo(t, b.group.Paths[1].Dst, b.take(1)))
		if got != want || lost == 0 {
			t.Errorf("%+v: receiver 1 was sent %d packets again, want %d; %d were lost for want of memory", c, got, want, lost)
		}
		if all := dataplane.CoreOf(b.Switch.Workers()[0]).RetainedBytes(also.ID) == 14*mft.BufferBytes; all != (c.onSlow == feedback.SlowWait) {
			t.Errorf("%+v: the other quorum keeps all that its slow receiver lacks: %v", c, all)
		}
		state, _ := b.Switch.GroupState(b.group.ID)
		if behind := state.Paths[1].Part == feedback.PartBehind; behind != (c.onSlow == feedback.SlowGoOn) {
			t.Errorf("%+v: receiver 1 is %v", c, state.Paths[1].Part)
		}
	}
}

// withOthers adds groups with these names, changed.
func (b *repairBench) withOthers(change func(*mft.Group), names ...string) (groups []*mft.Group) {
	b.t.Helper()
	for _, name := range names {
		g := group()
		g.Name, g.QPN, g.Policy = name, roce.QPN(name[0]), b.group.Policy
		change(g)
		for k := range g.Paths {
			g.Paths[k].RemoteQPN = g.QPN
		}
		b.add(g)
		groups = append(groups, g)
	}
	return groups
}

// answerOf lets some receivers of a group acknowledge everything up to a packet.
func (b *repairBench) answerOf(g *mft.Group, psn roce.PSN, paths ...int) {
	for _, i := range paths {
		p := ack(g.Paths[i].Dst, psn.Add(g.DeltaPSN(i)), roce.SyndromeUnlimited)
		p.bth.DestQPN = g.QPN
		b.Ports[g.Paths[i].Port].Put(p.frame(b.t))
	}
	b.Poll()
}

// A group at its own bound gives up its own oldest packet, though another group has an older one. A
// receiver that then asks for it gets it from the source.
func TestAGroupAtItsBoundGivesUpItsOwnOldestPacket(t *testing.T) {
	b := newRepairBench(t, 64, func(g *mft.Group) { g.Policy.RepairBytes = 3 * mft.BufferBytes })
	other := b.withGroups(1)[1]
	b.send(quiet(1000).to(other))
	b.send(quiet(1000), quiet(1001), quiet(1002))
	b.expectRetained(4)
	b.send(quiet(1003))
	b.expectRetained(4)
	core := dataplane.CoreOf(b.Switch.Workers()[0])
	if st, _ := b.Switch.GroupState(b.group.ID); st.Retained != 3*mft.BufferBytes || core.RetainedBytes(b.group.ID) != st.Retained || core.RetainedBytes(other.ID) != mft.BufferBytes {
		t.Errorf("%d bytes are retained, of the other group %d", st.Retained, core.RetainedBytes(other.ID))
	}
	b.answer(0, 1003, roce.SyndromeUnlimited)
	b.lacksItsOldest("1001 1002 1003!")
	if m := moved(b.Switch); m["repair-lost-group-full"] != 1 || m["repair-lost-no-memory"] != 0 {
		t.Errorf("%v", m)
	}
	b.settle(1003, 1)
	if n := core.RetainedBytes(b.group.ID) + core.RetainedBytes(b.group.ID+7); n != 0 {
		t.Errorf("%d bytes are retained, want none", n)
	}
}

// A group without a bound in bytes retains its whole window, also in packets of two buffers.
func TestABoundInBytesCountsBuffers(t *testing.T) {
	for bytes, want := range map[int]int{0: 4, 5 * mft.BufferBytes: 2, 2 * mft.BufferBytes: 1} {
		b := newRepairBench(t, 64, func(g *mft.Group) {
			g.PathMTU, g.Policy.RepairWindow, g.Policy.RepairBytes = 4096, 4, bytes
		})
		for i := range roce.PSN(6) {
			p := write(1000+i, make([]byte, 4096))
			p.bth.AckReq = false
			b.send(p)
		}
		if got := dataplane.RetainedBy(b.Switch.Workers()[0]); got != want || b.Pool.Lent != 2*want {
			t.Errorf("%d bytes: %d packets are retained in %d buffers, want %d", bytes, got, b.Pool.Lent, want)
		}
	}
}

// What has left the window of its own group takes no room: nothing is given up for it.
func TestAGroupDisplacesItsOwnPacketsFirst(t *testing.T) {
	b := newRepairBench(t, 4)
	for i := range roce.PSN(9) {
		b.send(quiet(1000 + i))
	}
	b.expectRetained(4)
	if n := moved(b.Switch)["repair-lost-no-memory"]; n != 0 {
		t.Errorf("%d packets were given up", n)
	}
}

// Every waiting group is served in a period, however many there are, also when others end to wait,
// or are removed, at that moment.
func TestEveryWaitingGroupIsServed(t *testing.T) {
	const n = 300 // more than one call serves
	b := newRepairBench(t, 1024)
	groups := b.withGroups(n - 1)
	for _, g := range groups {
		b.send(asking(1000).to(g))
	}
	for i, g := range groups {
		for path := range 3 {
			if i%3 == 0 || path > 0 { // receiver 0 is silent in two thirds of the groups
				p := &g.Paths[path]
				b.Ports[p.Port].Put(ack(p.Dst, p.FirstPSN, roce.SyndromeUnlimited).to(g).frame(t))
			}
		}
	}
	b.Poll()
	silent := 0
	for i, g := range groups {
		if i%3 == 1 && i < 30 {
			if err := b.Switch.Remove(g.ID); err != nil {
				t.Fatal(err)
			}
		} else if i%3 != 0 {
			silent++
		}
	}
	b.Ports[1].Take()
	b.now += feedback.Tick(10 * time.Millisecond)
	for range 3 {
		b.Poll()
	}
	if got := len(b.Ports[1].Take()); got != silent {
		t.Errorf("%d groups were served, want %d", got, silent)
	}
	if m := moved(b.Switch); m["repair-lost-damaged"] != 0 {
		t.Errorf("a group that was removed is served: %v", m)
	}
	b.wait(3 * time.Millisecond) // groups that are settled do not wait any more
	core, out := dataplane.CoreOf(b.Switch.Workers()[0]), dataplane.Outputs{}
	b.now += feedback.Tick(10 * time.Millisecond)
	for call, some := range []bool{true, true, false} { // 128 groups, the rest, none
		if core.Tick(b.now, &out) != some {
			t.Errorf("call %d: groups are served: %v", call, !some)
		}
	}
}

// Where a packet turns out to be damaged because time has passed, the source hears of it at once.
func TestADamagedPacketIsReportedWhenItIsProbed(t *testing.T) {
	b := newRepairBench(t, 64)
	b.send(quiet(1000))
	b.Ports[0].Put(damaged(asking(1001).frame(t)))
	b.Poll()
	for path := range 3 {
		b.answer(path, 1000, roce.SyndromeUnlimited)
	}
	b.expectSource("ACK 1000")
	b.now += feedback.Tick(10 * time.Millisecond)
	b.Poll()
	b.expectSource("NAK 1001")
	b.expectRetained(0)
}

// The port that keeps chunks knows how many may yet be retained.
func TestAWorkerTellsItsRoomForRepair(t *testing.T) {
	b := newRepairBench(t, 64)
	w := b.Switch.Workers()[0]
	room := func(packets, left int) {
		t.Helper()
		if n, chunks := dataplane.CoreOf(w).Retained(); n != packets || chunks != packets || w.RepairRoom() != left {
			t.Errorf("%d packets in %d buffers, room for %d", n, chunks, w.RepairRoom())
		}
	}
	room(0, 64)
	b.send(quiet(1000), quiet(1001))
	room(2, 62)
	if got := b.Switch.RepairMemory(); got != (dataplane.RepairMemory{Packets: 2, Buffers: 2, Room: 64}) {
		t.Errorf("%+v", got)
	}
	b.settle(1001, 0)
	room(0, 64)
}

// A core tells what it retains of a group, and what it has given up.
func TestACoreTellsWhatItRetains(t *testing.T) {
	b := newRepairBench(t, 64)
	core, off := dataplane.CoreOf(b.Switch.Workers()[0]), group()
	off.Name, off.QPN = "off", 2
	for i := range off.Paths {
		off.Paths[i].RemoteQPN = 2
	}
	b.add(off)
	b.send(quiet(1000), quiet(1000).to(off))
	for _, c := range []struct {
		id   mft.GroupID
		psn  roce.PSN
		want bool
	}{{b.group.ID, 1000, true}, {b.group.ID, 1001, false}, {off.ID, 1000, false}, {b.group.ID + 7, 1000, false}} {
		if got := core.Retains(c.id, c.psn); got != c.want {
			t.Errorf("packet %d of group %v: %v", c.psn, c.id, got)
		}
	}
	if core.GivenUp(b.group.ID) != 0 || core.GivenUp(b.group.ID+7) != 0 {
		t.Error("something is given up")
	}
	long := roce.SyndromeRNR(20) // 10 ms, which is the source's to wait
	b.answer(1, 1000, long)
	b.answer(2, 1000, long)
	if got := core.GivenUp(b.group.ID); got != 2 {
		t.Errorf("%d packets are given up, want 2", got)
	}
	if got := moved(b.Switch)["repair-given-up-rnr"]; got != 2 {
		t.Errorf("%d packets are counted as given up, want 2", got)
	}
	b.answer(0, 1000, roce.NAKSequence)
	b.now += feedback.Tick(30 * time.Second)
	if st, _ := b.Switch.GroupState(b.group.ID); fmt.Sprint(st.Repaired) != "[1 0 0]" {
		t.Errorf("in the last minute %v packets were sent again", st.Repaired)
	}
	b.now += feedback.Tick(2 * time.Minute)
	if st, _ := b.Switch.GroupState(b.group.ID); fmt.Sprint(st.Repaired) != "[0 0 0]" {
		t.Errorf("after two minutes %v", st.Repaired)
	}
	b.now += feedback.Tick(90 * time.Second)
	b.send(quiet(1001)) // and receiver 0 is probed, which was silent
	b.answer(0, 1001, roce.NAKSequence)
	b.now += feedback.Tick(59 * time.Second) // a count belongs to the minute in which it was made
	if st, _ := b.Switch.GroupState(b.group.ID); fmt.Sprint(st.Repaired) != "[2 0 0]" {
		t.Errorf("in the last minute %v packets were sent again", st.Repaired)
	}
	if st, _ := b.Switch.GroupState(off.ID); st.Repaired != nil {
		t.Errorf("without repair: %v", st.Repaired)
	}
}

// A group that may need more than a worker can retain is refused with the number that fits.
func TestAWindowBeyondTheMemoryIsRefused(t *testing.T) {
	for _, c := range []struct {
		chunks, window, mtu int
		want                string
		bytes               int
	}{
		{4096, 0, 1024, "", 0},
		{1024, 0, 1024, "", 0},
		{1024, 9, 1024, "", 1024 * 4096},
		{1024, 9, 1024, "group g: repair-bytes is 4100KiB, and the repairMemory of a forwarding thread is 4096KiB; write 4096KiB or less, or a larger repairMemory into rocastd.yaml", 1025 * 4096},
		{1023, 0, 1024, "group g: repair-window is 1024 packets, and the repairMemory of a forwarding thread has room for 1023 of them; write 1023 or less, or a larger repairMemory into rocastd.yaml", 0},
		{1023, 0, 1024, "group g: repair-window is 1024 packets, and the repairMemory of a forwarding thread has room for 1023 of them; write 1023 or less, or a larger repairMemory into rocastd.yaml", 1024 * 4096},
		{1023, 0, 1024, "", 1023 * 4096}, // repair-bytes bounds what is retained
		{1023, 2000, 1024, "group g: repair-bytes is 4096KiB, and the repairMemory of a forwarding thread is 4092KiB; write 4092KiB or less, or a larger repairMemory into rocastd.yaml", 1024 * 4096},
		{2046, 0, 4096, "group g: repair-window is 1024 packets, and the repairMemory of a forwarding thread has room for 1023 of them; write 1023 or less, or a larger repairMemory into rocastd.yaml", 1024 * 8192},
		{2046, 0, 4096, "", 2046 * 4096},
		{2048, 0, 4096, "", 0},
		{2046, 0, 4096, "group g: repair-window is 1024 packets, and the repairMemory of a forwarding thread has room for 1023 of them; write 1023 or less, or a larger repairMemory into rocastd.yaml", 0},
		{0, 1, 1024, "group g: repair: local needs memory, and rocastd.yaml says repairMemory: 0; write a size there, or repair: off into the group file", 0},
		{8, 8, 1024, "", 0},
	} {
		g := group()
		g.Policy.Repair, g.Policy.RepairWindow, g.Policy.RepairBytes, g.PathMTU = feedback.RepairLocal, c.window, c.bytes, c.mtu
		_, err := porttest.NewRetaining(4, c.chunks, nil, nil).Switch.Add(g)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want || (err != nil) != errors.Is(err, dataplane.ErrRetention) {
			t.Errorf("%+v:\ngot %s", c, got)
		}
		g.Policy.Repair = feedback.RepairOff
		if _, err := porttest.NewRetaining(4, c.chunks, nil, nil).Switch.Add(g); err != nil {
			t.Errorf("without repair: %v", err)
		}
	}
}

// A packet that came by another worker's queue is retained by the worker that owns the group.
func TestAPacketFromAnotherWorkersQueueIsRepaired(t *testing.T) {
	net := porttest.NewFanOutWorkers(4, 2, func() feedback.Tick { return 0 }) // else a slow machine repairs it twice
	g := group()
	g.Policy.Repair = feedback.RepairLocal
	if _, err := net.Switch.Add(g); err != nil {
		t.Fatal(err)
	}
	net.Queues[0][0].Put(quiet(1000).frame(t)) // the first worker owns the group
	net.Poll()
	net.Queues[1][0].Put(quiet(1001).frame(t))
	net.Poll()
	net.Ports[2].Take()
	c := &g.Paths[1]
	net.Queues[1][2].Put(ack(c.Dst, c.FirstPSN.Add(1), roce.NAKSequence).frame(t))
	net.Poll()
	again := net.Ports[2].Take()
	if len(again) != 1 || decode(t, again[0]).PSN != c.FirstPSN.Add(1) || !decode(t, again[0]).ICRCValid {
		t.Fatalf("%d frames were sent again", len(again))
	}
	for i := range g.Paths {
		p := &g.Paths[i]
		net.Queues[i%2][p.Port].Put(ack(p.Dst, p.FirstPSN.Add(1), roce.SyndromeUnlimited).frame(t))
	}
	net.Poll()
	for i, pool := range net.Pools {
		if pool.Lent != 0 {
			t.Errorf("worker %d has lent %d buffers", i, pool.Lent)
		}
	}
}

// A packet that is sent again counts in the minute in which that happens, because of an answer or
// because time has passed.
func TestARepairCountsInItsMinute(t *testing.T) {
	for name, p := range map[string]packet{"an answer": quiet(1000), "time": asking(1000)} {
		b := newRepairBench(t, 64)
		b.send(p)
		b.now = feedback.Tick(90 * time.Second)
		if p.bth.AckReq {
			b.Poll()
		} else {
			b.answer(0, 1000, roce.NAKSequence)
		}
		b.now = feedback.Tick(119 * time.Second)
		if st, _ := b.Switch.GroupState(b.group.ID); st.Repaired[0] != 1 {
			t.Errorf("by %s: %v packets were sent again in the last minute", name, st.Repaired)
		}
	}
}

// The records of retained packets are made when the first group with repair is added, and not when
// its first packet comes, which would wait for that.
func TestRecordsAreReservedBeforeTheFirstPacket(t *testing.T) {
	b := newRepairBench(t, 64)
	if w := b.Switch.Workers()[0]; !dataplane.Reserved(w) {
		t.Error("the first packet has to wait")
	}
}

// More groups wait than one Tick serves. An event of a group that was served in this round makes it
// due before the round ends.
func TestAGroupIsServedInTimeAmongMany(t *testing.T) {
	b := newRepairBench(t, 1024)
	groups := []*mft.Group{b.group}
	for i := range roce.QPN(130) {
		g := b.other()
		g.Name, g.QPN = fmt.Sprint("g", i), 100+i
		for k := range g.Paths {
			g.Paths[k].RemoteQPN = g.QPN
		}
		b.add(g)
		groups = append(groups, g)
	}
	asking := func(g *mft.Group, psn roce.PSN) packet {
		p := quiet(psn)
		p.bth.DestQPN, p.bth.AckReq = g.QPN, true
		return p
	}
	answer := func(g *mft.Group, path int, psn roce.PSN, s roce.Syndrome) {
		p := &g.Paths[path]
		f := ack(p.Dst, psn.Add(g.DeltaPSN(path)), s)
		f.bth.DestQPN = g.QPN
		b.Ports[p.Port].Put(f.frame(t))
		b.Poll()
	}
	for _, g := range groups {
		b.send(asking(g, firstPSN))
		answer(g, 0, firstPSN, roce.SyndromeRNR(17)) // about 4 ms
		answer(g, 1, firstPSN, roce.SyndromeUnlimited)
		answer(g, 2, firstPSN, roce.SyndromeUnlimited)
	}
	b.wait(time.Millisecond)
	for range 10 {
		b.Poll() // any round ends
	}
	b.send(asking(groups[5], firstPSN+1)) // due soon, so that a round begins
	answer(groups[5], 1, firstPSN+1, roce.SyndromeUnlimited)
	answer(groups[5], 2, firstPSN+1, roce.SyndromeUnlimited)
	w := b.Switch.Workers()[0]
	b.now += feedback.Tick(60 * time.Microsecond)
	w.Poll()
	b.Ports[0].Put(asking(groups[0], firstPSN+1).frame(t))
	w.Poll()
	b.take(2)
	b.wait(500 * time.Microsecond)
	if len(b.take(2)) == 0 {
		t.Error("the silent receiver is not probed in half a millisecond")
	}
}

// withoutItsSource is a group whose active source has left behind its first packet, and the paths
// that are left.
func withoutItsSource(t *testing.T) (b *repairBench, left []mft.Path) {
	t.Helper()
	b = newRepairBench(t, 64, func(g *mft.Group) { g.Paths[0].Sends, g.Paths[0].SendPSN = true, 500 })
	p := asking(500)
	p.src = ipB
	b.Ports[1].Put(p.frame(t))
	b.Poll()
	next := *b.group
	next.Paths = slices.Clone(b.group.Paths[1:])
	if err := b.Switch.Replace(b.group.ID, &next); err != nil {
		t.Fatal(err)
	}
	return b, next.Paths
}

// The answers to an active source that has left the group go to nobody. Its PSNs are not those of
// the first source, which would take an ACK of them for one of its own packets.
func TestNobodyHearsTheAnswersToASourceThatHasLeft(t *testing.T) {
	b, left := withoutItsSource(t)
	for i := range left {
		to := &left[i]
		b.Ports[to.Port].Put(cnp(to.Dst).frame(t))
		b.Ports[to.Port].Put(ack(to.Dst, to.FirstPSN, roce.SyndromeUnlimited).frame(t))
		b.Poll()
	}
	if m := moved(b.Switch); m["merged"] != 1 {
		t.Errorf("%v", m)
	}
	b.expectSource()
}

// What an active source has sent is not sent again after it has left the group: copies are made of
// the first source's packets from then on, and the ICRC of such a copy would be wrong.
func TestNothingIsRepairedOfASourceThatHasLeft(t *testing.T) {
	b, left := withoutItsSource(t)
	to := &left[0]
	b.Ports[to.Port].Put(ack(to.Dst, to.FirstPSN, roce.NAKSequence).frame(t))
	b.Poll()
	if m := moved(b.Switch); m["repair-sent"] != 0 || m["repaired"] != 0 {
		t.Errorf("%v", m)
	}
}

// The same holds where a frame shows the core that the source has left, before control tells it.
func TestNothingIsRepairedWhereAFrameShowsThatTheSourceHasLeft(t *testing.T) {
	g := group()
	g.Policy.Repair = feedback.RepairLocal
	g.Paths[0].Sends, g.Paths[0].SendPSN = true, 500
	b := newEngineBench(t, g)
	p := asking(500)
	p.src = ipB
	b.handle(p)
	next := *g
	next.Paths = slices.Clone(g.Paths[1:])
	table, err := b.table.Replace(g.ID, &next)
	if err != nil {
		t.Fatal(err)
	}
	b.table = table
	to := &next.Paths[0]
	b.handle(ack(to.Dst, to.FirstPSN, roce.NAKSequence))
	if packets, _ := b.core.Retained(); packets != 0 || len(b.out.Repairs)+len(b.out.Replies) != 0 {
		t.Errorf("%d packets are retained, %d are sent again, and there are %d replies", packets, len(b.out.Repairs), len(b.out.Replies))
	}
}
