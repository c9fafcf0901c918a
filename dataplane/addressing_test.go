package dataplane_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// The addressing decides which addresses copies and merged feedback carry. To every NIC they are
// those of its peer.
func TestAddressings(t *testing.T) {
	ipSwitch := netip.MustParseAddr("10.77.0.254")
	for _, tt := range []struct {
		name     string
		edit     func(*mft.Group)
		dataTo   netip.Addr // the source's peer
		copyFrom netip.Addr // the receivers' peer
	}{
		{"group-ip", func(*mft.Group) {}, ipGroup, ipGroup},
		{"virtual-qpn", func(g *mft.Group) {
			g.Addressing = mft.ByVirtualQPN
			at(g, ipB)
		}, ipB, ipA},
		{"switch-ip", func(g *mft.Group) {
			g.Addressing = mft.BySwitchIP
			at(g, ipSwitch)
		}, ipSwitch, ipSwitch},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := group()
			tt.edit(g)
			net := newNet(t, g)
			say(t, net, with(write(firstPSN, []byte("x")), func(p *packet) { p.dst = tt.dataTo }))
			for i, p := range g.Paths {
				out := net.Ports[i+1].Take()
				if len(out) != 1 {
					t.Fatalf("receiver %v got %d frames; counters %v", p.Dst, len(out), moved(net.Switch))
				}
				if d := decode(t, out[0]); d.Src != tt.copyFrom || d.Dst != p.Dst || !d.ICRCValid {
					t.Errorf("receiver %v got %+v", p.Dst, d)
				}
				say(t, net, with(ack(p.Dst, p.FirstPSN, roce.SyndromeUnlimited), func(a *packet) { a.dst = tt.copyFrom }))
			}
			out := net.Ports[0].Take()
			if len(out) != 1 {
				t.Fatalf("the source heard %d frames; counters %v", len(out), moved(net.Switch))
			}
			if d := decode(t, out[0]); d.Src != tt.dataTo || d.PSN != firstPSN {
				t.Errorf("the source heard %+v", d)
			}
		})
	}
}

// A virtual-qpn group takes the frames between its source and the address that the source names,
// and the receivers' answers, but no other frame of its hosts. No host may send from an address
// that only the box sends from.
func TestBystanders(t *testing.T) {
	ipStranger := netip.MustParseAddr("10.77.0.9")
	toSourceQP := func(p *packet) { p.bth.DestQPN = 17 }
	for _, tt := range []struct {
		name       string
		addressing mft.Addressing
		packet     packet
		want       string
	}{
		{"unicast of the source's host to another receiver", mft.ByVirtualQPN, to(write(firstPSN, nil), ipC), "kernel"},
		{"unicast of the source's host to a stranger", mft.ByVirtualQPN, to(write(firstPSN, nil), ipStranger), "kernel"},
		{"unicast of the source's host, another QPN", mft.ByVirtualQPN, with(to(write(firstPSN, nil), ipB), toSourceQP), "kernel"},
		{"a stranger's answer to the source's host", mft.ByVirtualQPN, to(ack(ipStranger, 0, roce.SyndromeUnlimited), ipA), "kernel"},
		{"a receiver's answer to another QP", mft.ByVirtualQPN, with(to(ack(ipC, 0, roce.SyndromeUnlimited), ipA), toSourceQP), "kernel"},
		{"a receiver's answer to another host", mft.ByVirtualQPN, to(ack(ipC, 0, roce.SyndromeUnlimited), ipStranger), "kernel"},
		{"the peer's own answer to the source's QP", mft.ByVirtualQPN, with(to(ack(ipB, 0, roce.SyndromeUnlimited), ipA), toSourceQP), "wrong-qpn"},
		{"an answer from the group's IP", mft.ByGroupIP, with(to(ack(ipGroup, firstPSN, roce.SyndromeUnlimited), ipA), toSourceQP), "own source"},
		{"data from the group's IP", mft.ByGroupIP, with(write(firstPSN, nil), func(p *packet) { p.src, p.dst = ipGroup, ipB }), "own source"},
		{"data from the group's IP to itself", mft.ByGroupIP, with(write(firstPSN, nil), func(p *packet) { p.src = ipGroup }), "not-member"},
		{"an answer from the group's IP to itself", mft.ByGroupIP, ack(ipGroup, firstPSN, roce.SyndromeUnlimited), "not-receiver"},
		{"an answer from the switch's IP", mft.BySwitchIP, with(to(ack(ipGroup, firstPSN, roce.SyndromeUnlimited), ipA), toSourceQP), "own source"},
		{"a stranger's request to the switch's IP", mft.BySwitchIP, with(to(write(firstPSN, nil), ipGroup), toSourceQP), "kernel"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := group()
			if g.Addressing = tt.addressing; g.Addressing == mft.ByVirtualQPN {
				at(g, ipB)
			}
			net := newNet(t, g)
			say(t, net, tt.packet)
			silent(t, net)
			countedAs(t, net, tt.want)
		})
	}
}

// countedAs checks what became of the only frame that has come: a counter, "kernel" for one that
// was left to the kernel, or "own source" for one that came from the box's own address.
func countedAs(t *testing.T, net *porttest.Net, want string) {
	t.Helper()
	counts := moved(net.Switch)
	switch {
	case len(net.Kernel) == 1:
		counts["kernel"]++
	case len(net.OwnSource) == 1:
		counts["own source"]++
	}
	if diff := cmp.Diff(map[string]uint64{want: 1}, counts); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Two boxes that are each other's source and receiver circulate a packet only until its hop limit
// is used up.
func TestALoopOfBoxesEnds(t *testing.T) {
	ends := []netip.Addr{ipA, ipB} // box i is at ends[i] and knows only the other one
	var boxes []*porttest.Net
	for i, own := range ends {
		g := group()
		g.Addressing, g.IP, g.Memory, g.Policy.CNP = mft.BySwitchIP, own, nil, feedback.CNPAll
		g.Source.Leg = leg(0, ends[1-i], groupQPN)
		g.Paths = []mft.Path{{Leg: leg(0, ends[1-i], groupQPN), RemoteQPN: groupQPN, FirstPSN: firstPSN}}
		g.Source.Src, g.Paths[0].Src = own, own
		boxes = append(boxes, newNet(t, g))
	}
	for name, p := range map[string]packet{"data": write(firstPSN, nil), "CNP": cnp(ipA)} {
		p.src, p.dst = ends[1], ends[0]
		boxes[0].Ports[0].Put(p.frame(t))
		hops := 0
		for at := 0; hops < 1000; at = 1 - at {
			boxes[at].Poll()
			out := boxes[at].Ports[0].Take()
			if len(out) == 0 {
				break
			}
			for _, frame := range out {
				boxes[1-at].Ports[0].Put(frame)
			}
			hops++
		}
		if hops != 63 {
			t.Errorf("%s: %d hops, counters %v", name, hops, moved(boxes[0].Switch))
		}
	}
}

// to returns the packet with another destination.
func to(p packet, dst netip.Addr) packet {
	p.dst = dst
	return p
}

// IPv6 behaves as IPv4.
func TestIPv6(t *testing.T) {
	g := group()
	g.IP = six(ipGroup)
	legs := []*mft.Leg{&g.Source.Leg}
	for i := range g.Paths {
		legs = append(legs, &g.Paths[i].Leg)
	}
	for _, l := range legs {
		l.L2[12], l.L2[13] = 0x86, 0xDD
		l.Src, l.Dst = six(l.Src), six(l.Dst)
	}
	net := newNet(t, g)
	net.Ports[0].Put(sixFrame(t, write(firstPSN, []byte("six")), six))
	net.Poll()
	for i, p := range g.Paths {
		out := net.Ports[i+1].Take()
		if len(out) != 1 {
			t.Fatalf("receiver %v got %d frames; counters %v", p.Dst, len(out), moved(net.Switch))
		}
		if d := decode(t, out[0]); d.Src != g.IP || d.Dst != p.Dst || d.PSN != p.FirstPSN || d.HopLimit != 63 || !d.ICRCValid || d.Payload != "six" {
			t.Errorf("receiver %v got %+v", p.Dst, d)
		}
		net.Ports[i+1].Put(sixFrame(t, ack([]netip.Addr{ipB, ipC, ipD}[i], p.FirstPSN, roce.SyndromeUnlimited), six))
		net.Poll()
	}
	out := net.Ports[0].Take()
	if len(out) != 1 || decode(t, out[0]).Src != g.IP || !decode(t, out[0]).ICRCValid {
		t.Fatalf("the source heard %d frames", len(out))
	}
}

// six returns the IPv6 address of a host.
func six(a netip.Addr) netip.Addr {
	b := netip.MustParseAddr("fd77::").As16()
	b[15] = a.As4()[3]
	return netip.AddrFrom16(b)
}

// sixFrame returns the packet's frame with IPv6 addresses.
func sixFrame(t *testing.T, p packet, six func(netip.Addr) netip.Addr) []byte {
	t.Helper()
	hostMAC := mac(p.src)
	p.src, p.dst = six(p.src), six(p.dst)
	return p.frameFrom(t, hostMAC)
}
