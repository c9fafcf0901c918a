package roce

import (
	"bytes"
	"errors"
	"testing"
)

// wireHeader is the part that all headers have in common.
type wireHeader[T any] interface {
	*T
	Decode(b []byte) ([]byte, error)
	Append(b []byte) []byte
}

// checkHeader checks a header on the bytes b. The bits that are set in mask carry fields. Bytes
// that are cut short are refused; otherwise encoding gives the same bytes, except for reserved
// ones.
func checkHeader[T comparable, H wireHeader[T]](t *testing.T, b, mask []byte) {
	t.Helper()
	n := len(mask)
	var h, again T
	rest, err := H(&h).Decode(b)
	if len(b) < n {
		if !errors.Is(err, ErrTruncated) || rest != nil || h != again {
			t.Fatalf("%d of %d bytes: %v, rest %x, header %+v", len(b), n, err, rest, h)
		}
		return
	}
	if err != nil || !bytes.Equal(rest, b[n:]) {
		t.Fatalf("%x: %v, rest %x", b, err, rest)
	}
	front := []byte("front")
	wire := H(&h).Append(front)
	for i, m := range mask {
		if wire[len(front)+i] != b[i]&m {
			t.Fatalf("%x became %x", b[:n], wire[len(front):])
		}
	}
	if len(wire) != len(front)+n {
		t.Fatalf("%d bytes appended, want %d", len(wire)-len(front), n)
	}
	if _, err := H(&again).Decode(wire[len(front):]); err != nil || again != h {
		t.Fatalf("%+v became %+v, %v", h, again, err)
	}
}

// fuzzHeader adds a golden header and every truncation of it to the corpus, which a plain go test
// runs too. partial maps the offset of a byte to the bits of it that carry a field.
func fuzzHeader[T comparable, H wireHeader[T]](f *testing.F, n int, golden string, partial map[int]byte) {
	mask := bytes.Repeat([]byte{0xFF}, n)
	for i, m := range partial {
		mask[i] = m
	}
	b := unhex(f, golden)
	for i := range len(b) + 1 {
		f.Add(b[:i])
	}
	f.Add(append(b, "payload"...))
	f.Fuzz(func(t *testing.T, b []byte) { checkHeader[T, H](t, b, mask) })
}

func FuzzBTH(f *testing.F) {
	fuzzHeader[BTH](f, 12, "0830ffff 00000074 808dd850", map[int]byte{4: bthFECN | bthBECN, 8: bthAckReq})
}

func FuzzRETH(f *testing.F) {
	fuzzHeader[RETH](f, 16, "00007fdf2f898000 00006f9a 00000bb8", nil)
}

func FuzzAETH(f *testing.F) { fuzzHeader[AETH](f, 4, "2e000000", nil) }

func FuzzImmDt(f *testing.F) { fuzzHeader[ImmDt](f, 4, "00000001", nil) }

func FuzzIETH(f *testing.F) { fuzzHeader[IETH](f, 4, "0000798a", nil) }

func FuzzAtomicETH(f *testing.F) {
	fuzzHeader[AtomicETH](f, 28, "00007fdf2f898000 00006f9a 0000000000000002 0000000000000001", nil)
}

func FuzzAtomicAckETH(f *testing.F) { fuzzHeader[AtomicAckETH](f, 8, "0000000000000001", nil) }

func FuzzDETH(f *testing.F) {
	fuzzHeader[DETH](f, 8, "80010000 00000001", map[int]byte{4: 0})
}

func FuzzFETH(f *testing.F) {
	fuzzHeader[FETH](f, 4, "00000012", map[int]byte{0: 0, 1: 0, 2: 0, 3: 0x3F})
}

func FuzzCNP(f *testing.F) {
	fuzzHeader[CNP](f, 16, "00000000 00000000 00000000 00000000", nil)
}

// Values that are too wide for their field must not change the neighbouring fields.
func TestAppendCutsToFieldWidth(t *testing.T) {
	bth := BTH{PadCount: 0xFF, TVer: 0xFF, DestQPN: 0xFF000001, PSN: 0xFF000002}
	if got, want := bth.Append(nil), unhex(t, "003f0000 00000001 00000002"); !bytes.Equal(got, want) {
		t.Errorf("BTH %x, want %x", got, want)
	}
	aeth := AETH{Syndrome: 0x60, MSN: 0xFF000003}
	if got, want := aeth.Append(nil), unhex(t, "60000003"); !bytes.Equal(got, want) {
		t.Errorf("AETH %x, want %x", got, want)
	}
	feth := FETH{Placement: 0xF2, Selectivity: 0xF1}
	if got, want := feth.Append(nil), unhex(t, "00000012"); !bytes.Equal(got, want) {
		t.Errorf("FETH %x, want %x", got, want)
	}
}

// Each flag of a BTH is one bit, whichever others are set.
func TestFlagsOfTheBTH(t *testing.T) {
	for name, c := range map[string]struct {
		flag func(*BTH) *bool
		at   int
		bit  byte
	}{
		"SE":     {func(h *BTH) *bool { return &h.Solicited }, 1, 0x80},
		"MigReq": {func(h *BTH) *bool { return &h.MigReq }, 1, 0x40},
		"FECN":   {func(h *BTH) *bool { return &h.FECN }, 4, 0x80},
		"BECN":   {func(h *BTH) *bool { return &h.BECN }, 4, 0x40},
		"AckReq": {func(h *BTH) *bool { return &h.AckReq }, 8, 0x80},
	} {
		var h, all BTH
		*c.flag(&h) = true
		want := make([]byte, BTHBytes)
		want[c.at] = c.bit
		if got := h.Append(nil); !bytes.Equal(got, want) {
			t.Errorf("%s is written as %x, want %x", name, got, want)
		}
		others := bytes.Repeat([]byte{0xFF}, BTHBytes)
		others[c.at] &^= c.bit
		if _, err := all.Decode(others); err != nil || *c.flag(&all) {
			t.Errorf("%s is read where only the other bits are set (%v)", name, err)
		}
	}
}

func TestPadFor(t *testing.T) {
	for payload, want := range map[int]uint8{0: 0, 1: 3, 1001: 3, 1002: 2, 1003: 1, 1024: 0} {
		if got := PadFor(payload); got != want {
			t.Errorf("%d bytes are padded by %d, want %d", payload, got, want)
		}
	}
}

func TestDecodeDoesNotAllocate(t *testing.T) {
	frame, v := frameOf(t, "m_zero", 0)
	var bth BTH
	var reth RETH
	if n := testing.AllocsPerRun(100, func() {
		_, _ = bth.Decode(frame[v.BTH:])
		_, _ = reth.Decode(frame[v.Ext:])
		_, _ = reth.Decode(frame[:3])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
