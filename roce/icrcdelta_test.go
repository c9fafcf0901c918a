package roce

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// randomEdit changes each field that a copy may change with a probability of one half.
func randomEdit(r *rand.Rand, v *View, head []byte) {
	a := make([]byte, 16)
	for i := range a {
		a[i] = byte(r.Uint32())
	}
	addr := netip.AddrFrom16([16]byte(a))
	if !v.IPv6 {
		addr = netip.AddrFrom4([4]byte(a))
	}
	edits := []func(){
		func() { v.SetSrcIP(head, addr) },
		func() { v.SetDstIP(head, addr) },
		func() { v.SetECN(head, uint8(r.Uint32())) },
		func() { v.SetHopLimit(head, uint8(r.Uint32())) },
		func() { v.SetDestQPN(head, QPN(r.Uint32())) },
		func() { v.SetPSN(head, PSN(r.Uint32())) },
		func() {
			if v.Opcode.Headers().Has(HasRETH) {
				v.SetRETHTarget(head, r.Uint64(), r.Uint32())
			}
		},
	}
	for _, edit := range edits {
		if r.Uint32()&1 != 0 {
			edit()
		}
	}
}

// The incremental ICRC equals the full one for every length that a path MTU of 4096 allows, over
// IPv4 and IPv6 and with headers of several lengths.
func TestUpdateEqualsFullForEveryLength(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 0))
	families := []IPUDP{ipv4Pair, ipv6Pair}
	opcodes := []Opcode{OpSendMiddle, OpWriteFirst, OpWriteOnlyImm, OpSendLastImm, OpFlush}
	var was, is MaskedHeaders
	for payload := range 4097 {
		for n, family := range families {
			o := opcodes[(payload+n)%len(opcodes)]
			frame := testFrame(t, family, payload%3, o, payload)
			v := viewOf(t, frame)
			for range 2 {
				icrc := v.StoredICRC(flat(frame))
				v.MaskHeaders(frame, &was)
				randomEdit(r, v, frame)
				v.MaskHeaders(frame, &is)
				got := UpdateICRC(icrc, &was, &is, v.PayloadBytes+int(v.PadCount))
				if want := v.ComputeICRC(flat(frame)); got != want {
					t.Fatalf("%v with %d bytes, IPv6 %v: %#x, want %#x", o, payload, v.IPv6, got, want)
				}
				v.PutICRC(flat(frame), got)
			}
		}
	}
}

// The same holds for frames that rxe sent.
func TestUpdateEqualsFullOnCaptures(t *testing.T) {
	r := rand.New(rand.NewPCG(18, 0))
	eachRoCE(t, func(name string, index int, frame []byte, v *View) {
		var was, is MaskedHeaders
		v.MaskHeaders(frame, &was)
		randomEdit(r, v, frame)
		v.MaskHeaders(frame, &is)
		v.PutICRC(flat(frame), UpdateICRC(v.StoredICRC(flat(frame)), &was, &is, v.ICRC-v.Payload))
		if !v.ICRCValid(flat(frame)) {
			t.Errorf("%s frame %d: invalid after an edit", name, index)
		}
	})
}

// A frame that was damaged stays damaged by the same difference, wherever the damage is.
func TestUpdatePreservesDamage(t *testing.T) {
	r := rand.New(rand.NewPCG(19, 0))
	good := testFrame(t, ipv4Pair, 0, OpWriteOnly, 333)
	v := viewOf(t, good)
	for _, at := range []int{v.UDP, v.BTH + 5, v.Ext, v.Payload, v.Payload + 100, v.ICRC - 1, v.ICRC, v.ICRC + 3} {
		frame := slices.Clone(good)
		frame[at] ^= 0x10
		damage := v.StoredICRC(flat(frame)) ^ v.ComputeICRC(flat(frame))
		var was, is MaskedHeaders
		v.MaskHeaders(frame, &was)
		randomEdit(r, v, frame)
		v.MaskHeaders(frame, &is)
		icrc := UpdateICRC(v.StoredICRC(flat(frame)), &was, &is, v.ICRC-v.Payload)
		if got := icrc ^ v.ComputeICRC(flat(frame)); got != damage || damage == 0 {
			t.Errorf("byte %d: difference %#x became %#x", at, damage, got)
		}
	}
}

// advance equals adding zero bytes one by one, up to the longest datagram.
func TestAdvance(t *testing.T) {
	const seed = 0x12345678
	reg := uint32(seed)
	for n := range 1 << 16 {
		if got := advance(seed, n); got != reg {
			t.Fatalf("over %d bytes: %#x, want %#x", n, got, reg)
		}
		reg = crcTables[0][byte(reg)] ^ reg>>8
	}
}

// The register of a difference is that of the bytes of the difference, whichever bits differ, and
// also where a word cancels what the register holds.
func TestRegisterOfADifference(t *testing.T) {
	bytewise := func(b []byte) (reg uint32) {
		for _, x := range b {
			reg = crcTables[0][byte(reg)^x] ^ reg>>8
		}
		return reg
	}
	check := func(delta []byte) {
		t.Helper()
		var was, is MaskedHeaders
		was.n, is.n = len(delta), len(delta)
		for i := range delta {
			was.bytes[i] = byte(i * 7)
			is.bytes[i] = was.bytes[i] ^ delta[i]
		}
		if got, want := crcDelta(&was, &is), bytewise(delta); got != want {
			t.Errorf("%x: %#x, want %#x", delta, got, want)
		}
	}
	for _, n := range []int{4, 8, 12, 16, 20, 28} {
		for bit := range 8 * n {
			delta := make([]byte, n)
			delta[bit/8] = 1 << (bit % 8)
			check(delta)
		}
	}
	delta := make([]byte, 24)
	delta[3] = 0x5A
	binary.LittleEndian.PutUint32(delta[8:], bytewise(delta[:8])) // leaves the register at zero
	check(delta)
}

func TestUpdateRefusesOtherLength(t *testing.T) {
	var was, is MaskedHeaders
	frame := testFrame(t, ipv4Pair, 0, OpWriteFirst, 0)
	viewOf(t, frame).MaskHeaders(frame, &was)
	frame = testFrame(t, ipv4Pair, 0, OpWriteMiddle, 0)
	viewOf(t, frame).MaskHeaders(frame, &is)
	defer func() {
		if recover() == nil {
			t.Error("headers of different length were compared")
		}
	}()
	UpdateICRC(0, &was, &is, 0)
}

func TestUpdateDoesNotAllocate(t *testing.T) {
	frame := testFrame(t, ipv6Pair, 0, OpWriteOnlyImm, 1000)
	v := viewOf(t, frame)
	if n := testing.AllocsPerRun(100, func() { copyEdit(v, frame) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if !v.ICRCValid(flat(frame)) {
		t.Error("invalid after the edits")
	}
}

// copyEdit makes all changes of one copy of a WRITE_FIRST in place.
func copyEdit(v *View, frame []byte) {
	var was, is MaskedHeaders
	fragments := [1][]byte{frame}
	v.MaskHeaders(frame, &was)
	v.SetPSN(frame, v.PSN(frame).Next())
	v.SetDestQPN(frame, v.DestQPN(frame)+1)
	v.SetRETHTarget(frame, binary.BigEndian.Uint64(frame[v.Ext:])+4096, 77)
	v.SetDstIP(frame, v.DstIP(frame).Next())
	v.MaskHeaders(frame, &is)
	v.PutICRC(fragments[:], UpdateICRC(v.StoredICRC(fragments[:]), &was, &is, v.PayloadBytes+int(v.PadCount)))
}

func BenchmarkUpdateICRC(b *testing.B) {
	for _, payload := range []int{0, 64, 256, 1000, 1024, 4096} {
		b.Run(fmt.Sprint(payload), func(b *testing.B) {
			frame := testFrame(b, ipv4Pair, 0, OpWriteFirst, payload)
			v := viewOf(b, frame)
			var was, is MaskedHeaders
			v.MaskHeaders(frame, &was)
			copyEdit(v, frame)
			v.MaskHeaders(frame, &is)
			b.ReportAllocs()
			for b.Loop() {
				UpdateICRC(0, &was, &is, payload)
			}
		})
	}
}

func BenchmarkMaskHeaders(b *testing.B) {
	frame := testFrame(b, ipv4Pair, 0, OpWriteFirst, 1024)
	v := viewOf(b, frame)
	var m MaskedHeaders
	b.ReportAllocs()
	for b.Loop() {
		v.MaskHeaders(frame, &m)
	}
}

// BenchmarkCopyEdit measures the whole edit of one copy, ICRC included.
func BenchmarkCopyEdit(b *testing.B) {
	frame := testFrame(b, ipv4Pair, 0, OpWriteFirst, 1024)
	v := viewOf(b, frame)
	b.ReportAllocs()
	for b.Loop() {
		copyEdit(v, frame)
	}
}
