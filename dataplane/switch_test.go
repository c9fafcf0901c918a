package dataplane_test

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

var addrEqual = cmpopts.EquateComparable(netip.Addr{})

// A WRITE reaches every receiver with the addresses, QPN, PSN, key and ICRC that its NIC expects,
// and the receivers' ACKs become one.
func TestWriteReachesEveryReceiver(t *testing.T) {
	g := group()
	net := newNet(t, g)
	net.Ports[0].Put(write(firstPSN, []byte("hello, group")).frame(t))
	net.Poll()
	for i, host := range []struct {
		port int
		path mft.Path
	}{{1, g.Paths[0]}, {2, g.Paths[1]}, {3, g.Paths[2]}} {
		out := net.Ports[host.port].Take()
		if len(out) != 1 {
			t.Fatalf("port %d sent %d frames", host.port, len(out))
		}
		at := host.path.Regions.Region(g.Memory, 0)
		want := decoded{
			DstMAC: mac(host.path.Dst), SrcMAC: macBox, Src: ipGroup, Dst: host.path.Dst, HopLimit: 63,
			Opcode: roce.OpWriteOnly, QPN: host.path.DestQPN, PSN: host.path.FirstPSN,
			VA: at.VA + 64, RKey: at.RKey,
			Payload: "hello, group", ICRCValid: true, ChecksumValid: true,
		}
		if diff := cmp.Diff(want, decode(t, out[0]), addrEqual); diff != "" {
			t.Errorf("receiver %d (-want +got):\n%s", i, diff)
		}
	}
	for i, p := range g.Paths {
		net.Ports[i+1].Put(ack(p.Dst, p.FirstPSN, roce.SyndromeACK(5)).frame(t))
		net.Poll()
		if out := net.Ports[0].Take(); i < 2 && len(out) != 0 {
			t.Fatalf("the source heard of it after %d of 3 ACKs", i+1)
		} else if i == 2 {
			want := decoded{
				DstMAC: mac(ipA), SrcMAC: macBox, Src: ipGroup, Dst: ipA, HopLimit: 64,
				Opcode: roce.OpAck, QPN: 17, PSN: firstPSN, Syndrome: roce.SyndromeUnlimited, MSN: 1, ICRCValid: true, ChecksumValid: true,
			}
			if diff := cmp.Diff(want, decode(t, out[0]), addrEqual); diff != "" {
				t.Errorf("merged ACK (-want +got):\n%s", diff)
			}
		}
	}
	if net.Pool.Lent != 0 {
		t.Errorf("%d buffers were not given back", net.Pool.Lent)
	}
}

// A WRITE outside the group's memory is refused as a receiver would refuse it.
func TestWriteOutsideMemoryIsRefused(t *testing.T) {
	for name, edit := range map[string]func(*roce.RETH){
		"wrong key":   func(r *roce.RETH) { r.RKey++ },
		"below":       func(r *roce.RETH) { r.VA = memoryVA - 1 },
		"beyond":      func(r *roce.RETH) { r.VA = memoryVA + memoryLen - 3 },
		"wraps round": func(r *roce.RETH) { r.VA = ^uint64(0) - 1 },
	} {
		t.Run(name, func(t *testing.T) {
			net := newNet(t, group())
			p := write(firstPSN, []byte("abcd"))
			edit(p.reth)
			net.Ports[0].Put(p.frame(t))
			net.Poll()
			out := net.Ports[0].Take()
			if len(out) != 1 || decode(t, out[0]).Syndrome != roce.NAKRemoteAccess {
				t.Errorf("answers: %d", len(out))
			}
			if n := len(net.Ports[1].Take()); n != 0 {
				t.Errorf("%d copies went out", n)
			}
		})
	}
}

// A WRITE of length 0 names no memory: a receiver's NIC checks neither its address nor its key.
func TestWriteOfNothingReachesEveryReceiver(t *testing.T) {
	net := newNet(t, group())
	p := write(firstPSN, nil)
	p.reth = &roce.RETH{VA: 0xDEAD, RKey: memoryKey + 1}
	say(t, net, p)
	for _, host := range []netip.Addr{ipB, ipC, ipD} {
		out := net.Ports[portOf[host]].Take()
		if len(out) != 1 {
			t.Fatalf("%v got %d frames; counters %v", host, len(out), moved(net.Switch))
		}
		if d := decode(t, out[0]); d.VA != 0xDEAD || d.RKey != memoryKey+1 {
			t.Errorf("%v got VA %#x, R_Key %#x", host, d.VA, d.RKey)
		}
	}
}

// An operation that no group can carry is refused with a NAK for its own PSN, and neither it nor
// what follows is forwarded.
func TestRefusedOperations(t *testing.T) {
	atomic := make([]byte, roce.AtomicETHBytes)
	for _, tt := range []struct {
		opcode roce.Opcode
		body   []byte
	}{
		{roce.OpReadRequest, make([]byte, roce.RETHBytes)},
		{roce.OpCmpSwap, atomic}, {roce.OpFetchAdd, atomic},
		{roce.OpAtomicWrite, make([]byte, roce.RETHBytes+8)},
		{roce.OpSendLastInv, make([]byte, roce.IETHBytes+4)}, {roce.OpSendOnlyInv, make([]byte, roce.IETHBytes+4)},
		{roce.OpFlush, make([]byte, roce.FETHBytes+roce.RETHBytes)},
	} {
		net := newNet(t, group())
		p := write(firstPSN, tt.body)
		p.bth.Opcode, p.reth = tt.opcode, nil
		say(t, net, p)
		behind := write(firstPSN+1, nil)
		behind.bth.AckReq = false
		say(t, net, behind)
		out := net.Ports[0].Take()
		if len(out) != 1 {
			t.Fatalf("%v: the source heard %d frames; counters %v", tt.opcode, len(out), moved(net.Switch))
		}
		if d := decode(t, out[0]); d.Syndrome != roce.NAKInvalidRequest || d.PSN != firstPSN {
			t.Errorf("%v is answered with %v for PSN %d", tt.opcode, d.Syndrome, d.PSN)
		}
		silent(t, net)
	}
}

// A member's frame is refused if it is for another QPN of the group, or for another address than
// the one by which it was classified.
func TestFramesForSomethingElseOfTheGroup(t *testing.T) {
	for _, tt := range []struct {
		name       string
		addressing mft.Addressing
		packet     packet
		want       dataplane.Reason
	}{
		{"data to a receiver's QPN", mft.ByGroupIP, with(write(firstPSN, nil), func(p *packet) { p.bth.DestQPN = 5 }), dataplane.WrongQPN},
		{"feedback to another receiver's QPN", mft.ByGroupIP, with(ack(ipB, 0xFFFFF2, roce.SyndromeUnlimited), func(p *packet) { p.bth.DestQPN = 5 }), dataplane.WrongQPN},
		{"CNP to another receiver's QPN", mft.ByGroupIP, with(cnp(ipB), func(p *packet) { p.bth.DestQPN = 5 }), dataplane.WrongQPN},
		{"data to another address", mft.ByGroupIP, to(write(firstPSN, nil), ipC), dataplane.WrongDestination},
		{"feedback to another address", mft.ByGroupIP, to(ack(ipB, 0xFFFFF2, roce.SyndromeUnlimited), ipC), dataplane.WrongDestination},
		{"CNP to another address", mft.ByGroupIP, to(cnp(ipB), ipC), dataplane.WrongDestination},
		{"data to another receiver", mft.ByVirtualQPN, to(write(firstPSN, nil), ipC), dataplane.WrongDestination},
		{"feedback to the named receiver", mft.ByVirtualQPN, to(ack(ipC, 0xFFFFF3, roce.SyndromeUnlimited), ipB), dataplane.WrongDestination},
		{"feedback to the source", mft.ByVirtualQPN, to(ack(ipB, 0xFFFFF2, roce.SyndromeUnlimited), ipA), dataplane.Reason(feedback.Absorbed)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := group()
			if g.Addressing = tt.addressing; g.Addressing == mft.ByVirtualQPN {
				at(g, ipB)
			}
			g.Paths[1].RemoteQPN = 1
			g.Paths[2].RemoteQPN = 5
			table, err := new(mft.Table).With(g)
			if err != nil {
				t.Fatal(err)
			}
			core, out := dataplane.NewCore(nil), dataplane.Outputs{}
			handle := func(p packet) dataplane.Reason {
				b := p.frame(t)
				f := dataplane.Frame{Group: g.ID, Port: mft.PortID(portOf[p.src]), Buf: b, FragmentCount: 1}
				f.Fragments[0] = b
				return core.Handle(0, table, &f, &out)
			}
			handle(to(write(firstPSN, nil), g.IP))
			out.Reset()
			if got := handle(tt.packet); got != tt.want || len(out.Copies)+len(out.Replies) != 0 {
				t.Errorf("%v, want %v; %+v", got, tt.want, out)
			}
		})
	}
}

// A forged frame is counted under its reason and changes no state.
func TestForgedFramesMoveNothing(t *testing.T) {
	badICRC := func(b []byte) []byte { b[len(b)-1] ^= 1; return b }
	badPayload := func(b []byte) []byte { b[len(b)-6] ^= 1; return b }
	badChecksum := damagedHeader
	for _, tt := range []struct {
		name   string
		port   int
		packet packet
		damage func([]byte) []byte
		reason string
	}{
		{"data from a stranger", 0, with(write(firstPSN+1, nil), func(p *packet) { p.src = ipD.Next() }), nil, "not-member"},
		{"data from a receiver", 1, with(write(firstPSN+1, nil), func(p *packet) { p.src = ipB }), nil, "not-source"},
		{"data on another port", 1, write(firstPSN+1, nil), nil, "wrong-port"},
		{"data for another QPN", 0, with(write(firstPSN+1, nil), func(p *packet) { p.bth.DestQPN = 2 }), nil, "unknown-qpn"},
		{"data far ahead", 0, write(firstPSN+1<<22, nil), nil, "outside-window"},
		{"data far behind", 0, write(roce.PSN(firstPSN).Add(-1<<22), nil), nil, "outside-window"},
		{"data over the path MTU", 0, write(firstPSN+1, make([]byte, 1028)), nil, "over-mtu"},
		{"data at the end of its way", 0, with(write(firstPSN+1, nil), func(p *packet) { p.hopLimit = 1 }), nil, "hop-limit-exceeded"},
		{"CNP at the end of its way", 1, with(cnp(ipB), func(p *packet) { p.hopLimit = 1 }), nil, "hop-limit-exceeded"},
		{"data out of sequence with a wrong ICRC", 0, write(firstPSN+2, []byte("x")), badICRC, "bad-icrc"},
		{"data out of sequence with a damaged payload", 0, write(firstPSN+2, []byte("xxxx")), badPayload, "bad-icrc"},
		{"resent data with a wrong ICRC", 0, write(firstPSN, nil), badICRC, "bad-icrc"},
		{"data with another P_Key and a wrong ICRC", 0, with(write(firstPSN+1, nil), func(p *packet) { p.bth.PKey = 0x8001 }), badICRC, "bad-icrc"},
		{"data outside the memory with a wrong ICRC", 0, with(write(firstPSN+1, []byte("x")), func(p *packet) { p.reth.RKey++ }), badICRC, "bad-icrc"},
		{"data with a refused opcode and a wrong ICRC", 0, with(write(firstPSN+1, nil), func(p *packet) { p.bth.Opcode = roce.OpReadRequest }), badICRC, "bad-icrc"},
		{"UD datagram for the group's QPN", 0, with(write(firstPSN+1, nil), func(p *packet) { p.bth.Opcode = roce.OpUDSendOnlyImm }), nil, "wrong-transport"},
		{"unknown opcode", 0, with(write(firstPSN+1, nil), func(p *packet) { p.bth.Opcode = 0x1F }), nil, "unknown-opcode"},
		{"ACK from a stranger", 1, ack(ipD.Next(), 0xFFFFF2, roce.SyndromeUnlimited), nil, "not-receiver"},
		{"ACK from the source", 0, ack(ipA, 0xFFFFF2, roce.SyndromeUnlimited), nil, "not-receiver"},
		{"ACK on another port", 2, ack(ipB, 0xFFFFF2, roce.SyndromeUnlimited), nil, "wrong-port"},
		{"ACK on the source's port", 0, ack(ipB, 0xFFFFF2, roce.SyndromeUnlimited), nil, "wrong-port"},
		{"ACK for another QPN", 1, with(ack(ipB, 0xFFFFF2, roce.SyndromeUnlimited), func(p *packet) { p.bth.DestQPN = 3 }), nil, "unknown-qpn"},
		{"ACK beyond what was sent", 1, ack(ipB, 0xFFFFF3, roce.SyndromeUnlimited), nil, "beyond-sent"},
		{"fatal NAK beyond what was sent", 1, ack(ipB, 0xFFFFF3, roce.NAKRemoteAccess), nil, "beyond-sent"},
		{"ACK with a wrong ICRC", 1, ack(ipB, 0xFFFFF2, roce.SyndromeUnlimited), badICRC, "bad-icrc"},
		{"resent data with a wrong header checksum", 0, write(firstPSN, nil), badChecksum, "bad-icrc"},
		{"ACK with a wrong header checksum", 1, ack(ipB, 0xFFFFF2, roce.SyndromeUnlimited), badChecksum, "bad-icrc"},
		{"READ response", 1, with(ack(ipB, 0xFFFFF2, roce.SyndromeUnlimited), func(p *packet) { p.bth.Opcode = roce.OpReadRespOnly }), nil, "unmergeable-response"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := group()
			net := newNet(t, g)
			net.Ports[0].Put(write(firstPSN, nil).frame(t)) // one packet is under way
			net.Poll()
			for _, p := range net.Ports {
				p.Take()
			}
			before, counted := snapshot(t, net.Switch, g), moved(net.Switch)

			frame := tt.packet.frame(t)
			if tt.damage != nil {
				frame = tt.damage(frame)
			}
			net.Ports[tt.port].Put(frame)
			net.Poll()

			if diff := cmp.Diff(before, snapshot(t, net.Switch, g)); diff != "" {
				t.Errorf("state moved (-before +after):\n%s", diff)
			}
			counted[tt.reason]++
			if diff := cmp.Diff(counted, moved(net.Switch)); diff != "" {
				t.Errorf("counters (-want +got):\n%s", diff)
			}
			for i, p := range net.Ports {
				if out := p.Take(); len(out) != 0 {
					t.Errorf("port %d sent %+v", i, decode(t, out[0]))
				}
			}
			if net.Pool.Lent != 0 {
				t.Errorf("%d buffers were not given back", net.Pool.Lent)
			}
		})
	}
}

func with(p packet, edit func(*packet)) packet { edit(&p); return p }

// A QPN of one group does not reach another group on the same IP.
func TestGroupsShareAnIP(t *testing.T) {
	g1, g2 := group(), group()
	g2.Name, g2.QPN = "g2", 2
	for i := range g2.Paths {
		g2.Paths[i].RemoteQPN = 2
		g2.Paths[i].DestQPN += 100
	}
	net := newNet(t, g1)
	if _, err := net.Switch.Add(group()); err == nil || !strings.Contains(err.Error(), "taken") {
		t.Errorf("a second group with the same IP and QPN: %v", err)
	}
	if _, err := net.Switch.Add(g2); err != nil {
		t.Fatal(err)
	}
	p := write(firstPSN, []byte("to 2"))
	p.bth.DestQPN = 2
	net.Ports[0].Put(p.frame(t))
	net.Poll()
	if out := net.Ports[1].Take(); len(out) != 1 || decode(t, out[0]).QPN != g2.Paths[0].DestQPN {
		t.Errorf("%d copies", len(out))
	}
	if s := snapshot(t, net.Switch, g1); s.Sent != roce.PSN(firstPSN).Prev() {
		t.Errorf("group 1 sent %d", s.Sent)
	}
	if err := net.Switch.Remove(g1.ID); err != nil {
		t.Fatal(err)
	}
	net.Ports[0].Put(write(firstPSN, nil).frame(t))
	p.bth.PSN++
	net.Ports[0].Put(p.frame(t))
	net.Poll()
	if n := len(net.Ports[1].Take()); n != 1 {
		t.Errorf("after removing group 1: %d copies, want group 2's alone", n)
	}
	if moved(net.Switch)["unknown-qpn"] != 1 {
		t.Errorf("counters %v", moved(net.Switch))
	}
}

// Several receivers behind one port, one of them behind the source's, each get every packet in
// order. A leg with a VLAN tag gets its tag.
func TestManyMembersBehindOnePort(t *testing.T) {
	g := group()
	for i, port := range []mft.PortID{1, 1, 0} {
		g.Paths[i].Port = port
	}
	tagged := &g.Paths[1]
	tagged.L2Bytes = uint8(copy(tagged.L2[:], roce.AppendVLAN(nil, mac(ipC), macBox, 7, 0x0800)))
	net := newNet(t, g)
	payload := bytes.Repeat([]byte("rocast"), 100)
	for n := range 10 {
		net.Ports[0].Put(write(roce.PSN(firstPSN+n), payload).frame(t))
	}
	net.Poll()
	next, behind, ethernet := map[string]roce.PSN{}, map[string]int{}, map[string][]byte{}
	for _, p := range g.Paths {
		next[p.Dst.String()], behind[p.Dst.String()], ethernet[p.Dst.String()] = p.FirstPSN, int(p.Port), p.L2[:p.L2Bytes]
	}
	for _, port := range []int{0, 1} {
		for _, b := range net.Ports[port].Take() {
			d := decode(t, b)
			if port != behind[d.Dst.String()] {
				t.Errorf("port %d sends a frame for %v", port, d.Dst)
			}
			if d.PSN != next[d.Dst.String()] || !d.ICRCValid || d.Payload != string(payload) {
				t.Errorf("%v got PSN %d, want %d, ICRC valid %v", d.Dst, d.PSN, next[d.Dst.String()], d.ICRCValid)
			}
			next[d.Dst.String()] = d.PSN.Next()
			if l2 := ethernet[d.Dst.String()]; !bytes.HasPrefix(b, l2) {
				t.Errorf("%v got the Ethernet header %x, want %x", d.Dst, b[:len(l2)], l2)
			}
		}
	}
	for _, p := range g.Paths {
		if next[p.Dst.String()] != p.FirstPSN.Add(10) {
			t.Errorf("%v got up to %d", p.Dst, next[p.Dst.String()])
		}
	}
}

// A member's frames must arrive in the VLAN in which frames to it leave. A tag that carries only a
// priority is no VLAN.
func TestFramesOfAnotherVLANAreRefused(t *testing.T) {
	legOf := func(l2 []byte) func(*mft.Leg) {
		return func(l *mft.Leg) { l.L2Bytes = uint8(copy(l.L2[:], l2)) }
	}
	inner := roce.AppendVLAN(nil, mac(ipB), macBox, 0x2007, 0x0800)
	both := append(append(append([]byte(nil), inner[:12]...), 0x88, 0xA8, 0, 9), inner[12:]...)
	for _, tt := range []struct {
		name string
		edit func(*mft.Leg) // of the source's and the first receiver's leg
		tags []uint16
		want string
	}{
		{"a tag where there is none", legOf(roce.AppendEthernet(nil, mac(ipB), macBox, 0x0800)), []uint16{7}, "wrong-vlan"},
		{"a priority tag where there is none", legOf(roce.AppendEthernet(nil, mac(ipB), macBox, 0x0800)), []uint16{0x6000}, ""},
		{"no tag where there is one", legOf(inner), nil, "wrong-vlan"},
		{"another tag", legOf(inner), []uint16{8}, "wrong-vlan"},
		{"the tag with another priority", legOf(inner), []uint16{0x6007}, ""},
		{"a second tag", legOf(inner), []uint16{7, 9}, "wrong-vlan"},
		{"two tags of the same kind", legOf(both), []uint16{9, 7}, "wrong-vlan"},
		{"one tag of two", legOf(both), []uint16{7}, "wrong-vlan"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := group()
			tt.edit(&g.Source.Leg)
			tt.edit(&g.Paths[0].Leg)
			net := newNet(t, g)
			say(t, net, tagged(write(firstPSN, nil), tt.tags...))
			say(t, net, tagged(ack(ipB, g.Paths[0].FirstPSN, roce.SyndromeUnlimited), tt.tags...))
			say(t, net, tagged(cnp(ipB), tt.tags...))
			want := map[string]uint64{"wrong-vlan": 3}
			if tt.want == "" {
				want = map[string]uint64{"forwarded": 1, "absorbed": 1, "cnp-passed": 1}
			}
			if diff := cmp.Diff(want, moved(net.Switch)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	g := group()
	legOf(both)(&g.Source.Leg)
	net := newNet(t, g)
	frame := tagged(write(firstPSN, nil), 0x6009, 7).frame(t)
	copy(frame[12:], []byte{0x88, 0xA8})
	net.Ports[0].Put(frame)
	net.Poll()
	if got := moved(net.Switch); got["forwarded"] != 1 {
		t.Errorf("counters %v", got)
	}
}

// A path MTU of 4096 fills two buffers. The ICRC may lie across their border.
func TestPathMTU4096(t *testing.T) {
	for _, bytes := range []int{3760, 3764, 3768, 3772, 3776, 3780, 3784, 4092, 4096} {
		g := group()
		g.PathMTU = 4096
		tagged := &g.Paths[1]
		tagged.L2Bytes = uint8(copy(tagged.L2[:], roce.AppendVLAN(nil, mac(ipC), macBox, 7, 0x0800)))
		net := newNet(t, g)
		payload := strings.Repeat("0123456789abcdef", 256)[:bytes]
		net.Ports[0].Put(write(firstPSN, []byte(payload)).frame(t))
		net.Poll()
		for port := 1; port <= 3; port++ {
			out := net.Ports[port].Take()
			if len(out) != 1 {
				t.Fatalf("%d bytes: port %d sent %d frames", bytes, port, len(out))
			}
			if d := decode(t, out[0]); !d.ICRCValid || d.Payload != payload {
				t.Errorf("%d bytes at port %d: ICRC valid %v", bytes, port, d.ICRCValid)
			}
		}
		if net.Pool.Lent != 0 {
			t.Errorf("%d buffers were not given back", net.Pool.Lent)
		}
	}
}

// A member without a known next hop gets nothing, the others do. When the kernel has found the next
// hop, the member gets what it lacks.
func TestNextHopMoves(t *testing.T) {
	g := group()
	g.Paths[2].Port = mft.NoPort
	net := newNet(t, g)
	frame := write(firstPSN, []byte("abcd")).frame(t)
	net.Ports[0].Put(frame)
	net.Poll()
	net.Ports[1].Put(ack(ipB, g.Paths[0].FirstPSN, roce.SyndromeUnlimited).frame(t))
	net.Poll()
	for _, p := range net.Ports {
		p.Take()
	}
	found := group()
	if err := net.Switch.Replace(g.ID, found); err != nil {
		t.Fatal(err)
	}
	net.Ports[0].Put(frame)
	net.Poll()
	for port, want := range []int{0, 0, 1, 1} {
		if got := len(net.Ports[port].Take()); got != want {
			t.Errorf("port %d sent %d frames, want %d", port, got, want)
		}
	}
	if moved(net.Switch)["unsent"] != 1 {
		t.Errorf("counters %v", moved(net.Switch))
	}
}

// A frame that belongs to no group goes to the kernel unchanged.
func TestOthersTrafficIsTheKernels(t *testing.T) {
	net := newNet(t, group())
	p := write(firstPSN, nil)
	p.dst = ipB
	net.Ports[0].Put(p.frame(t))
	net.Ports[0].Put([]byte("not even Ethernet"))
	net.Poll()
	if len(net.Kernel) != 2 || len(moved(net.Switch)) != 0 {
		t.Errorf("kernel got %d, counters %v", len(net.Kernel), moved(net.Switch))
	}
}
