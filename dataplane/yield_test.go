package dataplane_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// branch is a box with members c and d and a link to another box, which is the source and sends.
type branch struct {
	t     *testing.T
	net   *porttest.Net
	group *mft.Group
	now   feedback.Tick
	sent  packet // the other box's newest packet
}

// newBranch has sent nothing yet.
func newBranch(t *testing.T, other mft.Box, policy feedback.Policy) *branch {
	b := &branch{t: t, group: group()}
	link := linkTo(linkDown, ipUpper, ipLower, qpnUpper, qpnLower, psnLower, psnUpper)
	link.Box = other
	b.group.KeepsTurns, b.group.Policy = true, policy
	b.group.Paths = []mft.Path{link, both(2, ipC, 200), receiver(3, ipD)}
	b.group.Source = mft.Source{Leg: link.Leg, RemoteQPN: qpnLower, FirstPSN: psnUpper}
	b.begin()
	return b
}

func (b *branch) begin() {
	b.net = porttest.NewAt(5, func() feedback.Tick { return b.now })
	if _, err := b.net.Switch.Add(b.group); err != nil {
		b.t.Fatal(err)
	}
}

// crash begins again with the turn that control has stored.
func (b *branch) crash(stored *mft.Turn) {
	b.group.Restored, b.group.Turn = true, stored
	b.begin()
}

// sends lets the other box send a packet, which c and d acknowledge.
func (b *branch) sends() { b.posts()() }

// posts lets the other box send a packet. The result lets c and d acknowledge it.
func (b *branch) posts() (acknowledge func()) {
	psn := roce.PSN(psnUpper)
	if b.sent.src.IsValid() {
		psn = b.sent.bth.PSN.Next()
	}
	b.sent = b.says(psn)
	sayAt(b.t, b.net, linkDown, b.sent)
	c, d := heard(b.t, b.net, ipC, roce.OpWriteOnly), heard(b.t, b.net, ipD, roce.OpWriteOnly)
	return func() {
		say(b.t, b.net, ack(ipC, c, roce.SyndromeUnlimited))
		say(b.t, b.net, ack(ipD, d, roce.SyndromeUnlimited))
		b.net.Ports[linkDown].Take()
	}
}

// says is a packet of the other box.
func (b *branch) says(psn roce.PSN) packet {
	r := write(psn, []byte("from the other box"))
	r.src, r.dst, r.bth.DestQPN = ipUpper, ipLower, qpnLower
	return r
}

// cSends lets c send the first packet of its turn.
func (b *branch) cSends() {
	r := write(200, []byte("from c"))
	r.src = ipC
	say(b.t, b.net, r)
}

// later lets time pass. Requests to the other box are lost.
func (b *branch) later(times int) {
	for range times {
		b.now += feedback.Tick(10 * time.Millisecond)
		b.net.Poll()
		b.net.Ports[linkDown].Take()
	}
}

func (b *branch) waits() bool {
	_, waits := b.net.Switch.NextTurn(b.group.ID)
	return waits
}

var sparing = feedback.Policy{Evict: true, SilentAfter: 200 * time.Millisecond}

// The other box has not answered for as long as the policy says, so control stores c's turn. Then
// that box requests a turn of its own. It is not yielded to, or what is stored would be no turn.
func TestATurnThatIsBeingStoredIsNotYielded(t *testing.T) {
	b := newBranch(t, mft.BoxBelow, sparing)
	b.sends()
	for range 5 {
		b.cSends()
		b.later(5)
	}
	turn, ok := b.net.Switch.NextTurn(b.group.ID)
	if !ok || turn.Source.IP != ipC {
		t.Fatalf("control is to store %+v, %v", turn.Source, ok)
	}
	request := b.says(b.sent.bth.PSN.Next().Add(2 * feedback.Window))
	request.bth.Opcode, request.reth, request.payload = roce.OpWriteMiddle, nil, nil
	sayAt(t, b.net, linkDown, request)
	if got := b.net.Ports[linkDown].Take(); len(got) != 0 {
		t.Errorf("the other box hears %+v", decode(t, got[0]))
	}
	b.net.Switch.BeginTurn(b.group.ID, true)
	if st, _ := b.net.Switch.GroupState(b.group.ID); st.Source.IP != ipC {
		t.Errorf("c's turn is stored, and the source is %v", st.Source)
	}
}

// The other box sends, and is inside messages when c wants to send. It rightly does not yield, and
// is not spared because it was asked long ago.
func TestABoxThatSendsIsNotSpared(t *testing.T) {
	b := newBranch(t, mft.BoxBelow, sparing)
	b.sends()
	b.cSends()
	for range 40 {
		b.later(10)
		b.sends()
		b.cSends()
		if b.waits() {
			t.Fatalf("c's turn begins after %v, although the other box sends", time.Duration(b.now))
		}
	}
	last := b.posts()
	for range 30 { // always one packet on its way, so the turn is not requested again
		b.later(2)
		next := b.posts()
		last()
		last = next
	}
	b.cSends()
	last()
	if b.waits() {
		t.Fatal("c's turn begins, because the turn of the other box was requested long ago")
	}
	b.later(19)
	b.cSends()
	if b.waits() {
		t.Error("the other box has had less time than silent-after")
	}
	b.later(2)
	b.cSends()
	if !b.waits() {
		t.Error("the other box is silent, and c's turn does not begin")
	}
}

// The box above has ended as the source. It gets what c sends all the same, after a crash too, and
// c hears no ACK without it. Nobody requests its turn, which is over.
func TestABoxAboveThatHasEndedIsWaitedForAfterACrash(t *testing.T) {
	b := newBranch(t, mft.BoxAbove, feedback.Policy{OnFatal: feedback.FatalEvict})
	b.sends()
	read := b.says(b.sent.bth.PSN.Next())
	read.bth.Opcode = roce.OpReadRequest
	sayAt(t, b.net, linkDown, read)
	turn, ok := b.net.Switch.RunningTurn(b.group.ID)
	if !ok {
		t.Fatal("there is no turn to store")
	}
	b.crash(&turn)
	up, asked := 0, 0
	stands := map[netip.Addr]roce.PSN{}
	for n := range 60 {
		if n%10 == 0 {
			b.cSends()
		}
		b.now += feedback.Tick(10 * time.Millisecond)
		b.net.Poll()
		if _, ok := b.net.Switch.NextTurn(b.group.ID); ok {
			b.net.Switch.BeginTurn(b.group.ID, true)
		}
		for port, ip := range map[int]netip.Addr{2: ipC, 3: ipD} {
			for _, f := range b.net.Ports[port].Take() {
				switch d := decode(t, f); {
				case d.Opcode == roce.OpAck && d.Syndrome.IsACK():
					t.Fatalf("c hears %v %d, and the box above has acknowledged nothing", d.Syndrome, d.PSN)
				case d.Opcode == roce.OpWriteOnly:
					stands[ip] = d.PSN
					fallthrough
				case d.Opcode == roce.OpWriteMiddle:
					if _, has := stands[ip]; !has {
						stands[ip] = d.PSN.Add(1)
					}
					say(t, b.net, ack(ip, stands[ip], roce.SyndromeUnlimited))
				}
			}
		}
		for _, f := range b.net.Ports[linkDown].Take() {
			switch d := decode(t, f); d.Opcode {
			case roce.OpWriteOnly:
				up++
			case roce.OpWriteMiddle:
				asked++
			}
		}
	}
	if up == 0 || asked != 0 {
		t.Errorf("the box above has got %d packets of c, and was asked for its turn %d times", up, asked)
	}
}

// A host sends what is a request only of a box. That is no claim to a turn and no word about what
// its path lacks, whoever is the source, and whether or not the host is a receiver.
func TestAHostRequestsNoTurn(t *testing.T) {
	for _, host := range []netip.Addr{ipA, ipB} {
		for _, source := range []netip.Addr{ipA, ipB} {
			for _, ahead := range []int32{2 * feedback.Window, 3 * feedback.Window} {
				k := newKeeper(t, both(1, ipB, 500), receiver(2, ipC))
				k.group.Policy.Ack = 1
				k.begin()
				k.message(ipA)
				if source == ipB {
					k.posts(ipB, 1)
					k.turnBegins()
					k.gets(ipB, 1)
				}
				request := write(k.members[host].sends.Add(ahead), nil)
				request.src, request.bth.Opcode, request.reth = host, roce.OpWriteMiddle, nil
				for range 2 {
					say(t, k.Net, request)
					k.Ports[portOf[host]].Take() // a question is answered
					k.now += feedback.Tick(time.Second)
				}
				if turn, ok := k.Switch.NextTurn(k.group.ID); ok {
					t.Errorf("%v, while %v is the source: control is to store %+v", host, source, turn)
				}
				k.message(source)
			}
		}
	}
}

// The box above has gone on without this one, where d lacks something, and control cannot store c's
// turn at first. The box above has not ended because of that: it gets what c sends.
func TestATurnOfABoxThatWasLeftBehindIsStoredLater(t *testing.T) {
	b := newBranch(t, mft.BoxAbove, feedback.Policy{})
	b.posts()
	var request decoded
	for n := 0; request.PSN.Sub(psnLower) < 3*feedback.Window; n++ {
		if n > 100 {
			t.Fatalf("the box above hears no request of a box that lacks something; counters %v", moved(b.net.Switch))
		}
		b.cSends()
		b.now += feedback.Tick(10 * time.Millisecond)
		b.net.Poll()
		for _, f := range b.net.Ports[linkDown].Take() {
			request = decode(t, f)
		}
	}
	yield := ack(ipUpper, request.PSN, roce.SyndromeUnlimited)
	yield.dst, yield.bth.DestQPN, yield.aeth.MSN = ipLower, qpnLower, psnUpper
	sayAt(t, b.net, linkDown, yield)
	for _, stored := range []bool{false, true} {
		b.cSends()
		if !b.waits() {
			t.Fatalf("c has no turn; counters %v", moved(b.net.Switch))
		}
		b.net.Ports[linkDown].Take()
		b.net.Switch.BeginTurn(b.group.ID, stored)
	}
	b.cSends()
	if out := b.net.Ports[linkDown].Take(); len(out) == 0 || decode(t, out[0]).PSN != psnLower {
		t.Errorf("the box above gets %d packets of c; counters %v", len(out), moved(b.net.Switch))
	}
}

// A box below waits for its turn, and crashes: now it lacks something, which it says with its next
// request. Its turn begins when it had its time to settle that, and it hears that it is behind.
func TestABoxThatWaitsAndThenLacksSomething(t *testing.T) {
	b := newBranch(t, mft.BoxBelow, feedback.Policy{Ack: 1, OnFatal: feedback.FatalEvict, Repair: feedback.RepairLocal})
	c := b.group.Paths[b.group.FindPath(ipC, groupQPN)]
	b.group.Source = mft.Source{Leg: c.Leg, RemoteQPN: groupQPN, FirstPSN: c.SendPSN}
	b.net = porttest.NewRetaining(5, porttest.RepairChunks, nil, func() feedback.Tick { return b.now })
	if _, err := b.net.Switch.Add(b.group); err != nil {
		t.Fatal(err)
	}
	b.cSends()
	say(t, b.net, ack(ipD, heard(t, b.net, ipD, roce.OpWriteOnly), roce.SyndromeUnlimited))
	link := ack(ipUpper, decode(t, b.net.Ports[linkDown].Take()[0]).PSN, roce.SyndromeUnlimited)
	link.dst, link.bth.DestQPN = ipLower, qpnLower
	sayAt(t, b.net, linkDown, link)
	const number = 8191
	requests := func(ahead int32) {
		r := b.says(roce.PSN(psnUpper).Add(ahead))
		r.bth.Opcode, r.reth, r.payload = roce.OpWriteMiddle, nil, nil
		sayAt(t, b.net, linkDown, r)
	}
	requests(2*feedback.Window + 7*number)
	requests(3*feedback.Window + 7*number)
	if b.waits() {
		t.Fatal("its turn begins at once, and it lacks something")
	}
	for range 25 {
		b.later(1)
		requests(3*feedback.Window + 8*number)
	}
	if !b.waits() {
		t.Fatalf("its turn does not begin; counters %v", moved(b.net.Switch))
	}
	b.net.Ports[linkDown].Take()
	b.net.Switch.BeginTurn(b.group.ID, true)
	out := b.net.Ports[linkDown].Take()
	if len(out) != 1 || decode(t, out[0]).PSN != roce.PSN(psnUpper).Add(3*feedback.Window+8*number) {
		t.Errorf("the answer to the newest request does not say that the box below is behind; there are %d packets", len(out))
	}
}

// crashesInTheTurn lets the box crash, and restart with the turn that runs.
func (b *branch) crashesInTheTurn(t *testing.T) {
	t.Helper()
	turn, ok := b.net.Switch.RunningTurn(b.group.ID)
	if !ok {
		t.Fatal("there is no turn to store")
	}
	b.crash(&turn)
}

// goesOnBehindACrash lets the other box send its newest packet again, and both receivers answer.
func (b *branch) goesOnBehindACrash(t *testing.T) {
	t.Helper()
	sayAt(t, b.net, linkDown, b.sent)
	for _, ip := range []netip.Addr{ipC, ipD} {
		say(t, b.net, ack(ip, heard(t, b.net, ip, roce.OpWriteOnly), roce.SyndromeUnlimited))
	}
}

// The answer to a request for the turn is late: the other box has taken the turn back since, with
// or without sending anything. Nobody takes that answer for one to the next request: both boxes
// would be the source of the other one's receivers. Nor does a box that has crashed since.
func TestALateAnswerToARequestForTheTurn(t *testing.T) {
	for name, since := range map[string]func(*branch){
		"sent":    (*branch).sends,
		"nothing": func(*branch) {},
		"crash": func(b *branch) {
			before := b.now
			b.now = feedback.Tick(time.Second) // a clock that begins with the Switch
			b.crashesInTheTurn(t)
			dataplane.SetAhead(b.net.Switch.Workers()[0], before-b.now)
			b.goesOnBehindACrash(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBranch(t, mft.BoxBelow, feedback.Policy{})
			b.now = feedback.Tick(time.Second)
			b.sends()
			late := b.answer()
			b.later(101) // c's packet is too old now
			back := b.says(b.sent.bth.PSN.Next().Add(2 * feedback.Window))
			back.bth.Opcode, back.reth, back.payload = roce.OpWriteMiddle, nil, nil
			sayAt(t, b.net, linkDown, back)
			since(b)
			now := b.answer()
			sayAt(t, b.net, linkDown, late)
			if b.waits() {
				t.Error("the late answer counts")
			}
			now.aeth.MSN++
			sayAt(t, b.net, linkDown, now)
			if b.waits() {
				t.Error("an answer counts by which the other box would send another packet next")
			}
			now.aeth.MSN--
			sayAt(t, b.net, linkDown, now)
			if !b.waits() {
				t.Errorf("the answer does not count; counters %v", moved(b.net.Switch))
			}
		})
	}
}

// The numbers of requests go on over a restart, although the clock of the Switch begins again.
func TestTheClockOfRequestsGoesOn(t *testing.T) {
	for _, w := range porttest.NewWorkers(1, 2).Switch.Workers() {
		now := uint32(time.Now().UnixNano() / int64(feedback.AskPeriod))
		if late := now - dataplane.Ahead(w); late > uint32(feedback.Tick(time.Minute)/feedback.AskPeriod) {
			t.Errorf("it is behind by %d", late)
		}
	}
}

// answer lets c wait for its turn until it is requested of the other box. The result is its answer.
func (b *branch) answer() packet {
	b.net.Ports[linkDown].Take()
	b.cSends()
	b.now += feedback.Tick(10 * time.Millisecond)
	b.net.Poll()
	for _, f := range b.net.Ports[linkDown].Take() {
		if d := decode(b.t, f); d.Opcode == roce.OpWriteMiddle {
			yield := ack(ipUpper, d.PSN, roce.SyndromeUnlimited)
			yield.dst, yield.bth.DestQPN, yield.aeth.MSN = ipLower, qpnLower, roce.MSN(b.sent.bth.PSN.Next())
			return yield
		}
	}
	b.t.Fatalf("the turn is not requested; counters %v", moved(b.net.Switch))
	return packet{}
}

// Another box requests the turn. Where the two do not agree which packet it sends next, this one
// does not yield: it would drop what the other one sends.
func TestARequestForTheTurnNamesTheNextPacket(t *testing.T) {
	b := newBranch(t, mft.BoxBelow, feedback.Policy{})
	c := b.group.Paths[b.group.FindPath(ipC, groupQPN)]
	b.group.Source = mft.Source{Leg: c.Leg, RemoteQPN: groupQPN, FirstPSN: c.SendPSN}
	b.begin()
	for _, ahead := range []int32{1, -1, 1 << 12, 1 << 13, 1 << 14, -1 << 13, 0} { // the last messages may be of 8 MiB
		for _, number := range []int32{0, 1, 255} {
			r := b.says(roce.PSN(psnUpper).Add(2*feedback.Window + number*8191 + ahead))
			r.bth.Opcode, r.reth, r.payload = roce.OpWriteMiddle, nil, nil
			sayAt(t, b.net, linkDown, r)
			if got := b.waits(); got != (ahead == 0) {
				t.Errorf("request %d of packet %d, where packet 0 is next: it waits for its turn: %v", number, ahead, got)
			}
		}
	}
}
