package dataplane_test

import (
	"cmp"
	"net/netip"
	"slices"
	"testing"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// The bench: source a on port 0, receivers b, c, d on ports 1 to 3, group g at 10.77.0.100 with QPN
// 1. Every host has its own PSNs and keeps the memory at its own address.
var (
	ipGroup = netip.MustParseAddr("10.77.0.100")
	ipA     = netip.MustParseAddr("10.77.0.1")
	ipB     = netip.MustParseAddr("10.77.0.2")
	ipC     = netip.MustParseAddr("10.77.0.3")
	ipD     = netip.MustParseAddr("10.77.0.4")
	macBox  = roce.MAC{2, 0, 0, 0, 0, 100}
)

const (
	groupQPN  = 1
	firstPSN  = 1000 // the source's
	memoryVA  = 0x10000
	memoryKey = 0x77
	memoryLen = 1 << 20
)

func mac(host netip.Addr) roce.MAC { return roce.MAC{2, 0, 0, 0, 0, host.As4()[3]} }

// leg returns the leg to a host behind a port, without VLAN tags.
func leg(port mft.PortID, host netip.Addr, qpn roce.QPN) mft.Leg {
	l := mft.Leg{Port: port, Src: ipGroup, Dst: host, DestQPN: qpn}
	l.L2Bytes = uint8(copy(l.L2[:], roce.AppendEthernet(nil, mac(host), macBox, 0x0800)))
	return l
}

func receiver(port mft.PortID, host netip.Addr) mft.Path {
	n := uint32(host.As4()[3])
	return mft.Path{
		Leg: leg(port, host, roce.QPN(16+n)), RemoteQPN: groupQPN, FirstPSN: roce.PSN(0xFFFFF0 + n),
		Regions: memory.At(func(mft.VirtualRegion) mft.Region { return mft.Region{VA: uint64(n) << 32, RKey: 0x1000 + n} }),
	}
}

var memory = mft.MustMemory(mft.VirtualRegion{VA: memoryVA, Length: memoryLen, RKey: memoryKey})

func group() *mft.Group {
	return &mft.Group{
		Name: "g", IP: ipGroup, QPN: groupQPN, PathMTU: 1024,
		Memory: memory,
		Source: mft.Source{Leg: leg(0, ipA, 17), FirstPSN: firstPSN},
		Paths:  []mft.Path{receiver(1, ipB), receiver(2, ipC), receiver(3, ipD)},
	}
}

// at gives the group another IP: it is what the members' QPs have as peer.
func at(g *mft.Group, ip netip.Addr) {
	g.IP, g.Source.Src = ip, ip
	for i := range g.Paths {
		if g.Paths[i].Src = ip; g.Addressing == mft.ByVirtualQPN {
			g.Paths[i].Src = g.Source.Dst
		}
	}
}

// newNet returns a switch with g on it.
func newNet(t testing.TB, g *mft.Group) *porttest.Net {
	t.Helper()
	net := porttest.New(4)
	if _, err := net.Switch.Add(g); err != nil {
		t.Fatal(err)
	}
	return net
}

// packet describes a RoCE frame to be built.
type packet struct {
	src, dst netip.Addr
	bth      roce.BTH
	reth     *roce.RETH
	aeth     *roce.AETH
	payload  []byte
	hopLimit uint8    // 0: 64
	class    uint8    // traffic class
	tags     []uint16 // VLAN tags, their TCI, the outermost first
	port     uint16   // the UDP source port; 0: any
}

// write returns a WRITE of one packet from the source.
func write(psn roce.PSN, payload []byte) packet {
	return packet{
		src: ipA, dst: ipGroup, payload: payload,
		bth:  roce.BTH{Opcode: roce.OpWriteOnly, PKey: 0xFFFF, DestQPN: groupQPN, AckReq: true, PSN: psn},
		reth: &roce.RETH{VA: memoryVA + 64, RKey: memoryKey, DMABytes: uint32(len(payload))},
	}
}

// ack returns an acknowledge packet of a receiver. psn is in the receiver's PSN space.
func ack(host netip.Addr, psn roce.PSN, s roce.Syndrome) packet {
	return packet{
		src: host, dst: ipGroup,
		bth:  roce.BTH{Opcode: roce.OpAck, PKey: 0xFFFF, DestQPN: groupQPN, PSN: psn},
		aeth: &roce.AETH{Syndrome: s, MSN: 1},
	}
}

// tagged returns the packet with VLAN tags.
func tagged(p packet, tags ...uint16) packet {
	p.tags = tags
	return p
}

// cnp returns a congestion notification of a receiver.
func cnp(host netip.Addr) packet {
	return packet{src: host, dst: ipGroup, bth: roce.CNPHeader(groupQPN), payload: make([]byte, roce.CNPBytes)}
}

func (p packet) frame(t testing.TB) []byte {
	t.Helper()
	return p.frameFrom(t, mac(p.src))
}

func (p packet) frameFrom(t testing.TB, hostMAC roce.MAC) []byte {
	t.Helper()
	pad := roce.PadFor(len(p.payload))
	body := []byte{}
	if p.reth != nil {
		body = p.reth.Append(body)
	}
	if p.aeth != nil {
		body = p.aeth.Append(body)
	}
	body = append(append(body, p.payload...), make([]byte, pad)...)
	ip := roce.IPUDP{Src: p.src, Dst: p.dst, TrafficClass: p.class, HopLimit: cmp.Or(p.hopLimit, 64), ID: 7, SrcPort: cmp.Or(p.port, 0xC123)}
	bth := p.bth
	bth.PadCount = pad
	b := roce.AppendEthernet(nil, macBox, hostMAC, ip.EtherType())
	for _, tci := range slices.Backward(p.tags) {
		b = slices.Insert(b, 12, 0x81, 0, byte(tci>>8), byte(tci))
	}
	b = bth.Append(ip.Append(b, roce.BTHBytes+len(body)))
	b, err := roce.AppendICRC(append(b, body...))
	if err != nil && bth.Opcode.Known() {
		t.Fatal(err)
	}
	return b
}

// decoded is a frame as a host reads it.
type decoded struct {
	DstMAC, SrcMAC roce.MAC
	Src, Dst       netip.Addr
	HopLimit       uint8
	Opcode         roce.Opcode
	QPN            roce.QPN
	PSN            roce.PSN
	VA             uint64
	RKey           uint32
	Syndrome       roce.Syndrome
	MSN            roce.MSN
	Payload        string
	ICRCValid      bool
	ChecksumValid  bool
}

func decode(t testing.TB, b []byte) decoded {
	t.Helper()
	var v roce.View
	if err := v.Decode(b, len(b)); err != nil {
		t.Fatalf("sent a bad frame: %v: %x", err, b)
	}
	d := decoded{
		DstMAC: roce.MAC(b[0:6]), SrcMAC: roce.MAC(b[6:12]), Src: v.SrcIP(b), Dst: v.DstIP(b), HopLimit: v.HopLimit(b),
		Opcode: v.Opcode, QPN: v.DestQPN(b), PSN: v.PSN(b),
		Payload:   string(b[v.Payload : v.Payload+v.PayloadBytes]),
		ICRCValid: v.ICRCValid([][]byte{b}),
	}
	d.ChecksumValid = v.IPv6 || roce.IPv4HeaderChecksum(b[v.L3:]) == uint16(b[v.L3+10])<<8|uint16(b[v.L3+11])
	if v.Opcode.Headers().Has(roce.HasRETH) {
		d.VA, d.RKey = v.RETH(b).VA, v.RETH(b).RKey
	}
	if v.Opcode.Headers().Has(roce.HasAETH) {
		d.Syndrome, d.MSN = v.AETH(b).Syndrome, v.AETH(b).MSN
	}
	return d
}

// moved returns the counters that are not zero.
func moved(s *dataplane.Switch) map[string]uint64 {
	m := map[string]uint64{}
	for _, c := range s.Counters() {
		if c.Value != 0 {
			m[c.Name] = c.Value
		}
	}
	return m
}

func snapshot(t testing.TB, s *dataplane.Switch, g *mft.Group) feedback.Snapshot {
	t.Helper()
	st, ok := s.GroupState(g.ID)
	if !ok {
		t.Fatal("the group is gone")
	}
	return st.Snapshot
}
