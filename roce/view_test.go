package roce

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/rocast/rocast/internal/captures"
)

func TestViewLocatesHeaders(t *testing.T) {
	for _, c := range []struct {
		name    string
		ip      IPUDP
		vlans   int
		o       Opcode
		payload int
		want    View
	}{
		{"untagged", ipv4Pair, 0, OpWriteOnlyImm, 5,
			View{L3: 14, UDP: 34, BTH: 42, Ext: 54, Payload: 74, PayloadBytes: 5, PadCount: 3, ICRC: 82}},
		{"one tag", ipv4Pair, 1, OpSendMiddle, 1024,
			View{VLANs: 1, L3: 18, UDP: 38, BTH: 46, Ext: 58, Payload: 58, PayloadBytes: 1024, ICRC: 1082}},
		{"two tags", ipv4Pair, 2, OpAck, 0,
			View{VLANs: 2, L3: 22, UDP: 42, BTH: 50, Ext: 62, Payload: 66, ICRC: 66}},
		{"IPv6", ipv6Pair, 0, OpWriteFirst, 4096,
			View{IPv6: true, L3: 14, UDP: 54, BTH: 62, Ext: 74, Payload: 90, PayloadBytes: 4096, ICRC: 4186}},
		{"IPv6, two tags", ipv6Pair, 2, OpCmpSwap, 0,
			View{IPv6: true, VLANs: 2, L3: 22, UDP: 62, BTH: 70, Ext: 82, Payload: 110, ICRC: 110}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.want.Opcode = c.o
			frame := testFrame(t, c.ip, c.vlans, c.o, c.payload)
			for _, trailing := range []int{0, 1, 46} { // Ethernet padding, or a NIC that leaves the FCS
				frame := append(slices.Clone(frame), make([]byte, trailing)...)
				if v := viewOf(t, frame); *v != c.want {
					t.Errorf("%d bytes trailing: %+v, want %+v", trailing, *v, c.want)
				}
			}
			v := viewOf(t, frame)
			if v.ECN(frame) != c.ip.TrafficClass&3 {
				t.Errorf("read ECN %d", v.ECN(frame))
			}
			if v.SrcIP(frame) != c.ip.Src || v.DstIP(frame) != c.ip.Dst || v.UDPSrcPort(frame) != c.ip.SrcPort ||
				v.TrafficClass(frame) != c.ip.TrafficClass || v.ECN(frame) != c.ip.TrafficClass&3 || v.HopLimit(frame) != c.ip.HopLimit || v.UDPChecksum(frame) != 0 {
				t.Errorf("read %v > %v port %d class %#x hop limit %d", v.SrcIP(frame), v.DstIP(frame), v.UDPSrcPort(frame),
					v.TrafficClass(frame), v.HopLimit(frame))
			}
			if v.DestQPN(frame) != 0x123456 || v.PSN(frame) != 0xFFFFFE || !v.AckReq(frame) || v.MigReq(frame) ||
				v.PKey(frame) != DefaultPKey {
				t.Errorf("read QPN %#x PSN %#x", v.DestQPN(frame), v.PSN(frame))
			}
		})
	}
}

func TestViewOfEveryOpcode(t *testing.T) {
	for _, o := range wantOpcodes {
		frame := testFrame(t, ipv6Pair, 2, Opcode(o.value), 0)
		v := viewOf(t, frame)
		if v.Payload-v.Ext != o.extBytes || v.Payload-v.L3 > maxHeaderBytes || (v.Payload-v.L3)%4 != 0 {
			t.Errorf("%s: %+v", o.name, v)
		}
	}
}

// Bits are read wherever the headers begin, and only these bits.
func TestViewReadsBits(t *testing.T) {
	for _, ip := range []IPUDP{ipv4Pair, ipv6Pair} {
		for vlans := range 3 {
			frame := testFrame(t, ip, vlans, OpAck, 0)
			v := viewOf(t, frame)
			migReq, ackReq := &frame[v.BTH+1], &frame[v.BTH+8]
			for _, on := range []bool{true, false} {
				*migReq, *ackReq = bit(on, bthMigReq)|bit(!on, 0xB0), bit(!on, bthAckReq)|bit(on, 0x7F)
				if v.MigReq(frame) != on || v.AckReq(frame) == on {
					t.Errorf("IPv6 %v, %d tags: MigReq %v of %#x, AckReq %v of %#x", v.IPv6, vlans, v.MigReq(frame), *migReq, v.AckReq(frame), *ackReq)
				}
			}
		}
	}
}

// A frame that ends with a header is refused for what the header says.
func TestViewOfFramesThatEndEarly(t *testing.T) {
	const ip, udp = 14, 34
	for _, c := range []struct {
		name  string
		bytes int
		at    int
		put   byte
		want  error
	}{
		{"ARP without a body", 14, 13, 6, ErrNotIP},
		{"TCP without a header", 34, ip + 9, 6, ErrNotUDP},
		{"a fragment without a body", 34, ip + 6, 0x20, ErrFragment},
		{"DNS without a body", 42, udp + 3, 53, ErrNotRoCE},
		{"IPv6, ICMP without a header", 54, ip + 6, 58, ErrNotUDP},
		{"IPv6, a fragment without a body", 54, ip + 6, 44, ErrFragment},
		{"IPv6, DNS without a body", 62, 54 + 3, 53, ErrNotRoCE},
	} {
		family := ipv4Pair
		if c.name[:4] == "IPv6" {
			family = ipv6Pair
		}
		frame := slices.Clone(testFrame(t, family, 0, OpAck, 0)[:c.bytes])
		frame[c.at] = c.put
		var v View
		if err := v.Decode(slices.Clip(frame), c.bytes); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// One valid frame, and one damage in each row.
func TestViewRefuses(t *testing.T) {
	const ip, udp, bth = 14, 34, 42
	const ip6, udp6 = 14, 54
	set := func(off int, b ...byte) func([]byte) { return func(f []byte) { copy(f[off:], b) } }
	for _, c := range []struct {
		name   string
		family IPUDP
		damage func(frame []byte)
		want   error
	}{
		{"nothing", ipv4Pair, set(0), nil},
		{"ARP", ipv4Pair, set(12, 0x08, 0x06), ErrNotIP},
		{"RoCE v1", ipv4Pair, set(12, 0x89, 0x15), ErrNotIP},
		{"three tags", ipv4Pair, set(12, 0x81, 0, 0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3, 0x08, 0), ErrNotIP},
		{"IPv6 in an IPv4 frame", ipv4Pair, set(ip, 0x65), ErrNotIP},
		{"IPv4 in an IPv6 frame", ipv6Pair, set(ip6, 0x45), ErrNotIP},
		{"IPv4 options", ipv4Pair, set(ip, 0x46), ErrIPOptions},
		{"header too short to be one", ipv4Pair, set(ip, 0x44), ErrIPOptions},
		{"don't fragment off", ipv4Pair, set(ip+6, 0, 0), nil},
		{"first fragment", ipv4Pair, set(ip+6, 0x20, 0), ErrFragment},
		{"last fragment", ipv4Pair, set(ip+6, 0, 0x10), ErrFragment},
		{"TCP", ipv4Pair, set(ip+9, 6), ErrNotUDP},
		{"IP longer than the frame", ipv4Pair, set(ip+2, 0x40), ErrTruncated},
		{"IP shorter than UDP", ipv4Pair, set(ip+2, 0, 40), ErrLength},
		{"IPv6 fragment", ipv6Pair, set(ip6+6, 44), ErrFragment},
		{"IPv6 hop by hop", ipv6Pair, set(ip6+6, 0), ErrIPOptions},
		{"IPv6 destination options", ipv6Pair, set(ip6+6, 60), ErrIPOptions},
		{"IPv6 routing", ipv6Pair, set(ip6+6, 43), ErrIPOptions},
		{"ICMPv6", ipv6Pair, set(ip6+6, 58), ErrNotUDP},
		{"IPv6 jumbogram", ipv6Pair, set(ip6+4, 0, 0), ErrLength},
		{"UDP longer than IP", ipv4Pair, set(udp+4, 0x40), ErrLength},
		{"UDP shorter than a BTH", ipv4Pair, set(udp+4, 0, 20), ErrLength},
		{"UDP shorter than the headers", ipv4Pair, set(udp+4, 0, 36), ErrLength},
		{"UDP shorter than IP", ipv4Pair, set(udp+4, 0, 48), nil},
		{"DNS", ipv4Pair, set(udp+2, 0, 53), ErrNotRoCE},
		{"DNS over IPv6", ipv6Pair, set(udp6+2, 0, 53), ErrNotRoCE},
		{"version 1", ipv4Pair, set(bth+1, 0x01), ErrTVer},
		{"UC", ipv4Pair, set(bth, 0x24), ErrOpcode},
		{"RC operation 15", ipv4Pair, set(bth, 0x15), ErrOpcode},
	} {
		frame := testFrame(t, c.family, 0, OpWriteOnly, 16)
		c.damage(frame)
		var v View
		if err := v.Decode(frame, len(frame)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestViewRefusesPadWithoutPayload(t *testing.T) {
	frame := testFrame(t, ipv4Pair, 0, OpWriteOnly, 0)
	frame[43] = 1 << bthPadShift
	var v View
	if err := v.Decode(frame, len(frame)); !errors.Is(err, ErrLength) {
		t.Error(err)
	}
}

// A frame with a third tag is refused, although an IP header follows it.
func TestViewRefusesAThirdTag(t *testing.T) {
	frame := testFrame(t, ipv4Pair, 2, OpAck, 0)
	frame = slices.Insert(frame, 12, 0x81, 0, 0, 9)
	var v View
	if err := v.Decode(frame, len(frame)); err != ErrNotIP {
		t.Errorf("%v, want %v", err, ErrNotIP)
	}
}

// A refused opcode can still be attributed to its queue pair.
func TestViewAfterUnknownOpcode(t *testing.T) {
	frame := testFrame(t, ipv4Pair, 1, OpWriteOnly, 16)
	frame[46] = 0xA4
	var v View
	if err := v.Decode(frame, len(frame)); !errors.Is(err, ErrOpcode) {
		t.Fatal(err)
	}
	if v.Opcode != 0xA4 || v.DestQPN(frame) != 0x123456 || v.DstIP(frame) != ipv4Pair.Dst || v.Ext != 58 {
		t.Errorf("%+v", v)
	}
}

// A frame that is cut at any byte is refused. A head that is cut anywhere behind its headers is
// not.
func TestViewTruncations(t *testing.T) {
	for _, ip := range []IPUDP{ipv4Pair, ipv6Pair} {
		for vlans := range 3 {
			bare := testFrame(t, ip, vlans, OpSendOnly, 9) // no header behind the BTH
			if v, want := new(View), viewOf(t, bare); v.Decode(bare[:want.Ext:want.Ext], len(bare)) != nil || *v != *want {
				t.Errorf("a head that ends with the BTH: %+v, want %+v", v, want)
			}
			frame := testFrame(t, ip, vlans, OpWriteOnlyImm, 9)
			whole := viewOf(t, frame)
			for n := range frame {
				if err := new(View).Decode(frame, n); !errors.Is(err, ErrTruncated) {
					t.Fatalf("%d of %d bytes, more in the buffer: %v", n, len(frame), err)
				}
				var v View
				if err := v.Decode(frame[:n:n], n); !errors.Is(err, ErrTruncated) {
					t.Fatalf("IPv6 %v, %d tags, %d of %d bytes: %v", v.IPv6, vlans, n, len(frame), err)
				}
				err := v.Decode(frame[:n:n], len(frame))
				if n < whole.Payload && !errors.Is(err, ErrTruncated) || n >= whole.Payload && (err != nil || v != *whole) {
					t.Fatalf("head of %d of %d bytes: %v, %+v", n, len(frame), err, v)
				}
			}
		}
	}
}

// One View serves one frame after the other.
func TestViewIsReused(t *testing.T) {
	var v View
	for _, ip := range []IPUDP{ipv4Pair, ipv6Pair, ipv4Pair} {
		for _, vlans := range []int{2, 0, 1} {
			frame := testFrame(t, ip, vlans, OpWriteOnlyImm, 3)
			if err := v.Decode(frame, len(frame)); err != nil || v != *viewOf(t, frame) {
				t.Errorf("%+v, want %+v (%v)", v, *viewOf(t, frame), err)
			}
		}
	}
}

// A length that no RoCEv2 packet has is refused before the opcode is looked at.
func TestViewOfAShortUnknownPacket(t *testing.T) {
	frame := testFrame(t, ipv4Pair, 0, OpSendOnly, 0)
	frame[42] = 0xA4
	for udpBytes, want := range map[byte]error{19: ErrLength, 20: ErrLength, 23: ErrLength, 24: ErrOpcode} {
		frame[39] = udpBytes
		if err := new(View).Decode(frame, len(frame)); !errors.Is(err, want) {
			t.Errorf("UDP length %d: %v, want %v", udpBytes, err, want)
		}
	}
}

// capturedCM are the datagrams with which rping sets up its connection and ends it.
func capturedCM(t testing.TB) (frames [][]byte) {
	t.Helper()
	all, err := captures.Frames("rping")
	if err != nil {
		t.Fatal(err)
	}
	for _, frame := range all {
		var v View
		if v.Decode(frame.Data, len(frame.Data)) == nil && v.Opcode == OpUDSendOnly && v.DestQPN(frame.Data) == 1 {
			frames = append(frames, frame.Data)
		}
	}
	if len(frames) == 0 {
		t.Fatal("rping set no connection up")
	}
	return frames
}

func FuzzView(f *testing.F) {
	for _, ip := range []IPUDP{ipv4Pair, ipv6Pair} {
		for vlans := range 3 {
			f.Add(testFrame(f, ip, vlans, OpWriteOnlyImm, 9), uint16(0))
			f.Add(testFrame(f, ip, vlans, OpAck, 0), uint16(9))
		}
	}
	for _, frame := range capturedCM(f) {
		f.Add(frame, uint16(0))
		f.Add(frame[:100], uint16(len(frame)-100)) // the first of two fragments
	}
	f.Fuzz(func(t *testing.T, head []byte, more uint16) {
		var v View
		frameBytes := len(head) + int(more)
		if v.Decode(head, frameBytes) != nil {
			return
		}
		order := []int{0, v.L3, v.UDP, v.BTH, v.Ext, v.Payload, v.ICRC - int(v.PadCount) + 1, v.ICRC + 1, frameBytes}
		if !slices.IsSorted(order) || v.Payload > len(head) || v.PayloadBytes != v.ICRC-int(v.PadCount)-v.Payload ||
			v.ICRC+icrcBytes > frameBytes {
			t.Fatalf("%+v of %d bytes, head %d", v, frameBytes, len(head))
		}
		if binary.BigEndian.Uint16(head[v.UDP+2:]) != UDPPort {
			t.Fatalf("%+v points to port %d", v, binary.BigEndian.Uint16(head[v.UDP+2:]))
		}
		frame := append(bytes.Clone(head), make([]byte, more)...)
		v.PutICRC(flat(frame), v.ComputeICRC(flat(frame)))
		if !v.ICRCValid(flat(frame)) {
			t.Fatalf("%+v: own ICRC is wrong", v)
		}
	})
}

func TestViewDoesNotAllocate(t *testing.T) {
	frame := testFrame(t, ipv6Pair, 2, OpWriteOnlyImm, 100)
	broken := slices.Clone(frame)
	broken[70] = 0xFF
	var v View
	var sum uint32
	if n := testing.AllocsPerRun(100, func() {
		if v.Decode(broken, len(broken)) == nil {
			t.Error("opcode 0xff was taken")
		}
		if err := v.Decode(frame, len(frame)); err != nil {
			t.Error(err)
		}
		src, dst := v.SrcIP(frame), v.DstIP(frame)
		v.SetSrcIP(frame, dst)
		v.SetDstIP(frame, src)
		v.SetPSN(frame, v.PSN(frame).Next())
		sum += uint32(v.DestQPN(frame)) + v.RETH(frame).RKey
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkViewDecode(b *testing.B) {
	for name, frame := range map[string][]byte{
		"ipv4":      testFrame(b, ipv4Pair, 0, OpWriteFirst, 1024),
		"ipv6/vlan": testFrame(b, ipv6Pair, 1, OpWriteFirst, 1024),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var v View
			for b.Loop() {
				if err := v.Decode(frame, len(frame)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
