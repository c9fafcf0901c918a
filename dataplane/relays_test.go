package dataplane_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// The QPNs by which the two boxes name c and d to each other, and the generation of the shared leg
// between them.
const qpnOfC, qpnOfD, qpnOfBoth = 603, 604, 610

// relayPair is two boxes of which the lower one only passes on: source a and receiver b are at the
// upper box, c and d at the lower one. The upper box has a path for each of them.
type relayPair struct {
	*pair
	now     feedback.Tick
	up, low *mft.Group
}

func newRelayPair(t *testing.T, edit func(upper, lower *mft.Group)) *relayPair {
	p := &relayPair{up: group(), low: group()}
	p.up.Policy = feedback.Policy{Ack: 2, Repair: feedback.RepairLocal, RepairWindow: 64}
	ends := map[netip.Addr]roce.QPN{ipC: qpnOfC, ipD: qpnOfD}
	var members []mft.QP
	for i := range p.up.Paths {
		if at := &p.up.Paths[i]; ends[at.Dst] != 0 {
			qpn := ends[at.Dst]
			own := leg(linkUp, ipLower, qpn)
			own.Src = ipUpper
			at.Leg, at.RemoteQPN = own, qpn
			members = append(members, at.QP())
		}
	}
	p.up.Shares = []mft.Share{p.up.Paths[1].Shared(ipLower, qpnOfBoth, members)}
	above := leg(linkDown, ipUpper, qpnUpper)
	above.Src = ipLower
	p.low.Source = mft.Source{Leg: above, RemoteQPN: qpnLower, FirstPSN: firstPSN}
	p.low.Paths = p.low.Paths[1:]
	p.low.Relay = &mft.Relay{Shared: qpnOfBoth}
	for i := range p.low.Paths {
		at := &p.low.Paths[i]
		p.low.Relay.Ends = append(p.low.Relay.Ends, mft.RelayEnd{
			QP: at.QP(), QPN: ends[at.Dst], Mapped: true, AddPSN: uint32(at.FirstPSN-firstPSN) & 0xFFFFFF,
		})
	}
	if edit != nil {
		edit(p.up, p.low)
	}
	p.pair = &pair{porttest.NewRetaining(5, 64, nil, func() feedback.Tick { return p.now }), porttest.New(5)}
	for net, g := range map[*porttest.Net]*mft.Group{p.upper: p.up, p.lower: p.low} {
		if _, err := net.Switch.Add(g); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// got returns what a host was sent.
func got(t *testing.T, net *porttest.Net, host netip.Addr) (list []decoded) {
	t.Helper()
	for _, f := range net.Ports[portOf[host]].Take() {
		list = append(list, decode(t, f))
	}
	return list
}

// says lets a receiver of the lower box answer with a PSN of the source, and carries that up.
func (p *relayPair) says(t *testing.T, host netip.Addr, psn roce.PSN, s roce.Syndrome) {
	t.Helper()
	say(t, p.lower, ack(host, psn-firstPSN+roce.PSN(0xFFFFF0+uint32(host.As4()[3])), s))
	p.cross(t)
}

// A new packet crosses the link once. Each receiver behind it gets what its QP expects, and the
// upper box hears each by itself, so a quorum is one of receivers.
func TestQuorumOverALink(t *testing.T) {
	p := newRelayPair(t, nil)
	say(t, p.upper, write(firstPSN, []byte("over the link")))
	down, _ := p.cross(t)
	if len(down) != 1 || down[0].QPN != qpnOfBoth || down[0].PSN != firstPSN || down[0].VA != memoryVA+64 || down[0].HopLimit != 63 || !down[0].ICRCValid {
		t.Fatalf("on the link: %+v", down)
	}
	for _, host := range []netip.Addr{ipC, ipD} {
		n := uint32(host.As4()[3])
		list := got(t, p.lower, host)
		if len(list) != 1 {
			t.Fatalf("%v got %d frames; %v", host, len(list), moved(p.lower.Switch))
		}
		if d := list[0]; d.Src != ipGroup || d.Dst != host || d.QPN != roce.QPN(16+n) || d.PSN != roce.PSN(0xFFFFF0+n) || d.VA != uint64(n)<<32+64 ||
			d.RKey != 0x1000+n || d.HopLimit != 62 || d.Payload != "over the link" || !d.ICRCValid || !d.ChecksumValid {
			t.Errorf("%v got %+v", host, d)
		}
	}
	p.says(t, ipC, firstPSN, roce.SyndromeUnlimited)
	if out := got(t, p.upper, ipA); len(out) != 0 {
		t.Fatalf("the source heard %+v of one receiver", out)
	}
	p.says(t, ipD, firstPSN, roce.SyndromeUnlimited) // b has not answered
	if psn := heard(t, p.upper, ipA, roce.OpAck); psn != firstPSN {
		t.Errorf("the source heard ACK %d", psn)
	}
}

// One receiver behind the link refuses, or asks for a packet again. That is its own affair: the
// others are the quorum, and repair is for it alone.
func TestOneOfSeveralBehindALink(t *testing.T) {
	p := newRelayPair(t, nil)
	for k := range roce.PSN(3) {
		say(t, p.upper, write(firstPSN+k, []byte("w")))
	}
	p.cross(t)
	got(t, p.lower, ipC)
	got(t, p.lower, ipD)
	got(t, p.upper, ipB)
	say(t, p.upper, ack(ipB, 0xFFFFF2+2, roce.SyndromeUnlimited))
	p.says(t, ipC, firstPSN+2, roce.SyndromeUnlimited)
	if psn := heard(t, p.upper, ipA, roce.OpAck); psn != firstPSN+2 {
		t.Fatalf("the source heard ACK %d", psn)
	}
	p.says(t, ipD, firstPSN+1, roce.NAKSequence)
	if list := got(t, p.lower, ipC); len(list) != 0 {
		t.Errorf("c got %+v, which d had asked for", list)
	}
	list := got(t, p.lower, ipD)
	if len(list) != 2 || list[0].PSN != 0xFFFFF4+1 || list[0].VA != 4<<32+64 || list[0].RKey != 0x1004 || !list[0].ICRCValid {
		t.Fatalf("d got %+v", list)
	}
	p.says(t, ipD, firstPSN+2, roce.NAKRemoteAccess)
	say(t, p.upper, write(firstPSN+3, []byte("w")))
	p.cross(t)
	say(t, p.upper, ack(ipB, 0xFFFFF2+3, roce.SyndromeUnlimited))
	p.says(t, ipC, firstPSN+3, roce.SyndromeUnlimited)
	if psn := heard(t, p.upper, ipA, roce.OpAck); psn != firstPSN+3 {
		t.Errorf("the source heard ACK %d", psn)
	}
}

// A congestion notification, an RNR NAK and the question whether a receiver has what it was sent
// pass as they are. A lower box that has restarted goes on in mid-stream.
func TestLowerBoxKnowsNothing(t *testing.T) {
	p := newRelayPair(t, nil)
	say(t, p.upper, write(firstPSN, []byte("w")))
	p.cross(t)
	p.lower = porttest.New(5)
	low := *p.low
	if _, err := p.lower.Switch.Add(&low); err != nil {
		t.Fatal(err)
	}
	say(t, p.lower, cnp(ipC))
	if _, up := p.cross(t); len(up) != 1 || up[0].Opcode != roce.OpCNP || up[0].QPN != qpnOfC || up[0].Src != ipLower || up[0].HopLimit != 63 || !up[0].ICRCValid {
		t.Fatalf("up the link: %+v", up)
	}
	heard(t, p.upper, ipA, roce.OpCNP)
	say(t, p.lower, ack(ipD, 0xFFFFF4, roce.SyndromeRNR(1)))
	if _, up := p.cross(t); len(up) != 1 || up[0].Syndrome != roce.SyndromeRNR(1) || up[0].QPN != qpnOfD || up[0].PSN != 0xFFFFF4 || up[0].MSN != 1 {
		t.Fatalf("up the link: %+v", up)
	}
	p.says(t, ipC, firstPSN, roce.SyndromeUnlimited)
	say(t, p.upper, ack(ipB, 0xFFFFF2, roce.SyndromeUnlimited))
	if psn := heard(t, p.upper, ipA, roce.OpAck); psn != firstPSN {
		t.Errorf("the source heard ACK %d", psn)
	}
}

// Receivers behind the lower box that share a leg there get a copy of the box above by that leg.
func TestACopyOfTheBoxAboveIsSharedFurtherOn(t *testing.T) {
	p := newRelayPair(t, func(_, lower *mft.Group) {
		lower.Paths[1].Port = lower.Paths[0].Port
		lower.Shares = []mft.Share{lower.Paths[0].Shared(ipAll, generation, []mft.QP{lower.Paths[0].QP(), lower.Paths[1].QP()})}
	})
	say(t, p.upper, write(firstPSN, []byte("over the link")))
	p.cross(t)
	if list := got(t, p.lower, ipC); len(list) != 1 || list[0].Dst != ipAll || list[0].QPN != generation || list[0].PSN != firstPSN || !list[0].ICRCValid {
		t.Errorf("%+v", list)
	}
}

// What is none of the link's, and what no mapping is for, goes no further.
func TestStrangersToARelay(t *testing.T) {
	p := newRelayPair(t, func(_, lower *mft.Group) { lower.Relay.Ends[1].Mapped = false })
	down := func(src netip.Addr, qpn roce.QPN, edit func(*packet)) packet {
		w := write(firstPSN, []byte("w"))
		w.src, w.dst, w.bth.DestQPN = src, ipLower, qpn
		if edit != nil {
			edit(&w)
		}
		return w
	}
	for _, tt := range []struct {
		name, counter string
		port          int
		p             packet
	}{
		{"another host as the box above", "not-member", linkDown, down(ipB, qpnOfBoth, nil)},
		{"by another port", "wrong-port", 4, down(ipUpper, qpnOfBoth, nil)},
		{"the QPN of the link, which nobody uses", "wrong-qpn", linkDown, down(ipUpper, qpnLower, nil)},
		{"memory that the group does not have", "refused-memory", linkDown, down(ipUpper, qpnOfBoth, func(w *packet) { w.reth.VA = 1 })},
		{"in a VLAN", "wrong-vlan", linkDown, down(ipUpper, qpnOfC, func(w *packet) { w.tags = []uint16{7} })},
		{"more hops than allowed", "hop-limit-exceeded", linkDown, down(ipUpper, qpnOfC, func(w *packet) { w.hopLimit = 1 })},
		{"too long", "over-mtu", linkDown, down(ipUpper, qpnOfC, func(w *packet) { w.payload = make([]byte, 1500) })},
		{"a receiver to another's QPN", "wrong-qpn", 2, func() packet {
			a := ack(ipC, 1, roce.SyndromeUnlimited)
			a.dst, a.bth.DestQPN = ipLower, qpnOfC
			return a
		}()},
		{"a receiver to the link", "wrong-destination", 2, func() packet { a := ack(ipC, 1, roce.SyndromeUnlimited); a.dst = ipLower; return a }()},
	} {
		before := moved(p.lower.Switch)[tt.counter]
		sayAt(t, p.lower, tt.port, tt.p)
		for i := range p.lower.Ports {
			if out := p.lower.Ports[i].Take(); len(out) > 0 {
				t.Errorf("%s: port %d sent %+v", tt.name, i, decode(t, out[0]))
			}
		}
		if tt.name != "a receiver to the link" && moved(p.lower.Switch)[tt.counter] != before+1 {
			t.Errorf("%s: %v", tt.name, moved(p.lower.Switch))
		}
	}
	sayAt(t, p.lower, linkDown, down(ipUpper, qpnOfBoth, nil))
	if c, d := got(t, p.lower, ipC), got(t, p.lower, ipD); len(c) != 1 || len(d) != 0 {
		t.Errorf("of a copy that is mapped for c alone, c got %d and d %d", len(c), len(d))
	}
}

// Each receiver has one QPN at the link to the box above, and no other has the same.
func TestARelayWithWrongEnds(t *testing.T) {
	for name, edit := range map[string]func(*mft.Relay){
		"two QPNs of one receiver": func(r *mft.Relay) { r.Ends = append(r.Ends, mft.RelayEnd{QP: r.Ends[0].QP, QPN: 99}) },
		"one QPN of two":           func(r *mft.Relay) { r.Ends[1].QPN = r.Ends[0].QPN },
		"a receiver without one":   func(r *mft.Relay) { r.Ends = r.Ends[:1] },
		"the QPN of shared copies": func(r *mft.Relay) { r.Ends[1].QPN = r.Shared },
	} {
		g := *newRelayPair(t, nil).low
		g.Relay = &mft.Relay{Shared: g.Relay.Shared, Ends: slices.Clone(g.Relay.Ends)}
		edit(g.Relay)
		if _, err := porttest.New(5).Switch.Add(&g); err == nil {
			t.Errorf("%s: it was not refused", name)
		}
	}
}
