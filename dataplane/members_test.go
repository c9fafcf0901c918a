package dataplane_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// portOf is the port of each host of the bench.
var portOf = map[netip.Addr]int{ipA: 0, ipB: 1, ipC: 2, ipD: 3, ipEarly: 4}

// say makes a frame arrive from its host.
func say(t *testing.T, net *porttest.Net, p packet) {
	t.Helper()
	net.Ports[portOf[p.src]].Put(p.frame(t))
	net.Poll()
}

// heard returns the PSN of the only frame that was sent to host, and fails the test if it was not
// such a frame.
func heard(t *testing.T, net *porttest.Net, host netip.Addr, op roce.Opcode) roce.PSN {
	t.Helper()
	out := net.Ports[portOf[host]].Take()
	if len(out) != 1 {
		t.Fatalf("%v got %d frames, counters %v", host, len(out), moved(net.Switch))
	}
	d := decode(t, out[0])
	if d.Opcode != op || !d.ICRCValid {
		t.Fatalf("%v got %+v", host, d)
	}
	return d.PSN
}

func silent(t *testing.T, net *porttest.Net) {
	t.Helper()
	for i, p := range net.Ports {
		if out := p.Take(); len(out) != 0 {
			t.Fatalf("port %d sent %+v", i, decode(t, out[0]))
		}
	}
}

// Another member becomes the source when everything of the old one is acknowledged. Every member's
// PSNs continue.
func TestSourceSwitch(t *testing.T) {
	g := group()
	const bSends = 0xFFFFFF
	g.Paths[0].Sends, g.Paths[0].SendPSN = true, bSends
	a := receiver(0, ipA)
	a.DestQPN, a.Sends, a.SendPSN = 17, true, firstPSN
	g.Paths = append(g.Paths, a)
	net := newNet(t, g)
	first := map[netip.Addr]roce.PSN{}
	for _, p := range g.Paths {
		first[p.Dst] = p.FirstPSN
	}

	fromB := func(psn roce.PSN) packet {
		p := write(psn, []byte("b is next"))
		p.src = ipB
		return p
	}
	say(t, net, write(firstPSN, []byte("a first")))
	for _, host := range []netip.Addr{ipB, ipC, ipD} {
		if psn := heard(t, net, host, roce.OpWriteOnly); psn != first[host] {
			t.Errorf("%v got PSN %d, want %d", host, psn, first[host])
		}
	}
	for _, host := range []netip.Addr{ipB, ipC, ipD} {
		say(t, net, fromB(bSends)) // too early
		silent(t, net)
		say(t, net, ack(host, first[host], roce.SyndromeUnlimited))
	}
	if psn := heard(t, net, ipA, roce.OpAck); psn != firstPSN {
		t.Errorf("a heard ACK %d", psn)
	}
	say(t, net, fromB(bSends+5)) // not what b sends next
	silent(t, net)

	say(t, net, fromB(bSends))
	for _, want := range []struct {
		host netip.Addr
		psn  roce.PSN
	}{{ipA, first[ipA]}, {ipC, first[ipC].Next()}, {ipD, first[ipD].Next()}} {
		if psn := heard(t, net, want.host, roce.OpWriteOnly); psn != want.psn {
			t.Errorf("%v got PSN %d, want %d", want.host, psn, want.psn)
		}
		say(t, net, ack(want.host, want.psn, roce.SyndromeUnlimited))
	}
	if psn := heard(t, net, ipB, roce.OpAck); psn != bSends {
		t.Errorf("b heard ACK %d", psn)
	}
	if n := <-net.Switch.Notes(); n.What != feedback.NoteSource || n.Receiver != ipB || n.RemoteQPN != groupQPN || n.PSN != bSends {
		t.Errorf("note %+v", n)
	}

	say(t, net, write(firstPSN+1, []byte("a again")))
	for _, want := range []struct {
		host netip.Addr
		psn  roce.PSN
	}{{ipB, first[ipB].Next()}, {ipC, first[ipC].Add(2)}, {ipD, first[ipD].Add(2)}} {
		if psn := heard(t, net, want.host, roce.OpWriteOnly); psn != want.psn {
			t.Errorf("%v got PSN %d, want %d", want.host, psn, want.psn)
		}
	}
	// The ACK of b's turn was lost: b resends, and gets it again.
	for _, p := range net.Ports {
		p.Take()
	}
	say(t, net, fromB(bSends))
	if psn := heard(t, net, ipB, roce.OpAck); psn != bSends {
		t.Errorf("b heard ACK %d of its earlier turn", psn)
	}
	m := moved(net.Switch)
	if m["source-blocked"] != 3 || m["source-out-of-step"] != 1 {
		t.Errorf("counters %v", m)
	}
}

// A former source that asks again for the last ACK of its turn is granted no message where credits
// are merged: what the receivers could take at that time says nothing about now.
func TestFormerSourceIsGrantedNothing(t *testing.T) {
	for policy, want := range map[feedback.CreditPolicy]roce.Syndrome{
		feedback.CreditsUnlimited: roce.SyndromeUnlimited,
		feedback.CreditsMerge:     roce.SyndromeACK(0),
	} {
		g := group()
		const bSends = 5000
		g.Paths[0].Sends, g.Paths[0].SendPSN = true, bSends
		g.Policy.Credits = policy
		net := newNet(t, g)
		say(t, net, write(firstPSN, []byte("a first")))
		for _, p := range g.Paths {
			say(t, net, ack(p.Dst, p.FirstPSN, roce.SyndromeUnlimited))
		}
		b := write(bSends, []byte("b is next"))
		b.src = ipB
		say(t, net, b)
		for _, p := range net.Ports {
			p.Take()
		}
		say(t, net, write(firstPSN, []byte("a first"))) // its ACK was lost
		out := net.Ports[0].Take()
		if len(out) != 1 {
			t.Fatalf("%v: a got %d frames", policy, len(out))
		}
		if d := decode(t, out[0]); d.PSN != firstPSN || d.Syndrome != want || d.MSN != 1 {
			t.Errorf("%v: a got %v of PSN %d, MSN %d; want %v", policy, d.Syndrome, d.PSN, d.MSN, want)
		}
	}
}

// A source that received the NAK that ends its QP does not become the source again: its packets
// that are still on their way would begin a turn after packets that no receiver acknowledged.
func TestAnEndedSourceHasNoOtherTurn(t *testing.T) {
	g := group()
	const bSends = 5000
	g.Paths[0].Sends, g.Paths[0].SendPSN = true, bSends
	a := receiver(0, ipA)
	a.DestQPN, a.Sends, a.SendPSN = 17, true, firstPSN
	g.Paths = append(g.Paths, a)
	net := newNet(t, g)
	say(t, net, write(firstPSN, []byte("more than c can take")))
	for _, p := range g.Paths {
		switch p.Dst {
		case ipC:
			say(t, net, ack(ipC, p.FirstPSN, roce.NAKRemoteAccess))
		case ipB, ipD:
			say(t, net, ack(p.Dst, p.FirstPSN, roce.SyndromeUnlimited))
		}
	}
	for _, p := range net.Ports {
		p.Take()
	}
	b := write(bSends, []byte("b is next"))
	b.src = ipB
	say(t, net, b)
	if psn := heard(t, net, ipB, roce.OpAck); psn != bSends {
		t.Errorf("b heard of PSN %d, want what c's end means for it", psn)
	}
	say(t, net, ack(ipD, heard(t, net, ipD, roce.OpWriteOnly), roce.SyndromeUnlimited)) // b's turn waits for nothing else
	for _, p := range net.Ports {
		p.Take()
	}
	say(t, net, write(firstPSN+1, []byte("on its way since")))
	silent(t, net)
	if n := moved(net.Switch)["source-blocked"]; n != 1 {
		t.Errorf("%d frames source-blocked, want 1", n)
	}
}

// A receiver joins a running group at the next message, and another leaves. The other members do
// not notice.
func TestMembershipChanges(t *testing.T) {
	g := group()
	g.Paths = g.Paths[:2]
	net := newNet(t, g)
	say(t, net, write(firstPSN, []byte("to b and c")))
	say(t, net, ack(ipB, g.Paths[0].FirstPSN, roce.SyndromeUnlimited))
	for _, p := range net.Ports {
		p.Take()
	}
	// c leaves and d joins: what waited for c is sent.
	next := group()
	next.Paths = []mft.Path{next.Paths[0], next.Paths[2]}
	if err := net.Switch.Replace(g.ID, next); err != nil {
		t.Fatal(err)
	}
	if psn := heard(t, net, ipA, roce.OpAck); psn != firstPSN {
		t.Errorf("the source heard ACK %d", psn)
	}
	say(t, net, write(firstPSN+1, []byte("to b and d")))
	b, d := next.Paths[0], next.Paths[1]
	if psn := heard(t, net, ipB, roce.OpWriteOnly); psn != b.FirstPSN.Next() {
		t.Errorf("b got PSN %d", psn)
	}
	if psn := heard(t, net, ipD, roce.OpWriteOnly); psn != d.FirstPSN {
		t.Errorf("d got PSN %d, its QP expects %d", psn, d.FirstPSN)
	}
	silent(t, net)
	say(t, net, ack(ipB, b.FirstPSN.Next(), roce.SyndromeUnlimited))
	silent(t, net)
	say(t, net, ack(ipD, d.FirstPSN, roce.SyndromeUnlimited))
	if psn := heard(t, net, ipA, roce.OpAck); psn != firstPSN+1 {
		t.Errorf("the source heard ACK %d", psn)
	}
}

// A receiver whose QP is not ready yet is sent nothing, is not waited for and not evicted, until a
// version of the group says that it joins. It may differ in nothing else from the one before, and
// come before the first packet.
func TestAReceiverThatWaitsJoinsWithTheVersionThatSaysSo(t *testing.T) {
	for _, started := range []bool{false, true} {
		g := group()
		g.Policy.SilentAfter, g.Policy.Evict = 1e8, true
		g.Paths = g.Paths[:2]
		now := feedback.Tick(0)
		net := porttest.NewAt(4, func() feedback.Tick { return now })
		if _, err := net.Switch.Add(g); err != nil {
			t.Fatal(err)
		}
		replace := func(parts ...mft.Part) (next *mft.Group) {
			t.Helper()
			next = group()
			next.Policy, next.Parts = g.Policy, parts
			if err := net.Switch.Replace(g.ID, next); err != nil {
				t.Fatal(err)
			}
			return next
		}
		psn := roce.PSN(firstPSN)
		send := func(receivers ...netip.Addr) {
			t.Helper()
			say(t, net, write(psn, nil))
			for _, ip := range receivers {
				heard(t, net, ip, roce.OpWriteOnly)
			}
			silent(t, net)
			psn = psn.Next()
		}
		d := group().Paths[2]
		if started {
			send(ipB, ipC)
		}
		replace(mft.Part{QP: d.QP(), Part: feedback.PartWaiting})
		if started {
			send(ipB, ipC)
			for i, ip := range []netip.Addr{ipB, ipC} {
				say(t, net, ack(ip, g.Paths[i].FirstPSN.Next(), roce.SyndromeUnlimited))
			}
			if got := heard(t, net, ipA, roce.OpAck); got != psn.Prev() {
				t.Errorf("the source heard ACK %d", got)
			}
			now += 2e8
			net.Poll()
			silent(t, net)
		}
		next := replace(mft.Part{QP: d.QP(), Part: feedback.PartJoining})
		if part := snapshot(t, net.Switch, next).Paths[2].Part; part != feedback.PartJoining {
			t.Errorf("started %v: d is %v", started, part)
		}
		say(t, net, write(psn, nil))
		if got := heard(t, net, ipD, roce.OpWriteOnly); got != d.FirstPSN {
			t.Errorf("started %v: d got PSN %d, and its QP expects %d", started, got, d.FirstPSN)
		}
	}
}

// A member that comes to a group and takes no part any more, because it was evicted at another box,
// does not join. It has a path, because it may send.
func TestAMemberThatComesAndIsOutDoesNotJoin(t *testing.T) {
	g := group()
	g.Paths = g.Paths[:2]
	net := newNet(t, g)
	say(t, net, write(firstPSN, nil))
	next := group()
	next.Paths[2].Sends = true
	next.Parts = []mft.Part{{QP: next.Paths[2].QP(), Part: feedback.PartGone}}
	if err := net.Switch.Replace(g.ID, next); err != nil {
		t.Fatal(err)
	}
	say(t, net, write(firstPSN+1, nil))
	if part := snapshot(t, net.Switch, next).Paths[2].Part; part != feedback.PartGone {
		t.Errorf("d is %v", part)
	}
}

// Each receiver's sequence NAKs, RNR NAKs and CNPs are counted: nothing that is stale or refused.
// The counts of those that stay survive a change of members.
func TestWhatReceiversAnswerIsCounted(t *testing.T) {
	g := group()
	net := newNet(t, g)
	for i := range roce.PSN(4) {
		say(t, net, write(firstPSN+i, []byte("data")))
	}
	b, c, d := g.Paths[0].FirstPSN, g.Paths[1].FirstPSN, g.Paths[2].FirstPSN
	say(t, net, ack(ipB, b.Next(), roce.SyndromeUnlimited))
	say(t, net, ack(ipB, b, roce.NAKSequence)) // stale
	say(t, net, ack(ipC, c.Next(), roce.NAKSequence))
	say(t, net, ack(ipD, d.Next(), roce.SyndromeRNR(1)))
	say(t, net, ack(ipD, d.Add(2), roce.NAKSequence))
	say(t, net, ack(ipD, d.Add(3), roce.NAKSequence))
	say(t, net, ack(ipD, d.Add(9), roce.NAKSequence)) // was not sent
	say(t, net, ack(ipB, b, roce.SyndromeRNR(1)))     // stale
	for range 3 {
		say(t, net, cnp(ipB))
	}
	last := cnp(ipC)
	last.hopLimit = 1
	say(t, net, last)
	check := func(g *mft.Group, want ...dataplane.Receiver) {
		t.Helper()
		if st, _ := net.Switch.GroupState(g.ID); !slices.Equal(st.Receivers, want) {
			t.Errorf("%+v, want %+v", st.Receivers, want)
		}
	}
	ofC := dataplane.Receiver{Acknowledged: 1, NAKs: 1, Refused: 1, RefusedFor: dataplane.HopLimitExceeded, RefusedAt: 2, RefusedQPN: groupQPN}
	ofD := dataplane.Receiver{Acknowledged: 3, NAKs: 2, RNRs: 1, Refused: 1, RefusedFor: dataplane.Reason(feedback.BeyondSent), RefusedAt: 3, RefusedQPN: groupQPN}
	check(g, dataplane.Receiver{Acknowledged: 2, CNPs: 3, Refused: 2, RefusedFor: dataplane.Reason(feedback.Stale), RefusedAt: 1, RefusedQPN: groupQPN}, ofC, ofD)
	next := group()
	next.Paths = next.Paths[1:]
	if err := net.Switch.Replace(g.ID, next); err != nil {
		t.Fatal(err)
	}
	check(next, ofC, ofD)
}

// A receiver that comes before the source has sent anything joins as it does later: its QP may have
// been set up for another message than the first.
func TestAReceiverJoinsBeforeTheFirstPacket(t *testing.T) {
	g := group()
	g.Paths = g.Paths[:2]
	net := newNet(t, g)
	if err := net.Switch.Replace(g.ID, group()); err != nil {
		t.Fatal(err)
	}
	want := []feedback.Part{feedback.PartActive, feedback.PartActive, feedback.PartJoining}
	for i, p := range snapshot(t, net.Switch, g).Paths {
		if p.Part != want[i] {
			t.Errorf("path %d is %v, want %v", i, p.Part, want[i])
		}
	}
}

// Another receiver takes the place of the only one.
func TestTheOnlyReceiverIsReplaced(t *testing.T) {
	g := group()
	g.Paths = g.Paths[:1]
	net := newNet(t, g)
	next := group()
	next.Paths = next.Paths[1:2]
	if err := net.Switch.Replace(g.ID, next); err != nil {
		t.Fatal(err)
	}
	if p := snapshot(t, net.Switch, g).Paths; len(p) != 1 || p[0].Part != feedback.PartJoining {
		t.Errorf("%+v", p)
	}
	again := group() // another QP of the same member is another receiver
	again.Paths = again.Paths[1:2]
	again.Paths[0].DestQPN++
	say(t, net, write(firstPSN, nil))
	if p := snapshot(t, net.Switch, g).Paths; p[0].Part != feedback.PartActive {
		t.Errorf("%+v", p)
	}
	if err := net.Switch.Replace(g.ID, again); err != nil {
		t.Fatal(err)
	}
	if p := snapshot(t, net.Switch, g).Paths; p[0].Part != feedback.PartJoining {
		t.Errorf("%+v", p)
	}
}

// Nothing is known of a group that is older than this run of the daemon (rule 13).
func TestARestoredGroupKnowsNothing(t *testing.T) {
	g := group()
	g.Restored = true
	net := newNet(t, g)
	say(t, net, write(firstPSN+500, nil))
	for _, p := range snapshot(t, net.Switch, g).Paths {
		if p.Part != feedback.PartUnknown {
			t.Errorf("%+v", p)
		}
	}
}

// d has joined at packet 30, and 26 to 29 had reached only b when the daemon crashed. d stands at
// 29 and has nothing of them: the source hears no ACK of 26 before c has it.
func TestARestoredGroupKnowsWhoHasJoinedAndWhere(t *testing.T) {
	g := group()
	g.Restored, g.Policy.Ack = true, 2
	g.Joins = []mft.Join{{QP: mft.QP{IP: ipC, RemoteQPN: 99}}, {QP: g.Paths[2].QP(), PSN: firstPSN + 30}}
	net := newNet(t, g)
	at := func(i int, packet int32) roce.PSN { return g.Paths[i].FirstPSN.Add(packet) }
	say(t, net, write(firstPSN+26, nil))
	for i, host := range []netip.Addr{ipB, ipC, ipD} {
		if psn := heard(t, net, host, roce.OpWriteOnly); psn != at(i, 26) {
			t.Errorf("%v got PSN %d", host, psn)
		}
	}
	say(t, net, ack(ipB, at(0, 29), roce.SyndromeUnlimited))
	say(t, net, ack(ipD, at(2, 29), roce.SyndromeUnlimited))
	if out := net.Ports[0].Take(); len(out) > 0 {
		t.Errorf("the source hears %+v", decode(t, out[0]))
	}
	for i, p := range snapshot(t, net.Switch, g).Paths {
		if p.Fresh != (i == 2) {
			t.Errorf("path %d: %+v", i, p)
		}
	}
	say(t, net, ack(ipC, at(1, 26), roce.SyndromeUnlimited))
	if psn := heard(t, net, ipA, roce.OpAck); psn != firstPSN+26 {
		t.Errorf("the source hears an ACK of %d", psn)
	}
}

// Asking for a group's state changes nothing: a group without traffic takes no memory on the
// worker.
func TestAskingForStateMakesNone(t *testing.T) {
	g := group()
	net := newNet(t, g)
	if s := snapshot(t, net.Switch, g); s.Sent != roce.PSN(firstPSN).Prev() || len(s.Paths) != 3 {
		t.Errorf("%+v", s)
	}
	if dataplane.HasState(net.Switch.Workers()[0], g.ID) {
		t.Error("the worker keeps state of a group that was only asked about")
	}
	if err := net.Switch.Remove(g.ID); err != nil {
		t.Fatal(err)
	}
	if _, ok := net.Switch.GroupState(g.ID); ok {
		t.Error("a removed group has a state")
	}
}

// A congestion notification reaches the source as one to its own QP.
func TestCNPReachesTheSource(t *testing.T) {
	net := newNet(t, group())
	say(t, net, cnp(ipB))
	out := net.Ports[0].Take()
	if len(out) != 1 {
		t.Fatalf("%d frames, counters %v", len(out), moved(net.Switch))
	}
	if d := decode(t, out[0]); d.Opcode != roce.OpCNP || d.QPN != 17 || d.Src != ipGroup || d.HopLimit != 63 || !d.ICRCValid {
		t.Errorf("the source got %+v", d)
	}
}

// Time passes for a group whose policy depends on it: a silent receiver is evicted, the source
// hears an ACK at once, and the operator gets a note.
func TestSilentReceiverIsEvicted(t *testing.T) {
	g := group()
	g.Policy.SilentAfter, g.Policy.Evict = 1e8, true
	now := feedback.Tick(0)
	net := porttest.NewAt(4, func() feedback.Tick { return now })
	if _, err := net.Switch.Add(g); err != nil {
		t.Fatal(err)
	}
	frame := write(firstPSN, nil)
	say(t, net, frame)
	for _, p := range g.Paths[1:] {
		say(t, net, ack(p.Dst, p.FirstPSN, roce.SyndromeUnlimited))
	}
	now = 1e8 / 2
	say(t, net, frame) // the source resends
	for _, p := range net.Ports {
		p.Take()
	}
	now = 1e8 + 1
	net.Poll()
	if psn := heard(t, net, ipA, roce.OpAck); psn != firstPSN {
		t.Errorf("the source heard ACK %d", psn)
	}
	var told []dataplane.Note
	for range 2 {
		told = append(told, <-net.Switch.Notes())
	}
	if told[0].What != feedback.NoteSilent || told[1].What != feedback.NoteEvicted || told[1].Receiver != ipB || told[1].RemoteQPN != groupQPN {
		t.Errorf("notes %+v", told)
	}
}

// Nothing is kept of a removed timed group, and the next group in its slot has its own time.
func TestARemovedGroupIsNotWaitedFor(t *testing.T) {
	timed := func() *mft.Group {
		g := group()
		g.Policy.SilentAfter = 1e8
		return g
	}
	now := feedback.Tick(0)
	net := porttest.NewAt(4, func() feedback.Tick { return now })
	w := net.Switch.Workers()[0]
	for range 2 {
		g := timed()
		if _, err := net.Switch.Add(g); err != nil {
			t.Fatal(err)
		}
		frame := write(firstPSN, nil)
		say(t, net, frame)
		now += 1e8 / 2
		say(t, net, frame) // the source resends, so the time of silent receivers runs
		if !dataplane.Timed(w) {
			t.Fatal("the group does not ask for time")
		}
		if err := net.Switch.Remove(g.ID); err != nil {
			t.Fatal(err)
		}
		if dataplane.HasState(w, g.ID) || dataplane.Timed(w) {
			t.Error("something is kept of a removed group")
		}
		now += 1e9
		net.Poll()
		select {
		case n := <-net.Switch.Notes():
			t.Errorf("note of a removed group: %+v", n)
		default:
		}
	}
}

// A frame that was classified for a removed group is counted, whichever group has the slot now.
func TestAFrameOfAGroupThatHasGone(t *testing.T) {
	net := newNet(t, group())
	gone := mft.GroupID(0)
	if err := net.Switch.Remove(gone); err != nil {
		t.Fatal(err)
	}
	next := group()
	if id, err := net.Switch.Add(next); err != nil || id.Slot() != gone.Slot() {
		t.Fatal(id, err)
	}
	core, out, b := dataplane.NewCore(nil), dataplane.Outputs{}, write(firstPSN, nil).frame(t)
	for _, tt := range []struct {
		group mft.GroupID
		kind  dataplane.Kind
		want  dataplane.Reason
	}{
		{gone, dataplane.KindData, dataplane.GroupGone}, {next.ID + 1, dataplane.KindData, dataplane.GroupGone},
		{mft.NoGroup, dataplane.KindData, dataplane.UnknownQPN}, {mft.NoGroup, dataplane.KindCM, dataplane.ConnectionManagement},
		{next.ID, dataplane.KindData, dataplane.Reason(feedback.Forwarded)},
		{gone, dataplane.KindData, dataplane.GroupGone}, {next.ID, dataplane.KindData, dataplane.Reason(feedback.Resent)},
	} {
		f := dataplane.Frame{Group: tt.group, Kind: tt.kind, Buf: b, FragmentCount: 1}
		f.Fragments[0] = b
		if got := core.Handle(0, net.Switch.Table(), &f, &out); got != tt.want {
			t.Errorf("group %#x, kind %d: %v, want %v", tt.group, tt.kind, got, tt.want)
		}
	}
}

// More groups may have something to send at once than there are frames to write it to.
func TestManyGroupsSendAtOnce(t *testing.T) {
	const groups = 500
	now := feedback.Tick(0)
	net := porttest.NewAt(4, func() feedback.Tick { return now })
	for i := range groups {
		g := group()
		g.Name, g.QPN, g.Policy.Repair, g.Policy.RepairWindow = "", roce.QPN(100+i), feedback.RepairLocal, 1
		for k := range g.Paths {
			g.Paths[k].RemoteQPN = g.QPN
		}
		if _, err := net.Switch.Add(g); err != nil {
			t.Fatal(err)
		}
		p := write(firstPSN, nil)
		p.bth.DestQPN = g.QPN
		say(t, net, p)
	}
	for _, p := range net.Ports {
		p.Take()
	}
	now = 1e9
	for range groups {
		net.Poll()
	}
	for i, p := range net.Ports[1:] {
		if n := len(p.Take()); n != groups {
			t.Errorf("port %d was sent %d copies again, of %d", i+1, n, groups)
		}
	}
	if net.Pool.Lent != groups {
		t.Errorf("%d buffers are lent, and %d packets retained", net.Pool.Lent, groups)
	}
}

// The active source leaves the group: the next source has its own PSNs, and nothing is acknowledged
// in the PSN space of the one that left.
func TestActiveSourceLeaves(t *testing.T) {
	build := func(withB bool) *mft.Group {
		g := group()
		g.Paths[0].Sends, g.Paths[0].SendPSN = true, 5000
		if !withB {
			g.Paths = g.Paths[1:]
		}
		return g
	}
	g := build(true)
	net := newNet(t, g)
	fromB := write(5000, []byte("b"))
	fromB.src = ipB
	say(t, net, fromB)
	for _, p := range g.Paths[1:] {
		say(t, net, ack(p.Dst, p.FirstPSN, roce.SyndromeUnlimited))
	}
	for _, p := range net.Ports {
		p.Take()
	}
	if err := net.Switch.Replace(g.ID, build(false)); err != nil {
		t.Fatal(err)
	}
	say(t, net, write(firstPSN, []byte("a")))
	for _, p := range g.Paths[1:] {
		if psn := heard(t, net, p.Dst, roce.OpWriteOnly); psn != p.FirstPSN.Next() {
			t.Errorf("%v got PSN %d, its QP expects %d", p.Dst, psn, p.FirstPSN.Next())
		}
	}
	silent(t, net)
}

// A group whose source could not change gets a member that may send: a receiver becomes one, or a
// new QP on the source's host while a receiver leaves. Every path continues where its QP is.
func TestSourceChangesWhereItCouldNot(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*mft.Group)
		sender netip.Addr // with PSN 5000
	}{
		"a receiver may send": {
			func(g *mft.Group) { g.Paths[0].Sends, g.Paths[0].SendPSN = true, 5000 },
			ipB,
		},
		"another QP of the source": {
			func(g *mft.Group) {
				g.Source.DestQPN, g.Source.FirstPSN, g.Paths = 18, 5000, g.Paths[1:]
			},
			ipA,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := group()
			net := newNet(t, g)
			say(t, net, write(firstPSN, []byte("a")))
			for _, p := range g.Paths {
				say(t, net, ack(p.Dst, p.FirstPSN, roce.SyndromeUnlimited))
			}
			for _, p := range net.Ports {
				p.Take()
			}
			next := group()
			tt.change(next)
			if err := net.Switch.Replace(g.ID, next); err != nil {
				t.Fatal(err)
			}
			p := write(5000, []byte("next"))
			p.src = tt.sender
			say(t, net, p)
			for _, path := range g.Paths[1:] {
				if psn := heard(t, net, path.Dst, roce.OpWriteOnly); psn != path.FirstPSN.Next() {
					t.Errorf("%v got PSN %d, its QP expects %d", path.Dst, psn, path.FirstPSN.Next())
				}
				say(t, net, ack(path.Dst, path.FirstPSN.Next(), roce.SyndromeUnlimited))
			}
			if psn := heard(t, net, tt.sender, roce.OpAck); psn != 5000 {
				t.Errorf("%v heard ACK %d", tt.sender, psn)
			}
			silent(t, net)
		})
	}
}

// A receiver that comes back with another QP is a new member.
func TestReceiverComesBackWithAnotherQP(t *testing.T) {
	g := group()
	net := newNet(t, g)
	say(t, net, write(firstPSN, nil))
	for _, p := range net.Ports {
		p.Take()
	}
	again := group()
	again.Paths[0].DestQPN, again.Paths[0].FirstPSN = 99, 7
	if err := net.Switch.Replace(g.ID, again); err != nil {
		t.Fatal(err)
	}
	say(t, net, write(firstPSN+1, nil))
	if psn := heard(t, net, ipB, roce.OpWriteOnly); psn != 7 {
		t.Errorf("the new QP got PSN %d, it expects 7", psn)
	}
}

// The policy of a running group cannot change, and a leg must leave by an existing port.
func TestReplaceRefuses(t *testing.T) {
	g := group()
	net := newNet(t, g)
	other := group()
	other.Policy.Nak = feedback.NakLower
	if err := net.Switch.Replace(g.ID, other); err == nil {
		t.Error("the policy changed under running traffic")
	}
	other = group()
	other.Paths[0].Port = 4
	if err := net.Switch.Replace(g.ID, other); err == nil {
		t.Error("a leg leads to a port that is not there")
	}
}
