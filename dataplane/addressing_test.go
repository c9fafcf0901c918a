package dataplane_test

import (
	"net/netip"
	"testing"

	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// How the source names the group decides which addresses copies and merged
// feedback carry; to every NIC they are its peer's.
func TestAddressings(t *testing.T) {
	ipSwitch := netip.MustParseAddr("10.77.0.254")
	for _, tt := range []struct {
		name     string
		edit     func(*mft.Group)
		dataTo   netip.Addr // what the source has for a peer
		copyFrom netip.Addr // what receivers have for a peer
	}{
		{"group-ip", func(*mft.Group) {}, ipGroup, ipGroup},
		{"virtual-qpn", func(g *mft.Group) {
			g.Addressing, g.IP = mft.ByVirtualQPN, netip.Addr{}
			g.Source.Src = ipB // feedback to the source comes from whom it talks to
			for i := range g.Paths {
				g.Paths[i].Src = ipA
			}
		}, ipB, ipA},
		{"switch-ip", func(g *mft.Group) {
			g.Addressing, g.IP, g.Source.Src = mft.BySwitchIP, ipSwitch, ipSwitch
			for i := range g.Paths {
				g.Paths[i].Src = ipSwitch
			}
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

// Over IPv6 everything is the same.
func TestIPv6(t *testing.T) {
	six := func(a netip.Addr) netip.Addr {
		b := netip.MustParseAddr("fd77::").As16()
		b[15] = a.As4()[3]
		return netip.AddrFrom16(b)
	}
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
		if d := decode(t, out[0]); d.Src != g.IP || d.Dst != p.Dst || d.PSN != p.FirstPSN || !d.ICRCValid || d.Payload != "six" {
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

// sixFrame is the packet's frame with its addresses made IPv6.
func sixFrame(t *testing.T, p packet, six func(netip.Addr) netip.Addr) []byte {
	t.Helper()
	hostMAC := mac(p.src)
	p.src, p.dst = six(p.src), six(p.dst)
	return p.frameFrom(t, hostMAC)
}
