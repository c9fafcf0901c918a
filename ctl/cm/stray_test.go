package cm

import (
	"slices"
	"testing"
	"time"

	"github.com/rocast/rocast/roce"
)

// transfer is a run that has come to its transfer and stays there.
func transfer(t *testing.T) *theatre {
	t.Helper()
	th := newTheatre(t, "b", "c")
	th.sending = true
	a := th.host("a")
	playPerftest(a, 2)
	step := a.step
	a.step = func(*actor) {
		if len(a.heard) < 11 {
			step(a)
		}
	}
	th.run(5 * time.Second)
	if len(th.groups) != 2 || th.m.run == nil {
		t.Fatalf("groups %v, after %q", th.groups, a.heard)
	}
	return th
}

// A run in which the receivers send data too ends at all hosts, although their programs look at
// nothing but the completions of their queue pairs.
func TestARunWhoseReceiversSendToo(t *testing.T) {
	th := transfer(t)
	th.asking = true
	th.run(6 * time.Second)
	for _, name := range []string{"a", "b", "c"} {
		host := th.host(name)
		if host.over != "its receive failed" {
			t.Errorf("the program at %s is %q", name, host.over)
		}
		for id := uint32(2); id <= 3; id++ {
			j := host.conns[id]
			want := Packet{Opcode: roce.OpAck, QPN: j.qpn, PSN: th.host("a").peerOf(j.peer).psn(), AETH: roce.AETH{Syndrome: roce.NAKRemoteOperational}}
			if name == "a" {
				want = Packet{Opcode: roce.OpWriteOnly, QPN: j.qpn, PSN: j.psn(), Payload: make([]byte, 4)}
			}
			if len(j.failed) != 1 || !samePacket(j.failed[0], want) {
				t.Errorf("queue pair %d of %s is ended by %+v, want %+v", id, name, j.failed, want)
			}
		}
		if j := host.conns[1]; len(j.failed) > 0 {
			t.Errorf("the control connection of %s is ended by %+v", name, j.failed)
		}
	}
	if reasons := th.reasons(); !slices.Contains(reasons, errBothWays.Error()) || len(th.groups) > 0 {
		t.Errorf("the reasons are %q, groups %v are left", reasons, th.groups)
	}
	th.isOver("the receivers send too")
}

// A single request of a receiver ends no run, nor does one more after a while: it was damaged on
// its way, or a stranger has sent it.
func TestASingleRequestOfAReceiverEndsNoRun(t *testing.T) {
	th := transfer(t)
	for range 3 {
		th.wrong++
		th.run(6 * time.Second)
	}
	if th.m.run == nil || len(th.groups) != 2 {
		t.Errorf("the run has ended: %q", th.reasons())
	}
}

// A queue pair that is not connected any more is left alone when its run ends: the host may have
// given its QPN to another program.
func TestTheEndOfARunLeavesEndedQueuePairsAlone(t *testing.T) {
	th := transfer(t)
	a := th.host("a")
	a.conns[2].disconnect()
	th.run(time.Second)
	th.asking = true
	th.run(6 * time.Second)
	for _, name := range []string{"a", "b", "c"} {
		if gone, connected := th.host(name).conns[2].failed, th.host(name).conns[3].failed; len(gone) != 0 || len(connected) != 1 {
			t.Errorf("%s: the queue pair that has ended is sent %+v, the other one %+v", name, gone, connected)
		}
	}
	th.isOver("a queue pair has ended before its run")
}

func samePacket(a, b Packet) bool {
	return a.Opcode == b.Opcode && a.QPN == b.QPN && a.PSN == b.PSN && a.AETH == b.AETH && slices.Equal(a.Payload, b.Payload)
}

// What a host still sends on the queue pair of a run that has ended is answered so that the queue
// pair ends, and not more often than its NIC repeats. No other packet is answered.
func TestStrayPackets(t *testing.T) {
	th := transfer(t)
	a, b := th.host("a").conns[2], th.host("b").conns[2]
	send := func(j *joint, opcode roce.Opcode, qpn roce.QPN) (answers int) {
		before := len(j.failed)
		th.step(Received{j.ip, Packet{Opcode: opcode, PSN: 12345}, qpn})
		for len(th.queue) > 0 {
			next := th.queue[0]
			th.queue = th.queue[1:]
			next()
		}
		return len(j.failed) - before
	}
	if n := send(a, roce.OpWriteFirst, a.peer); n != 0 || th.m.counts[Unexpected] != 1 {
		t.Errorf("during the transfer: %d answers, %d counted as unexpected", n, th.m.counts[Unexpected])
	}
	control := th.host("a").conns[1]
	unknown := th.m.counts[NoConnection]
	th.step(Received{control.ip, Packet{Opcode: roce.OpWriteOnly, PSN: control.line.next}, control.peer})
	if th.m.run.answers != nil || th.m.counts[NoConnection] != unknown+1 {
		t.Errorf("a WRITE on the control connection is a message")
	}
	th.asking = true
	th.run(6 * time.Second)
	for _, j := range []*joint{a, b} {
		for _, opcode := range []roce.Opcode{roce.OpWriteFirst, roce.OpWriteMiddle, roce.OpWriteLast, roce.OpSendOnly} {
			if n := send(j, opcode, j.peer); n != 1 {
				t.Errorf("%v of %s: %d answers", opcode, hostName(j.ip), n)
			}
			if n := send(j, opcode, j.peer); n != 0 {
				t.Errorf("%v of %s, again at once: %d answers", opcode, hostName(j.ip), n)
			}
			th.now += strayPause
		}
		if n := send(j, roce.OpAck, j.peer); n != 0 {
			t.Errorf("an ACK of %s: %d answers", hostName(j.ip), n)
		}
		unknown = th.m.counts[NoConnection]
		if n := send(j, roce.OpWriteFirst, 0x999); n != 0 || th.m.counts[NoConnection] != unknown+1 {
			t.Errorf("%s to another queue pair: %d answers", hostName(j.ip), n)
		}
	}
	th.isOver("stray packets")
	if n := len(th.m.data); n != 0 {
		t.Errorf("%d queue pairs are remembered", n)
	}
}
