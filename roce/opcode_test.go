package roce

import (
	"math/bits"
	"testing"
)

// wantOpcodes is docs/wire.md#opcodes written down a second time, as names and bytes.
var wantOpcodes = []struct {
	value    uint8
	name     string
	headers  HeaderSet
	extBytes int
	kind     string // request or response; first middle last only; w = consumes a WQE; e = ends a message
}{
	{0x00, "SEND_FIRST", 0, 0, "request first w"},
	{0x01, "SEND_MIDDLE", 0, 0, "request middle"},
	{0x02, "SEND_LAST", 0, 0, "request last e"},
	{0x03, "SEND_LAST_IMM", HasImmDt, 4, "request last e"},
	{0x04, "SEND_ONLY", 0, 0, "request only w e"},
	{0x05, "SEND_ONLY_IMM", HasImmDt, 4, "request only w e"},
	{0x06, "WRITE_FIRST", HasRETH, 16, "request first"},
	{0x07, "WRITE_MIDDLE", 0, 0, "request middle"},
	{0x08, "WRITE_LAST", 0, 0, "request last e"},
	{0x09, "WRITE_LAST_IMM", HasImmDt, 4, "request last w e"},
	{0x0A, "WRITE_ONLY", HasRETH, 16, "request only e"},
	{0x0B, "WRITE_ONLY_IMM", HasRETH | HasImmDt, 20, "request only w e"},
	{0x0C, "READ_REQUEST", HasRETH, 16, "request only e read"},
	{0x0D, "READ_RESP_FIRST", HasAETH, 4, "response first read"},
	{0x0E, "READ_RESP_MIDDLE", 0, 0, "response middle read"},
	{0x0F, "READ_RESP_LAST", HasAETH, 4, "response last read"},
	{0x10, "READ_RESP_ONLY", HasAETH, 4, "response only read"},
	{0x11, "ACK", HasAETH, 4, "response only"},
	{0x12, "ATOMIC_ACK", HasAETH | HasAtomicAckETH, 12, "response only atomic"},
	{0x13, "CMP_SWAP", HasAtomicETH, 28, "request only e atomic"},
	{0x14, "FETCH_ADD", HasAtomicETH, 28, "request only e atomic"},
	{0x16, "SEND_LAST_INV", HasIETH, 4, "request last e"},
	{0x17, "SEND_ONLY_INV", HasIETH, 4, "request only w e"},
	{0x1C, "FLUSH", HasFETH | HasRETH, 20, "request only e"},
	{0x1D, "ATOMIC_WRITE", HasRETH, 16, "request only e atomic"},
	{0x64, "UD_SEND_ONLY", HasDETH, 8, "request only w e"},
	{0x65, "UD_SEND_ONLY_IMM", HasDETH | HasImmDt, 12, "request only w e"},
	{0x81, "CNP", HasCNP, 16, "only"},
}

func TestOpcodeTable(t *testing.T) {
	for _, want := range wantOpcodes {
		o := Opcode(want.value)
		if !o.Known() || o.String() != want.name || o.Headers() != want.headers || o.ExtBytes() != want.extBytes {
			t.Errorf("%#02x: %v known=%v headers=%b bytes=%d, want %s %b %d",
				want.value, o, o.Known(), o.Headers(), o.ExtBytes(), want.name, want.headers, want.extBytes)
		}
		if got := kindOf(o); got != want.kind {
			t.Errorf("%v is %q, want %q", o, got, want.kind)
		}
	}
}

func kindOf(o Opcode) (kind string) {
	for _, p := range []struct {
		is   bool
		name string
	}{
		{o.IsRequest(), "request"}, {o.IsResponse(), "response"},
		{o.IsFirst(), "first"}, {o.IsMiddle(), "middle"}, {o.IsLast(), "last"}, {o.IsOnly(), "only"},
		{o.ConsumesWQE(), "w"}, {o.EndsMessage(), "e"}, {o.IsRead(), "read"}, {o.IsAtomic(), "atomic"},
	} {
		if p.is && kind != "" {
			kind += " "
		}
		if p.is {
			kind += p.name
		}
	}
	return kind
}

func TestTransportOfEveryOpcode(t *testing.T) {
	for o := range 256 {
		if got, want := Opcode(o).IsRC(), o < 0x20; got != want {
			t.Errorf("%#02x is RC: %v", o, got)
		}
	}
}

func TestUnknownOpcodes(t *testing.T) {
	want := map[Opcode]bool{}
	for _, o := range wantOpcodes {
		want[Opcode(o.value)] = true
	}
	for i := range 256 {
		if o := Opcode(i); o.Known() != want[o] || !o.Known() && (kindOf(o) != "" || o.ExtBytes() != 0) {
			t.Errorf("%v: known %v, %q, %d bytes", o, o.Known(), kindOf(o), o.ExtBytes())
		}
	}
	if got := Opcode(0x15).String(); got != "Opcode(0x15)" {
		t.Error(got)
	}
}

// No header is taken for another one.
func TestHeadersAreDistinct(t *testing.T) {
	var seen HeaderSet
	for _, h := range []HeaderSet{
		HasDETH, HasFETH, HasRETH, HasAtomicETH, HasAETH, HasAtomicAckETH, HasImmDt, HasIETH, HasCNP,
	} {
		if bits.OnesCount16(uint16(h)) != 1 || seen.Has(h) {
			t.Errorf("header %b, behind %b", h, seen)
		}
		seen |= h
	}
}

func TestHeaderOffsets(t *testing.T) {
	for _, c := range []struct {
		o      Opcode
		h      HeaderSet
		offset int
	}{
		{OpWriteOnlyImm, HasRETH, 0},
		{OpWriteOnlyImm, HasImmDt, 16},
		{OpAtomicAck, HasAtomicAckETH, 4},
		{OpFlush, HasFETH, 0},
		{OpFlush, HasRETH, 4},
		{OpUDSendOnlyImm, HasImmDt, 8},
	} {
		if got := c.o.Headers().Offset(c.h); got != c.offset || !c.o.Headers().Has(c.h) {
			t.Errorf("%v: header %b at %d, want %d", c.o, c.h, got, c.offset)
		}
	}
}
