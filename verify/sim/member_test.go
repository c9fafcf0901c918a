package sim

import (
	"testing"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
)

// A receiver that joins gets only whole messages, the source does not wait for a receiver that
// leaves, and the other receivers are not affected.
func TestMembersComeAndGo(t *testing.T) {
	s := calm()
	s.Hosts[3].Outside = true
	s.Timed = []Timed{
		{Kind: Join, Host: 3, AfterPacket: 101},
		{Kind: Cut, Host: 1, AfterPacket: 150, For: time.Second},
		{Kind: Leave, Host: 1, AfterPacket: 200},
	}
	var r Runner
	if result := play(t, &r, s); result.Failure != nil || result.Status != rnic.Success {
		t.Fatal(result.Failure, result.Status)
	}
	b, c, d := &r.w.hosts[1], &r.w.hosts[2], &r.w.hosts[3]
	if c.next[0] != 256 || d.next[0] != 256 || b.next[0] >= 256 {
		t.Errorf("b has packets up to %d, c up to %d, d up to %d", b.next[0], c.next[0], d.next[0])
	}
	if n := d.qp.Counters().Get(rnic.RequestsExecuted); n == 0 || n > 200 || n%4 != 0 {
		t.Errorf("d executed %d packets", n)
	}
}

// A group whose last receiver leaves ends: its source does so by its retries, also where the engine
// carries the packets, and where a crash has left the others out before.
func TestTheLastReceiverLeaves(t *testing.T) {
	for _, engine := range []bool{false, true} {
		for _, more := range [][]Timed{nil, {
			{Kind: NextHop, AfterPacket: 90, Delay: time.Millisecond}, {Kind: SwitchCrash, AfterPacket: 90, Delay: 2 * time.Millisecond, For: time.Millisecond},
		}} {
			s := calm()
			s.RetryCount = 3
			if engine {
				s.Engine = Engine{Lag: 10 * time.Microsecond, Batch: 8}
			}
			for host := 1; host <= 3; host++ {
				s.Timed = append(s.Timed, Timed{Kind: Leave, Host: host, AfterPacket: 30 * host})
			}
			s.Timed = append(s.Timed, more...)
			var r Runner
			if result := play(t, &r, s); result.Failure != nil || result.Status != rnic.RetryExceeded {
				t.Errorf("engine: %v, %v: %v, %v", engine, more, result.Failure, result.Status)
			}
		}
	}
}

// A receiver whose queue pair is not ready gets nothing before its program says that it is, also
// where the switch crashes meanwhile. If all others leave, it joins all the same.
func TestWhoIsNotReadyJoinsWhenItIs(t *testing.T) {
	for name, c := range map[string]struct {
		ready time.Duration
		more  []Timed
		loses bool // copies come before it is ready
	}{
		"soon": {time.Millisecond, nil, false},
		"while the switch is down": {
			9 * time.Millisecond, []Timed{{Kind: SwitchCrash, AfterPacket: 60, For: 10 * time.Millisecond}}, false,
		},
		"after the others have left": {
			10 * time.Millisecond, []Timed{
				{Kind: Leave, Host: 1, AfterPacket: 91, Delay: 60 * time.Microsecond}, {Kind: Leave, Host: 2, AfterPacket: 91, Delay: 60 * time.Microsecond},
			}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := calm()
			s.Hosts[0].Outstanding, s.Hosts[0].Think, s.Hosts[3].Outside = 1, 200*time.Microsecond, true // it pauses between messages
			s.Timed = append(c.more, Timed{Kind: Join, Host: 3, AfterPacket: 20, For: c.ready})
			var r Runner
			if result := play(t, &r, s); result.Failure != nil || result.Status != rnic.Success {
				t.Fatal(result.Failure, result.Status)
			}
			d := &r.w.hosts[3]
			if n := d.qp.Counters().Get(rnic.RequestsExecuted); d.membership != member || d.next[0] != 256 || n == 0 || n > 230 || n%4 != 0 {
				t.Errorf("d is %d, and executed %d packets up to packet %d", d.membership, n, d.next[0])
			}
			if loses := d.unheard > 0; loses != c.loses {
				t.Errorf("%d copies came before d was ready", d.unheard)
			}
		})
	}
}

// A receiver is cut off and evicted, and then the switch crashes. If control has stored that, the
// receiver stays out. If not, it is a member again, until it is evicted once more.
func TestAStoredEvictionOutlivesACrash(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration
		paths int
		is    membership
	}{"stored": {time.Microsecond, 2, left}, "not yet": {time.Second, 3, evicted}, "never": {0, 3, evicted}} {
		t.Run(name, func(t *testing.T) {
			s := evictedBeforeCrash()
			s.StoreAfter = c.after
			var r Runner
			result := play(t, &r, s)
			if result.Failure != nil || result.Status != rnic.Success || len(r.w.group.Paths) != c.paths || r.w.hosts[1].membership != c.is {
				t.Errorf("%v: %v, a group of %d receivers, and b is %d", result.Failure, result.Status, len(r.w.group.Paths), r.w.hosts[1].membership)
			}
		})
	}
}

// c is cut off, and the source waits for it with packets that only b has. d joins, and then the
// switch crashes. A quorum does not count d for the packets before: they stay open until c is back.
func TestWhereAReceiverJoinedOutlivesACrash(t *testing.T) {
	for _, repair := range []feedback.RepairPolicy{feedback.RepairOff, feedback.RepairLocal} {
		for name, open := range map[string]bool{"c is cut off": true, "c has everything": false} {
			t.Run(name+", repair "+repair.String(), func(t *testing.T) {
				s := calm()
				s.Policy.Ack, s.Policy.Repair, s.RepairChunks = 2, repair, 64
				s.Hosts[3].Outside = true
				s.Timed = []Timed{
					{Kind: Join, Host: 3, AfterPacket: 40},
					{Kind: SwitchCrash, AfterPacket: 60, For: 10 * time.Millisecond},
				}
				if s.Timed[1].Delay = 50 * time.Microsecond; open {
					s.Timed[1].Delay = 0
					s.Timed = append(s.Timed, Timed{Kind: Cut, Host: 2, AfterPacket: 30, For: 30 * time.Millisecond})
				}
				var r Runner
				if result := play(t, &r, s); result.Failure != nil || result.Status != rnic.Success {
					t.Fatal(result.Failure, result.Status)
				}
				d := &r.w.hosts[3]
				if d.joinedAt == 0 || d.joinedAt > 40 || d.open != open || len(r.w.group.Joins) > 0 != open || d.next[0] != 256 {
					t.Errorf("d has joined at %d, open %v, and has executed up to packet %d", d.joinedAt, d.open, d.next[0])
				}
			})
		}
	}
}

// Another member begins to send while the first source sends. It has to wait until everything of
// the first source is acknowledged. Each source gets ACKs for its own messages.
func TestSourceChangesInMidStream(t *testing.T) {
	for name, alsoReceives := range map[string]bool{"the first only sends": false, "the first receives then": true} {
		t.Run(name, func(t *testing.T) {
			s := calm()
			s.Hosts[0].Receiver, s.Hosts[0].RecvPSN, s.Hosts[0].Receives = alsoReceives, 0xFFFFFE, 64
			s.Hosts[2].Messages, s.Hosts[2].SendPSN, s.Hosts[2].Outstanding = messages(20), 0xFFFFF0, 4
			s.Timed = []Timed{{Kind: SourceChange, Host: 2, AfterPacket: 100}}
			var r Runner
			if result := play(t, &r, s); result.Failure != nil || result.Status != rnic.Success {
				t.Fatal(result.Failure, result.Status)
			}
			a, c, d := &r.w.hosts[0], &r.w.hosts[2], &r.w.hosts[3]
			if c.blocked == 0 || c.completed != 20 || c.status != rnic.Success {
				t.Errorf("c was blocked %d times, and ended %d messages with %v", c.blocked, c.completed, c.status)
			}
			heard := 0
			if alsoReceives {
				heard = 80
			}
			if d.next[0] != 256 || d.next[2] != 80 || a.next[2] != heard {
				t.Errorf("d has %v, a has %v", d.next, a.next)
			}
		})
	}
}

// The frames of a host with routes of equal cost come by either port. The engine carries those of
// the source wherever they come, after a packet of the core.
func TestFramesComeByEitherUplink(t *testing.T) {
	for _, engine := range []bool{false, true} {
		s := calm()
		s.FanOut, s.Hosts[0].Multipath, s.Hosts[2].Multipath = engine, true, true
		s.Timed = []Timed{
			{Kind: OtherUplink, Host: 0, AfterPacket: 60},
			{Kind: OtherUplink, Host: 2, AfterPacket: 100, For: 200 * time.Microsecond},
		}
		result := mustHold(t, s)
		if c := &result.Source; result.Tally[OtherUplink].Times != 2 || c.Get(rnic.FramesRetransmitted) != 0 {
			t.Errorf("engine %v: %+v, %v", engine, result.Tally[OtherUplink], c.ByName())
		}
		if e := result.Engine; engine && (e.Armed < 2 || e.Carried < 150) {
			t.Errorf("the engine did not go on at the other port: %+v", e)
		}
		s.Hosts[2].Multipath = false
		var r Runner
		if result := play(t, &r, s); result.Failure == nil {
			t.Error("a host with one way is heard at another port")
		}
	}
}

// Of a quorum, c lacks what the source has let go of, and d dies when the switch crashes with what
// it knew, and retained, for c. Nobody can follow the source then, which retries for ever: the
// switch reports that c is behind.
func TestAQuorumThatACrashLeavesStanding(t *testing.T) {
	for _, repair := range []feedback.RepairPolicy{feedback.RepairOff, feedback.RepairLocal} {
		t.Run("repair "+repair.String(), func(t *testing.T) {
			s := calm()
			s.Policy.Ack, s.Policy.Repair, s.RepairChunks = 2, repair, 64
			s.Hosts[0].Think, s.Limit = 100*time.Microsecond, 500*time.Millisecond
			s.Timed = []Timed{
				{Kind: Cut, Host: 2, AfterPacket: 60, For: 20 * time.Millisecond},
				{Kind: SwitchCrash, AfterPacket: 120, For: 20 * time.Millisecond},
				{Kind: ReceiverCrash, Host: 3, AfterPacket: 120},
			}
			var r Runner
			if result := play(t, &r, s); result.Failure != nil {
				t.Fatal(result.Failure)
			}
			a, c := &r.w.hosts[0], &r.w.hosts[2]
			if a.completed == 0 || a.over() {
				t.Errorf("the source has completed %d messages of %d, and is over: %v", a.completed, len(a.Messages), a.over())
			}
			if !c.behind || c.next[0] > a.merged.acked {
				t.Errorf("c waits for packet %d, is behind: %v, and the source has heard that %d is delivered", c.next[0], c.behind, a.merged.acked)
			}
		})
	}
}

// The member that has become the source leaves the group. If that is between two of its messages,
// the first source goes on. Inside a message nobody can: the queue pairs of the receivers wait for
// its end. In no case the first source hears what became of the other one's packets.
func TestActiveSourceLeaves(t *testing.T) {
	for name, c := range map[string]struct {
		after  int           // packet of the source that leaves
		later  time.Duration // it leaves
		status rnic.Status
	}{
		"between messages": {7, 100 * time.Microsecond, rnic.Success},
		"inside a message": {10, 0, rnic.RetryExceeded},
	} {
		for _, repair := range []feedback.RepairPolicy{feedback.RepairOff, feedback.RepairLocal} {
			t.Run(name+", repair "+repair.String(), func(t *testing.T) {
				s := calm()
				s.Policy.Repair, s.RepairChunks, s.RetryCount = repair, 64, 3
				s.Hosts[2].Messages, s.Hosts[2].SendPSN, s.Hosts[2].Outstanding = messages(20), 0xFFFFC0, 1
				s.Hosts[2].Think, s.Hosts[2].ToSwitch.PicosPerByte = time.Millisecond, 80_000
				s.Hosts[0].Think, s.Hosts[0].Outstanding = time.Millisecond, 1
				s.Timed = []Timed{
					{Kind: SourceChange, Host: 2, AfterPacket: 100},
					{Kind: SourceLeave, Host: 2, AfterPacket: c.after, Delay: c.later},
				}
				var r Runner
				if result := play(t, &r, s); result.Failure != nil || result.Status != c.status {
					t.Fatal(result.Failure, result.Status)
				}
				if source := &r.w.hosts[2]; source.highest != c.after+1 || r.w.active == 2 && c.status == rnic.Success {
					t.Errorf("c sent %d packets, and %v is the source", source.highest, &r.w.hosts[r.w.active])
				}
			})
		}
	}
}
