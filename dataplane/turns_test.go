package dataplane_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
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
	s.acknowledged()
	s.placed(from)
}

// placed checks that the state names the source, and says of each receiver where its QP's first
// packet is in the source's PSNs.
func (s *stage) placed(from netip.Addr) {
	s.t.Helper()
	st, _ := s.Switch.GroupState(s.group.ID)
	var source mft.QP
	for i, p := range s.group.Paths {
		m := s.members[p.Dst]
		if p.Dst == from {
			source = p.QP()
		} else if expects := p.FirstPSN.Add(s.members[from].sends.Sub(st.Since[i])); expects != m.expects {
			s.t.Errorf("%v expects %d, and by its first packet, which the source's %d was, %d", p.Dst, m.expects, st.Since[i], expects)
		}
	}
	if st.Source != source {
		s.t.Errorf("the source is %v, want %v", st.Source, source)
	}
}

// acknowledged checks that each receiver counts as having acknowledged what its QP has received.
func (s *stage) acknowledged() {
	s.t.Helper()
	st, _ := s.Switch.GroupState(s.group.ID)
	for i, p := range s.group.Paths {
		if got, want := st.Receivers[i].Acknowledged, uint64(s.members[p.Dst].received); got != want {
			s.t.Errorf("%v has acknowledged %d packets, and received %d", p.Dst, got, want)
		}
	}
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

// The source only sends, until a member joins that may send too: then it is a receiver in the turns
// of the others. To a box below another one the source is that box.
func TestASourceThatOnlySentBecomesAReceiver(t *testing.T) {
	for _, upTo := range []int{0, 3} {
		b, c := receiver(1, ipB), receiver(2, ipC)
		s := newStage(t, b, c)
		for range upTo {
			s.message(ipA)
		}
		a := both(0, ipA, firstPSN)
		a.Port, a.DestQPN, a.RemoteQPN = s.group.Source.Port, s.group.Source.DestQPN, s.group.Source.RemoteQPN
		early := both(4, ipEarly, 9)
		s.members[ipA].expects = a.FirstPSN
		s.update(early, a, b, c)
		s.message(ipA)
		s.message(ipEarly)
		s.message(ipA)
		s.update(a, b, early)
		s.message(ipEarly)
		s.message(ipA)
	}
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

// Only a next hop changes between two source switches: what is kept for them stays.
func TestTurnsOutliveAChangeOfNextHop(t *testing.T) {
	b, c := both(1, ipB, 500), both(2, ipC, 70)
	s := newStage(t, b, c)
	s.message(ipA)
	s.message(ipB)
	s.message(ipC)
	moved := c
	moved.L2[0] ^= 4
	s.update(b, moved)
	s.message(ipB)
	s.message(ipC)
	s.message(ipA)
}

// Members change, and with the new one the group's source may change for the first time.
func TestAMemberThatMaySendJoins(t *testing.T) {
	b, c, d := receiver(1, ipB), receiver(2, ipC), both(3, ipD, 500)
	s := newStage(t, b, c)
	s.message(ipA)
	s.update(b, d)
	s.message(ipA)
	s.message(ipD)
	s.message(ipA)
	s.message(ipD)
}

// The source's host sets its QP up again, while another receiver joins or alone: any difference
// makes it another source, whose first packet is the group's next.
func TestAnotherQPOfTheSourceIsAnotherSource(t *testing.T) {
	for name, tt := range map[string]struct {
		edit  func(*mft.Source)
		sends roce.PSN
		new   bool
	}{
		"the same QP":          {func(*mft.Source) {}, firstPSN + 1, false},
		"with another PSN":     {func(s *mft.Source) { s.FirstPSN = 4000 }, 4000, true},
		"another QP":           {func(s *mft.Source) { s.DestQPN = 18 }, firstPSN, true},
		"on another host":      {func(s *mft.Source) { s.Dst, s.Port = ipD, 3 }, firstPSN, true},
		"another QP and a PSN": {func(s *mft.Source) { s.DestQPN, s.FirstPSN = 18, 4000 }, 4000, true},
	} {
		for _, joins := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, joins=%v", name, joins), func(t *testing.T) {
				s := newStage(t, receiver(1, ipB))
				s.message(ipA)
				next := *s.group
				tt.edit(&next.Source)
				next.Paths = []mft.Path{receiver(1, ipB)}
				if joins {
					next.Paths = append(next.Paths, receiver(2, ipC))
				}
				s.enter(next.Paths)
				if err := s.Switch.Replace(s.group.ID, &next); err != nil {
					t.Fatal(err)
				}
				s.group = &next
				source := &actor{sends: tt.sends}
				if !tt.new {
					source = s.members[ipA]
				}
				s.members[next.Source.Dst] = source
				s.message(next.Source.Dst)
				if n := s.newSources(); (n == 1) != tt.new {
					t.Errorf("%d notes of a new source", n)
				}
			})
		}
	}
}

// newSources counts the notes of a new source.
func (s *stage) newSources() (notes int) {
	for len(s.Switch.Notes()) > 0 {
		if n := <-s.Switch.Notes(); n.What == feedback.NoteSource {
			notes++
		}
	}
	return notes
}

// A member that is the source goes on until another one takes over, even if an update says that it
// may not become the source again.
func TestTheSourceGoesOnWithoutTheRight(t *testing.T) {
	g := group()
	g.Paths[0].Sends, g.Paths[0].SendPSN = true, 7
	net := newNet(t, g)
	data := func(psn roce.PSN) {
		t.Helper()
		p := write(psn, nil)
		p.src = ipB
		say(t, net, p)
		for port, host := range map[int]netip.Addr{2: ipC, 3: ipD} {
			if out := net.Ports[port].Take(); len(out) != 1 {
				t.Errorf("PSN %d: %d copies to %v; counters %v", psn, len(out), host, moved(net.Switch))
			}
		}
	}
	data(7)
	next := *g
	next.Paths = append([]mft.Path(nil), g.Paths...)
	next.Paths[0].Sends = false
	if err := net.Switch.Replace(g.ID, &next); err != nil {
		t.Fatal(err)
	}
	data(8)
}

// A member that may not become the source any more stays the source until another one takes its
// turn: the group's own source comes back where it left off.
func TestTheSourceComesBackWhenNobodyElseMaySend(t *testing.T) {
	s := newStage(t, both(1, ipB, 500), receiver(2, ipC))
	s.message(ipA)
	s.message(ipB)
	s.update(receiver(1, ipB), receiver(2, ipC), receiver(3, ipD))
	s.message(ipB)
	s.message(ipA)
}

// What a former source resends of its turn is answered where it asks, and of the rest every
// sixteenth packet, with the migration request of the packet that asks.
func TestAFormerSourceIsAnsweredWhereItAsks(t *testing.T) {
	s := newStage(t, both(1, ipB, 500), receiver(2, ipC))
	for range 20 {
		s.message(ipA)
	}
	s.message(ipB)
	for psn := range roce.PSN(20) {
		p := write(firstPSN+psn, nil)
		p.bth.AckReq, p.bth.MigReq = psn == 5, psn == 5
		say(t, s.Net, p)
		out := s.Ports[0].Take()
		if due := psn == 5 || psn == 3 || psn == 19; len(out) != map[bool]int{true: 1, false: 0}[due] {
			t.Fatalf("packet %d of 20: %d answers", psn, len(out))
		} else if due && (decode(t, out[0]).PSN != firstPSN+psn || (out[0][43]&0x40 != 0) != (psn == 5)) {
			t.Errorf("packet %d: %+v, BTH byte 1 %#x", psn, decode(t, out[0]), out[0][43])
		}
	}
	silent(t, s.Net)
}

// A former source that was called back and has not come is not sent an ACK from where it was called
// on: it hears the call first, and the ACK would be beyond its place then.
func TestAFormerSourceIsCalledBack(t *testing.T) {
	type resent struct {
		psn      roce.PSN
		answered bool
	}
	const called = firstPSN + 1
	for _, sends := range [][]resent{
		{{called + 1, false}, {firstPSN, true}, {called, true}, {called + 1, true}},
		{{called + 1, false}, {called + 1, true}}, // a step back: it has heard the call
	} {
		s := calledFormerSource(t)
		for _, r := range sends {
			s.asks(r.psn)
			if got := s.heard(); len(got) > 0 != r.answered || r.answered && got[0] != r.psn {
				t.Errorf("%v: packet %d is answered with %v, want an answer: %v", sends, r.psn, got, r.answered)
			}
		}
	}
}

// calledFormerSource returns a stage on which B has taken over from A. A was called back to its
// second packet of three and has resent the first one since.
func calledFormerSource(t *testing.T) *stage {
	s := newStage(t, both(1, ipB, 500), receiver(2, ipC))
	g := s.group
	answer := func(path int, psn roce.PSN, syndrome roce.Syndrome) {
		p := &g.Paths[path]
		s.Ports[p.Port].Put(ack(p.Dst, psn.Add(g.DeltaPSN(path)), syndrome).frame(t))
		s.Poll()
	}
	for psn := range roce.PSN(3) {
		s.asks(firstPSN + psn)
	}
	answer(0, firstPSN+2, roce.SyndromeUnlimited)
	answer(1, firstPSN+1, roce.NAKSequence)
	answer(1, firstPSN+2, roce.SyndromeUnlimited) // its packets have overtaken each other
	s.asks(firstPSN)                              // its timer has run out before it has heard the NAK
	if got, want := s.heard(), []roce.PSN{firstPSN, firstPSN + 1, firstPSN}; !slices.Equal(got, want) {
		t.Fatalf("the source has heard %v, want ACK, NAK and ACK %v", got, want)
	}
	p := write(500, nil)
	p.src = ipB
	s.Ports[1].Put(p.frame(t))
	s.Poll()
	s.Ports[0].Take()
	return s
}

// asks lets A send a packet that asks for an ACK.
func (s *stage) asks(psn roce.PSN) {
	p := write(psn, nil)
	p.bth.AckReq = true
	s.Ports[0].Put(p.frame(s.t))
	s.Poll()
}

// heard returns the PSNs of the answers to A.
func (s *stage) heard() (psns []roce.PSN) {
	for _, f := range s.Ports[0].Take() {
		psns = append(psns, decode(s.t, f).PSN)
	}
	return psns
}

// With source-switch force the new source does not wait, and a receiver that lacks something of the
// old one is behind.
func TestAForcedSwitchLeavesAReceiverBehind(t *testing.T) {
	g := group()
	g.Policy.Switch = feedback.SwitchForce
	g.Paths[0] = both(1, ipB, 500)
	other := group() // the group under test is not the first
	other.QPN, other.Paths = 9, []mft.Path{receiver(1, ipB)}
	other.Paths[0].RemoteQPN = 9
	net := newNet(t, other)
	if _, err := net.Switch.Add(g); err != nil {
		t.Fatal(err)
	}
	say(t, net, write(firstPSN, nil))
	say(t, net, ack(ipB, 0xFFFFF2, roce.SyndromeUnlimited))
	say(t, net, ack(ipC, 0xFFFFF3, roce.SyndromeUnlimited))
	p := write(500, nil)
	p.src = ipB
	say(t, net, p)
	want := []dataplane.Note{
		{Group: g.ID, Receiver: ipD, RemoteQPN: groupQPN, What: feedback.NoteBehind, PSN: firstPSN},
		{Group: g.ID, Receiver: ipB, RemoteQPN: groupQPN, What: feedback.NoteSource, PSN: 500},
	}
	say(t, net, ack(ipC, 0xFFFFF4, roce.SyndromeUnlimited)) // a note is given once
	var got []dataplane.Note
	for len(net.Switch.Notes()) > 0 {
		got = append(got, <-net.Switch.Notes())
	}
	if diff := cmp.Diff(want, got, addrEqual); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The note of a fatal NAK says whose, for which packet, and what it said.
func TestTheNoteOfAFatalNAK(t *testing.T) {
	net := newNet(t, group())
	say(t, net, write(firstPSN, nil))
	say(t, net, ack(ipC, 0xFFFFF3, roce.NAKRemoteAccess))
	want := dataplane.Note{
		Receiver: ipC, RemoteQPN: groupQPN, What: feedback.NoteFatal, PSN: firstPSN, Syndrome: roce.NAKRemoteAccess,
	}
	if got := <-net.Switch.Notes(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
