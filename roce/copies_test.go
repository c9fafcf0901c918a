package roce

import (
	"bytes"
	"net/netip"
	"testing"
)

// The group's leg to the receiver of group.receiver, as its QP was set up.
var (
	receiverMAC = MAC{0x52, 0x54, 0, 0x77, 0, 3}
	boxMAC      = MAC{0x0A, 0x3A, 0x01, 0xA8, 0x66, 0x54}
	groupIP     = netip.MustParseAddr("10.77.0.100")
	receiverIP  = netip.MustParseAddr("10.77.0.3")
)

const (
	receiverQPN QPN = 0x15
	sourceQPN   QPN = 0x16
	groupRKey       = 0x77
	legRKey         = 0x61A
)

// copied says which frame of the source became which frame at the receiver. The copy of the
// source's frame 3 was lost behind the box. From frame 14 on, the source resends everything.
var copied = []struct {
	source, receiver int
	sourcePSN, psn   PSN
	sourceVA, va     uint64 // 0: no RETH
}{
	{0, 0, 0xFFFFC0, 0xFFFFF1, 0x70003, 0x200000000},
	{1, 1, 0xFFFFC1, 0xFFFFF2, 0, 0},
	{2, 2, 0xFFFFC2, 0xFFFFF3, 0, 0},
	{4, 4, 0xFFFFC4, 0xFFFFF5, 0, 0},
	{5, 5, 0xFFFFC5, 0xFFFFF6, 0, 0},
	{6, 6, 0xFFFFC6, 0xFFFFF7, 0x71775, 0x200001772},
	{7, 7, 0xFFFFC7, 0xFFFFF8, 0, 0},
	{8, 8, 0xFFFFC8, 0xFFFFF9, 0, 0},
	{9, 9, 0xFFFFC9, 0xFFFFFA, 0x7232E, 0x20000232B},
	{10, 10, 0xFFFFCA, 0xFFFFFB, 0, 0},
	{11, 11, 0xFFFFCB, 0xFFFFFC, 0, 0},
	{14, 13, 0xFFFFC3, 0xFFFFF4, 0x70BBC, 0x200000BB9},
	{15, 14, 0xFFFFC4, 0xFFFFF5, 0, 0},
	{16, 15, 0xFFFFC5, 0xFFFFF6, 0, 0},
	{17, 16, 0xFFFFC6, 0xFFFFF7, 0x71775, 0x200001772},
	{18, 17, 0xFFFFC7, 0xFFFFF8, 0, 0},
	{19, 18, 0xFFFFC8, 0xFFFFF9, 0, 0},
	{20, 20, 0xFFFFC9, 0xFFFFFA, 0x7232E, 0x20000232B},
	{21, 21, 0xFFFFCA, 0xFFFFFB, 0, 0},
	{23, 22, 0xFFFFCB, 0xFFFFFC, 0, 0},
}

// This capture was made with a rocast that did not change the hop limit yet.
//
// What rocast put on the wire is the source's frame with the leg's numbers in it, and nothing else
// changed: our edits of the source's frame give the captured copy to the last byte, the ICRC by
// difference included.
func TestCopiesOnTheWire(t *testing.T) {
	for _, c := range copied {
		frame, v := frameOf(t, "group.source", c.source)
		want, copyView := frameOf(t, "group.receiver", c.receiver)
		if v.PSN(frame) != c.sourcePSN || copyView.PSN(want) != c.psn || copyView.DestQPN(want) != receiverQPN ||
			copyView.SrcIP(want) != groupIP || copyView.DstIP(want) != receiverIP {
			t.Errorf("source frame %d: PSN %#x became PSN %#x for QPN %#x, %v > %v", c.source, uint32(v.PSN(frame)),
				uint32(copyView.PSN(want)), uint32(copyView.DestQPN(want)), copyView.SrcIP(want), copyView.DstIP(want))
		}
		if got, is := targetOf(v, frame), targetOf(copyView, want); got != targetAt(c.sourceVA, groupRKey) || is != targetAt(c.va, legRKey) {
			t.Errorf("source frame %d: RETH %#x became %#x", c.source, got, is)
		}
		if !bytes.Equal(frame[v.Payload:v.ICRC], want[copyView.Payload:copyView.ICRC]) {
			t.Errorf("source frame %d: the payload changed", c.source)
		}
		if !v.ICRCValid(flat(frame)) || !copyView.ICRCValid(flat(want)) || copyView.StoredICRC(flat(want)) != referenceICRC(want) {
			t.Errorf("source frame %d: the ICRC of the original or of the copy is wrong", c.source)
		}
		if got := copyFor(v, frame, c.psn, c.va); !bytes.Equal(got, want) {
			t.Errorf("source frame %d: our copy is\n%x, on the wire\n%x", c.source, got[:v.Payload], want[:copyView.Payload])
		}
	}
}

// target is the address and key in a RETH. A packet without a RETH has the zero target.
type target struct {
	va   uint64
	rkey uint32
}

func targetAt(va uint64, rkey uint32) target {
	if va == 0 {
		return target{}
	}
	return target{va, rkey}
}

func targetOf(v *View, frame []byte) target {
	if !v.Opcode.Headers().Has(HasRETH) {
		return target{}
	}
	h := v.RETH(frame)
	return target{h.VA, h.RKey}
}

// copyFor edits a frame of the source in place, as the dataplane does for the leg of
// group.receiver, but leaves the hop limit.
func copyFor(v *View, frame []byte, psn PSN, va uint64) []byte {
	var was, is MaskedHeaders
	v.MaskHeaders(frame, &was)
	copy(frame, receiverMAC[:])
	copy(frame[len(MAC{}):], boxMAC[:])
	v.SetSrcIP(frame, groupIP)
	v.SetDstIP(frame, receiverIP)
	v.SetDestQPN(frame, receiverQPN)
	v.SetPSN(frame, psn)
	if va != 0 {
		v.SetRETHTarget(frame, va, legRKey)
	}
	v.MaskHeaders(frame, &is)
	v.PutICRC(flat(frame), UpdateICRC(v.StoredICRC(flat(frame)), &was, &is, v.ICRC-v.Payload))
	return frame
}

// Everything in group.source except the lost packet arrived at the receiver, and only resent
// packets arrived twice.
func TestEveryFrameOfTheGroupIsAccountedFor(t *testing.T) {
	copies := map[int]bool{3: true} // lost
	arrived := map[int]bool{}
	for _, c := range copied {
		copies[c.source], arrived[c.receiver] = true, true
	}
	eachRoCE(t, func(name string, index int, frame []byte, v *View) {
		switch {
		case v.Opcode.IsResponse():
		case name == "group.source" && !copies[index], name == "group.receiver" && !arrived[index]:
			t.Errorf("%s frame %d is in no row", name, index)
		}
	})
}

// The receiver's answers reach the source as answers of the group, with the source's PSNs.
func TestAnswersOnTheWire(t *testing.T) {
	for _, c := range []struct {
		receiver, source int
		psn, sourcePSN   PSN
		aeth             AETH
	}{
		{3, 12, 0xFFFFF3, 0xFFFFC2, AETH{Syndrome: 0x1F, MSN: 1}},
		{12, 13, 0xFFFFF4, 0xFFFFC3, AETH{Syndrome: 0x60, MSN: 1}},
		{19, 22, 0xFFFFF6, 0xFFFFC5, AETH{Syndrome: 0x1F, MSN: 2}},
		{23, 24, 0xFFFFF9, 0xFFFFC8, AETH{Syndrome: 0x1F, MSN: 3}},
		{24, 25, 0xFFFFFC, 0xFFFFCB, AETH{Syndrome: 0x1F, MSN: 4}},
	} {
		answer, v := frameOf(t, "group.receiver", c.receiver)
		if v.Opcode != OpAck || v.PSN(answer) != c.psn || v.AETH(answer) != c.aeth || v.DestQPN(answer) != 1 || v.DstIP(answer) != groupIP {
			t.Errorf("receiver's frame %d: %v of PSN %#x, %+v", c.receiver, v.Opcode, uint32(v.PSN(answer)), v.AETH(answer))
		}
		merged, v := frameOf(t, "group.source", c.source)
		if v.Opcode != OpAck || v.PSN(merged) != c.sourcePSN || v.AETH(merged) != c.aeth || v.DestQPN(merged) != sourceQPN || v.SrcIP(merged) != groupIP {
			t.Errorf("source's frame %d: %v of PSN %#x, %+v", c.source, v.Opcode, uint32(v.PSN(merged)), v.AETH(merged))
		}
		if !v.ICRCValid(flat(merged)) {
			t.Errorf("source's frame %d: ICRC %#x", c.source, v.StoredICRC(flat(merged)))
		}
	}
}
