package sim

import (
	"testing"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
)

// turnsBeforeCrash is a run in which a sends four messages, thinks, and c sends twenty. Then the
// switch crashes and comes back, and a goes on: the PSNs of the receivers are those of both turns.
func turnsBeforeCrash() Scenario {
	s := calm()
	s.Turns = Turns{Stored: true, Lag: 200 * time.Microsecond}
	s.Hosts[0].Receiver, s.Hosts[0].RecvPSN, s.Hosts[0].Receives = true, 0xFFFFFE, 64
	s.Hosts[0].Messages, s.Hosts[0].Outstanding, s.Hosts[0].Think = messages(8), 1, 20*time.Millisecond
	s.Hosts[2].Messages, s.Hosts[2].SendPSN, s.Hosts[2].Outstanding = messages(20), 0xFFFFF0, 4
	s.Timed = []Timed{
		{Kind: SourceChange, Host: 2, AfterPacket: 0, Delay: time.Millisecond},
		{Kind: SwitchCrash, AfterPacket: 0, Delay: 10 * time.Millisecond, For: time.Millisecond},
	}
	return s
}

// Control stores a turn before its first packet is forwarded, so a crash behind it leaves nobody
// where an earlier turn had left him: with each policy and engine everything arrives.
func TestATurnOutlivesACrash(t *testing.T) {
	for name, change := range map[string]func(s *Scenario){
		"plain":  func(*Scenario) {},
		"repair": func(s *Scenario) { s.Policy.Repair, s.RepairChunks = feedback.RepairLocal, 64 },
		"engine": func(s *Scenario) { s.FanOut = true },
		"quorum": func(s *Scenario) { s.Policy.Ack = 2 },
		"notes are lost, and the disk is full at times": func(s *Scenario) { s.Turns.LostNotes, s.Turns.Unstored = 4, 4 },
	} {
		t.Run(name, func(t *testing.T) {
			s := turnsBeforeCrash()
			change(&s)
			var r Runner
			if result := play(t, &r, s); result.Failure != nil || result.Status != rnic.Success {
				t.Fatal(result.Failure, result.Status)
			}
			a, b, c := &r.w.hosts[0], &r.w.hosts[1], &r.w.hosts[2]
			if !a.over() || !c.over() || b.next[0] != 32 || b.next[2] != 80 || a.next[2] != 80 || c.next[0] != 32 {
				t.Errorf("b has %v, a has %v, c has %v", b.next, a.next, c.next)
			}
			if r.w.turns.before == nil || r.w.tally[SwitchCrash].Times != 1 {
				t.Errorf("the turns were not those of c and then a again: %+v", r.w.turns)
			}
		})
	}
}

// A restart that begins with the turn before the newest maps new packets onto old ones: receivers
// acknowledge what they do not execute.
func TestTheTurnBeforeIsNotEnough(t *testing.T) {
	var r Runner
	r.w.turns.old = true
	result := play(t, &r, turnsBeforeCrash())
	if result.Failure == nil || result.Failure.Invariant != Truth {
		t.Errorf("%v", result.Failure)
	}
}

// A source that only sends has no path, so none is left out when it ends by a refused READ: it does
// not become a receiver with the group's next version, in which d joins.
func TestASourceThatOnlySendsEndsAndStaysNoReceiver(t *testing.T) {
	s := calm()
	s.Policy.OnFatal = feedback.FatalEvict
	s.Hosts[0].Messages = messages(2)
	s.Hosts[0].Messages[1].Op = rnic.Read
	s.Hosts[2].Messages, s.Hosts[2].SendPSN, s.Hosts[2].Outstanding, s.Hosts[2].Think = messages(8), 0xFFFFF0, 1, 200*time.Microsecond
	s.Hosts[3].Outside = true
	s.Timed = []Timed{
		{Kind: SourceChange, Host: 2, AfterPacket: 4, Delay: time.Millisecond},
		{Kind: Join, Host: 3, AfterPacket: 4, Delay: 2 * time.Millisecond},
	}
	var r Runner
	result := play(t, &r, s)
	a, d := &r.w.hosts[0], &r.w.hosts[3]
	if result.Failure != nil || result.Status != rnic.RemoteInvalidRequest || a.membership != outsider {
		t.Errorf("%v: %v, and a is %d", result.Failure, result.Status, a.membership)
	}
	if d.membership != member || d.from[2] == 0 {
		t.Errorf("d is %d, and has packets of c from %d on", d.membership, d.from[2])
	}
}
