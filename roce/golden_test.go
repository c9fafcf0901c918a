package roce

import (
	"bytes"
	"fmt"
	"testing"
)

// goldens are frames that rxe sent: the place of each in a capture, and its contents.
//
// Both FETCH_ADDs find a zero: they add to two different words, and an atomic ACK returns the value
// from before.
var goldens = []struct {
	capture string
	index   int
	bth     BTH
	ext     string
}{
	{"m_writeimm", 0, BTH{Opcode: OpWriteFirst, DestQPN: 0x6C, PSN: 0x5722},
		"RETH{VA:0x7fdf2f898000 RKey:0x6f9a DMABytes:0xbb8}"},
	{"m_writeimm", 1, BTH{Opcode: OpWriteMiddle, DestQPN: 0x6C, PSN: 0x5723}, ""},
	{"m_writeimm", 5, BTH{Opcode: OpWriteLastImm, DestQPN: 0x6C, AckReq: true, PSN: 0x5727}, "ImmDt(0x1)"},
	{"m_sendimm", 5, BTH{Opcode: OpSendLastImm, DestQPN: 0x70, AckReq: true, PSN: 0xCB0214}, "ImmDt(0x1)"},
	{"m_odd", 1, BTH{Opcode: OpWriteLast, PadCount: 3, DestQPN: 0x74, AckReq: true, PSN: 0x8DD850}, ""},
	{"m_zero", 0, BTH{Opcode: OpWriteOnly, DestQPN: 0x78, AckReq: true, PSN: 0x560E23},
		"RETH{VA:0x7fb4025c2000 RKey:0x7e2f DMABytes:0x0}"},
	{"m_zero", 1, BTH{Opcode: OpAck, DestQPN: 0x36, PSN: 0x560E23}, "AETH{Syndrome:0x1f MSN:0x1}"},
	{"m_rnr", 6, BTH{Opcode: OpAck, DestQPN: 0x39, PSN: 0x6F2F8A}, "AETH{Syndrome:0x2e MSN:0x0}"},
	{"m_rnr", 7, BTH{Opcode: OpAck, DestQPN: 0x39, PSN: 0x6F2F8A}, "AETH{Syndrome:0x60 MSN:0x0}"},
	{"m_badkey", 5, BTH{Opcode: OpAck, DestQPN: 0x3B, PSN: 0x6E5F94}, "AETH{Syndrome:0x62 MSN:0x0}"},
	{"m_read", 0, BTH{Opcode: OpReadRequest, DestQPN: 0x80, AckReq: true, PSN: 0xBEF6D7},
		"RETH{VA:0x7efd4b8cf000 RKey:0x8841 DMABytes:0x1388}"},
	{"m_read", 4, BTH{Opcode: OpReadRespFirst, DestQPN: 0x38, PSN: 0xBEF6D7}, "AETH{Syndrome:0x1f MSN:0x1}"},
	{"m_read", 5, BTH{Opcode: OpReadRespMiddle, DestQPN: 0x38, PSN: 0xBEF6D8}, ""},
	{"rping", 0, BTH{Opcode: OpUDSendOnly, DestQPN: 1, AckReq: true, PSN: 0x10}, "DETH{QKey:0x80010000 SrcQPN:0x1}"},
	{"rping", 3, BTH{Opcode: OpSendOnly, DestQPN: 0xAE, AckReq: true, PSN: 0xE65B28}, ""},
	{"atomic", 0, BTH{Opcode: OpFetchAdd, DestQPN: 0x16, AckReq: true, PSN: 0x64},
		"AtomicETH{VA:0x7f1e452f0000 RKey:0x789 SwapAdd:0x1 Compare:0x0}"},
	{"atomic", 1, BTH{Opcode: OpAtomicAck, DestQPN: 0x14, PSN: 0x64}, "AETH{Syndrome:0x1f MSN:0x1}AtomicAckETH{Original:0x0}"},
	{"atomic", 2, BTH{Opcode: OpFetchAdd, DestQPN: 0x16, AckReq: true, PSN: 0x65},
		"AtomicETH{VA:0x7f1e452f0008 RKey:0x789 SwapAdd:0x1 Compare:0x0}"},
	{"atomic", 3, BTH{Opcode: OpAtomicAck, DestQPN: 0x14, PSN: 0x65}, "AETH{Syndrome:0x1f MSN:0x2}AtomicAckETH{Original:0x0}"},
	{"ipv6", 0, BTH{Opcode: OpWriteFirst, DestQPN: 0x13, PSN: 0xFFFFFE}, "RETH{VA:0x7f77b4d21000 RKey:0x461 DMABytes:0xbb9}"},
	{"ipv6", 2, BTH{Opcode: OpWriteLast, PadCount: 3, DestQPN: 0x13, AckReq: true, PSN: 0}, ""},
	{"ipv6", 3, BTH{Opcode: OpAck, DestQPN: 0x12, PSN: 0}, "AETH{Syndrome:0x1f MSN:0x1}"},
	{"ipv6", 10, BTH{Opcode: OpWriteLastImm, PadCount: 3, DestQPN: 0x13, AckReq: true, PSN: 6}, "ImmDt(0x1020304)"},
	{"ipv6", 18, BTH{Opcode: OpSendLastImm, PadCount: 3, DestQPN: 0x13, AckReq: true, PSN: 0xC}, "ImmDt(0x1020304)"},
	{"ipv6", 24, BTH{Opcode: OpReadRequest, DestQPN: 0x13, AckReq: true, PSN: 0x10}, "RETH{VA:0x7f77b4d21000 RKey:0x461 DMABytes:0xbb9}"},
	{"ipv6", 25, BTH{Opcode: OpReadRespFirst, DestQPN: 0x12, PSN: 0x10}, "AETH{Syndrome:0x1f MSN:0x7}"},
	{"ipv6", 27, BTH{Opcode: OpReadRespLast, PadCount: 3, DestQPN: 0x12, PSN: 0x12}, "AETH{Syndrome:0x1f MSN:0x7}"},
}

func TestGoldenFrames(t *testing.T) {
	for _, g := range goldens {
		frame, v := frameOf(t, g.capture, g.index)
		want := g.bth
		want.PKey = DefaultPKey
		bth, ext, _ := decodeStack(t, frame, v)
		if bth != want || ext != g.ext {
			t.Errorf("%s frame %d:\n%+v %s, want\n%+v %s", g.capture, g.index, bth, ext, want, g.ext)
		}
		if ipv6 := g.capture == "ipv6"; v.IPv6 != ipv6 || !v.ICRCValid(flat(frame)) {
			t.Errorf("%s frame %d: IPv6 %v, ICRC valid %v", g.capture, g.index, v.IPv6, v.ICRCValid(flat(frame)))
		}
	}
}

// No capture has an IETH, a FETH, a BTH with every flag, or an atomic with values that show the
// order of the bytes. These are written by hand from docs/wire.md#extension-headers.
func TestGoldenHeaders(t *testing.T) {
	var ieth IETH
	var atomic AtomicETH
	var ack AtomicAckETH
	var feth FETH
	var bth BTH
	for _, g := range []struct {
		wire string
		h    interface{ Decode([]byte) ([]byte, error) }
		want string
	}{
		{"00 00 79 8a", &ieth, "{RKey=hidden}"},
		{"0000000000001000 00002000 0000000000000003 0000000000000004", &atomic,
			"{VA=0x1000 RKey=hidden SwapAdd=0x3 Compare=0x4}"},
		{"0000000000000005", &ack, "&{Original:5}"},
		{"00000012", &feth, "&{Placement:2 Selectivity:1}"},
		{"e4 f5 7fff c0 000118 00 800001", &bth,
			"&{Opcode:Opcode(0xe4) Solicited:true MigReq:true PadCount:3 TVer:5 PKey:32767 FECN:true BECN:true" +
				" DestQPN:280 AckReq:false PSN:8388609}"},
	} {
		if _, err := g.h.Decode(unhex(t, g.wire)); err != nil {
			t.Error(err)
		}
		if got := fmt.Sprintf("%+v", g.h); got != g.want {
			t.Errorf("%s\n%s, want\n%s", g.wire, got, g.want)
		}
	}
	if ieth.RKey != 0x798A || atomic.RKey != 0x2000 {
		t.Errorf("keys %#x and %#x", ieth.RKey, atomic.RKey)
	}
}

// Decoding and encoding any header that rxe sent gives the same bytes.
func TestCapturedHeadersRoundTrip(t *testing.T) {
	eachRoCE(t, func(name string, index int, frame []byte, v *View) {
		if _, _, wire := decodeStack(t, frame, v); !bytes.Equal(wire, frame[v.BTH:v.Payload]) {
			t.Errorf("%s frame %d: %x became %x", name, index, frame[v.BTH:v.Payload], wire)
		}
	})
}

// decodeStack decodes BTH and extension headers, prints the latter, and encodes both again.
func decodeStack(t *testing.T, frame []byte, v *View) (bth BTH, ext string, wire []byte) {
	t.Helper()
	rest, err := bth.Decode(frame[v.BTH:v.Payload])
	if err != nil {
		t.Fatal(err)
	}
	wire = bth.Append(nil)
	step := func(h interface {
		Decode([]byte) ([]byte, error)
		Append([]byte) []byte
	}) {
		if rest, err = h.Decode(rest); err != nil {
			t.Fatal(err)
		}
		wire = h.Append(wire)
	}
	headers := bth.Opcode.Headers()
	if headers.Has(HasDETH) {
		var h DETH
		step(&h)
		ext += fmt.Sprintf("DETH{QKey:%#x SrcQPN:%#x}", h.QKey, uint32(h.SrcQPN))
	}
	if headers.Has(HasRETH) {
		var h RETH
		step(&h)
		ext += fmt.Sprintf("RETH{VA:%#x RKey:%#x DMABytes:%#x}", h.VA, h.RKey, h.DMABytes)
	}
	if headers.Has(HasAtomicETH) {
		var h AtomicETH
		step(&h)
		ext += fmt.Sprintf("AtomicETH{VA:%#x RKey:%#x SwapAdd:%#x Compare:%#x}", h.VA, h.RKey, h.SwapAdd, h.Compare)
	}
	if headers.Has(HasAETH) {
		var h AETH
		step(&h)
		ext += fmt.Sprintf("AETH{Syndrome:%#x MSN:%#x}", uint8(h.Syndrome), uint32(h.MSN))
	}
	if headers.Has(HasAtomicAckETH) {
		var h AtomicAckETH
		step(&h)
		ext += fmt.Sprintf("AtomicAckETH{Original:%#x}", h.Original)
	}
	if headers.Has(HasImmDt) {
		var h ImmDt
		step(&h)
		ext += fmt.Sprintf("ImmDt(%#x)", uint32(h))
	}
	if len(rest) != 0 {
		t.Fatalf("%v: %d bytes of headers left", bth.Opcode, len(rest))
	}
	return bth, ext, wire
}
