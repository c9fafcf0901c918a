package softroce

import (
	"testing"
	"time"
)

func TestTSCIn(t *testing.T) {
	const known = "processor\t: 0\ncpu MHz\t\t: 2096.040\nflags\t\t: fpu tsc constant_tsc\n"
	if got := tscIn(known); got != " tsc_early_khz=2096040" {
		t.Errorf("%q", got)
	}
	for _, unknown := range []string{
		"", "processor\t: 0\nBogoMIPS\t: 50.00\n", "cpu MHz\t\t: fast\n",
		"cpu MHz\t\t: 3392.125\nflags\t\t: fpu aperfmperf\n", "flags\t\t: aperfmperf fpu\ncpu MHz\t\t: 3392.125\n",
	} {
		if got := tscIn(unknown); got != "" {
			t.Errorf("%q: %q", unknown, got)
		}
	}
}

func TestAWrongClockIsFound(t *testing.T) {
	start := time.Now()
	first := reading{from: start, to: start.Add(100 * time.Millisecond), guest: 5 * time.Second}
	for _, c := range []struct {
		went  time.Duration
		right bool
	}{
		{10 * time.Second, true}, {9700 * time.Millisecond, true}, {10300 * time.Millisecond, true},
		{9 * time.Second, false}, {11 * time.Second, false}, {40 * time.Second, false}, {0, false},
	} {
		later := reading{from: start.Add(10 * time.Second), to: start.Add(10100 * time.Millisecond), guest: first.guest + c.went}
		if err := later.since(first); (err == nil) != c.right {
			t.Errorf("%v in 10 s: %v", c.went, err)
		}
	}
}
