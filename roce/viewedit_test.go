package roce

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
)

func TestEditsChangeTheirFieldOnly(t *testing.T) {
	ip4, ip6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	for _, c := range []struct {
		name string
		ip   IPUDP
		o    Opcode
		edit func(v *View, f []byte)
		off  int
		want string // the bytes from off on; all others stay
	}{
		{"src", ipv6Pair, OpAck, func(v *View, f []byte) { v.SetSrcIP(f, ip6) }, 22, "20010db8000000000000000000000001"},
		{"dst", ipv6Pair, OpAck, func(v *View, f []byte) { v.SetDstIP(f, ip6) }, 38, "20010db8000000000000000000000001"},
		{"ECN", ipv6Pair, OpAck, func(v *View, f []byte) { v.SetECN(f, 3) }, 14, "66b0"},
		{"hop limit", ipv6Pair, OpAck, func(v *View, f []byte) { v.SetHopLimit(f, 0x3E) }, 21, "3e"},
		{"QPN", ipv4Pair, OpAck, func(v *View, f []byte) { v.SetDestQPN(f, 0xFFABCDEF) }, 46, "00abcdef"},
		{"PSN", ipv4Pair, OpAck, func(v *View, f []byte) { v.SetPSN(f, 0xFF000001) }, 50, "80000001"},
		{"RETH", ipv4Pair, OpWriteOnlyImm, func(v *View, f []byte) { v.SetRETHTarget(f, 0x1122, 0x33) }, 54,
			"0000000000001122000000330d0e0f10"},
		{"RETH behind FETH", ipv4Pair, OpFlush, func(v *View, f []byte) { v.SetRETHTarget(f, 0x1122, 0x33) }, 54,
			"010203040000000000001122000000331112"},
		{"dst and back", ipv4Pair, OpAck, func(v *View, f []byte) { v.SetDstIP(f, ip4); v.SetDstIP(f, ipv4Pair.Dst) }, 14, "4502"},
	} {
		frame := testFrame(t, c.ip, 0, c.o, 8)
		want := slices.Clone(frame)
		copy(want[c.off:], unhex(t, c.want))
		c.edit(viewOf(t, frame), frame)
		if !slices.Equal(frame, want) {
			t.Errorf("%s:\n%x, want\n%x", c.name, frame, want)
		}
	}
}

func TestEditsReadBack(t *testing.T) {
	frame := testFrame(t, ipv4Pair, 1, OpFlush, 0)
	v := viewOf(t, frame)
	v.SetRETHTarget(frame, 0x1122, 0x33)
	if got, want := v.RETH(frame), (RETH{VA: 0x1122, RKey: 0x33, DMABytes: 0x11121314}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestIPv4EditsKeepTheChecksum(t *testing.T) {
	ip := ipv4Pair
	ip.TrafficClass = 0x6A // a DSCP, which stays
	frame := testFrame(t, ip, 0, OpAck, 0)
	v := viewOf(t, frame)
	stored := func() uint16 { return binary.BigEndian.Uint16(frame[v.L3+ipv4ChecksumOffset:]) }
	for i := range uint32(70000) {
		src := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, i*0x9E3779B1)))
		dst := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, ^i)))
		v.SetSrcIP(frame, src)
		v.SetDstIP(frame, dst)
		v.SetECN(frame, uint8(i))
		v.SetHopLimit(frame, uint8(i>>3))
		if v.SrcIP(frame) != src || v.DstIP(frame) != dst || frame[v.L3] != 0x45 {
			t.Fatalf("%v > %v, want %v > %v; first byte %#x", v.SrcIP(frame), v.DstIP(frame), src, dst, frame[v.L3])
		}
		if v.ECN(frame) != uint8(i)&3 || v.HopLimit(frame) != uint8(i>>3) || v.TrafficClass(frame)&^3 != ip.TrafficClass&^3 {
			t.Fatalf("class %#x, hop limit %d", v.TrafficClass(frame), v.HopLimit(frame))
		}
		if got, want := stored(), IPv4HeaderChecksum(frame[v.L3:]); got != want {
			t.Fatalf("%v > %v: checksum %#x, want %#x", v.SrcIP(frame), v.DstIP(frame), got, want)
		}
	}
	frame[v.L3+8]-- // as if damaged on its way here
	v.SetDstIP(frame, ipv4Pair.Dst)
	if stored() == IPv4HeaderChecksum(frame[v.L3:]) {
		t.Error("an edit made a damaged header look whole")
	}
}

func TestIPv6ECN(t *testing.T) {
	frame := testFrame(t, ipv6Pair, 1, OpAck, 0)
	v := viewOf(t, frame)
	frame[v.L3+1] |= 0x0F // the flow label begins here
	want := slices.Clone(frame)
	for ecn := range uint8(8) {
		v.SetECN(frame, ecn)
		if got := v.TrafficClass(frame); got != ipv6Pair.TrafficClass&^3|ecn&3 {
			t.Errorf("ECN %d: traffic class %#x", ecn, got)
		}
	}
	v.SetECN(frame, ipv6Pair.TrafficClass)
	if !slices.Equal(frame, want) {
		t.Errorf("%x, want %x", frame, want)
	}
}

func TestClearUDPChecksum(t *testing.T) {
	frame := testFrame(t, ipv4Pair, 0, OpAck, 0)
	v := viewOf(t, frame)
	frame[v.UDP+6], frame[v.UDP+7] = 0xBE, 0xEF
	if !v.ICRCValid(flat(frame)) || v.UDPChecksum(frame) != 0xBEEF {
		t.Error("the ICRC covers the UDP checksum")
	}
	v.ClearUDPChecksum(frame)
	if v.UDPChecksum(frame) != 0 {
		t.Error("the UDP checksum is still there")
	}
}

func TestCapturedIPv4Checksums(t *testing.T) {
	eachRoCE(t, func(name string, index int, frame []byte, v *View) {
		if v.IPv6 {
			return
		}
		stored := binary.BigEndian.Uint16(frame[v.L3+ipv4ChecksumOffset:])
		if got := IPv4HeaderChecksum(frame[v.L3:]); got != stored {
			t.Errorf("%s frame %d: checksum %#x, want %#x", name, index, got, stored)
		}
	})
}
