package dataplane_test

import (
	"net/netip"
	"testing"

	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// stage is a group whose members are played by the test: each QP counts the packets and messages
// that it sends and receives, and fails the test if it gets a packet other than its next.
type stage struct {
	*porttest.Net
	t       *testing.T
	group   *mft.Group
	members map[netip.Addr]*actor
}

// actor is one member's QP. Every message has one packet.
type actor struct {
	sends, expects roce.PSN
	sent, received roce.MSN
}

// ipEarly is before all other hosts in the order of paths.
var ipEarly = netip.MustParseAddr("10.77.0.0")

// both returns a receiver that may become the source.
func both(port mft.PortID, host netip.Addr, sends roce.PSN) mft.Path {
	p := receiver(port, host)
	p.Sends, p.SendPSN = true, sends
	return p
}

// newStage has a source that only sends, and these paths.
func newStage(t *testing.T, paths ...mft.Path) *stage {
	g := group()
	g.Paths = paths
	s := &stage{Net: porttest.New(5), t: t, group: g, members: map[netip.Addr]*actor{}}
	if _, err := s.Switch.Add(g); err != nil {
		t.Fatal(err)
	}
	s.members[ipA] = &actor{sends: firstPSN}
	s.enter(paths)
	return s
}

func (s *stage) enter(paths []mft.Path) {
	for _, p := range paths {
		if s.members[p.Dst] == nil {
			s.members[p.Dst] = &actor{sends: p.SendPSN, expects: p.FirstPSN}
		}
	}
}

// update gives the group other paths.
func (s *stage) update(paths ...mft.Path) {
	s.t.Helper()
	next := *s.group
	next.Paths = paths
	s.enter(paths)
	if err := s.Switch.Replace(s.group.ID, &next); err != nil {
		s.t.Fatal(err)
	}
	s.group = &next
}

// message sends a message from one member to all others. Each gets its next packet, and when all
// have acknowledged it the source hears an ACK with the number of its messages. The source hears
// the MSN of the receiver that answers last, which is each of them in turn.
func (s *stage) message(from netip.Addr) {
	s.t.Helper()
	m := s.members[from]
	p := write(m.sends, []byte("message"))
	p.src = from
	say(s.t, s.Net, p)
	m.sends, m.sent = m.sends.Next(), m.sent+1
	var others []mft.Path
	for _, p := range s.group.Paths {
		if p.Dst != from {
			others = append(others, p)
		}
	}
	last := int(m.sent) % len(others)
	for i, p := range others {
		r := s.members[p.Dst]
		if psn := heard(s.t, s.Net, p.Dst, roce.OpWriteOnly); psn != r.expects {
			s.t.Fatalf("message %d of %v reached %v with PSN %d, its QP expects %d", m.sent, from, p.Dst, psn, r.expects)
		}
		if i != last {
			s.answer(p.Dst)
		}
	}
	s.answer(others[last].Dst)
	out := s.Ports[portOf[from]].Take()
	if len(out) != 1 {
		s.t.Fatalf("%v heard %d frames of its message %d; counters %v", from, len(out), m.sent, moved(s.Switch))
	}
	if d := decode(s.t, out[0]); d.PSN != m.sends.Prev() || d.MSN != m.sent {
		s.t.Fatalf("%v heard ACK %d, MSN %d; it sent PSN %d as its message %d", from, d.PSN, d.MSN, m.sends.Prev(), m.sent)
	}
	silent(s.t, s.Net)
}

func (s *stage) answer(host netip.Addr) {
	s.t.Helper()
	r := s.members[host]
	r.received++
	a := ack(host, r.expects, roce.SyndromeUnlimited)
	a.aeth.MSN = r.received
	say(s.t, s.Net, a)
	r.expects = r.expects.Next()
}

// Sources take turns while the membership changes: every QP's PSNs and MSNs continue.
func TestTurnsOutliveUpdates(t *testing.T) {
	b, c, d := both(1, ipB, 0xFFFFFF), both(2, ipC, 70), receiver(3, ipD)
	early := receiver(4, ipEarly)
	s := newStage(t, b, c, d)
	play := func(sources ...netip.Addr) {
		t.Helper()
		for _, from := range sources {
			s.message(from)
		}
	}
	play(ipA, ipA, ipB, ipB, ipC, ipA)
	s.update(early, b, c, d) // early joins, and changes the others' indexes
	play(ipA, ipB, ipC, ipC, ipB, ipA)
	s.update(b, c, early) // d leaves
	play(ipC, ipB, ipA, ipC)
	delete(s.members, ipD)
	d.DestQPN++
	s.update(early, b, c, d) // d joins anew, with a fresh QP
	play(ipA, ipB, ipC, ipA)
}

// The active source may be a member whose index changes, and a member that joins may become the
// source.
func TestTheActiveSourceMoves(t *testing.T) {
	b, c, d := both(1, ipB, 500), receiver(2, ipC), receiver(3, ipD)
	s := newStage(t, b, c)
	s.message(ipA)
	s.message(ipB)
	early := both(4, ipEarly, 9)
	s.update(early, b, c)
	s.message(ipB) // still the source
	s.message(early.Dst)
	s.message(ipA)
	s.message(early.Dst)
	s.update(early, b, c, d)
	s.message(ipB)
	s.message(early.Dst)
}

// A member that has never been the source hears nothing: packets below its first PSN were not
// acknowledged in a turn of its own.
func TestAMemberThatNeverSentIsNotAnswered(t *testing.T) {
	s := newStage(t, both(1, ipB, 500), receiver(2, ipC))
	s.message(ipA)
	p := write(499, nil)
	p.src = ipB
	say(t, s.Net, p)
	silent(t, s.Net)
	if n := moved(s.Switch)["source-out-of-step"]; n != 1 {
		t.Errorf("counters %v", moved(s.Switch))
	}
	s.message(ipB)
	s.message(ipA)
	p.bth.PSN = 500
	say(t, s.Net, p)
	if psn := heard(t, s.Net, ipB, roce.OpAck); psn != 500 {
		t.Errorf("b heard ACK %d of its turn", psn)
	}
}
