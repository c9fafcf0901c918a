package sim

import (
	"testing"
	"time"

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
