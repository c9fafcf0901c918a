package roce

import (
	"testing"
	"time"
)

func TestSyndromeKinds(t *testing.T) {
	for i := range 256 {
		s := Syndrome(i)
		wantACK, wantRNR, wantNAK := i < 0x20, i >= 0x20 && i < 0x40, i >= 0x60 && i < 0x80
		if s.IsACK() != wantACK || s.IsRNR() != wantRNR || s.IsNAK() != wantNAK {
			t.Errorf("%#02x: ACK %v RNR %v NAK %v", i, s.IsACK(), s.IsRNR(), s.IsNAK())
		}
		if wantFatal := !wantACK && !wantRNR && i != 0x60; s.IsFatal() != wantFatal {
			t.Errorf("%#02x: fatal %v", i, s.IsFatal())
		}
	}
}

func TestSyndromeText(t *testing.T) {
	for s, want := range map[Syndrome]string{
		SyndromeUnlimited:            "ACK unlimited",
		SyndromeACK(0x0B):            "ACK credits 48",
		SyndromeRNR(14):              "RNR NAK 1.28ms",
		SyndromeRNR(0):               "RNR NAK 655.36ms",
		NAKSequence:                  "NAK sequence",
		NAKInvalidRequest:            "NAK invalid request",
		NAKRemoteAccess:              "NAK remote access",
		NAKRemoteOperational:         "NAK remote operational",
		NAKInvalidRDRequest:          "NAK invalid RD request",
		0x65:                         "reserved syndrome 0x65",
		0x40:                         "reserved syndrome 0x40",
		SyndromeUnlimited | 0x80:     "reserved syndrome 0x9f",
		SyndromeACK(CreditUnlimited): "ACK unlimited",
	} {
		if got := s.String(); got != want {
			t.Errorf("%#02x: %q, want %q", uint8(s), got, want)
		}
	}
}

func TestRNRTimerTable(t *testing.T) {
	// docs/wire.md#aeth, in milliseconds.
	want := [32]float64{655.36, .01, .02, .03, .04, .06, .08, .12, .16, .24, .32, .48, .64, .96, 1.28, 1.92,
		2.56, 3.84, 5.12, 7.68, 10.24, 15.36, 20.48, 30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52}
	for code, ms := range want {
		s := SyndromeRNR(RNRTimer(code))
		if got := s.RNRTimer().Duration(); got != time.Duration(ms*1000+.5)*time.Microsecond {
			t.Errorf("code %d: %v, want %v ms", code, got, ms)
		}
		for other := range want {
			if got := RNRTimer(code).LongerThan(RNRTimer(other)); got != (ms > want[other]) {
				t.Errorf("code %d longer than %d: %v", code, other, got)
			}
		}
	}
}

func TestCreditTable(t *testing.T) {
	// docs/wire.md#aeth: each step of two codes doubles.
	want := [31]uint32{0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
		4096, 6144, 8192, 12288, 16384, 24576, 32768}
	for code, n := range want {
		if got, limited := SyndromeACK(CreditCode(code)).CreditCode().Credits(); got != n || !limited {
			t.Errorf("code %#x: %d %v, want %d", code, got, limited, n)
		}
	}
	if n, limited := CreditUnlimited.Credits(); n != 0 || limited {
		t.Errorf("unlimited: %d %v", n, limited)
	}
}

func TestCreditCodeForNeverPromisesMore(t *testing.T) {
	for n := range uint32(40000) {
		c := CreditCodeFor(n)
		granted, limited := c.Credits()
		if !limited || granted > n {
			t.Fatalf("%d receives became %d credits, limited %v", n, granted, limited)
		}
		if next, limited := (c + 1).Credits(); limited && next <= n {
			t.Fatalf("%d receives became %d credits, %d were possible", n, granted, next)
		}
	}
}
