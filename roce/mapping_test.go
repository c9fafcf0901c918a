package roce

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// A mapped packet is byte for byte the one that would have been sent to where it is mapped to: of
// both families, for every header stack, where the PSN wraps too. Whatever lies behind the first
// fragment is not read but for the ICRC.
func TestAMappedPacketIsTheOneForItsTarget(t *testing.T) {
	r := rand.New(rand.NewPCG(29, 6))
	for _, family := range []IPUDP{ipv4Pair, ipv6Pair} {
		for _, o := range []Opcode{OpSendMiddle, OpSendLastImm, OpWriteFirst, OpWriteOnly, OpWriteOnlyImm} {
			for _, payload := range []int{0, 1, 3, 256, 1023, 1024, 4096} {
				for range 8 {
					want := testFrame(t, family, payload%3, o, payload)
					v := viewOf(t, want)
					want[v.UDP+6], want[v.UDP+7] = 0, 0 // as all frames of a box
					// The same packet to another address, with another QPN and PSN.
					to := Flow{v.SrcIP(want), v.DstIP(want), v.DestQPN(want)}
					from := Flow{to.Src, randomAddr(r, v.IPv6), QPN(r.Uint32()) & psnMask}
					add := r.Uint32() & psnMask
					sent := slices.Clone(want)
					setFields(v, sent, from, v.PSN(sent).Add(-int32(add)), rethOf(v, sent).VA, rethOf(v, sent).RKey)
					v.SetHopLimit(sent, v.HopLimit(want))

					m, was := NewMapping(from, to, add), Original{}
					cut := v.Payload + r.IntN(len(sent)-v.Payload+1)
					got := [][]byte{sent[:cut], sent[cut:]}
					m.Apply(v, got, &was)
					if !bytes.Equal(sent, want) {
						t.Fatalf("%v with %d bytes, IPv6 %v:\n%x\n%x", o, payload, v.IPv6, sent, want)
					}
				}
			}
		}
	}
}

func rethOf(v *View, frame []byte) (h RETH) {
	if v.Opcode.Headers().Has(HasRETH) {
		h = v.RETH(frame)
	}
	return h
}

// A packet that was damaged before it is mapped stays damaged.
func TestADamagedPacketIsMappedToADamagedOne(t *testing.T) {
	for _, family := range []IPUDP{ipv4Pair, ipv6Pair} {
		frame := testFrame(t, family, 0, OpWriteOnly, 1024)
		v := viewOf(t, frame)
		from := Flow{v.SrcIP(frame), v.DstIP(frame), v.DestQPN(frame)}
		frame[v.Payload+77] ^= 4
		m, was := NewMapping(from, Flow{from.Src, from.Src, 88}, 5), Original{}
		m.Apply(v, flat(frame), &was)
		if v.ICRCValid(flat(frame)) {
			t.Errorf("IPv6 %v: it is undamaged", v.IPv6)
		}
	}
}
