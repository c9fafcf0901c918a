package dataplane_test

import (
	"math"
	"net/netip"
	"slices"
	"testing"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

func traffic(t *testing.T, s *dataplane.Switch, g *mft.Group) (dataplane.Traffic, []dataplane.Receiver) {
	t.Helper()
	st, ok := s.GroupState(g.ID)
	if !ok {
		t.Fatal("the group is gone")
	}
	return st.Traffic, st.Receivers
}

// Packets that were lost before the box move the source's place, and count when they come after
// all. What is sent again to one receiver is a copy, and no packet.
func TestTrafficOfAGroup(t *testing.T) {
	g := group()
	net := newNet(t, g)
	say(t, net, write(firstPSN, make([]byte, 100)))
	say(t, net, write(firstPSN+3, make([]byte, 8))) // two were lost on their way
	say(t, net, ack(ipB, g.Paths[0].FirstPSN.Add(3), roce.SyndromeUnlimited))
	say(t, net, ack(ipC, g.Paths[1].FirstPSN, roce.SyndromeUnlimited))
	say(t, net, write(firstPSN+9000000, make([]byte, 8))) // outside the window
	want := dataplane.Traffic{Packets: 2, Bytes: 108, Copies: 6, CopyBytes: 324, Sent: 4}
	got, receivers := traffic(t, net.Switch, g)
	if acked := []dataplane.Receiver{{Acknowledged: 4}, {Acknowledged: 1}, {}}; got != want || !slices.Equal(receivers, acked) {
		t.Errorf("%+v %+v, want %+v %+v", got, receivers, want, acked)
	}
	say(t, net, write(firstPSN+1, make([]byte, 16)))
	want.Copies, want.CopyBytes = want.Copies+2, want.CopyBytes+32 // b has it
	if got, _ := traffic(t, net.Switch, g); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// After a restart the first packet is the first of the source's place, and an answer to what was
// sent before says nothing about it.
func TestTrafficBeginsWithARestart(t *testing.T) {
	g := group()
	g.Restored = true
	net := newNet(t, g)
	say(t, net, write(firstPSN+500, make([]byte, 8)))
	say(t, net, ack(ipB, g.Paths[0].FirstPSN.Add(400), roce.SyndromeUnlimited))
	say(t, net, ack(ipC, g.Paths[1].FirstPSN.Add(500), roce.SyndromeUnlimited))
	got, receivers := traffic(t, net.Switch, g)
	if want := []dataplane.Receiver{{}, {Acknowledged: 1}, {}}; got.Sent != 1 || !slices.Equal(receivers, want) {
		t.Errorf("%+v %+v, want %+v", got, receivers, want)
	}
}

// What the box repairs is a copy more.
func TestTrafficOfARepair(t *testing.T) {
	b := newRepairBench(t, 8)
	b.send(write(firstPSN, make([]byte, 24)))
	b.answer(0, firstPSN, roce.NAKSequence)
	want := dataplane.Traffic{Packets: 1, Bytes: 24, Copies: 4, CopyBytes: 96, Sent: 1}
	if got, _ := traffic(t, b.Switch, b.group); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A receiver that takes no part any more has acknowledged nothing of what goes on without it.
func TestAReceiverThatIsOutAcknowledgesNothing(t *testing.T) {
	g := group()
	g.Policy.Ack = 2
	net := newNet(t, g)
	for psn := roce.PSN(firstPSN); psn < firstPSN+20; psn++ {
		say(t, net, write(psn, make([]byte, 8)))
		for i, host := range []netip.Addr{ipB, ipC} {
			say(t, net, ack(host, g.Paths[i].FirstPSN.Add(psn.Sub(firstPSN)), roce.SyndromeUnlimited))
		}
	}
	say(t, net, ack(ipD, g.Paths[2].FirstPSN.Add(1), roce.NAKRemoteAccess))
	_, receivers := traffic(t, net.Switch, g)
	if want := []dataplane.Receiver{{Acknowledged: 20}, {Acknowledged: 20}, {}}; !slices.Equal(receivers, want) {
		t.Errorf("%+v, want %+v", receivers, want)
	}
}

// A receiver whose port is congested for days has sent more CNPs than 32 bits count.
func TestWhatAReceiverAnswersIsCountedForMonths(t *testing.T) {
	g := group()
	net := newNet(t, g)
	say(t, net, write(firstPSN, nil))
	dataplane.AnswersBefore(net.Switch.Workers()[0], g.ID, math.MaxUint32)
	say(t, net, cnp(ipB))
	say(t, net, ack(ipB, g.Paths[0].FirstPSN, roce.NAKSequence))
	say(t, net, ack(ipB, g.Paths[0].FirstPSN, roce.SyndromeRNR(1)))
	_, receivers := traffic(t, net.Switch, g)
	if want := (dataplane.Receiver{NAKs: 1 << 32, RNRs: 1 << 32, CNPs: 1 << 32}); receivers[0] != want {
		t.Errorf("%+v, want %+v", receivers[0], want)
	}
}
