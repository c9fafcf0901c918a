package roce

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
)

// referenceICRC follows the text of docs/wire.md#icrc one bit at a time, on a copy of the whole
// packet. It shares neither table nor View with the code that it checks. The frame must be
// untagged.
func referenceICRC(frame []byte) uint32 {
	const ip = 14
	packet := slices.Clone(frame[ip : len(frame)-4])
	udp := 20
	masked := []int{1, 8, 10, 11}
	if packet[0]>>4 == 6 {
		udp = 40
		packet[0] |= 0x0F
		masked = []int{1, 2, 3, 7}
	}
	masked = append(masked, udp+6, udp+7, udp+8+4)
	for _, i := range masked {
		packet[i] = 0xFF
	}
	reg := ^uint32(0)
	for _, b := range append(onesForLRH(), packet...) {
		reg ^= uint32(b)
		for range 8 {
			reg = reg>>1 ^ 0xEDB88320*(reg&1)
		}
	}
	return ^reg
}

func onesForLRH() []byte { return []byte{255, 255, 255, 255, 255, 255, 255, 255} }

// A ConnectX-4 Lx sent this notification (docs/wire.md#cnp).
func TestICRCOfConnectXCNP(t *testing.T) {
	frame := unhex(t, `525400000002 525400000001 0800
		45c2003c 718c4000 4011 0000 0a001101 0a001201
		0000 12b7 0028 0000
		8100ffff 40000118 00000000
		00000000 00000000 00000000 00000000
		82fd002a`)
	v := viewOf(t, frame)
	if v.Opcode != OpCNP || v.PayloadBytes != 0 || v.DestQPN(frame) != 0x118 || v.TrafficClass(frame) != 0xC2 {
		t.Errorf("%+v", v)
	}
	if got := v.ComputeICRC(flat(frame)); got != 0x2A00FD82 || v.StoredICRC(flat(frame)) != got {
		t.Errorf("ICRC %#x, on the wire %#x", got, v.StoredICRC(flat(frame)))
	}
	bth := CNPHeader(0x118)
	var body CNP
	if got := body.Append(bth.Append(nil)); !slices.Equal(got, frame[v.BTH:v.ICRC]) {
		t.Errorf("we would send %x", got)
	}
}

// Every frame of every capture has a valid ICRC, in one piece and in several, according to our code
// and to the reference.
func TestICRCOfEveryCapturedFrame(t *testing.T) {
	frames := eachRoCE(t, func(name string, index int, frame []byte, v *View) {
		stored := v.StoredICRC(flat(frame))
		if got := v.ComputeICRC(flat(frame)); got != stored {
			t.Errorf("%s frame %d: ICRC %#x, on the wire %#x", name, index, got, stored)
		}
		if got := referenceICRC(frame); got != stored {
			t.Errorf("%s frame %d: the reference says %#x, on the wire %#x", name, index, got, stored)
		}
		if in := split(frame, v.Payload, (v.ICRC-v.Payload)/2); !v.ICRCValid(in) {
			t.Errorf("%s frame %d: not valid in three fragments", name, index)
		}
	})
	if frames != 1586 {
		t.Errorf("%d RoCE frames in the captures", frames)
	}
}

func TestICRCOverIPv6(t *testing.T) {
	for _, o := range wantOpcodes {
		for _, payload := range []int{0, 1, 1001, 4096} {
			frame := testFrame(t, ipv6Pair, 0, Opcode(o.value), payload)
			v := viewOf(t, frame)
			if got, want := v.StoredICRC(flat(frame)), referenceICRC(frame); got != want {
				t.Errorf("%s with %d bytes: %#x, want %#x", o.name, payload, got, want)
			}
		}
	}
}

// The ICRC does not cover tags, Ethernet padding and MACs.
func TestICRCIgnoresTheLink(t *testing.T) {
	for _, ip := range []IPUDP{ipv4Pair, ipv6Pair} {
		var want uint32
		for vlans := range 3 {
			frame := append(testFrame(t, ip, vlans, OpWriteOnly, 100), "padding"...)
			copy(frame, "any MACs....")
			got := viewOf(t, frame).ComputeICRC(flat(frame))
			if vlans == 0 {
				want = got
			}
			if got != want {
				t.Errorf("%d tags: %#x, want %#x", vlans, got, want)
			}
		}
	}
}

// Each bit of a packet is either covered or one of those that a router may change.
func TestICRCMask(t *testing.T) {
	const ip = 14
	for _, c := range []struct {
		family IPUDP
		blind  map[int]byte // offset in the frame: bits the ICRC does not see
	}{
		{ipv4Pair, map[int]byte{ip + 1: 0xFF, ip + 8: 0xFF, ip + 10: 0xFF, ip + 11: 0xFF, 40: 0xFF, 41: 0xFF, 46: 0xFF}},
		{ipv6Pair, map[int]byte{ip: 0x0F, ip + 1: 0xFF, ip + 2: 0xFF, ip + 3: 0xFF, ip + 7: 0xFF, 60: 0xFF, 61: 0xFF, 66: 0xFF}},
	} {
		frame := testFrame(t, c.family, 0, OpWriteOnlyImm, 7)
		v := viewOf(t, frame)
		icrc := v.StoredICRC(flat(frame))
		for i := ip; i < v.ICRC; i++ {
			for bit := byte(1); bit != 0; bit <<= 1 {
				frame[i] ^= bit
				seen := v.ComputeICRC(flat(frame)) != icrc
				if blind := c.blind[i]&bit != 0; seen == blind {
					t.Errorf("IPv6 %v: byte %d bit %#02x covered %v", v.IPv6, i, bit, seen)
				}
				frame[i] ^= bit
			}
		}
	}
}

// However the frame is cut into fragments behind its headers, even inside the ICRC, the result is
// the same.
func TestICRCAcrossFragments(t *testing.T) {
	frame := testFrame(t, ipv4Pair, 1, OpWriteFirst, 40)
	v := viewOf(t, frame)
	want := v.StoredICRC(flat(frame))
	for first := v.Payload; first <= len(frame); first++ {
		for second := range len(frame) - first + 1 {
			in := split(slices.Clone(frame), first, second, 0)
			if v.ComputeICRC(in) != want || v.StoredICRC(in) != want {
				t.Fatalf("cut at %d and %d: computed %#x, stored %#x, want %#x",
					first, first+second, v.ComputeICRC(in), v.StoredICRC(in), want)
			}
			v.PutICRC(in, 0x44332211)
			if got := slices.Concat(in...); !slices.Equal(got[v.ICRC:], []byte{0x11, 0x22, 0x33, 0x44}) ||
				!slices.Equal(got[:v.ICRC], frame[:v.ICRC]) {
				t.Fatalf("cut at %d and %d: stored %x", first, first+second, got[v.ICRC:])
			}
		}
	}
}

func TestICRCDoesNotAllocate(t *testing.T) {
	frame := testFrame(t, ipv6Pair, 0, OpWriteOnlyImm, 2048)
	v := viewOf(t, frame)
	if n := testing.AllocsPerRun(100, func() {
		fragments := [3][]byte{frame[:100], frame[100 : len(frame)-2], frame[len(frame)-2:]}
		v.PutICRC(fragments[:], v.ComputeICRC(fragments[:]))
		if !v.ICRCValid(fragments[:]) {
			t.Error("own ICRC is wrong")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkComputeICRC(b *testing.B) {
	for _, payload := range []int{0, 64, 256, 1024, 4096} {
		b.Run(fmt.Sprint(payload), func(b *testing.B) {
			frame := testFrame(b, ipv4Pair, 0, OpWriteFirst, payload)
			v, fragments := viewOf(b, frame), flat(frame)
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			for b.Loop() {
				v.ComputeICRC(fragments)
			}
		})
	}
}

// A router that updates a header checksum as in RFC 1141 may write 0xFFFF where others write 0. A
// receiver takes both (RFC 1624, 3).
func TestBothZerosOfAChecksum(t *testing.T) {
	frame := testFrame(t, ipv4Pair, 0, OpAck, 0)
	v := viewOf(t, frame)
	for id := uint16(1); IPv4HeaderChecksum(frame[v.L3:]) != 0; id++ {
		binary.BigEndian.PutUint16(frame[v.L3+4:], id)
	}
	v.PutICRC(flat(frame), v.ComputeICRC(flat(frame)))
	for checksum, want := range map[uint16]bool{0: true, 0xFFFF: true, 1: false, 0xFFFE: false} {
		binary.BigEndian.PutUint16(frame[v.L3+ipv4ChecksumOffset:], checksum)
		if v.Undamaged(flat(frame)) != want {
			t.Errorf("a header with checksum %#x is undamaged: %v", checksum, !want)
		}
	}
}
