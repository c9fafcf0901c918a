package sim

import (
	"net/netip"
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/roce"
)

// A damaged packet that looks as if its message went on hides an end from the switch. No other
// damage does.
func TestADamagedPacketHidesTheEndOfItsMessage(t *testing.T) {
	for _, tt := range []struct {
		packet  int32
		opcode  roce.Opcode
		damaged bool
		want    int
	}{
		{3, roce.OpSendMiddle, true, 1},
		{3, roce.OpSendMiddle, false, 0},
		{3, roce.OpSendLast, true, 0},
		{2, roce.OpSendMiddle, true, 0},
	} {
		p := plan{packets: []packet{{message: 0}, {message: 0}, {message: 0}, {message: 0}, {message: 1}}}
		ip := roce.IPUDP{Src: netip.AddrFrom4([4]byte{10}), Dst: netip.AddrFrom4([4]byte{10, 1})}
		b := roce.AppendEthernet(nil, roce.MAC{}, roce.MAC{}, ip.EtherType())
		bth := roce.BTH{Opcode: tt.opcode}
		b, err := roce.AppendICRC(bth.Append(ip.Append(b, 12)))
		if err != nil {
			t.Fatal(err)
		}
		f := frame{known: known{packet: tt.packet, damaged: tt.damaged}}
		f.bytes = copy(f.buf[headroom:], b)
		if got := p.hidesEnd(&f); got != tt.want {
			t.Errorf("%+v hides %d", tt, got)
		}
	}
}

// Each fault ends as the policy promises: everything is delivered, or the source gets the right
// error.
func TestPromisedEnds(t *testing.T) {
	const patient, impatient = 7, 4
	at := func(kind Fault, host int, lasts time.Duration) func(*Scenario) {
		return func(s *Scenario) {
			s.Timed = append(s.Timed, Timed{Kind: kind, Host: host, AfterPacket: 100, Delay: 10 * time.Microsecond, For: lasts})
		}
	}
	policy := func(change func(*feedback.Policy)) func(*Scenario) { return func(s *Scenario) { change(&s.Policy) } }
	for name, tt := range map[string]struct {
		retries uint8
		change  []func(*Scenario)
		want    rnic.Status
	}{
		"burst":            {patient, []func(*Scenario){at(Burst, 2, 3*time.Millisecond)}, rnic.Success},
		"cut receiver":     {patient, []func(*Scenario){at(Cut, 1, 20*time.Millisecond)}, rnic.Success},
		"cut source":       {patient, []func(*Scenario){at(Cut, 0, 20*time.Millisecond)}, rnic.Success},
		"cut for too long": {impatient, []func(*Scenario){at(Cut, 1, time.Second)}, rnic.RetryExceeded},
		"slow receiver":    {impatient, []func(*Scenario){at(SlowHost, 3, time.Millisecond)}, rnic.Success},
		"switch crash":     {patient, []func(*Scenario){at(SwitchCrash, 0, 3*time.Millisecond)}, rnic.Success},
		"two switch crashes": {
			patient, []func(*Scenario){at(SwitchCrash, 0, 3*time.Millisecond), at(SwitchCrash, 0, 9*time.Millisecond)}, rnic.Success,
		},
		"receiver crash": {impatient, []func(*Scenario){at(ReceiverCrash, 2, 0)}, rnic.RetryExceeded},
		"receiver crash, quorum": {
			patient, []func(*Scenario){at(ReceiverCrash, 2, 0), policy(func(p *feedback.Policy) { p.Ack = 2 })}, rnic.Success,
		},
		"receiver crash, evicted": {
			impatient, []func(*Scenario){at(ReceiverCrash, 2, 0), policy(func(p *feedback.Policy) {
				p.SilentAfter, p.Evict = 6*time.Millisecond, true
			})}, rnic.Success,
		},
		"key lost": {patient, []func(*Scenario){at(KeyLost, 1, 0)}, rnic.RemoteAccess},
		"key lost, evicted": {
			patient, []func(*Scenario){at(KeyLost, 1, 0), policy(func(p *feedback.Policy) { p.OnFatal = feedback.FatalEvict })}, rnic.Success,
		},
		"RNR storm": {patient, []func(*Scenario){few, at(RNRStorm, 3, 2*time.Millisecond)}, rnic.Success},
		"RNR storm without patience": {
			patient, []func(*Scenario){few, func(s *Scenario) { s.RNRRetry = 2 }, at(RNRStorm, 3, 20*time.Millisecond)}, rnic.RNRRetryExceeded,
		},
		"READ":        {patient, []func(*Scenario){read(30)}, rnic.RemoteInvalidRequest},
		"READ, first": {patient, []func(*Scenario){read(0)}, rnic.RemoteInvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			s := calm()
			s.RetryCount = tt.retries
			for _, change := range tt.change {
				change(&s)
			}
			if got := mustHold(t, s).Status; got != tt.want {
				t.Errorf("the program of the source heard: %v, want %v", got, tt.want)
			}
		})
	}
}

// few gives the receivers so few receives that they can only just keep up.
func few(s *Scenario) {
	for i := range s.Hosts {
		s.Hosts[i].Receives, s.Hosts[i].RepostAfter = 8, time.Microsecond
	}
}

func read(message int) func(*Scenario) {
	return func(s *Scenario) { s.Hosts[0].Messages[message].Op = rnic.Read }
}

// The ACK in front of a question is true only if that question comes next.
func TestAQuestionFollowsItsACK(t *testing.T) {
	for name, tt := range map[string]struct {
		packet int
		s      roce.Syndrome
		repair feedback.RepairPolicy
		holds  bool
	}{
		"the question":                  {5, roce.NAKSequence, feedback.RepairOff, true},
		"as an RNR NAK":                 {5, roce.SyndromeRNR(14), feedback.RepairLocal, true},
		"as an RNR NAK, without repair": {5, roce.SyndromeRNR(14), feedback.RepairOff, false},
		"another question":              {6, roce.NAKSequence, feedback.RepairOff, false},
		"an ACK of that packet":         {5, roce.SyndromeUnlimited, feedback.RepairOff, false},
	} {
		var r Runner
		play(t, &r, calm())
		w := &r.w
		h := &w.hosts[0]
		w.now, w.tally[SwitchCrash].Times, h.cameAt = time.Second, 1, 0
		h.place.last, w.hosts[1].claimedAt = 3, 1
		w.group.Policy.Repair = tt.repair
		if !w.mayCall(h, 4, roce.SyndromeUnlimited) || h.asksFor != 5 {
			t.Fatalf("%s: the ACK may not go first", name)
		}
		psn := h.SendPSN.Add(int32(tt.packet))
		w.checkReply(&dataplane.Reply{Leg: &w.group.Source.Leg, PSN: psn, AETH: roce.AETH{Syndrome: tt.s, MSN: 1}})
		if holds := w.failure == nil; holds != tt.holds || h.asksFor != nowhere {
			t.Errorf("%s: %v", name, w.failure)
		}
	}
}

// The question comes with the ACK in front of it, and not with a later event.
func TestAQuestionComesWithItsACK(t *testing.T) {
	var r Runner
	play(t, &r, calm())
	w := &r.w
	w.box.outputs.Reset()
	if w.checkOutputs(nil); w.failure != nil {
		t.Fatalf("without an ACK: %v", w.failure)
	}
	w.hosts[0].asksFor = 5
	if w.checkOutputs(nil); w.failure == nil {
		t.Error("nobody notices that the question is missing")
	}
}

// A source that has sent no more than a packet before may not be asked for the next but one, and a
// fatal NAK is no question.
func TestWhatASourceMayBeAskedFor(t *testing.T) {
	var r Runner
	play(t, &r, calm())
	w := &r.w
	h := &w.hosts[0]
	w.now, w.tally[SwitchCrash].Times, h.cameAt, w.hosts[1].claimedAt = time.Second, 1, 0, 1
	for _, tt := range []struct {
		packet int
		s      roce.Syndrome
		may    bool
	}{
		{h.highest, roce.NAKSequence, true}, {h.highest + 1, roce.NAKSequence, false},
		{h.highest - 1, roce.SyndromeUnlimited, true}, {h.highest, roce.SyndromeUnlimited, false},
		{h.highest, roce.NAKRemoteAccess, false},
	} {
		if may := w.mayCall(h, tt.packet, tt.s); may != tt.may {
			t.Errorf("%v of packet %d of %d: %v", tt.s, tt.packet, h.highest, may)
		}
	}
}
