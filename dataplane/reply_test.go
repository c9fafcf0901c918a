package dataplane_test

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Replies byte for byte. They look like a NIC's answers to the source's own packets: they have the
// packets' P_Key and traffic class, but not the ECN bits, which tell what happened to the packets.
// The migration request is that of the receiver that answered.
func TestRepliesByteForByte(t *testing.T) {
	const pkey, class = 0x8123, 0x6B // DSCP 26, congestion experienced
	ipv6 := func(g *mft.Group) {
		g.IP = six(g.IP)
		for _, l := range g.Legs() {
			l.L2[12], l.L2[13] = 0x86, 0xDD
			l.Src, l.Dst = six(l.Src), six(l.Dst)
		}
	}
	for _, tt := range []struct {
		name   string
		edit   func(*mft.Group)
		answer func(*packet) // of b, which answers last
		want   string
	}{
		{"ACK", func(*mft.Group) {}, func(*packet) {},
			"020000000001 020000000064 0800 " +
				"456800300000400040112557 0a4d0064 0a4d0001 " +
				"c01112b7001c0000 1100812300000011000003e8 1f000001 99c4a7a5"},
		{"ACK with MigReq", func(*mft.Group) {}, func(p *packet) { p.bth.MigReq = true },
			"020000000001 020000000064 0800 " +
				"456800300000400040112557 0a4d0064 0a4d0001 " +
				"c01112b7001c0000 1140812300000011000003e8 1f000001 e4bf5c6f"},
		{"NAK", func(*mft.Group) {}, func(p *packet) { p.aeth = &roce.AETH{Syndrome: roce.NAKRemoteAccess} },
			"020000000001 020000000064 0800 " +
				"456800300000400040112557 0a4d0064 0a4d0001 " +
				"c01112b7001c0000 1100812300000011000003e8 62000000 4e8cf54b"},
		{"IPv6", ipv6, func(*packet) {},
			"020000000001 020000000064 86dd " +
				"66800000001c1140 fd770000000000000000000000000064 fd770000000000000000000000000001 " +
				"c01112b7001c0000 1100812300000011000003e8 1f000001 312d5732"},
		{"tagged", func(g *mft.Group) {
			g.Source.L2Bytes = uint8(copy(g.Source.L2[:], roce.AppendVLAN(nil, mac(ipA), macBox, 7, 0x0800)))
		}, func(*packet) {},
			"020000000001 020000000064 81000007 0800 " +
				"456800300000400040112557 0a4d0064 0a4d0001 " +
				"c01112b7001c0000 1100812300000011000003e8 1f000001 99c4a7a5"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := group()
			tt.edit(g)
			net := newNet(t, g)
			data := write(firstPSN, nil)
			data.bth.PKey, data.class = pkey, class
			if g.Source.L2Bytes == 18 {
				data.tags = []uint16{7}
			}
			last := ack(ipB, 0xFFFFF2, roce.SyndromeUnlimited)
			tt.answer(&last)
			for _, p := range []packet{
				data, ack(ipC, 0xFFFFF3, roce.SyndromeUnlimited), ack(ipD, 0xFFFFF4, roce.SyndromeUnlimited), last,
			} {
				if g.IP.Is6() {
					net.Ports[portOf[p.src]].Put(sixFrame(t, p, six))
				} else {
					net.Ports[portOf[p.src]].Put(p.frame(t))
				}
				net.Poll()
			}
			out := net.Ports[0].Take()
			if len(out) != 1 {
				t.Fatalf("the source heard %d frames; counters %v", len(out), moved(net.Switch))
			}
			if got := hex.EncodeToString(out[0]); got != strings.ReplaceAll(tt.want, " ", "") {
				t.Errorf("\ngot  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// A CNP is passed on with its own traffic class, by which networks sort CNPs, and with the P_Key of
// the source's packets.
func TestCNPByteForByte(t *testing.T) {
	net := newNet(t, group())
	say(t, net, cnp(ipC)) // before the source has sent anything: the default P_Key
	if out := net.Ports[0].Take(); len(out) != 1 || hex.EncodeToString(out[0][44:46]) != "ffff" {
		t.Errorf("the source heard %x", out)
	}
	net = newNet(t, group())
	data := write(firstPSN, nil)
	data.bth.PKey = 0x8123
	say(t, net, data)
	notice := cnp(ipB)
	notice.class, notice.hopLimit = 0xC2, 200 // DSCP 48, ECN-capable
	say(t, net, notice)
	out := net.Ports[0].Take()
	if len(out) != 1 {
		t.Fatalf("the source heard %d frames; counters %v", len(out), moved(net.Switch))
	}
	want := "020000000001 020000000064 0800 " +
		"45c0003c00004000c7119df2 0a4d0064 0a4d0001 " +
		"c01112b700280000 810081234000001100000000 00000000000000000000000000000000 8a5d387d"
	if got := hex.EncodeToString(out[0]); got != strings.ReplaceAll(want, " ", "") {
		t.Errorf("\ngot  %s\nwant %s", got, want)
	}
}

// What cannot be sent is counted, and takes no buffer. The source sends again, and is answered when
// there is a way to it.
func TestWhatCannotBeSentIsCounted(t *testing.T) {
	g := group()
	net := newNet(t, g)
	ports := func(source, b, c mft.PortID) {
		t.Helper()
		next := *g
		next.Source.Port = source
		next.Paths = append([]mft.Path(nil), g.Paths...)
		next.Paths[0].Port, next.Paths[1].Port = b, c
		if err := net.Switch.Replace(g.ID, &next); err != nil {
			t.Fatal(err)
		}
		g = &next
	}
	answer := func(packet int32) {
		for _, p := range g.Paths {
			say(t, net, ack(p.Dst, p.FirstPSN.Add(packet), roce.SyndromeUnlimited))
		}
	}
	expect := func(unsent uint64) {
		t.Helper()
		if n := counter(t, net.Switch, "unsent"); n != unsent || net.Pool.Lent != 0 {
			t.Errorf("%d unsent, want %d; %d buffers are lent", n, unsent, net.Pool.Lent)
		}
	}
	ports(0, 1, mft.NoPort)
	say(t, net, write(firstPSN, nil))
	expect(1)
	ports(0, mft.NoPort, mft.NoPort)
	say(t, net, write(firstPSN, nil))
	expect(3)
	ports(mft.NoPort, 1, 2)
	answer(0)
	expect(4)
	ports(0, 1, 2)
	if out := net.Ports[0].Take(); len(out) != 0 {
		t.Errorf("the source heard %d frames", len(out))
	}
	say(t, net, write(firstPSN, nil))
	if psn := heard(t, net, ipA, roce.OpAck); psn != firstPSN {
		t.Errorf("the source heard ACK %d", psn)
	}
	expect(4)
}
