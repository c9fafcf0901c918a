package dataplane_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// The two ends of a link: the upper box is at ipUpper with QPN 500, the lower box at ipLower with
// QPN 501.
var (
	ipUpper = netip.MustParseAddr("10.77.0.51")
	ipLower = netip.MustParseAddr("10.77.0.52")
)

const (
	qpnUpper, qpnLower = 500, 501
	psnUpper, psnLower = 0xFFFFFE, 5000 // the first PSNs that the ends send
	linkUp, linkDown   = 4, 0           // ports: of the upper box, and of the lower box
)

// pair is two boxes in a row: source a and receiver b at the upper box, receivers c and d at the
// lower box. To the upper box the lower one is a receiver, to the lower box the upper one is the
// source.
type pair struct{ upper, lower *porttest.Net }

// linkTo is the end of a link: the path to the box at peer, whose receivers keep the memory where
// the group has it.
func linkTo(port mft.PortID, peer, own netip.Addr, peerQPN, ownQPN roce.QPN, expects, sends roce.PSN) mft.Path {
	l := leg(port, peer, peerQPN)
	l.Src = own
	return mft.Path{
		Leg: l, RemoteQPN: ownQPN, FirstPSN: expects, Sends: true, SendPSN: sends,
		Regions: memory.At(func(v mft.VirtualRegion) mft.Region { return mft.Region(v) }),
	}
}

// newPair has links whose both ends may send, and members that may send too.
func newPair(t *testing.T, edit func(upper, lower *mft.Group)) *pair {
	upper, lower := group(), group()
	a, b, c := both(0, ipA, firstPSN), both(1, ipB, 100), both(2, ipC, 200)
	a.DestQPN = 17
	down := linkTo(linkUp, ipLower, ipUpper, qpnLower, qpnUpper, psnUpper, psnLower)
	down.Box = mft.BoxBelow
	upper.Paths = []mft.Path{a, b, down}
	up := linkTo(linkDown, ipUpper, ipLower, qpnUpper, qpnLower, psnLower, psnUpper)
	up.Box = mft.BoxAbove
	lower.Paths = []mft.Path{up, c, receiver(3, ipD)}
	lower.Source = mft.Source{Leg: up.Leg, RemoteQPN: qpnLower, FirstPSN: psnUpper}
	if edit != nil {
		edit(upper, lower)
	}
	p := &pair{porttest.New(5), porttest.New(5)}
	for net, g := range map[*porttest.Net]*mft.Group{p.upper: upper, p.lower: lower} {
		if _, err := net.Switch.Add(g); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// cross carries what is on the link, and returns what went down and up, without what boxes say
// about turns.
func (p *pair) cross(t *testing.T) (down, up []decoded) {
	t.Helper()
	for moved := true; moved; {
		moved = false
		for _, f := range p.upper.Ports[linkUp].Take() {
			moved = true
			if d := decode(t, f); !aboutTurns(d) {
				down = append(down, d)
			}
			p.lower.Ports[linkDown].Put(f)
		}
		p.lower.Poll()
		for _, f := range p.lower.Ports[linkDown].Take() {
			moved = true
			if d := decode(t, f); !aboutTurns(d) {
				up = append(up, d)
			}
			p.upper.Ports[linkUp].Put(f)
		}
		p.upper.Poll()
	}
	return down, up
}

// aboutTurns reports whether a frame on the link has a PSN that no packet has.
func aboutTurns(d decoded) bool {
	return d.PSN.Sub(psnUpper) > feedback.Window && d.PSN.Sub(psnLower) > feedback.Window
}

// sayAt is say for a host that is behind another port than its own.
func sayAt(t *testing.T, net *porttest.Net, port int, p packet) {
	t.Helper()
	net.Ports[port].Put(p.frame(t))
	net.Poll()
}

// A packet crosses the link once, with the link's addresses, QPN and PSN and the group's own
// memory. The lower box's merged ACK crosses it once, and the source hears one ACK of everyone.
func TestTwoBoxesInARow(t *testing.T) {
	p := newPair(t, nil)
	say(t, p.upper, write(firstPSN, []byte("over the link")))
	if psn := heard(t, p.upper, ipB, roce.OpWriteOnly); psn != 0xFFFFF0+2 {
		t.Errorf("b got PSN %d", psn)
	}
	say(t, p.upper, ack(ipB, 0xFFFFF0+2, roce.SyndromeUnlimited))
	silent(t, &porttest.Net{Ports: p.upper.Ports[:linkUp]}) // the lower box's receivers have nothing yet
	down, up := p.cross(t)
	if len(down) != 1 || len(up) != 0 {
		t.Fatalf("%d frames down the link, %d up; counters of the lower box %v", len(down), len(up), moved(p.lower.Switch))
	}
	d := down[0]
	if d.Src != ipUpper || d.Dst != ipLower || d.QPN != qpnLower || d.PSN != psnUpper || d.VA != memoryVA+64 ||
		d.RKey != memoryKey || d.HopLimit != 63 || !d.ICRCValid || !d.ChecksumValid {
		t.Errorf("on the link: %+v", d)
	}
	for _, host := range []netip.Addr{ipC, ipD} {
		n := uint32(host.As4()[3])
		out := p.lower.Ports[portOf[host]].Take()
		if len(out) != 1 {
			t.Fatalf("%v got %d frames", host, len(out))
		}
		d := decode(t, out[0])
		if d.Src != ipGroup || d.Dst != host || d.PSN != roce.PSN(0xFFFFF0+n) || d.VA != uint64(n)<<32+64 || d.RKey != 0x1000+n ||
			d.HopLimit != 62 || d.Payload != "over the link" || !d.ICRCValid {
			t.Errorf("%v got %+v", host, d)
		}
		say(t, p.lower, ack(host, roce.PSN(0xFFFFF0+n), roce.SyndromeUnlimited))
	}
	down, up = p.cross(t)
	if len(down) != 0 || len(up) != 1 {
		t.Fatalf("%d frames down the link, %d up", len(down), len(up))
	}
	if u := up[0]; u.Src != ipLower || u.Dst != ipUpper || u.QPN != qpnUpper || u.PSN != psnUpper || u.Opcode != roce.OpAck || u.HopLimit != 64 {
		t.Errorf("on the link: %+v", u)
	}
	if psn := heard(t, p.upper, ipA, roce.OpAck); psn != firstPSN {
		t.Errorf("the source heard ACK %d", psn)
	}
}

// A frame is taken only if it comes from the other end of the link and has the address and the QPN
// of this end.
func TestWhatALinkRefuses(t *testing.T) {
	down := write(psnUpper, nil) // as the upper box sends it
	down.src, down.dst, down.bth.DestQPN = ipUpper, ipLower, qpnLower
	up := ack(ipLower, psnUpper, roce.SyndromeUnlimited) // as the lower box answers
	up.dst, up.bth.DestQPN = ipUpper, qpnUpper
	for _, tt := range []struct {
		name   string
		atUp   bool // else at the lower box
		port   int
		packet packet
		want   string
	}{
		{"data of the upper box", false, linkDown, down, "forwarded"},
		{"data to the group's IP", false, linkDown, with(down, func(p *packet) { p.dst, p.bth.DestQPN = ipGroup, groupQPN }), "wrong-qpn"},
		{"data to the group's QPN", false, linkDown, with(down, func(p *packet) { p.bth.DestQPN = groupQPN }), "kernel"},
		{"data to the link's QPN at the group's IP", false, linkDown, with(down, func(p *packet) { p.dst = ipGroup }), "unknown-qpn"},
		{"data of the source itself", false, linkDown, with(down, func(p *packet) { p.src = ipA }), "not-member"},
		{"data of a host that may send", false, 2, with(down, func(p *packet) { p.src = ipC }), "wrong-qpn"},
		{"data of the upper box by another port", false, 1, down, "wrong-port"},
		{"data in the lower box's own name", false, linkDown, with(down, func(p *packet) { p.src, p.dst, p.bth.DestQPN = ipLower, ipC, 19 }), "own source"},
		{"an answer of the lower box", true, linkUp, up, "beyond-sent"}, // nothing was sent
		{"an answer to the group's IP", true, linkUp, with(up, func(p *packet) { p.dst, p.bth.DestQPN = ipGroup, groupQPN }), "wrong-qpn"},
		{"an answer of a receiver behind it", true, linkUp, with(up, func(p *packet) { p.src = ipC }), "not-receiver"},
		{"an answer of another receiver", true, 1, with(up, func(p *packet) { p.src = ipB }), "wrong-qpn"},
		{"an answer by another port", true, 3, up, "wrong-port"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPair(t, nil)
			net := p.lower
			if tt.atUp {
				net = p.upper
			}
			sayAt(t, net, tt.port, tt.packet)
			countedAs(t, net, tt.want)
		})
	}
}

// Where equal-cost routes lead through several ports of a box, each box chooses one for itself. So
// the other box is heard at all of them, and hosts are not.
func TestALinkOverSeveralPorts(t *testing.T) {
	spread := func(g *mft.Group, box netip.Addr, ports ...mft.PortID) {
		for _, p := range ports {
			g.Uplinks = g.Uplinks.With(p)
		}
		for _, l := range g.Legs() {
			l.Multipath = l.Dst == box
		}
	}
	down := write(psnUpper, nil)
	down.src, down.dst, down.bth.DestQPN = ipUpper, ipLower, qpnLower
	up := ack(ipLower, psnUpper, roce.SyndromeUnlimited)
	up.dst, up.bth.DestQPN = ipUpper, qpnUpper
	for _, tt := range []struct {
		name   string
		atUp   bool
		port   int
		packet packet
		want   string
	}{
		{"data by the other uplink", false, 1, down, "forwarded"},
		{"data by the chosen uplink", false, linkDown, down, "forwarded"},
		{"data by a port of hosts", false, 3, down, "wrong-port"},
		{"an answer by the other uplink", true, 3, up, "beyond-sent"},
		{"an answer by the chosen uplink", true, linkUp, up, "beyond-sent"},
		{"an answer by a port of hosts", true, 2, up, "wrong-port"},
		{"an answer of a host by an uplink", true, 3, ack(ipB, 100, roce.SyndromeUnlimited), "wrong-port"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPair(t, func(upper, lower *mft.Group) {
				spread(upper, ipLower, linkUp, 3)
				spread(lower, ipUpper, linkDown, 1)
			})
			net := p.lower
			if tt.atUp {
				net = p.upper
			}
			sayAt(t, net, tt.port, tt.packet)
			if diff := cmp.Diff(map[string]uint64{tt.want: 1}, moved(net.Switch)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A receiver has one peer: an answer that reaches the link's QPN by the group's IP is refused, even
// where the link and the group have one QPN.
func TestAnAnswerToAnotherPeerIsRefused(t *testing.T) {
	p := newPair(t, func(upper, _ *mft.Group) { upper.Paths[2].RemoteQPN = groupQPN })
	say(t, p.upper, write(firstPSN, nil))
	a := ack(ipLower, psnUpper, roce.SyndromeUnlimited)
	sayAt(t, p.upper, linkUp, a) // to the group's IP
	if n := moved(p.upper.Switch)["wrong-destination"]; n != 1 {
		t.Errorf("counters %v", moved(p.upper.Switch))
	}
	d := write(psnLower, nil)
	d.src = ipLower
	sayAt(t, p.upper, linkUp, d)
	if n := moved(p.upper.Switch)["wrong-destination"]; n != 2 {
		t.Errorf("counters %v", moved(p.upper.Switch))
	}
}

// The source switches hop by hop: to a member of the lower box, to one of the upper box, and back.
// Each time every packet crosses the link once, in the other end's PSNs.
func TestSourceSwitchOverALink(t *testing.T) {
	p := newPair(t, nil)
	next := map[netip.Addr]roce.PSN{ipA: firstPSN, ipB: 100, ipC: 200} // what each sends
	expects := map[netip.Addr]roce.PSN{}
	for _, host := range []netip.Addr{ipA, ipB, ipC, ipD} {
		expects[host] = roce.PSN(0xFFFFF0 + uint32(host.As4()[3]))
	}
	at := map[netip.Addr]*porttest.Net{ipA: p.upper, ipB: p.upper, ipC: p.lower, ipD: p.lower}
	linkPSN := map[netip.Addr]roce.PSN{ipUpper: psnUpper, ipLower: psnLower} // what each end sends
	for _, from := range []netip.Addr{ipA, ipC, ipC, ipB, ipA, ipC, ipA} {
		m := write(next[from], []byte("by turns"))
		m.src = from
		say(t, at[from], m)
		down, up := p.cross(t)
		end, data := ipUpper, down
		if at[from] == p.lower {
			end, data = ipLower, up
		}
		if len(down)+len(up) != 1 || len(data) != 1 || data[0].Src != end || data[0].PSN != linkPSN[end] {
			t.Fatalf("%v sends: %+v down, %+v up the link", from, down, up)
		}
		linkPSN[end] = linkPSN[end].Next()
		for _, host := range []netip.Addr{ipA, ipB, ipC, ipD} {
			if host == from {
				continue
			}
			if psn := heard(t, at[host], host, roce.OpWriteOnly); psn != expects[host] {
				t.Fatalf("%v sends: %v got PSN %d, its QP expects %d", from, host, psn, expects[host])
			}
			say(t, at[host], ack(host, expects[host], roce.SyndromeUnlimited))
			expects[host] = expects[host].Next()
		}
		if down, up := p.cross(t); len(down)+len(up) != 1 {
			t.Fatalf("%v sends: %d answers down the link, %d up", from, len(down), len(up))
		}
		if psn := heard(t, at[from], from, roce.OpAck); psn != next[from] {
			t.Fatalf("%v heard ACK %d of its packet %d", from, psn, next[from])
		}
		next[from] = next[from].Next()
	}
}

// The member that became the source is named by its own remote QPN.
func TestTheNoteOfASourceThatIsABox(t *testing.T) {
	p := newPair(t, nil)
	say(t, p.lower, with(write(200, nil), func(p *packet) { p.src = ipC }))
	p.cross(t)
	for net, want := range map[*porttest.Net]roce.QPN{p.upper: qpnUpper, p.lower: groupQPN} {
		select {
		case n := <-net.Switch.Notes():
			if n.What != feedback.NoteSource || n.RemoteQPN != want {
				t.Errorf("%+v, want one of the member with remote QPN %d", n, want)
			}
		default:
			t.Error("no note")
		}
	}
}

// A quorum counts a link as the receivers behind it. The number may change while the group runs.
func TestAQuorumCountsALinkAsItsReceivers(t *testing.T) {
	var upper *mft.Group
	p := newPair(t, func(u, _ *mft.Group) {
		u.Policy.Ack, u.Paths[2].Receivers = 3, 2
		upper = u
	})
	fromLink := func(psn roce.PSN) {
		t.Helper()
		up := ack(ipLower, psn, roce.SyndromeUnlimited)
		up.dst, up.bth.DestQPN = ipUpper, qpnUpper
		sayAt(t, p.upper, linkUp, up)
	}
	say(t, p.upper, write(firstPSN, nil))
	fromLink(psnUpper) // two of three
	if out := p.upper.Ports[0].Take(); len(out) != 0 {
		t.Fatalf("the source heard %+v", decode(t, out[0]))
	}
	say(t, p.upper, ack(ipB, 0xFFFFF0+2, roce.SyndromeUnlimited))
	if psn := heard(t, p.upper, ipA, roce.OpAck); psn != firstPSN {
		t.Errorf("the source heard ACK %d", psn)
	}
	fewer := *upper
	fewer.Paths = append([]mft.Path(nil), upper.Paths...)
	fewer.Paths[fewer.FindPath(ipLower, qpnUpper)].Receivers = 1
	if err := p.upper.Switch.Replace(upper.ID, &fewer); err != nil {
		t.Fatal(err)
	}
	say(t, p.upper, write(firstPSN+1, nil))
	if out := p.upper.Ports[0].Take(); len(out) != 1 || decode(t, out[0]).Syndrome != roce.NAKRemoteOperational {
		t.Errorf("two receivers are left of a quorum of three, and the source heard %d frames", len(out))
	}
}

// The engine carries the packets of the member that sends, from that member's host to its own peer:
// of the upper box first, by one uplink and then by another, and then of a host of the lower box.
func TestTheEngineCarriesOverALink(t *testing.T) {
	now := feedback.Tick(0)
	lower := group()
	c := both(2, ipC, 200)
	up := linkTo(linkDown, ipUpper, ipLower, qpnUpper, qpnLower, psnLower, psnUpper)
	lower.Paths = []mft.Path{up, c, receiver(3, ipD)}
	lower.Paths[0].Multipath, lower.Uplinks = true, mft.Ports(0).With(linkDown).With(1)
	lower.Source = mft.Source{Leg: lower.Paths[0].Leg, RemoteQPN: qpnLower, FirstPSN: psnUpper}
	net := porttest.NewFanOutAt(5, func() feedback.Tick { return now })
	if _, err := net.Switch.Add(lower); err != nil {
		t.Fatal(err)
	}
	expects := map[netip.Addr]roce.PSN{ipUpper: psnLower, ipC: 0xFFFFF0 + 3, ipD: 0xFFFFF0 + 4}
	carried := func() uint64 {
		st, _ := net.Switch.GroupState(lower.ID)
		return st.Engine.Carried
	}
	stream := func(from netip.Addr, port int, psn roce.PSN, others ...netip.Addr) {
		t.Helper()
		before, answers := carried(), portOf[from]
		if from == ipUpper {
			answers = linkDown
		}
		for range 100 {
			now += 20_000
			p := write(psn, []byte("data"))
			if p.src = from; from == ipUpper {
				p.dst, p.bth.DestQPN = ipLower, qpnLower
			}
			sayAt(t, net, port, p)
			for _, host := range others {
				at, a := portOf[host], ack(host, expects[host], roce.SyndromeUnlimited)
				if host == ipUpper {
					at, a.dst, a.bth.DestQPN = linkDown, ipLower, qpnLower
				}
				if out := net.Ports[at].Take(); len(out) != 1 || decode(t, out[0]).PSN != expects[host] {
					t.Fatalf("%v got %d frames of packet %d", host, len(out), psn)
				}
				sayAt(t, net, at, a)
				expects[host] = expects[host].Next()
			}
			net.Ports[answers].Take() // the merged ACK
			psn = psn.Next()
		}
		if n := carried() - before; n == 0 {
			st, _ := net.Switch.GroupState(lower.ID)
			t.Errorf("the engine carried none of the packets of %v: %+v", from, st.Engine)
		}
	}
	stream(ipUpper, linkDown, psnUpper, ipC, ipD)
	stream(ipUpper, 1, roce.PSN(psnUpper).Add(100), ipC, ipD)
	stream(ipC, portOf[ipC], 200, ipUpper, ipD)
}

// c sends behind the link while the upper box is away for longer than silent-after. d has
// everything, and c hears no ACK: the upper box's receivers lack it. They get it when that box is
// back. Or c joins a group where nobody might send, so that the upper box becomes a receiver.
func TestTheBoxAboveIsWaitedFor(t *testing.T) {
	for _, cJoins := range []bool{false, true} {
		t.Run(fmt.Sprint("c joins ", cJoins), func(t *testing.T) { theBoxAboveIsWaitedFor(t, cJoins) })
	}
}

func theBoxAboveIsWaitedFor(t *testing.T, cJoins bool) {
	var now feedback.Tick
	p := newPair(t, nil)
	p.lower = porttest.NewAt(5, func() feedback.Tick { return now })
	_, lower := group(), group()
	up := linkTo(linkDown, ipUpper, ipLower, qpnUpper, qpnLower, psnLower, psnUpper)
	up.Box = mft.BoxAbove
	lower.Paths = []mft.Path{up, both(2, ipC, 200), receiver(3, ipD)}
	lower.Source = mft.Source{Leg: up.Leg, RemoteQPN: qpnLower, FirstPSN: psnUpper}
	lower.Policy.Evict, lower.Policy.SilentAfter = true, 500*time.Millisecond
	first := *lower
	if cJoins {
		first.Paths = []mft.Path{receiver(3, ipD)}
	}
	id, err := p.lower.Switch.Add(&first)
	if err == nil && cJoins {
		err = p.lower.Switch.Replace(id, lower)
	}
	if err != nil {
		t.Fatal(err)
	}
	w := write(200, []byte("from c"))
	w.src = ipC
	here := func() {
		t.Helper()
		say(t, p.lower, ack(ipD, heard(t, p.lower, ipD, roce.OpWriteOnly), roce.SyndromeUnlimited))
	}
	above := func() {
		t.Helper()
		p.cross(t)
		for _, host := range []netip.Addr{ipA, ipB} {
			say(t, p.upper, ack(host, heard(t, p.upper, host, roce.OpWriteOnly), roce.SyndromeUnlimited))
		}
		p.cross(t)
		if psn := heard(t, p.lower, ipC, roce.OpAck); psn != w.bth.PSN {
			t.Errorf("c heard ACK %d of packet %d", psn, w.bth.PSN)
		}
	}
	say(t, p.lower, w)
	p.cross(t) // the upper box yields
	here()
	above()
	w.bth.PSN++
	say(t, p.lower, w)
	here()
	for range 12 {
		p.lower.Ports[linkDown].Take() // is lost
		say(t, p.lower, w)
		now += feedback.Tick(100 * time.Millisecond)
		p.lower.Poll()
	}
	silent(t, &porttest.Net{Ports: p.lower.Ports[linkDown+1:]})
	above()
}

// A box that says that nobody is left behind it is evicted where silent receivers are. A receiver
// that says NAK remote operational ends the source's queue pair, as the policy says of a fatal NAK:
// its box passes that on, and others there are well.
func TestABoxWithNobodyLeft(t *testing.T) {
	const plain, shared = 0xC000 | groupQPN&0x3FFF, 1 // the UDP source port of a box, and a bit of it
	for _, c := range []struct {
		box  mft.Box
		port uint16
		nak  roce.Syndrome
		want roce.Syndrome
	}{
		{mft.BoxBelow, plain ^ 2, roce.NAKRemoteOperational, roce.SyndromeUnlimited},
		{mft.BoxBelow, plain ^ 2 ^ shared, roce.NAKRemoteOperational, roce.SyndromeUnlimited},
		{mft.BoxBelow, plain ^ 2, roce.NAKRemoteAccess, roce.NAKRemoteAccess},
		{mft.BoxBelow, plain, roce.NAKRemoteOperational, roce.NAKRemoteOperational}, // one of an older release, too
		{mft.BoxBelow, plain ^ shared, roce.NAKRemoteOperational, roce.NAKRemoteOperational},
		{mft.NoBox, plain ^ 2, roce.NAKRemoteOperational, roce.NAKRemoteOperational},
	} {
		g := group()
		g.Policy.SilentAfter, g.Policy.Evict = 1e8, true
		g.Paths[0].Box = c.box
		net := newNet(t, g)
		say(t, net, write(firstPSN, nil))
		for i, p := range g.Paths {
			answer := ack(p.Dst, p.FirstPSN, roce.SyndromeUnlimited)
			if i == 0 {
				answer = ack(p.Dst, p.FirstPSN, c.nak)
				answer.port = c.port
			}
			say(t, net, answer)
		}
		back := net.Ports[portOf[ipA]].Take()
		if len(back) == 0 || decode(t, back[len(back)-1]).Syndrome != c.want {
			t.Errorf("%+v: the source hears %d answers, not that", c, len(back))
		}
	}
}

// Behind the lower box one receiver's NIC says NAK remote operational, and the other one is well.
// The source hears that. It does not go on without both.
func TestOneOfTwoBehindABoxEnds(t *testing.T) {
	p := newPair(t, func(upper, lower *mft.Group) {
		for _, g := range []*mft.Group{upper, lower} {
			g.Policy.SilentAfter, g.Policy.Evict = 1e8, true
		}
	})
	say(t, p.upper, write(firstPSN, nil))
	p.cross(t)
	for host, s := range map[netip.Addr]roce.Syndrome{ipC: roce.NAKRemoteOperational, ipD: roce.SyndromeUnlimited} {
		say(t, p.lower, ack(host, heard(t, p.lower, host, roce.OpWriteOnly), s))
	}
	p.cross(t)
	say(t, p.upper, ack(ipB, heard(t, p.upper, ipB, roce.OpWriteOnly), roce.SyndromeUnlimited))
	back := p.upper.Ports[portOf[ipA]].Take()
	if len(back) == 0 || decode(t, back[len(back)-1]).Syndrome != roce.NAKRemoteOperational {
		t.Errorf("the source hears %d answers, and no NAK remote operational", len(back))
	}
}
