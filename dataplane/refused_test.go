package dataplane_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// A refused frame is counted for the member that sent it, by what it is: data for the group, an
// answer for its receiver. What no member sent is counted beside the groups.
func TestARefusedFrameIsCountedForItsSender(t *testing.T) {
	const stranger = "10.77.0.9"
	data := func(edit func(p *packet)) packet { return with(write(firstPSN, nil), edit) }
	answer := func(edit func(p *packet)) packet {
		return with(ack(ipC, 0xFFFFF3, roce.SyndromeUnlimited), edit)
	}
	from := func(ip string) func(p *packet) {
		return func(p *packet) { p.src = netip.MustParseAddr(ip) }
	}
	for _, tt := range []struct {
		name   string
		port   int
		packet packet
		reason dataplane.Reason
		whose  string // "data", "c": an answer of c, "": nobody's of the group
	}{
		{"too long", 0, data(func(p *packet) { p.payload = make([]byte, 1028) }), dataplane.OverMTU, "data"},
		{"no hop left", 0, data(func(p *packet) { p.hopLimit = 1 }), dataplane.HopLimitExceeded, "data"},
		{"a tag", 0, data(func(p *packet) { p.tags = []uint16{7} }), dataplane.WrongVLAN, "data"},
		{"another port", 3, data(func(*packet) {}), dataplane.WrongPort, "data"},
		{"a receiver's data", 2, data(func(p *packet) { p.src = ipC }), dataplane.NotSource, "data"},
		{"data of the first receiver", 1, data(func(p *packet) { p.src = ipB }), dataplane.NotSource, "data"},
		{"a receiver's data by another port", 3, data(func(p *packet) { p.src = ipC }), dataplane.WrongPort, "data"},
		{"a receiver's data with a tag", 2, data(func(p *packet) { p.src, p.tags = ipC, []uint16{7} }), dataplane.WrongVLAN, "data"},
		{"a receiver's READ", 2, data(func(p *packet) { p.src, p.bth.Opcode, p.payload = ipC, roce.OpReadRequest, nil }), dataplane.NotSource, "data"},
		{"a receiver's atomic", 2, data(func(p *packet) {
			p.src, p.bth.Opcode, p.payload, p.reth = ipC, roce.OpFetchAdd, make([]byte, 28), nil // its AtomicETH
		}), dataplane.NotSource, "data"},
		{"a READ of the source", 0, data(func(p *packet) { p.bth.Opcode, p.payload = roce.OpReadRequest, nil }), dataplane.Reason(feedback.Refused), "data"},
		{"other memory", 0, data(func(p *packet) { p.reth.RKey++; p.reth.DMABytes = 4 }), dataplane.RefusedMemory, "data"},
		{"a PSN far off", 0, data(func(p *packet) { p.bth.PSN = firstPSN + 1<<22 }), dataplane.Reason(feedback.OutsideWindow), "data"},
		{"an unknown opcode", 0, data(func(p *packet) { p.bth.Opcode = 0x1F; p.reth = nil }), dataplane.UnknownOpcode, "data"},
		{"another QPN", 0, data(func(p *packet) { p.bth.DestQPN = 9 }), dataplane.UnknownQPN, ""},
		{"data of a stranger", 0, data(from(stranger)), dataplane.NotMember, ""},
		{"a READ of a stranger", 0, data(func(p *packet) { from(stranger)(p); p.bth.Opcode, p.payload = roce.OpReadRequest, nil }), dataplane.NotMember, ""},
		{"a READ response of a stranger", 2, answer(func(p *packet) { from(stranger)(p); p.bth.Opcode = roce.OpReadRespOnly }), dataplane.UnmergeableResponse, ""},
		{"an answer's tag", 2, answer(func(p *packet) { p.tags = []uint16{7} }), dataplane.WrongVLAN, "c"},
		{"an answer by another port", 3, answer(func(*packet) {}), dataplane.WrongPort, "c"},
		{"an answer beyond", 2, answer(func(p *packet) { p.bth.PSN += 9 }), dataplane.Reason(feedback.BeyondSent), "c"},
		{"an old answer", 2, answer(func(p *packet) { p.bth.PSN -= 9 }), dataplane.Reason(feedback.Stale), "c"},
		{"an answer of a stranger", 2, answer(from(stranger)), dataplane.NotReceiver, ""},
		{"a READ response", 2, answer(func(p *packet) { p.bth.Opcode = roce.OpReadRespOnly }), dataplane.UnmergeableResponse, "c"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := group()
			net := newNet(t, g)
			for range 2 {
				net.Ports[tt.port].Put(tt.packet.frame(t))
				net.Poll()
			}
			want := dataplane.Refused{Count: 2, Reason: tt.reason}
			want.Read = tt.packet.bth.Opcode == roce.OpReadRequest || tt.packet.bth.Opcode == roce.OpFetchAdd
			want.QPN, want.Port = tt.packet.bth.DestQPN, mft.PortID(tt.port)
			if tt.whose != "c" {
				want.From, want.To = tt.packet.src, ipGroup
			}
			state, _ := net.Switch.GroupState(g.ID)
			var of dataplane.Refused
			switch tt.whose {
			case "data":
				of = state.Refused
			case "c":
				r := &state.Receivers[1]
				of = dataplane.Refused{Count: r.Refused, Reason: r.RefusedFor, Port: r.RefusedAt, QPN: r.RefusedQPN}
			default:
				if list := net.Switch.Astray(); len(list) == 1 {
					of = list[0].Refused
				}
			}
			if diff := cmp.Diff(want, of, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Error(diff)
			}
			sum := state.Refused.Count
			for _, r := range state.Receivers {
				sum += r.Refused
			}
			for _, a := range net.Switch.Astray() {
				sum += a.Count
			}
			if sum != 2 {
				t.Errorf("%d frames are counted, and 2 were refused", sum)
			}
		})
	}
}

// A damaged frame does not accuse the receiver whose address it has.
func TestADamagedFrameAccusesNoReceiver(t *testing.T) {
	g := group()
	net := newNet(t, g)
	p := write(firstPSN, nil)
	p.src = ipC
	frame := p.frame(t)
	frame[len(frame)-1] ^= 1 // a byte of the ICRC
	net.Ports[2].Put(frame)
	net.Poll()
	if state, _ := net.Switch.GroupState(g.ID); state.Refused.Reason != dataplane.BadICRC {
		t.Errorf("%+v", state.Refused)
	}
}

// A frame that is no packet has no sender, but a port.
func TestAMalformedFrameIsCountedForItsPort(t *testing.T) {
	g := group()
	b := newBare(t, g)
	p := write(firstPSN, nil)
	p.src = ipC // by whose port it comes
	b.handle(0, p, p.frame(t)[:50])
	if got := b.core.AstrayFor(dataplane.Malformed); got.Count != 1 || got.From.IsValid() || got.Port != 2 {
		t.Errorf("%+v", got)
	}
}

// What was known of a frame is not told of the next one, which may be no packet.
func TestAMalformedFrameBehindAREADIsNone(t *testing.T) {
	b := newBare(t, group())
	b.group = &mft.Group{ID: mft.NoGroup}
	p := with(write(firstPSN, nil), func(p *packet) { p.bth.Opcode, p.bth.DestQPN, p.payload = roce.OpReadRequest, 9, nil })
	frame := p.frame(t)
	for i, read := range []bool{true, false} {
		b.handle(0, p, frame[:len(frame)-10*i])
		if got := b.core.AstrayFor(dataplane.UnknownQPN); got.Count != uint64(i+1) || got.Read != read || got.From.IsValid() != read {
			t.Errorf("frame %d: %+v", i, got)
		}
	}
}

// What comes behind a WRITE to memory that the group does not have is refused for that reason, also
// once what was lost below it has been forwarded.
func TestWhatIsBehindARefusedWriteHasItsReason(t *testing.T) {
	g := group()
	net := newNet(t, g)
	say(t, net, write(firstPSN, nil))
	say(t, net, with(write(firstPSN+1, nil), func(p *packet) { p.reth.RKey++; p.reth.DMABytes = 4 }))
	say(t, net, write(firstPSN+2, nil))
	state, _ := net.Switch.GroupState(g.ID)
	if got := state.Refused; got.Count != 2 || got.Reason != dataplane.RefusedMemory || got.Sent != 1 || state.Traffic.Sent != 1 {
		t.Errorf("%+v, %+v", got, state.Traffic)
	}

	g = group()
	net = newNet(t, g)
	say(t, net, with(write(firstPSN+1, nil), func(p *packet) { p.reth.RKey++; p.reth.DMABytes = 4 }))
	say(t, net, write(firstPSN, nil))
	say(t, net, write(firstPSN+2, nil))
	state, _ = net.Switch.GroupState(g.ID)
	if got := state.Refused; got.Count != 2 || got.Reason != dataplane.RefusedMemory || got.Sent != 1 || state.Traffic.Sent != 1 {
		t.Errorf("%+v, %+v", got, state.Traffic)
	}
}

// What is refused of the next source has its own reason.
func TestARefusedReadOfTheNextSourceHasItsReason(t *testing.T) {
	k := newKeeper(t, both(1, ipB, 500), receiver(2, ipC))
	k.group.KeepsTurns = false
	k.begin()
	k.message(ipA)
	sends := k.members[ipA].sends
	say(t, k.Net, with(write(sends, nil), func(p *packet) { p.reth.RKey++; p.reth.DMABytes = 4 }))
	say(t, k.Net, write(sends+1, nil))
	if state, _ := k.Switch.GroupState(k.group.ID); state.Refused.Count != 2 || state.Refused.Reason != dataplane.RefusedMemory {
		t.Fatalf("%+v", state.Refused)
	}
	if d := decode(t, k.Ports[portOf[ipA]].Take()[0]); d.Syndrome != roce.NAKRemoteAccess {
		t.Fatalf("a hears %+v", d)
	}
	k.posts(ipB, 1)
	for _, port := range k.Ports {
		port.Take()
	}
	p := with(write(k.members[ipB].sends+1, nil), func(p *packet) { p.src, p.bth.Opcode = ipB, roce.OpReadRequest })
	say(t, k.Net, p)
	state, _ := k.Switch.GroupState(k.group.ID)
	if got := state.Refused; got.Count != 3 || got.Reason != dataplane.Reason(feedback.Refused) || got.From != ipB {
		t.Errorf("%+v", got)
	}
}

// What a receiver's answers were refused for stays with it when the order of the paths changes.
func TestRefusedAnswersStayWithTheirReceiver(t *testing.T) {
	g := group()
	net := newNet(t, g)
	say(t, net, tagged(ack(ipC, 0xFFFFF3, roce.SyndromeUnlimited), 7))
	next := group()
	next.Paths = next.Paths[1:] // b leaves
	if err := net.Switch.Replace(g.ID, next); err != nil {
		t.Fatal(err)
	}
	state, _ := net.Switch.GroupState(g.ID)
	if got := state.Receivers[0]; got.Refused != 1 || got.RefusedFor != dataplane.WrongVLAN || got.RefusedAt != 2 || got.RefusedQPN != groupQPN {
		t.Errorf("%+v", state.Receivers)
	}
}

// What was refused of a member before its turn is no trouble of it any more, however short the turn
// was. What is refused behind its last packet is.
func TestWhereALastTurnBeganAndEnded(t *testing.T) {
	b, c, d := both(1, ipB, 500), both(2, ipC, 70), receiver(3, ipD)
	k := newKeeper(t, b, c, d)
	last := func(host netip.Addr) dataplane.LastTurn {
		state, _ := k.Switch.GroupState(k.group.ID)
		if host == ipA {
			return state.LastTurn
		}
		return state.Receivers[k.group.FindPath(host, groupQPN)].LastTurn
	}
	want := map[netip.Addr]dataplane.LastTurn{}
	check := func(when string) {
		t.Helper()
		for host, want := range want {
			if got := last(host); got != want {
				t.Errorf("%s: of %v %+v, want %+v", when, host, got, want)
			}
		}
	}
	takes := func(next netip.Addr) {
		t.Helper()
		k.posts(next, 1) // is refused: it waits
		k.turnBegins()
		k.gets(next, 1)
	}
	k.message(ipA)
	k.message(ipA)
	want[ipA], want[ipB], want[ipC] = dataplane.LastTurn{Sent: 2}, dataplane.LastTurn{}, dataplane.LastTurn{}
	check("in the first turn")
	takes(ipB)
	want[ipB] = dataplane.LastTurn{Refused: 1, Sent: 3}
	check("b has begun")
	k.message(ipB)
	want[ipB] = dataplane.LastTurn{Refused: 1, Sent: 4}
	check("b has gone on")
	takes(ipC)
	want[ipC] = dataplane.LastTurn{Refused: 2, Sent: 5}
	check("c has begun")
	k.update(c, d, b)
	check("the order has changed")
	takes(ipA)
	want[ipA] = dataplane.LastTurn{Refused: 3, Sent: 6}
	check("a is back")
	k.update(c, d) // b leaves
	delete(want, ipB)
	takes(ipC)
	want[ipC] = dataplane.LastTurn{Refused: 4, Sent: 7}
	early := both(4, ipEarly, 9)
	k.update(early, c, d)
	k.message(ipC)
	k.update(early, d) // and so does the source
	delete(want, ipC)
	takes(ipEarly)
	want[ipEarly] = dataplane.LastTurn{Refused: 5, Sent: 9}
	check("the source has left")
	takes(ipA)
	want[ipEarly], want[ipA] = dataplane.LastTurn{Refused: 5, Sent: 9}, dataplane.LastTurn{Refused: 6, Sent: 10}
	check("a comes once more")
}
