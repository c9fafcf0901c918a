package dataplane_test

import (
	"math/rand/v2"
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

// keeper is a stage whose turns are stored before they begin.
type keeper struct {
	*stage
	engine *porttest.FanOut
	now    feedback.Tick
	stored *mft.Turn
}

func newKeeper(t *testing.T, paths ...mft.Path) *keeper {
	g := group()
	g.Paths, g.KeepsTurns = paths, true
	k := &keeper{stage: &stage{t: t, group: g, members: map[netip.Addr]*actor{}}}
	k.members[ipA] = &actor{sends: firstPSN}
	k.enter(paths)
	k.begin()
	return k
}

func (k *keeper) begin() {
	k.t.Helper()
	k.Net = porttest.NewRetaining(5, porttest.RepairChunks, k.engine, func() feedback.Tick { return k.now })
	if _, err := k.Switch.Add(k.group); err != nil {
		k.t.Fatal(err)
	}
}

// crash lets another switch begin with what was stored.
func (k *keeper) crash() {
	k.t.Helper()
	next := *k.group
	next.Restored, next.Turn = true, k.stored
	k.group = &next
	k.begin()
}

// posts sends the next packets of a member, which are messages.
func (k *keeper) posts(from netip.Addr, packets int) {
	k.t.Helper()
	for n := range packets {
		p := write(k.members[from].sends.Add(int32(n)), []byte("message"))
		p.src = from
		say(k.t, k.Net, p)
	}
}

// waits takes the note that a member waits for its turn.
func (k *keeper) waits(who netip.Addr) {
	k.t.Helper()
	select {
	case n := <-k.Switch.Notes():
		if n.What != feedback.NoteWaits || n.Receiver != who || n.PSN != k.members[who].sends {
			k.t.Fatalf("note %+v", n)
		}
	default:
		k.t.Fatalf("no note; counters %v", moved(k.Switch))
	}
}

// store stores the turn that a member waits for, as control does.
func (k *keeper) store() {
	k.t.Helper()
	turn, ok := k.Switch.NextTurn(k.group.ID)
	if !ok {
		k.t.Fatalf("nobody waits for a turn; counters %v", moved(k.Switch))
	}
	k.stored = &turn
}

// turnBegins stores the turn that a member waits for, and lets it begin.
func (k *keeper) turnBegins() {
	k.t.Helper()
	k.store()
	k.Switch.BeginTurn(k.group.ID, true)
}

// gets lets every member but from get and acknowledge packets, each its next ones.
func (k *keeper) gets(from netip.Addr, packets int) {
	k.t.Helper()
	k.members[from].sends, k.members[from].sent = k.members[from].sends.Add(int32(packets)), k.members[from].sent.Add(int32(packets))
	for _, p := range k.group.Paths {
		if p.Dst == from {
			continue
		}
		out := k.Ports[portOf[p.Dst]].Take()
		if len(out) != packets {
			k.t.Fatalf("%v got %d frames, not %d; counters %v", p.Dst, len(out), packets, moved(k.Switch))
		}
		for _, frame := range out {
			if d := decode(k.t, frame); d.PSN != k.members[p.Dst].expects {
				k.t.Fatalf("%v got PSN %d of %v, and expects %d", p.Dst, d.PSN, from, k.members[p.Dst].expects)
			}
			k.answer(p.Dst)
		}
	}
	acks := k.Ports[portOf[from]].Take()
	if len(acks) == 0 {
		k.t.Fatalf("%v heard nothing; counters %v", from, moved(k.Switch))
	}
	if d := decode(k.t, acks[len(acks)-1]); d.PSN != k.members[from].sends.Prev() || d.MSN != k.members[from].sent {
		k.t.Fatalf("%v heard ACK %d, MSN %d; it has sent %+v", from, d.PSN, d.MSN, *k.members[from])
	}
}

// onItsWay is longer than feedback waits before the first question.
const onItsWay = feedback.Tick(50_000_001)

// isTold lets time pass until a restarted box asks its questions, and answers them. The source has
// sent nothing that it is asked for.
func (k *keeper) isTold() {
	k.t.Helper()
	k.tells()
	k.now += onItsWay
	k.Poll()
	k.tells()
	for _, after := range []feedback.Tick{feedback.AskPeriod, feedback.AskPeriod, onItsWay} {
		k.now += after
		k.Poll()
		k.calls()
	}
}

// calls takes what sources are asked by a restarted box, and returns how often one was.
func (k *keeper) calls() (n int) {
	k.t.Helper()
	question := roce.NAKSequence
	if k.group.Policy.Repair == feedback.RepairLocal {
		question = roce.SyndromeRNR(14)
	}
	for host, m := range k.members {
		for _, frame := range k.Ports[portOf[host]].Take() {
			d := decode(k.t, frame)
			if d.Opcode == roce.OpAck && d.Syndrome.IsACK() && d.PSN == m.sends.Prev() {
				continue // in front of the question; or with repair, the last ACK again
			}
			if d.Opcode != roce.OpAck || d.Syndrome != question || d.PSN != m.sends || !d.ICRCValid {
				k.t.Fatalf("%v hears %+v, and sends %d next", host, d, m.sends)
			}
			n++
		}
	}
	return n
}

// tells answers the questions that a restarted box asks, as responders do.
func (k *keeper) tells() {
	k.t.Helper()
	for _, p := range k.group.Paths {
		m := k.members[p.Dst]
		for _, frame := range k.Ports[portOf[p.Dst]].Take() {
			d := decode(k.t, frame)
			if d.Opcode != roce.OpWriteMiddle || d.Payload != "" || !d.ICRCValid || !d.ChecksumValid || d.QPN != p.DestQPN || d.Src != p.Src {
				k.t.Fatalf("%v got %+v", p.Dst, d)
			}
			if d.PSN.Sub(m.expects) >= 0 {
				k.t.Fatalf("%v is asked by PSN %d, and expects %d: it may execute that", p.Dst, d.PSN, m.expects)
			}
			a := ack(p.Dst, m.expects.Prev(), roce.SyndromeUnlimited)
			a.aeth.MSN = m.received
			say(k.t, k.Net, a)
		}
	}
}

// drain takes the notes so far.
func (k *keeper) drain() (notes []dataplane.Note) {
	for {
		select {
		case n := <-k.Switch.Notes():
			notes = append(notes, n)
		default:
			return notes
		}
	}
}

// A turn begins when control has stored it, with all packets that came meanwhile.
func TestATurnBeginsWhenItIsStored(t *testing.T) {
	k := newKeeper(t, both(1, ipB, 500), receiver(2, ipC))
	k.message(ipA)
	k.posts(ipB, 3)
	silent(t, k.Net)
	k.waits(ipB)
	if notes := k.drain(); len(notes) > 0 {
		t.Errorf("more notes: %+v", notes)
	}
	k.store()
	silent(t, k.Net)
	k.Switch.BeginTurn(k.group.ID, true)
	k.gets(ipB, 3)
	if notes := k.drain(); len(notes) != 1 || notes[0].What != feedback.NoteSource || notes[0].Receiver != ipB || notes[0].PSN != 500 {
		t.Errorf("notes %+v", notes)
	}
	if _, ok := k.Switch.NextTurn(k.group.ID); ok {
		t.Error("another turn is to be stored")
	}
	if m := moved(k.Switch); m["source-waits"] != 3 || m["forwarded"] != 4 || m["source-blocked"] != 0 {
		t.Errorf("counters %v", m)
	}
	k.message(ipB)
}

// What control stores stays true: the source sends nothing new meanwhile, also where it sends again
// what it has not heard an ACK of. If the turn is not stored, the source goes on.
func TestTheSourceWaitsWhileATurnIsStored(t *testing.T) {
	k := newKeeper(t, both(1, ipB, 500), receiver(2, ipC))
	k.message(ipA)
	k.posts(ipB, 1)
	k.store()
	k.members[ipA].sends--
	k.posts(ipA, 2) // the last one again, and a new one
	if psn := heard(t, k.Net, ipA, roce.OpAck); psn != k.members[ipA].sends {
		t.Errorf("a heard ACK %d", psn)
	}
	k.members[ipA].sends++
	silent(t, k.Net)
	before := *k.stored
	k.store() // control asks again
	if k.stored.Source != before.Source || k.stored.First != before.First {
		t.Errorf("the turn is now %+v, and was %+v", k.stored, before)
	}
	k.Switch.BeginTurn(k.group.ID, false)
	k.message(ipA)
	k.drain()
	k.posts(ipB, 1)
	k.waits(ipB)
	k.turnBegins()
	k.gets(ipB, 1)
	if m := moved(k.Switch); m["source-blocked"] != 2 { // a's new packet, and b's while it waited
		t.Errorf("counters %v", m)
	}
}

// The engine has a group again only when it is decided whose turn it is.
func TestTheEngineHasNoGroupWhoseTurnIsStored(t *testing.T) {
	k := newKeeper(t, both(1, ipB, 500), receiver(2, ipC))
	k.engine = porttest.NewFanOut()
	k.begin()
	busy := func() {
		for range 20 {
			k.message(ipA)
		}
		if !k.engine.Load(k.group.ID).Armed {
			t.Fatal("the engine does not have the group")
		}
	}
	busy()
	k.posts(ipB, 1)
	busy() // nothing is stored yet
	k.store()
	if k.engine.Load(k.group.ID).Armed {
		t.Error("the engine may carry what is not in the stored turn")
	}
	k.posts(ipA, 20)
	silent(t, k.Net)
	k.Switch.BeginTurn(k.group.ID, true)
	k.gets(ipB, 1)
}

// The member that waited first may be dead, and the note of it lost. Another member that waits too
// lets control hear of the first one, whose turn ends with what was kept of it.
func TestAMemberThatDiedWaitingHoldsNobodyUp(t *testing.T) {
	k := newKeeper(t, both(1, ipB, 500), both(2, ipC, 900))
	k.message(ipA)
	k.posts(ipB, 1)
	k.waits(ipB) // and nobody hears it
	k.posts(ipC, 1)
	k.waits(ipB)
	k.turnBegins()
	k.gets(ipB, 1)
	k.drain()
	k.posts(ipC, 1)
	k.waits(ipC)
	k.turnBegins()
	k.gets(ipC, 1)
}

// No note is necessary: the member's next packet makes another one. A note is made once for it.
func TestALostNoteIsMadeAgain(t *testing.T) {
	k := newKeeper(t, both(1, ipB, 500), receiver(2, ipC))
	k.message(ipA)
	for range 3 {
		k.posts(ipB, 2)
		k.waits(ipB) // and is lost
		if notes := k.drain(); len(notes) > 0 {
			t.Errorf("more notes: %+v", notes)
		}
	}
	k.turnBegins()
	k.gets(ipB, 2) // each once
}

// More packets are kept than most sources send before they hear an ACK, and not more. The first one
// that was not is asked for.
func TestWhatIsKeptIsBounded(t *testing.T) {
	k := newKeeper(t, both(1, ipB, 500), receiver(2, ipC))
	k.message(ipA)
	k.posts(ipB, 70)
	k.turnBegins()
	k.gets(ipB, 64)
	if m := moved(k.Switch); m["source-waits"] != 64 || m["source-blocked"] != 6 {
		t.Errorf("counters %v", m)
	}
}

// A member whose packets waited for longer than packets live in a network begins with what it sends
// now.
func TestWhatIsKeptGrowsOld(t *testing.T) {
	k := newKeeper(t, both(1, ipB, 500), both(2, ipC, 70))
	k.message(ipA)
	k.posts(ipB, 1)
	k.posts(ipC, 1) // b is the next one
	k.drain()
	k.now += 1_000_000_001
	k.posts(ipC, 1)
	k.waits(ipC)
	k.turnBegins()
	k.gets(ipC, 1)
	if notes := k.drain(); len(notes) != 1 || notes[0].What != feedback.NoteSource {
		t.Errorf("b's packet is still there: %+v", notes)
	}

	k.posts(ipB, 1)
	k.store()
	k.now += 1_000_000_001
	k.Switch.BeginTurn(k.group.ID, true)
	silent(t, k.Net)
	k.message(ipB)
}

// A member that is still joining may take its turn. A crash knows where it is as well, and that its
// QP has received nothing, also by a turn that an earlier release has stored without it.
func TestTheTurnOfAMemberThatJoinsOutlivesACrash(t *testing.T) {
	for _, sends := range []roce.PSN{0x900000, 9} {
		for _, earlier := range []bool{false, true} {
			b, c, early := both(1, ipB, 500), receiver(2, ipC), both(4, ipEarly, sends)
			k := newKeeper(t, b, c)
			k.message(ipA)
			k.update(early, b, c)
			k.posts(ipEarly, 1)
			k.store()
			if from := k.stored.Sender(); from == nil || from.NextPSN != sends {
				t.Errorf("stored %+v", k.stored)
			}
			k.Switch.BeginTurn(k.group.ID, true)
			if earlier {
				k.stored.Members = slices.DeleteFunc(k.stored.Members, func(m mft.Standing) bool { return m.QP == early.QP() })
			} else {
				k.gets(ipEarly, 1)
			}
			k.group.Parts = []mft.Part{{QP: early.QP(), Part: feedback.PartJoining}}
			k.crash()
			k.posts(ipEarly, 1)
			k.gets(ipEarly, 1)
			k.posts(ipB, 1)
			k.turnBegins()
			k.gets(ipB, 1) // of which early gets the first packet
		}
	}
}

// Members come and go while one waits for its turn, also when control has stored the turn: the turn
// begins with what was kept of the member.
func TestMembersChangeWhileOneWaits(t *testing.T) {
	b, c, early := both(1, ipB, 500), receiver(2, ipC), receiver(4, ipEarly)
	for _, stored := range []bool{false, true} {
		k := newKeeper(t, b, c)
		k.message(ipA)
		k.posts(ipB, 2)
		k.waits(ipB)
		if stored {
			k.store()
		}
		k.update(early, b, c)
		k.update(early, b)
		if !stored {
			k.store()
		}
		k.posts(ipA, 1) // which has not heard of it
		silent(t, k.Net)
		k.Switch.BeginTurn(k.group.ID, true)
		k.gets(ipB, 2)
		k.message(ipB)
		k.posts(ipA, 1)
		k.turnBegins()
		k.gets(ipA, 1)
	}
}

// The member whose turn is stored leaves the group before the turn begins: the source goes on
// without those that the turn would have begun without, and nothing is repaired for them any more.
func TestTheMemberWhoseTurnIsStoredLeaves(t *testing.T) {
	b, c, d := both(1, ipB, 500), receiver(2, ipC), receiver(3, ipD)
	k := newKeeper(t, b, c, d)
	k.group.Policy.Switch, k.group.Policy.Repair = feedback.SwitchForce, feedback.RepairLocal
	k.begin()
	k.message(ipA)
	k.posts(ipA, 2)
	for _, host := range []netip.Addr{ipB, ipC, ipD} {
		k.Ports[portOf[host]].Take()
	}
	k.members[ipA].sends = k.members[ipA].sends.Add(2)
	k.members[ipA].sent += 2
	for _, host := range []netip.Addr{ipB, ipC} {
		k.answer(host)
		k.answer(host)
	}
	say(t, k.Net, ack(ipD, k.members[ipD].expects, roce.SyndromeRNR(1))) // so d is under repair
	k.posts(ipB, 1)
	k.store()
	k.update(c, d)
	if turn, ok := k.Switch.NextTurn(k.group.ID); ok {
		t.Errorf("of the members now, %v waits", turn.Source)
	}
	k.Switch.BeginTurn(k.group.ID, true) // of nobody
	if p := snapshot(t, k.Switch, k.group).Paths[1]; p.Part != feedback.PartBehind || p.Repairing || p.Pending != 0 {
		t.Errorf("d: %+v", p)
	}
	for _, p := range k.Ports {
		p.Take()
	}
	k.update(c)
	k.message(ipA)
}

// A member that waits may send no more, or it is the source that only sends, or there is another
// such source.
func TestWhoWaitsOnWhenMembersChange(t *testing.T) {
	b, c, d := both(1, ipB, 500), receiver(2, ipC), receiver(3, ipD)
	for name, tt := range map[string]struct {
		who    netip.Addr
		change func(*mft.Group)
		waits  bool
	}{
		"it may send no more": {ipB, func(g *mft.Group) { g.Paths[0].Sends = false }, false},
		"it only sends":       {ipA, func(*mft.Group) {}, true},
		"another source":      {ipA, func(g *mft.Group) { g.Source.DestQPN++ }, false},
	} {
		k := newKeeper(t, b, c)
		k.message(ipA)
		if tt.who == ipA {
			k.posts(ipB, 1)
			k.turnBegins()
			k.gets(ipB, 1)
		}
		k.posts(tt.who, 1)
		next := *k.group
		next.Paths = []mft.Path{b, c, d}
		tt.change(&next)
		if err := k.Switch.Replace(k.group.ID, &next); err != nil {
			t.Fatal(err)
		}
		if turn, waits := k.Switch.NextTurn(k.group.ID); waits != tt.waits {
			t.Errorf("%s: it waits %v for turn %+v", name, waits, turn)
		}
	}
}

// The switch crashes at any moment of any number of turns. Every queue pair's PSNs and MSNs
// continue.
func TestTurnsOutliveCrashes(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		k := newKeeper(t, both(1, ipB, 0xFFFFFE), both(2, ipC, 70), receiver(3, ipD))
		if seed%2 > 0 {
			k.group.Policy.Repair = feedback.RepairLocal
		}
		if seed%4 > 1 {
			k.engine = porttest.NewFanOut()
		}
		if seed%4 > 0 {
			k.begin()
		}
		source := ipA
		for range 12 {
			if next := []netip.Addr{ipA, ipB, ipC}[random.IntN(3)]; next == source {
				k.posts(next, 1)
				k.gets(next, 1)
			} else {
				k.takesTurn(next, random)
				source = next
			}
			if random.IntN(3) == 0 {
				k.crash()
			}
		}
	}
}

// takesTurn lets a member become the source, with or without a crash on the way.
func (k *keeper) takesTurn(next netip.Addr, random *rand.Rand) {
	k.t.Helper()
	crash := random.IntN(5)
	k.posts(next, 2)
	k.isTold() // after a restart
	if crash == 1 {
		k.crash()
		k.posts(next, 2)
		k.isTold()
	}
	k.store()
	if crash == 2 { // the turn is stored, and has not begun
		k.crash()
		k.posts(next, 2)
		k.gets(next, 2)
		return
	}
	k.Switch.BeginTurn(k.group.ID, true)
	if crash == 3 { // the packets have gone out, and nobody knows whether they came
		for _, p := range k.Ports {
			p.Take()
		}
		k.crash()
		k.posts(next, 2)
	}
	k.gets(next, 2)
}

// The source goes on before control asks for the turn: then it is not its end.
func TestTheSourceGoesOnBeforeATurnIsStored(t *testing.T) {
	k := newKeeper(t, both(1, ipB, 500), receiver(2, ipC))
	k.message(ipA)
	k.posts(ipB, 1)
	k.posts(ipA, 1)
	if _, ok := k.Switch.NextTurn(k.group.ID); ok {
		t.Error("the turn is to be stored, and a receiver lacks a packet")
	}
	k.gets(ipA, 1)
	k.message(ipA)
	k.turnBegins()
	k.gets(ipB, 1)
}

// A receiver that the turn begins without is behind as soon as that is stored, even if it has
// everything by the time that the turn begins: a restart would begin without it.
func TestWhoIsStoredAsBehindIsBehind(t *testing.T) {
	k := newKeeper(t, both(1, ipB, 500), receiver(2, ipC), receiver(3, ipD))
	k.group.Policy.Switch, k.group.Policy.Repair = feedback.SwitchForce, feedback.RepairLocal
	k.begin()
	k.message(ipA)
	k.posts(ipA, 1)
	for _, host := range []netip.Addr{ipB, ipC, ipD} {
		heard(t, k.Net, host, roce.OpWriteOnly)
	}
	k.answer(ipB)
	k.answer(ipC)
	k.members[ipA].sends = k.members[ipA].sends.Next()
	k.posts(ipB, 1)
	k.store()
	if notes := k.drain(); len(notes) != 2 || notes[1].What != feedback.NoteBehind || notes[1].Receiver != ipD {
		t.Errorf("notes %+v", notes)
	}
	k.answer(ipD)
	k.now += 1_000_000_001 // b's packet is too old
	k.Switch.BeginTurn(k.group.ID, true)
	if part := snapshot(t, k.Switch, k.group).Paths[k.group.FindPath(ipD, groupQPN)].Part; part != feedback.PartBehind {
		t.Errorf("d is %v", part)
	}
	// Nothing of a's is retained any more: its PSNs may be those of b's packets.
	if m := k.Switch.RepairMemory(); m.Packets != 0 {
		t.Errorf("%d packets are retained", m.Packets)
	}
}

// losesItsTurn is a group in which b waits for a's turn by force, and it is stored. Only those who
// have a's last packet have acknowledged it. calledBack: the others have answered it with a NAK.
func losesItsTurn(t *testing.T, quorum feedback.AckPolicy, calledBack bool, have ...netip.Addr) *keeper {
	a := both(0, ipA, firstPSN)
	a.FirstPSN = 40
	k := newKeeper(t, a, both(1, ipB, 500), receiver(2, ipC), receiver(3, ipD))
	k.group.Policy.Switch, k.group.Policy.Ack = feedback.SwitchForce, quorum
	k.begin()
	k.members[ipA] = &actor{sends: firstPSN, expects: a.FirstPSN}
	k.message(ipA)
	k.posts(ipA, 1)
	for _, host := range []netip.Addr{ipB, ipC, ipD} {
		heard(t, k.Net, host, roce.OpWriteOnly)
		if slices.Contains(have, host) {
			k.answer(host)
		} else if calledBack {
			say(t, k.Net, ack(host, k.members[host].expects, roce.NAKSequence))
		}
	}
	k.posts(ipB, 1)
	k.store()
	k.drain()
	return k
}

// By force b's turn begins without d, who lacks a's last packet. Everybody else has it, so a hears
// the ACK, and has its next turn.
func TestASourceThatLostItsTurnByForce(t *testing.T) {
	for name, crash := range map[string]bool{"without a crash": false, "with a crash": true} {
		t.Run(name, func(t *testing.T) {
			k := losesItsTurn(t, feedback.AckAll, false, ipB, ipC)
			if crash {
				k.crash()
				k.posts(ipB, 1)
				k.answer(ipA)
				k.answer(ipC)
			} else {
				k.Switch.BeginTurn(k.group.ID, true)
			}
			k.Ports[0].Take()
			k.posts(ipA, 1) // its last packet again
			if psn := heard(t, k.Net, ipA, roce.OpAck); psn != k.members[ipA].sends {
				t.Errorf("a heard %d", psn)
			}
		})
	}
}

// By force b's turn begins while a is called back by d's NAK. What a sends before it hears the NAK
// begins no turn of a: the ACK would be ahead of a's place. When a has come back, its turn begins.
func TestASourceThatIsCalledBackAndLosesItsTurn(t *testing.T) {
	k := losesItsTurn(t, feedback.AckAll, true, ipB, ipC)
	k.Switch.BeginTurn(k.group.ID, true)
	k.drain()
	first := k.members[ipA].sends
	k.members[ipA].sends = first.Next()
	k.posts(ipA, 1)
	if n := moved(k.Switch)["source-out-of-step"]; n != 1 {
		t.Fatalf("counters %v", moved(k.Switch))
	}
	k.members[ipA].sends = first
	k.posts(ipA, 2)
	k.members[ipA].sends = first.Next()
	k.waits(ipA)
}

// A source that lost its turn by force, and has no other one, still receives, also behind a crash
// and where a source that has ended would not.
func TestASourceThatLostItsTurnByForceReceives(t *testing.T) {
	k := losesItsTurn(t, 2, false, ipD)
	k.group.Policy.OnFatal = feedback.FatalEvict
	k.crash()
	k.posts(ipB, 1)
	heard(t, k.Net, ipA, roce.OpWriteOnly)
}

// Too few have a's last packet for a quorum. An ACK of what a sends next would acknowledge that
// packet too, so a has no further turn, also behind a crash.
func TestASourceWhosePacketIsAtTooFew(t *testing.T) {
	for name, crash := range map[string]bool{"without a crash": false, "with a crash": true} {
		t.Run(name, func(t *testing.T) {
			k := losesItsTurn(t, 2, false, ipD)
			k.members[ipA].sends = k.members[ipA].sends.Next()
			if crash {
				k.crash()
			} else {
				k.Switch.BeginTurn(k.group.ID, true)
			}
			before := moved(k.Switch)["source-blocked"]
			for _, n := range []int32{-1, 0} {
				p := write(k.members[ipA].sends.Add(n), []byte("message"))
				p.src = ipA
				k.Ports[0].Take()
				say(t, k.Net, p)
			}
			if m := moved(k.Switch); m["source-blocked"] != before+2 {
				t.Errorf("a has another turn: counters %v", m)
			}
		})
	}
}

// The turn could not be stored, and d is behind all the same. So a is sent the ACK of what the
// others have.
func TestTheSourceGoesOnWithoutWhoIsBehind(t *testing.T) {
	k := losesItsTurn(t, feedback.AckAll, false, ipB, ipC)
	k.Switch.BeginTurn(k.group.ID, false)
	if psn := heard(t, k.Net, ipA, roce.OpAck); psn != k.members[ipA].sends {
		t.Errorf("a heard %d", psn)
	}
}

// A receiver that is joining is no part of the turn: nobody knows yet with which packet it begins.
func TestWhoJoinsIsNotInTheTurn(t *testing.T) {
	b, c, early := both(1, ipB, 500), receiver(2, ipC), receiver(4, ipEarly)
	k := newKeeper(t, b, c)
	k.message(ipA)
	k.update(early, b, c)
	k.posts(ipB, 1)
	k.store()
	if len(k.stored.Members) != 2 || k.stored.Member(early.QP()) != nil {
		t.Errorf("members %+v", k.stored.Members)
	}
	k.Switch.BeginTurn(k.group.ID, true)
	k.gets(ipB, 1)
}

// The source of the turn that was stored has left the group. What the others have is asked before
// one of them sends.
func TestTheSourceOfTheStoredTurnHasLeft(t *testing.T) {
	b, c, d := both(1, ipB, 500), both(2, ipC, 70), receiver(3, ipD)
	k := newKeeper(t, b, c, d)
	k.message(ipA)
	k.posts(ipB, 3)
	k.turnBegins()
	k.gets(ipB, 3)
	k.group.Paths = []mft.Path{c, d}
	k.crash()
	k.posts(ipA, 1)
	k.isTold()
	k.turnBegins()
	k.gets(ipA, 1)
}

// A box that asks hears what has been acknowledged of its own turn: when nothing of it is on its
// way, or when another turn has begun since. A box that does not know either asks further.
func TestABoxIsToldWhatHasBeenAcknowledged(t *testing.T) {
	k := newKeeper(t, both(1, ipB, 500), receiver(2, ipC))
	k.group.KeepsTurns = false
	k.begin()
	asks := func(from netip.Addr, want int64) {
		t.Helper()
		p := write(k.members[from].sends.Add(-9), nil)
		p.src, p.bth.Opcode, p.reth = from, roce.OpWriteMiddle, nil
		say(t, k.Net, p)
		if want < 0 {
			silent(t, k.Net)
			return
		}
		if psn := heard(t, k.Net, from, roce.OpAck); int64(psn) != want {
			t.Errorf("%v hears %d, want %d", from, psn, want)
		}
	}
	asks(ipB, -1) // it had no turn
	k.message(ipA)
	k.message(ipA)
	asks(ipA, int64(k.members[ipA].sends.Prev()))
	k.posts(ipA, 1)
	for _, host := range []netip.Addr{ipB, ipC} {
		heard(t, k.Net, host, roce.OpWriteOnly)
	}
	asks(ipA, -1) // a packet is on its way
	k.answer(ipB)
	k.answer(ipC)
	last := k.members[ipA].sends
	k.members[ipA].sends, k.members[ipA].sent = last.Next(), k.members[ipA].sent+1
	heard(t, k.Net, ipA, roce.OpAck)
	k.message(ipB)
	asks(ipA, int64(last)) // of its turn, which is over
	asks(ipB, 500)
	if m := moved(k.Switch); m["source-asks"] != 5 {
		t.Errorf("counters %v", m)
	}

	k = newKeeper(t, both(1, ipB, 500), receiver(2, ipC))
	k.message(ipA)
	k.crash()
	p := write(firstPSN, nil)
	p.bth.Opcode, p.reth = roce.OpWriteMiddle, nil
	say(t, k.Net, p)
	k.now += onItsWay
	say(t, k.Net, p)
	k.tells()
	asks(ipA, firstPSN)
}

// One receiver is enough, and c has died with the box. The box that asks is told what b has when c
// has had its time, although c is asked further.
func TestABoxIsToldWhatAQuorumHas(t *testing.T) {
	k := newKeeper(t, both(1, ipB, 500), receiver(2, ipC))
	k.group.Policy.Ack = 1
	k.begin()
	k.message(ipA)
	k.crash()
	p := write(firstPSN, nil)
	p.bth.Opcode, p.reth = roce.OpWriteMiddle, nil
	say(t, k.Net, p)
	asked := 0
	for range 20 {
		if len(k.Ports[portOf[ipA]].Take()) > 0 {
			t.Fatalf("the box is told before c has had its time, after %v", time.Duration(k.now))
		}
		k.now += feedback.AskPeriod
		say(t, k.Net, p)
		asked += len(k.Ports[portOf[ipC]].Take())
		k.tells()
	}
	if asked < 10 {
		t.Errorf("c was asked %d times", asked)
	}
	k.now += onItsWay
	say(t, k.Net, p)
	k.Ports[portOf[ipC]].Take()
	if psn := heard(t, k.Net, ipA, roce.OpAck); psn != firstPSN {
		t.Errorf("the box is told %d", psn)
	}
}

// With switch: force a member may become the source while packets of the source are on their way.
// A box that asks is not told that they have been acknowledged.
func TestABoxIsNotToldWhatIsOnItsWay(t *testing.T) {
	k := newKeeper(t, both(1, ipB, 500), receiver(2, ipC))
	k.group.KeepsTurns, k.group.Policy.Switch = false, feedback.SwitchForce
	k.begin()
	k.message(ipA)
	k.posts(ipA, 1)
	for _, host := range []netip.Addr{ipB, ipC} {
		heard(t, k.Net, host, roce.OpWriteOnly)
	}
	k.answer(ipC)
	p := write(k.members[ipA].sends.Add(-9), nil)
	p.bth.Opcode, p.reth = roce.OpWriteMiddle, nil
	say(t, k.Net, p)
	silent(t, k.Net)
	if m := moved(k.Switch); m["source-asks"] != 1 {
		t.Errorf("counters %v", m)
	}
}

// passes lets time pass while all members but those that are dead answer what they are asked.
func (k *keeper) passes(period feedback.Tick, dead ...netip.Addr) {
	k.t.Helper()
	for end := k.now + period; k.now < end; {
		k.now += feedback.Tick(2 * time.Millisecond)
		k.Poll()
		for _, host := range dead {
			k.Ports[portOf[host]].Take()
		}
		k.tells()
	}
}

// d has died with the box, a is silent, and b waits. With evict b's turn begins without d.
func TestATurnBeginsWithoutAReceiverThatDiedWithTheBox(t *testing.T) {
	for _, evict := range []bool{true, false} {
		k := newKeeper(t, both(1, ipB, 500), receiver(2, ipC), receiver(3, ipD))
		k.group.Policy.SilentAfter, k.group.Policy.Evict = 200*time.Millisecond, evict
		k.begin()
		k.message(ipA)
		k.crash()
		k.posts(ipB, 1)
		k.passes(200*feedback.Tick(time.Millisecond), ipD)
		if notes := k.drain(); len(notes) > 0 {
			t.Errorf("evict %v, after 200 ms: %+v", evict, notes)
		}
		k.passes(140*feedback.Tick(time.Millisecond), ipD)
		notes := k.drain()
		if !evict {
			if len(notes) > 0 {
				t.Errorf("d is not waited for: %+v", notes)
			}
			continue
		}
		if len(notes) != 2 || notes[0].What != feedback.NoteBehind || notes[0].Receiver != ipD || notes[1].What != feedback.NoteWaits {
			t.Fatalf("notes %+v; counters %v", notes, moved(k.Switch))
		}
		if n := k.calls(); n != 2 {
			t.Errorf("a was asked %d times", n)
		}
		k.turnBegins()
		k.group.Paths = k.group.Paths[:2] // d gets nothing
		k.gets(ipB, 1)
		silent(t, k.Net)
	}
}

// a has ended, and one of its packets was on its way for longer than the restart took. It keeps b
// from its turn until a has been silent for 200 ms, and nothing of it is retained then.
func TestAnOldPacketComesBehindACrash(t *testing.T) {
	for _, repair := range []feedback.RepairPolicy{feedback.RepairOff, feedback.RepairLocal} {
		k := newKeeper(t, both(1, ipB, 500), receiver(2, ipC))
		k.group.Policy.Repair = repair
		k.begin()
		for range 3 {
			k.message(ipA)
		}
		k.crash()
		say(t, k.Net, write(firstPSN, nil))
		for _, host := range []netip.Addr{ipB, ipC} {
			heard(t, k.Net, host, roce.OpWriteOnly)
			say(t, k.Net, ack(host, k.members[host].expects.Prev(), roce.SyndromeUnlimited))
		}
		for _, frame := range k.Ports[portOf[ipA]].Take() {
			if d := decode(t, frame); d.PSN != firstPSN || !d.Syndrome.IsACK() {
				t.Errorf("a hears %+v", d)
			}
		}
		k.posts(ipB, 1)
		k.passes(190 * feedback.Tick(time.Millisecond))
		if notes := k.drain(); len(notes) > 0 {
			t.Errorf("after 190 ms: %+v", notes)
		}
		k.passes(100 * feedback.Tick(time.Millisecond))
		if n := k.calls(); n != 2 {
			t.Errorf("a was asked %d times", n)
		}
		if m := k.Switch.RepairMemory(); m.Packets != 0 {
			t.Errorf("%d packets are retained", m.Packets)
		}
		k.turnBegins()
		k.gets(ipB, 1)
		k.posts(ipA, 1)
		k.turnBegins()
		k.gets(ipA, 1)
	}
}

// What comes first of a behind a crash is refused, so nothing is forwarded, and a ends unheard. b
// gets its turn all the same: the receivers are asked.
func TestATurnBeginsBehindARefusedRequest(t *testing.T) {
	for name, refused := range map[string]func(p *packet){
		"READ":         func(p *packet) { p.bth.Opcode = roce.OpReadRequest },
		"other memory": func(p *packet) { p.reth.RKey++; p.reth.DMABytes = 4 },
	} {
		k := newKeeper(t, both(1, ipB, 500), receiver(2, ipC))
		k.message(ipA)
		k.crash()
		say(t, k.Net, with(write(k.members[ipA].sends, nil), refused))
		k.posts(ipB, 1)
		k.passes(190 * feedback.Tick(time.Millisecond))
		if notes := k.drain(); len(notes) > 0 {
			t.Errorf("%s, after 190 ms: %+v", name, notes)
		}
		k.passes(100 * feedback.Tick(time.Millisecond))
		if n := k.calls(); n != 2 {
			t.Errorf("%s: a was asked %d times", name, n)
		}
		k.turnBegins()
		k.gets(ipB, 1)
	}
}

// a has ended, and its last packet has not come to d. With source-switch: force b's turn begins
// behind a crash as well, and d is behind.
func TestAForcedTurnBeginsBehindACrash(t *testing.T) {
	k := newKeeper(t, both(1, ipB, 500), receiver(2, ipC), receiver(3, ipD))
	k.group.Policy.Switch = feedback.SwitchForce
	k.begin()
	k.message(ipA)
	k.posts(ipA, 1)
	for _, host := range []netip.Addr{ipB, ipC} {
		heard(t, k.Net, host, roce.OpWriteOnly)
		k.answer(host)
	}
	k.members[ipA].sends++
	k.crash()
	k.posts(ipB, 1)
	k.passes(240 * feedback.Tick(time.Millisecond))
	if notes := k.drain(); len(notes) > 0 {
		t.Errorf("after 240 ms: %+v", notes)
	}
	k.passes(100 * feedback.Tick(time.Millisecond))
	notes := k.drain()
	if len(notes) != 2 || notes[0].What != feedback.NoteBehind || notes[0].Receiver != ipD || notes[1].What != feedback.NoteWaits {
		t.Fatalf("notes %+v; counters %v", notes, moved(k.Switch))
	}
	k.calls()
	k.turnBegins()
	k.group.Paths = k.group.Paths[:2] // d gets nothing
	k.gets(ipB, 1)
	silent(t, k.Net)
}

// a is asked for its next packet, because b waits, and sends it. It hears the ACK before its timer
// runs out, and only then b's turn begins.
func TestTheSourceAnswersAndHearsTheACK(t *testing.T) {
	for _, repair := range []feedback.RepairPolicy{feedback.RepairOff, feedback.RepairLocal} {
		k := newKeeper(t, both(1, ipB, 500), receiver(2, ipC))
		k.group.Policy.Repair = repair
		k.begin()
		k.message(ipA)
		k.crash()
		k.posts(ipB, 1)
		k.tells()
		k.now += onItsWay
		k.Poll()
		k.tells()
		k.now += feedback.AskPeriod
		k.Poll()
		if n := k.calls(); n != 1 {
			t.Fatalf("a was asked %d times", n)
		}
		k.posts(ipA, 1)
		for _, host := range []netip.Addr{ipB, ipC} {
			heard(t, k.Net, host, roce.OpWriteOnly)
			k.answer(host)
		}
		silent(t, k.Net)
		if notes := k.drain(); len(notes) > 0 {
			t.Errorf("a may be on its way back, and b has its turn: %+v", notes)
		}
		for range 2 {
			k.now += feedback.AskPeriod
			k.Poll()
		}
		acks := k.Ports[portOf[ipA]].Take()
		if len(acks) == 0 {
			t.Fatalf("a hears nothing; counters %v", moved(k.Switch))
		}
		for _, frame := range acks { // with repair it hears the ACK again
			if d := decode(t, frame); d.PSN != k.members[ipA].sends || !d.Syndrome.IsACK() {
				t.Errorf("a hears %+v", d)
			}
		}
		k.members[ipA].sends, k.members[ipA].sent = k.members[ipA].sends.Next(), k.members[ipA].sent+1
		k.turnBegins()
		k.gets(ipB, 1)
	}
}

// Answers from before the crash are still on their way when b waits, each of them twice. They say
// less than what the receivers have.
func TestAnswersFromBeforeACrashTellNothing(t *testing.T) {
	k := newKeeper(t, both(1, ipB, 500), receiver(2, ipC))
	k.message(ipA)
	stale := map[netip.Addr]roce.PSN{}
	for _, host := range []netip.Addr{ipB, ipC} {
		stale[host] = k.members[host].expects.Prev()
	}
	k.message(ipA)
	k.message(ipA)
	k.crash()
	k.posts(ipB, 1)
	for range 2 {
		for host, psn := range stale {
			say(t, k.Net, ack(host, psn, roce.SyndromeUnlimited))
		}
	}
	if _, ok := k.Switch.NextTurn(k.group.ID); ok {
		t.Fatal("the answers are taken for those to a question")
	}
	k.isTold()
	k.store()
	if m := k.stored.Member(mft.QP{IP: ipC, RemoteQPN: groupQPN}); m == nil || m.Expects != k.members[ipC].expects {
		t.Errorf("stored %+v, and c expects %d", m, k.members[ipC].expects)
	}
}

// A question that is lost is asked again, without another packet of the member that waits, for as
// long as its packet is kept.
func TestTheBoxAsksAgain(t *testing.T) {
	k := newKeeper(t, both(1, ipB, 500), receiver(2, ipC))
	k.message(ipA)
	k.crash()
	k.posts(ipB, 1)
	asked := 0
	for range 2000 {
		k.now += feedback.Tick(time.Millisecond)
		k.Poll()
		asked += len(k.Ports[portOf[ipC]].Take())
	}
	if asked != 96 { // from 50 ms on, each 10 ms, up to a second
		t.Errorf("c was asked %d times", asked)
	}
	if pause := dataplane.Pause(k.Switch.Workers()[0], k.now); pause != 0 {
		t.Errorf("the worker still looks, in %v", time.Duration(pause))
	}
	k.posts(ipB, 1)
	k.isTold()
	k.turnBegins()
	k.gets(ipB, 1)

	k.crash()
	k.posts(ipA, 1)
	if dataplane.Pause(k.Switch.Workers()[0], k.now) == 0 {
		t.Error("nothing wakes the worker to ask")
	}
	if err := k.Switch.Remove(k.group.ID); err != nil {
		t.Fatal(err)
	}
	k.now += onItsWay
	k.Poll()
	silent(t, k.Net)
}

// far is more packets than a question may lie behind what a receiver expects: beyond 2^23 the
// receiver takes it for a packet that is ahead.
const far = 1<<23 + 1000

// carries lets b's turn, which is running, be so many packets long. A switch that begins with a
// turn that far on stands for one that carried them.
func (k *keeper) carries(packets int32) {
	k.t.Helper()
	at := *k.stored
	at.Members = slices.Clone(at.Members)
	from := at.Sender()
	from.NextPSN = from.NextPSN.Add(packets)
	for i := range at.Members {
		if m := &at.Members[i]; m.QP != at.Source {
			m.Expects = m.Expects.Add(packets)
		}
	}
	for host, m := range k.members {
		if source := k.group.FindPath(host, groupQPN); source >= 0 && k.group.Paths[source].QP() == at.Source {
			m.sends = m.sends.Add(packets)
		} else {
			m.expects = m.expects.Add(packets)
		}
	}
	stored := k.stored
	k.stored = &at
	k.crash()
	k.stored = stored
}

// renews stores the running turn again, as control does.
func (k *keeper) renews() {
	k.t.Helper()
	turn, ok := k.Switch.RunningTurn(k.group.ID)
	if !ok {
		k.t.Fatal("it is not known where the receivers are")
	}
	k.stored = &turn
}

// The source's turn has more than 2^23 packets when the box crashes, and another member is to be
// the source. That works if the turn was stored again on the way, and for the first source too.
func TestALongTurnIsStoredAgain(t *testing.T) {
	for _, renewed := range []bool{true, false} {
		k := newKeeper(t, both(1, ipB, 500), both(2, ipC, 70), receiver(3, ipD))
		k.message(ipA)
		k.posts(ipB, 2)
		k.turnBegins()
		k.gets(ipB, 2)
		k.carries(far)
		k.posts(ipB, 1)
		k.gets(ipB, 1)
		if renewed {
			k.renews()
		}
		k.posts(ipB, 1)
		k.gets(ipB, 1)
		k.crash()
		k.posts(ipC, 1)
		if !renewed {
			k.now += onItsWay
			k.Poll()
			for _, frame := range k.Ports[portOf[ipD]].Take() {
				if ahead := decode(t, frame).PSN.Sub(k.members[ipD].expects); ahead < 0 {
					t.Errorf("d takes a question for an old packet, %d behind: the test shows nothing", -ahead)
				}
			}
			continue
		}
		k.isTold()
		k.turnBegins()
		k.gets(ipC, 1)
		k.takesTurn(ipA, rand.New(rand.NewPCG(1, 1)))
		k.renews() // that of the first source, which only sends
		if k.stored.Source != (mft.QP{}) || k.stored.First.NextPSN != k.members[ipA].sends || k.stored.First.Messages != k.members[ipA].sent {
			t.Errorf("stored %+v, and the source is at %+v", k.stored, k.members[ipA])
		}
		k.crash()
		k.posts(ipB, 1)
		k.isTold()
		k.turnBegins()
		k.gets(ipB, 1)
	}
}

// The turn is stored from where the slowest receiver is, and not while it is unknown where one is,
// or while control stores another turn.
func TestATurnIsRenewedFromTheSlowestReceiver(t *testing.T) {
	k := newKeeper(t, both(1, ipB, 500), receiver(2, ipC), receiver(3, ipD))
	k.message(ipA)
	k.posts(ipA, 1)
	for _, host := range []netip.Addr{ipB, ipC, ipD} {
		heard(t, k.Net, host, roce.OpWriteOnly)
	}
	c, d := k.members[ipC].expects, k.members[ipD].expects
	k.answer(ipB)
	k.answer(ipD)
	k.renews()
	for host, expects := range map[netip.Addr]roce.PSN{ipC: c, ipD: d} {
		m := k.stored.Member(mft.QP{IP: host, RemoteQPN: groupQPN})
		if m == nil || m.Expects != expects || m.Messages != 1 {
			t.Errorf("%v is stored as %+v, and c expects %d", host, m, expects)
		}
	}
	if k.stored.First.NextPSN != k.members[ipA].sends || k.stored.First.Messages != 1 {
		t.Errorf("a is stored at %+v", k.stored.First)
	}
	k.answer(ipC)
	k.members[ipA].sends, k.members[ipA].sent = k.members[ipA].sends.Next(), 2
	heard(t, k.Net, ipA, roce.OpAck)
	k.posts(ipB, 1)
	k.store()
	if turn, ok := k.Switch.RunningTurn(k.group.ID); ok {
		t.Errorf("b's turn is being stored, and a's is %+v", turn)
	}
	k.Switch.BeginTurn(k.group.ID, true)
	k.gets(ipB, 1)
	k.crash()
	k.posts(ipB, 1)
	if turn, ok := k.Switch.RunningTurn(k.group.ID); ok {
		t.Errorf("nobody has answered, and the turn is %+v", turn)
	}
	k.answer(ipC)
	if turn, ok := k.Switch.RunningTurn(k.group.ID); ok {
		t.Errorf("d has not answered, and the turn is %+v", turn)
	}
}

// One receiver is enough, and c never answers after a crash. The turn is stored again when c has
// left so many packets unanswered that none of it can be on its way. It is still right for c.
func TestATurnIsRenewedWithoutAReceiverThatNeverAnswers(t *testing.T) {
	for _, ack := range []feedback.AckPolicy{feedback.AckAll, 1} {
		k := newKeeper(t, both(1, ipB, 500), receiver(2, ipC))
		k.group.Policy.Ack = ack
		k.begin()
		k.message(ipA)
		k.renews()
		k.crash()
		c := k.members[ipC]
		sends := func(packets int) {
			for range packets {
				k.posts(ipA, 1)
				k.Ports[portOf[ipB]].Take()
				k.answer(ipB)
				k.members[ipA].sends, k.members[ipA].sent = k.members[ipA].sends.Next(), k.members[ipA].sent+1
				k.Ports[portOf[ipC]].Take()
				k.Ports[portOf[ipA]].Take()
			}
		}
		sends(1<<15 - 1)
		if turn, ok := k.Switch.RunningTurn(k.group.ID); ok {
			t.Fatalf("ack %v: c's answers may be on their way, and the turn is %+v", ack, turn)
		}
		sends(1)
		turn, ok := k.Switch.RunningTurn(k.group.ID)
		if want := ack != feedback.AckAll; ok != want {
			t.Fatalf("ack %v: known %v, want %v", ack, ok, want)
		}
		if !ok {
			continue
		}
		if turn.First.NextPSN != k.members[ipA].sends || turn.First.Messages != k.members[ipA].sent {
			t.Errorf("a is stored at %+v, and is at %+v", turn.First, k.members[ipA])
		}
		if m := turn.Member(mft.QP{IP: ipC, RemoteQPN: groupQPN}); m == nil || m.Expects != c.expects.Add(1<<15) || m.Messages != c.received+1<<15 {
			t.Errorf("c is stored as %+v, and was at %+v, 2^15 packets ago", m, c)
		}
	}
}

// Where nobody else sends, there are no turns.
func TestAGroupWithOneSenderHasNoTurn(t *testing.T) {
	k := newKeeper(t, receiver(1, ipB), receiver(2, ipC))
	k.message(ipA)
	if turn, ok := k.Switch.RunningTurn(k.group.ID); ok {
		t.Errorf("%+v", turn)
	}
}

// A receiver that joins in a turn counts messages from there on. A turn that is stored again then
// knows how many came before, so that the source hears the right MSN behind a crash.
func TestWhoJoinsInATurnCountsItsMessages(t *testing.T) {
	b, c, early := both(1, ipB, 500), receiver(2, ipC), receiver(4, ipEarly)
	k := newKeeper(t, b, c)
	for range 5 {
		k.message(ipA)
	}
	k.update(early, b, c)
	k.message(ipA)
	k.renews()
	m := k.stored.Member(early.QP())
	if m == nil || m.Expects != k.members[ipEarly].expects || m.Messages != 1 {
		t.Fatalf("it is stored as %+v, and is at %+v", m, k.members[ipEarly])
	}
	k.crash()
	k.posts(ipA, 2)
	k.gets(ipA, 2)
}

// endsAsSource is a group whose first source, a, is a receiver too. Its QP has ended with a READ.
func endsAsSource(t *testing.T) *keeper {
	a := both(0, ipA, firstPSN)
	a.FirstPSN = 40
	k := newKeeper(t, a, both(1, ipB, 500), receiver(2, ipC))
	k.group.Policy.OnFatal = feedback.FatalEvict
	k.begin()
	k.members[ipA] = &actor{sends: firstPSN, expects: a.FirstPSN}
	k.posts(ipA, 1)
	k.cGets(ipA)
	r := write(k.members[ipA].sends, nil)
	r.bth.Opcode = roce.OpReadRequest
	say(t, k.Net, r)
	k.Ports[0].Take()
	k.Ports[1].Take()
	k.drain()
	return k
}

// cGets lets c alone, and b unless it sends, get and acknowledge the next packet of from.
func (k *keeper) cGets(from netip.Addr) {
	k.t.Helper()
	k.members[from].sends, k.members[from].sent = k.members[from].sends.Next(), k.members[from].sent.Add(1)
	for _, to := range []netip.Addr{ipB, ipC} {
		if to == from {
			continue
		}
		if out := k.Ports[portOf[to]].Take(); len(out) != 1 || decode(k.t, out[0]).PSN != k.members[to].expects {
			k.t.Fatalf("%v got %d frames; counters %v", to, len(out), moved(k.Switch))
		}
		k.answer(to)
	}
	if acks := k.Ports[portOf[from]].Take(); len(acks) != 1 || decode(k.t, acks[0]).PSN != k.members[from].sends.Prev() {
		k.t.Fatalf("%v heard %d frames; counters %v", from, len(acks), moved(k.Switch))
	}
}

// The QP of a source has ended with the NAK for a READ, and b goes on with c. A crash comes in b's
// turn, or before it: a's QP is not waited for afterwards.
func TestAnEndedSourceStaysOutAfterACrash(t *testing.T) {
	for _, before := range []bool{false, true} {
		k := endsAsSource(t)
		if before {
			st, _ := k.Switch.GroupState(k.group.ID)
			turn, ok := k.Switch.RunningTurn(k.group.ID)
			if !st.Ended || !ok || !turn.Sender().Ended {
				t.Fatalf("ended %v; the running turn is %+v, %v", st.Ended, turn, ok)
			}
			k.stored = &turn
			k.crash()
			k.posts(ipB, 1)
			k.passes(340*feedback.Tick(time.Millisecond), ipA)
		} else {
			k.posts(ipB, 1)
		}
		k.store()
		if !k.stored.Members[0].Ended {
			t.Errorf("crash before the switch %v: stored %+v", before, k.stored.Members[0])
		}
		k.Switch.BeginTurn(k.group.ID, true)
		k.cGets(ipB)
		k.crash()
		for range 3 {
			k.posts(ipB, 1)
			k.cGets(ipB)
		}
		if st, _ := k.Switch.GroupState(k.group.ID); st.Paths[0].Part != feedback.PartGone {
			t.Errorf("crash before the switch %v: a is %v", before, st.Paths[0].Part)
		}
	}
}

// The crash comes before it is stored that a's QP has ended. Nobody knows that then, and a's QP is
// waited for like that of a host that has died: b hears of nothing that a lacks, until a is evicted
// where the policy lets it be.
func TestAnEndThatIsNotStoredIsLikeADeadHost(t *testing.T) {
	for _, evict := range []bool{false, true} {
		k := endsAsSource(t)
		k.group.Policy.SilentAfter, k.group.Policy.Evict = 200*time.Millisecond, evict
		k.crash()
		k.posts(ipB, 1)
		k.passes(340*feedback.Tick(time.Millisecond), ipA)
		k.turnBegins()
		heard := 0
		for range 40 {
			k.now += feedback.Tick(10 * time.Millisecond)
			k.posts(ipB, 1) // again
			if len(k.Ports[portOf[ipC]].Take()) > 0 {
				say(t, k.Net, ack(ipC, k.members[ipC].expects, roce.SyndromeUnlimited))
			}
			for _, frame := range k.Ports[portOf[ipB]].Take() {
				if d := decode(t, frame); d.Opcode == roce.OpAck && d.Syndrome.IsACK() && d.PSN == k.members[ipB].sends {
					heard++
				}
			}
		}
		part := snapshot(t, k.Switch, k.group).Paths[k.group.FindPath(ipA, groupQPN)].Part
		if heard > 0 != evict || (part == feedback.PartGone) != evict {
			t.Errorf("evict %v: b heard %d ACKs, and a is %v", evict, heard, part)
		}
	}
}

// A receiver that was evicted may be the source. After a restart it has a path that is gone, and
// stays the source.
func TestASourceThatIsOutAsAReceiver(t *testing.T) {
	k := newKeeper(t, both(1, ipB, 500), receiver(2, ipC), receiver(3, ipD))
	b := k.group.Paths[0].QP()
	k.group.Parts = []mft.Part{{QP: b, Part: feedback.PartGone}}
	k.begin()
	k.posts(ipB, 1)
	k.turnBegins()
	k.gets(ipB, 1)
	k.crash()
	k.posts(ipB, 1)
	k.gets(ipB, 1)
	if st, _ := k.Switch.GroupState(k.group.ID); st.Source != b {
		t.Errorf("the source is %v", st.Source)
	}
	k.posts(ipA, 1)
	k.turnBegins()
	if st, _ := k.Switch.GroupState(k.group.ID); st.Paths[0].Part != feedback.PartGone {
		t.Errorf("after its turn b is %v", st.Paths[0].Part)
	}
}

// A group may be stopped when its only receivers have come and not joined yet. They join behind
// what the source was told, whoever it is, with what it sends next or again.
func TestThoseWhoAreAloneJoinAfterAStop(t *testing.T) {
	for _, source := range []netip.Addr{ipA, ipB} {
		for _, unheard := range []int{0, 1} {
			for _, other := range []mft.Path{receiver(3, ipD), both(3, ipD, 70)} {
				b, c := both(1, ipB, 500), receiver(2, ipC)
				if source == ipA {
					b = receiver(1, ipB)
				}
				k := newKeeper(t, b, c)
				k.message(ipA)
				stay := []mft.Path{other}
				if source != ipA {
					k.posts(source, 1)
					k.turnBegins()
					k.gets(source, 1)
					stay = append(stay, b)
				}
				k.message(source)
				k.posts(source, unheard)
				k.update(stay...)
				k.renews()
				k.group.Parts = []mft.Part{{QP: other.QP(), Part: feedback.PartJoining}}
				k.crash()
				last := write(k.members[source].sends.Prev(), nil)
				last.src, last.bth.AckReq = source, true
				say(t, k.Net, last) // it has missed the last ACK
				if d := decode(t, k.Ports[portOf[source]].Take()[0]); d.PSN != last.bth.PSN || !d.Syndrome.IsACK() || d.MSN != k.members[source].sent {
					t.Errorf("%v: it hears %+v", source, d)
				}
				for range 2 {
					k.posts(source, 1)
					k.gets(source, 1)
				}
				if other.Sends {
					k.posts(ipD, 1)
					k.turnBegins()
				}
				if other.Sends && source != ipA { // which receives again
					k.gets(ipD, 1)
				}
			}
		}
	}
}

// Those who are out of the group make no difference.
func TestThoseWhoAreAloneJoinBesideThoseWhoAreOut(t *testing.T) {
	for _, out := range []feedback.Part{feedback.PartGone, feedback.PartBehind} {
		b, c := receiver(1, ipB), receiver(2, ipC)
		k := newKeeper(t, b, c)
		k.message(ipA)
		k.stored = &mft.Turn{First: mft.Sender{NextPSN: k.members[ipA].sends, Messages: 1}}
		k.group.Parts = []mft.Part{{QP: b.QP(), Part: feedback.PartJoining}, {QP: c.QP(), Part: out}}
		k.members[ipB] = &actor{expects: b.FirstPSN}
		k.crash()
		k.posts(ipA, 1)
		k.group.Paths = k.group.Paths[:1] // c gets nothing
		k.gets(ipA, 1)
		silent(t, k.Net)
	}
}

// It is not known where such receivers join while it is unknown what the source was told, or if the
// source has left. Where nobody joins or others have joined, no turn is stored if no other member
// sends.
func TestWhereNobodyIsAloneAndJoins(t *testing.T) {
	b, c, d, early := both(1, ipB, 500), receiver(2, ipC), receiver(3, ipD), receiver(4, ipEarly)
	fatal := func(k *keeper, host netip.Addr) {
		say(t, k.Net, ack(host, k.members[host].expects, roce.NAKRemoteOperational))
	}
	for name, tt := range map[string]struct {
		first  mft.Path
		change func(k *keeper)
	}{
		"after a crash":  {b, func(k *keeper) { k.crash(); k.update(d) }},
		"nobody is left": {b, func(k *keeper) { k.posts(ipA, 1); fatal(k, ipB); fatal(k, ipC) }},
		"one takes part": {receiver(1, ipB), func(k *keeper) { k.update(early, c) }},
		"one has ended":  {receiver(1, ipB), func(k *keeper) { k.posts(ipA, 1); fatal(k, ipC); k.update(early, c) }},
		"a member waits": {b, func(k *keeper) { k.update(b, d); k.posts(ipB, 1); k.store() }},
		"the source has left": {b, func(k *keeper) {
			k.posts(ipB, 1)
			k.turnBegins()
			k.gets(ipB, 1)
			k.update(d)
		}},
	} {
		k := newKeeper(t, tt.first, c)
		if k.group.Policy.OnFatal = feedback.FatalEvict; name == "one has ended" {
			k.group.Policy.OnFatal = feedback.FatalFail
		}
		k.begin()
		k.message(ipA)
		tt.change(k)
		if turn, ok := k.Switch.RunningTurn(k.group.ID); ok {
			t.Errorf("%s: %+v", name, turn)
		}
	}
}
