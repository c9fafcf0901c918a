package roce

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

func randomAddr(r *rand.Rand, ipv6 bool) netip.Addr {
	var a [16]byte
	for i := range a {
		a[i] = byte(r.Uint32())
	}
	if ipv6 {
		return netip.AddrFrom16(a)
	}
	return netip.AddrFrom4([4]byte(a[:4]))
}

// setFields writes what an Edit writes, field by field.
func setFields(v *View, frame []byte, to Flow, psn PSN, va uint64, rkey uint32) {
	var was, is MaskedHeaders
	v.MaskHeaders(frame, &was)
	v.SetSrcIP(frame, to.Src)
	v.SetDstIP(frame, to.Dst)
	v.SetHopLimit(frame, v.HopLimit(frame)-1)
	v.SetDestQPN(frame, to.DestQPN)
	v.SetPSN(frame, psn)
	if v.Opcode.Headers().Has(HasRETH) {
		v.SetRETHTarget(frame, va, rkey)
	}
	v.ClearUDPChecksum(frame)
	v.MaskHeaders(frame, &is)
	v.PutICRC(flat(frame), UpdateICRC(v.StoredICRC(flat(frame)), &was, &is, v.ICRC-v.Payload))
}

// An edit writes byte for byte what the setters write, for every length and header stack, and
// several copies may be written over one another.
func TestEditEqualsSetters(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 0))
	opcodes := []Opcode{OpSendMiddle, OpSendLastImm, OpWriteFirst, OpWriteOnly, OpWriteOnlyImm}
	lengths := []int{8192, 16384, 60000}
	for payload := range 4097 {
		lengths = append(lengths, payload)
	}
	for _, payload := range lengths {
		for n, family := range []IPUDP{ipv4Pair, ipv6Pair} {
			o := opcodes[(payload+n)%len(opcodes)]
			frame := testFrame(t, family, payload%3, o, payload)
			frame = append(frame, make([]byte, payload%4)...) // Ethernet padding, behind the ICRC
			v := viewOf(t, frame)
			frame[v.UDP+6], frame[v.UDP+7] = byte(payload), 1 // a checksum, which the ICRC does not cover
			frame[v.BTH+4] = byte(payload)                    // FECN and BECN, as little
			from := Flow{v.SrcIP(frame), v.DstIP(frame), v.DestQPN(frame)}
			was := original(v, frame)
			in := slices.Clone(frame)
			for range 3 {
				to := Flow{randomAddr(r, v.IPv6), randomAddr(r, v.IPv6), QPN(r.Uint32()) & psnMask}
				edit := NewEdit(from, to, nil)
				psn, va, rkey := PSN(r.Uint32())&psnMask, r.Uint64(), r.Uint32()
				var target *Target
				if v.Opcode.Headers().Has(HasRETH) {
					reth := v.RETH(in)
					x := NewTarget(reth.VA, reth.RKey, va, rkey)
					target = &x
				}
				was.PutICRC(frame, edit.Apply(frame, psn, target, &was))
				want := slices.Clone(in)
				setFields(v, want, to, psn, va, rkey)
				if !bytes.Equal(frame, want) {
					t.Fatalf("%v with %d bytes, IPv6 %v:\n%x\n%x", o, payload, v.IPv6, frame, want)
				}
				v.SetECN(frame, ^v.ECN(in)) // a mark of this copy, which the next one must not have
			}
		}
	}
}

// An edit has the Ethernet header of its copies, with tags and without. It keeps no reference to
// the header that it was made from.
func TestEditHasTheEthernetHeader(t *testing.T) {
	for _, bytesOf := range []int{14, 18, 22} {
		l2 := make([]byte, bytesOf)
		for i := range l2 {
			l2[i] = byte(i + 1)
		}
		want := slices.Clone(l2)
		edit := NewEdit(Flow{ipv4Pair.Src, ipv4Pair.Dst, 1}, Flow{ipv4Pair.Dst, ipv4Pair.Src, 77}, l2)
		clear(l2)
		if got := edit.L2[:edit.L2Bytes]; !bytes.Equal(got, want) {
			t.Errorf("%x, want %x", got, want)
		}
	}
}

// A copy with another AckReq bit is the frame that the source would have built, whichever copies
// were written over it before, and a damaged one stays damaged.
func TestAckReqEqualsAFrameBuiltAfresh(t *testing.T) {
	for _, family := range []IPUDP{ipv4Pair, ipv6Pair} {
		for _, o := range []Opcode{OpSendMiddle, OpWriteFirst, OpWriteOnlyImm} {
			for _, payload := range []int{0, 1, 1024, 4096} {
				asks, asksNot := testFrame(t, family, 0, o, payload), testFrame(t, family, 0, o, payload)
				setAckReq(t, asks, true)
				setAckReq(t, asksNot, false)
				for _, received := range [][]byte{asks, asksNot} {
					frame := slices.Clone(received)
					v := viewOf(t, frame)
					was := original(v, frame)
					same := Flow{v.SrcIP(frame), v.DstIP(frame), v.DestQPN(frame)}
					edit := NewEdit(same, same, nil)
					for _, ask := range []bool{true, true, false, true, false} {
						icrc := edit.Apply(frame, was.PSN, nil, &was)
						v.PutICRC(flat(frame), was.WriteAckReq(v, frame, ask, icrc))
						want := slices.Clone(asksNot)
						if ask || was.AckReq {
							want = slices.Clone(asks)
						}
						v.PutICRC(flat(want), edit.Apply(want, was.PSN, nil, new(original(viewOf(t, want), want))))
						if !bytes.Equal(frame, want) || !v.ICRCValid(flat(frame)) {
							t.Fatalf("%v with %d bytes, asked %v, ask %v:\n%x\n%x", o, payload, was.AckReq, ask, frame, want)
						}
					}
				}
			}
		}
	}
}

// setAckReq gives a frame another AckReq bit, and the ICRC that belongs to it.
func setAckReq(t *testing.T, frame []byte, ask bool) {
	v := viewOf(t, frame)
	frame[v.BTH+8] &^= bthAckReq
	if ask {
		frame[v.BTH+8] |= bthAckReq
	}
	v.PutICRC(flat(frame), v.ComputeICRC(flat(frame)))
}

// The shortest packets have no RETH that could be read.
func TestOriginalOfTheShortestPackets(t *testing.T) {
	for _, family := range []IPUDP{ipv4Pair, ipv6Pair} {
		frame := slices.Clip(testFrame(t, family, 0, OpSendOnly, 0))
		v := viewOf(t, frame)
		if was := original(v, frame); was.VA != 0 || was.PSN != v.PSN(frame) || was.ICRC != v.StoredICRC(flat(frame)) {
			t.Errorf("%+v", was)
		}
	}
}

// The tables for those who fold an ICRC elsewhere do what the register does.
func TestOperator(t *testing.T) {
	for _, n := range []int{0, 4, 256, 4096} {
		o := Operator(n)
		for _, reg := range []uint32{0, 1, 0x80000000, 0xDEADBEEF} {
			got := o[0][byte(reg)] ^ o[1][byte(reg>>8)] ^ o[2][byte(reg>>16)] ^ o[3][byte(reg>>24)]
			if want := advance(reg, n); got != want {
				t.Errorf("%#x over %d zero bytes: %#x, want %#x", reg, n, got, want)
			}
		}
	}
}

// What was damaged on the way here stays damaged: payload and IPv4 header.
func TestEditKeepsDamage(t *testing.T) {
	frame := testFrame(t, ipv4Pair, 0, OpWriteOnly, 256)
	v := viewOf(t, frame)
	frame[v.Payload] ^= 1
	frame[v.L3+5] ^= 1 // identification
	was := original(v, frame)
	edit := NewEdit(Flow{v.SrcIP(frame), v.DstIP(frame), v.DestQPN(frame)}, Flow{ipv4Pair.Dst, ipv4Pair.Src, 77}, nil)
	v.PutICRC(flat(frame), was.WriteAckReq(v, frame, true, edit.Apply(frame, 5, nil, &was)))
	if v.ICRCValid(flat(frame)) {
		t.Error("the ICRC of a damaged payload became valid")
	}
	if binary.BigEndian.Uint16(frame[v.L3+ipv4ChecksumOffset:]) == IPv4HeaderChecksum(frame[v.L3:]) {
		t.Error("the checksum of a damaged header became valid")
	}
}

func TestEditDoesNotAllocate(t *testing.T) {
	frame := testFrame(t, ipv4Pair, 0, OpWriteOnly, 1024)
	v := viewOf(t, frame)
	was, fragments := original(v, frame), flat(frame)
	edit := NewEdit(Flow{v.SrcIP(frame), v.DstIP(frame), v.DestQPN(frame)}, Flow{ipv4Pair.Dst, ipv4Pair.Src, 77}, nil)
	target := NewTarget(1, 2, 3, 4)
	if n := testing.AllocsPerRun(100, func() {
		v.PutICRC(fragments, was.WriteAckReq(v, frame, true, edit.Apply(frame, 5, &target, &was)))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func original(v *View, frame []byte) (o Original) {
	o.Read(v, flat(frame))
	return o
}

// What is read of one frame leaves nothing of the frame before.
func TestOriginalIsReadAnew(t *testing.T) {
	for _, pair := range []IPUDP{ipv4Pair, ipv6Pair} {
		for _, op := range []Opcode{OpWriteOnly, OpSendOnly} {
			frame := testFrame(t, pair, 0, op, 256)
			v := viewOf(t, frame)
			again := Original{L3: 9, AtICRC: 9, Bytes: 9, PSN: 9, ICRC: 9, RKey: 9, Checksum: 9, HopLimit: 9, Class: 9, AckReq: true, VA: 9, DMABytes: 9}
			again.Read(v, flat(frame))
			if once := original(v, frame); again != once {
				t.Errorf("%v: %+v, want %+v", op, again, once)
			}
			if op == OpSendOnly && (again.VA != 0 || again.RKey != 0 || again.DMABytes != 0) {
				t.Errorf("%v, which has no RETH: %+v", op, again)
			}
		}
	}
}

// Where the frame is cut into buffers makes no difference to what its copies are computed from.
func TestOriginalOfAFrameInPieces(t *testing.T) {
	frame := append(testFrame(t, ipv4Pair, 2, OpWriteOnly, 100), 0, 0) // with Ethernet padding
	v := viewOf(t, frame)
	want := original(v, frame)
	if int(want.Bytes) != len(frame) || want.ICRC != v.StoredICRC(flat(frame)) {
		t.Errorf("%d bytes, ICRC %#x: %+v", len(frame), v.StoredICRC(flat(frame)), want)
	}
	for cut := v.Payload; cut < len(frame); cut++ {
		var got Original
		got.Read(v, [][]byte{frame[:cut], frame[cut:]})
		if got != want {
			t.Errorf("cut at %d: %+v, want %+v", cut, got, want)
		}
	}
}

// BenchmarkEdit measures the edit of a copy without a RETH and of one with a RETH.
func BenchmarkEdit(b *testing.B) {
	for _, op := range []Opcode{OpWriteMiddle, OpWriteOnly} {
		b.Run(op.String(), func(b *testing.B) {
			frame := testFrame(b, ipv4Pair, 0, op, 1024)
			v := viewOf(b, frame)
			was, fragments := original(v, frame), flat(frame)
			edit := NewEdit(Flow{v.SrcIP(frame), v.DstIP(frame), v.DestQPN(frame)}, Flow{ipv4Pair.Dst, ipv4Pair.Src, 77}, nil)
			var target *Target
			if op == OpWriteOnly {
				t := NewTarget(1, 2, 3, 4)
				target = &t
			}
			for i := range b.N {
				v.PutICRC(fragments, edit.Apply(frame, PSN(i), target, &was))
			}
		})
	}
}
