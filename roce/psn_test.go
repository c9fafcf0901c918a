package roce

import (
	"math/rand/v2"
	"testing"
)

func TestPSNWindow(t *testing.T) {
	for _, c := range []struct {
		p, q PSN
		sub  int32
	}{
		{100, 100, 0},
		{101, 100, 1},
		{0, 0xFFFFFF, 1},
		{2, 0xFFFFFE, 4},
		{0x7FFFFF, 0, 1<<23 - 1},
		{0x800001, 0, -(1<<23 - 1)},
		{0x800000, 0, -1 << 23},
		{0xFF000005, 3, 2}, // the top byte is ignored
	} {
		if got := c.p.Sub(c.q); got != c.sub {
			t.Errorf("%#x - %#x = %d, want %d", c.p, c.q, got, c.sub)
		}
		if before, after := c.p.Before(c.q), c.p.After(c.q); before != (c.sub < 0) || after != (c.sub > 0) {
			t.Errorf("%#x against %#x: before %v, after %v at distance %d", c.p, c.q, before, after, c.sub)
		}
	}
}

func TestPSNWindowEdge(t *testing.T) {
	p, q := PSN(0xFFFFFE), PSN(0x7FFFFE)
	if !p.Before(q) || !q.Before(p) || p.After(q) || q.After(p) {
		t.Error("at a distance of 2^23 each has to be before the other and neither after")
	}
}

func TestPSNSteps(t *testing.T) {
	if next, prev := PSN(0xFFFFFF).Next(), PSN(0).Prev(); next != 0 || prev != 0xFFFFFF {
		t.Errorf("across the wrap: next %#x, prev %#x", next, prev)
	}
	if got := PSN(0xFFFFFE).Add(5); got != 3 {
		t.Errorf("0xfffffe + 5 = %#x", got)
	}
	if got := PSN(3).Add(-5); got != 0xFFFFFE {
		t.Errorf("3 - 5 = %#x", got)
	}
	if got := MSN(0).Add(-1); got != 0xFFFFFF || got.Sub(0) != -1 {
		t.Errorf("MSN 0 - 1 = %#x", got)
	}
}

// Adding the same number to both PSNs does not change their distance. Stories rely on this when
// they are replayed at the wrap.
func TestPSNShift(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	for range 10000 {
		p, q, by := PSN(r.Uint32()&psnMask), PSN(r.Uint32()&psnMask), int32(r.Uint32())
		if p.Sub(q) != p.Add(by).Sub(q.Add(by)) {
			t.Fatalf("%#x - %#x changes when both move by %d", p, q, by)
		}
		if q.Add(p.Sub(q)) != p {
			t.Fatalf("%#x + (%#x - %#x) is not %#x", q, p, q, p)
		}
	}
}
