package bpf

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rocast/rocast/internal/captures"
	"github.com/rocast/rocast/roce"
)

// classify is a second implementation of the classifier, on top of roce.View. decided is false
// where View refuses a frame because of its lengths, which the classifier leaves to the dataplane.
func classify(lookup map[Key]uint32, head []byte) (want outcome, decided bool) {
	var v roce.View
	switch err := v.Decode(head, len(head)); err {
	case nil, roce.ErrTVer, roce.ErrOpcode:
	case roce.ErrNotIP:
		return outcome{Verdict: PassNotIP}, true
	case roce.ErrFragment:
		return outcome{Verdict: refuseSource(lookup, source(&v, head), PassFragment)}, true
	case roce.ErrIPOptions:
		return outcome{Verdict: refuseSource(lookup, source(&v, head), PassIPOptions)}, true
	case roce.ErrNotUDP:
		return outcome{Verdict: PassNotUDP}, true
	case roce.ErrNotRoCE:
		return outcome{Verdict: PassNotRoCE}, true
	default:
		return outcome{}, false
	}
	kind, verdict := kindOf(v.Opcode, v.DestQPN(head))
	group, ok := find(lookup, &v, head, kind)
	if !ok {
		return outcome{Verdict: refuseSource(lookup, v.SrcIP(head), PassNoGroup)}, true
	}
	return outcome{verdict, Meta{group, kind, v.IPv6, v.VLANs, uint8(v.L3), uint8(v.BTH)}}, true
}

func refuseSource(lookup map[Key]uint32, src netip.Addr, otherwise Verdict) Verdict {
	if _, own := lookup[Key{Src: src, Match: MatchSrc}]; own {
		return DropOwnSource
	}
	return otherwise
}

// source is the source address of a frame that View refused after its IP header.
func source(v *roce.View, head []byte) netip.Addr {
	from, bytes := v.L3+12, 4
	if head[v.L3]>>4 == 6 {
		from, bytes = v.L3+8, 16
	}
	addr, _ := netip.AddrFromSlice(head[from : from+bytes])
	return addr
}

func kindOf(opcode roce.Opcode, qpn roce.QPN) (Kind, Verdict) {
	switch {
	case opcode.IsResponse():
		return KindFeedback, RedirectFeedback
	case opcode == roce.OpCNP:
		return KindCNP, RedirectCNP
	case opcode == roce.OpUDSendOnly && qpn == 1:
		return KindCM, RedirectCM
	}
	return KindData, RedirectData
}

func find(lookup map[Key]uint32, v *roce.View, head []byte, kind Kind) (uint32, bool) {
	qpn := uint32(v.DestQPN(head))
	src, dst := v.SrcIP(head), v.DstIP(head)
	keys := []Key{
		{Dst: dst, QPN: qpn, Match: MatchDstQPN}, {Src: src, Dst: dst, QPN: qpn, Match: MatchPairQPN}, {Dst: dst, Match: MatchDst},
	}
	if kind == KindCM {
		keys = keys[2:]
	}
	for _, k := range keys {
		if group, ok := lookup[k]; ok {
			return group, true
		}
	}
	return 0, false
}

// The C program and roce.View agree on every frame that Soft-RoCE hosts sent, and on damaged copies
// of these frames.
func TestAgreesWithView(t *testing.T) {
	b := newBench(t, true)
	random := rand.New(rand.NewPCG(4791, 0))
	frames := someFrames(t)
	lookup := someGroups(t, b.c, frames, random)
	verdicts := map[Verdict]int{}
	compare := func(name string, f []byte) {
		want, decided := classify(lookup, f)
		got := b.run(t, f)
		if decided {
			verdicts[want.Verdict]++
		}
		if decided && got != want {
			t.Fatalf("%s: %x\n(-View +classifier):\n%s", name, f[:min(len(f), 80)], cmp.Diff(want, got))
		}
	}
	for i, f := range frames {
		name := fmt.Sprintf("frame %d", i)
		compare(name, f)
		compare(name+" damaged", damage(f, random))
	}
	for v := PassNotIP; int(v) < Verdicts; v++ {
		if verdicts[v] == 0 && v != PassNoSocket && v != PassMetaFailed && v != RedirectCNP && v != RedirectFanOut && v != DropMerged && v != RedirectMerged {
			t.Errorf("no frame had the verdict %s: %v", v, verdicts)
		}
	}
}

// someFrames returns all captured frames, and some frames of the kinds that Soft-RoCE does not
// send.
func someFrames(t *testing.T) (frames [][]byte) {
	t.Helper()
	for _, name := range captures.Names() {
		captured, err := captures.Frames(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range captured {
			frames = append(frames, f.Data)
		}
	}
	for range len(frames) / 20 {
		frames = append(frames,
			frame(hostA6, group6, roce.OpSendOnly, groupQPN, 64),
			frame(group6, hostA6, roce.OpAck, groupQPN, 4),
			frame(hostA, groupIP, roce.OpCNP, groupQPN, 16),
			set(frame(hostC, groupIP, roce.OpWriteOnly, groupQPN, 64), 20, 0x20, 0x00), // a fragment
			set(frame(hostC, groupIP, roce.OpWriteOnly, groupQPN, 64), 14, 0x46),       // with IP options
			tagged(frame(hostA, groupIP, roce.OpWriteOnly, groupQPN, 64), 0x8100),
			tagged(frame(hostA6, group6, roce.OpSendOnly, groupQPN, 64), 0x88a8, 0x8100))
	}
	return frames
}

// someGroups adds entries of every kind of match for four fifths of the frames.
func someGroups(t *testing.T, c *Classifier, frames [][]byte, random *rand.Rand) map[Key]uint32 {
	t.Helper()
	lookup := map[Key]uint32{}
	seen := map[Key]bool{}
	for _, f := range frames {
		var v roce.View
		if v.Decode(f, len(f)) != nil {
			continue
		}
		dst := Key{Dst: v.DstIP(f), QPN: uint32(v.DestQPN(f)), Match: MatchDstQPN}
		if seen[dst] {
			continue
		}
		seen[dst] = true
		choices := []Key{
			dst, {Src: v.SrcIP(f), Dst: dst.Dst, QPN: dst.QPN, Match: MatchPairQPN}, {Dst: dst.Dst, Match: MatchDst},
			{Src: v.SrcIP(f), Match: MatchSrc}, {},
		}
		if k := choices[random.IntN(len(choices))]; k != (Key{}) {
			lookup[k] = random.Uint32()
		}
	}
	for k, group := range lookup {
		put(t, c, k, group)
	}
	return lookup
}

// damage returns a copy that is cut short, or that has one header byte changed by one bit or to a
// random value.
func damage(f []byte, random *rand.Rand) []byte {
	f = append([]byte(nil), f...)
	const ethernetBytes, headerBytes = 14, 80
	at := 12 + random.IntN(min(len(f), headerBytes)-12)
	switch random.IntN(5) {
	case 0:
		return f[:max(at, ethernetBytes)]
	case 1:
		f[at] = byte(random.Uint32())
	default:
		f[at] ^= 1 << random.IntN(8)
	}
	return f
}
